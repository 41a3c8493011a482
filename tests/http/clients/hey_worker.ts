// A worker with the client of @hey-api/openapi-ts.
import { client } from "./hey/client.gen";
import { claim, complete, createQueue, getMessage, publish } from "./hey";

declare const process: { argv: string[] };
const [url, key] = process.argv.slice(2);
client.setConfig({ baseUrl: url, auth: key });

async function main() {
  await createQueue({ body: { name: "hey", settings: { max_attempts: 3 } }, throwOnError: true });
  const { data: published } = await publish({ body: { queue: "hey", body: 7 }, throwOnError: true });
  const { data: claimed } = await claim({ body: { queues: [{ queue: "hey" }], wait: 5 }, throwOnError: true });
  for (const message of claimed.messages) {
    await complete({ body: { token: message.token, result: message.body }, throwOnError: true });
  }
  const { error } = await complete({ body: { token: claimed.messages[0].token } });
  if (error?.error.code !== "ALREADY_SETTLED") throw new Error(error?.error.code);
  const { data: message } = await getMessage({ path: { reference: published.id }, throwOnError: true });
  console.log(message.state);
}

main().catch((error) => {
  throw new Error(JSON.stringify(error));
});
