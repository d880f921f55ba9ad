// Installs message-db from the SQL files of its package (`create`), or writes one message to a stream and prints its id.
import { randomUUID } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import pg from "pg";

const [step, stream] = process.argv.slice(2);
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
if (step === "create") {
  const database = join(dirname(createRequire(import.meta.url).resolve("@eventide/message-db/package.json")), "database");
  // Functions name each other; its own script installs them in their order.
  await client.query("SET check_function_bodies = off; SET search_path = message_store, public");
  for (const folder of ["schema", "extensions", "tables", "types", "functions", "indexes"]) {
    for (const file of readdirSync(join(database, folder))) {
      await client.query(readFileSync(join(database, folder, file), "utf8"));
    }
  }
} else {
  const id = randomUUID();
  const event = [id, stream, "OrderPlaced", { order: 7, name: "Größe" }, { tenant: "acme" }];
  await client.query("SET search_path = message_store, public");
  await client.query("SELECT message_store.write_message($1, $2, $3, $4, $5)", event);
  console.log(id);
}
await client.end();
