// Makes the table of pg-transactional-outbox (`create`), or writes one event with its storage and prints the event's id.
import { randomUUID } from "node:crypto";
import pg from "pg";
import { DatabaseSetup, getDisabledLogger, initializeMessageStorage } from "pg-transactional-outbox";

const [step, aggregateType] = process.argv.slice(2);
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
if (step === "create") {
  await client.query(DatabaseSetup.dropAndCreateTable({ outboxOrInbox: "outbox", schema: "public", table: "outbox" }));
} else {
  const settings = { dbSchema: "public", dbTable: "outbox" };
  const store = initializeMessageStorage({ outboxOrInbox: "outbox", settings }, getDisabledLogger());
  const id = randomUUID();
  await client.query("BEGIN");
  await store(
    {
      id,
      aggregateType,
      aggregateId: "movie-1",
      messageType: "movie_created",
      payload: { order: 7, name: "Größe" },
      metadata: { tenant: "acme" },
    },
    client,
  );
  await client.query("COMMIT");
  console.log(id);
}
await client.end();
