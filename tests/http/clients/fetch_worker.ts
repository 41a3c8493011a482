// A worker with the types of openapi-typescript and the client openapi-fetch.
import createClient from "openapi-fetch";
import type { paths, components } from "./schema";

declare const process: { argv: string[] };
const [url, key] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

function check<T>(answer: { data?: T; error?: components["schemas"]["Envelope"] }): T {
  if (answer.data === undefined) throw new Error(answer.error?.error.code);
  return answer.data;
}

async function main() {
  check(await api.POST("/v1/queues", { body: { name: "ts", settings: { max_attempts: 3, backoff: { initial: 5 } } } }));
  const published = check(await api.POST("/v1/publish", { body: { queue: "ts", body: { number: 7 } } }));
  const duplicate: boolean = published.duplicate;
  const claimed = check(await api.POST("/v1/claim", { body: { queues: [{ queue: "ts" }], wait: 5 } }));
  for (const message of claimed.messages) {
    const name: string | undefined = message.name;
    check(await api.POST("/v1/complete", { body: { token: message.token, result: { got: message.body, name, duplicate } } }));
  }
  const again = await api.POST("/v1/complete", { body: { token: claimed.messages[0].token } });
  const code: components["schemas"]["ErrorCode"] | undefined = again.error?.error.code;
  if (code !== "ALREADY_SETTLED") throw new Error(`second complete: ${code}`);
  const page = check(await api.GET("/v1/messages", { params: { query: { queue: "ts", state: "completed" } } }));
  const shown = check(await api.GET("/v1/messages/{reference}/result", { params: { path: { reference: published.id } } }));
  console.log(JSON.stringify({ ids: page.messages.map((each) => each.id), shown }));
}

main();
