// Makes the tables of Emmett's event store (`create`), or appends one event to a stream and prints the event's id.
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";

const [step, stream] = process.argv.slice(2);
const store = getPostgreSQLEventStore(process.env.DATABASE_URL);
if (step === "create") {
  await store.schema.migrate();
} else {
  await store.appendToStream(stream, [
    { type: "OrderPlaced", data: { order: 7, name: "Größe" }, metadata: { tenant: "acme" } },
  ]);
  const { events } = await store.readStream(stream);
  console.log(events[0].metadata.messageId);
}
await store.close();
