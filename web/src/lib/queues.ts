// Finding queues by name. The server searches all of them; there may be many thousands.
import { client, unwrap } from "./api";

const MAX_FOUND = 20;

/** Returns the busiest queues whose names contain a text, and first the one that is called so. */
export async function searchQueues(part: string, signal?: AbortSignal): Promise<string[]> {
  const found = await unwrap(client.GET("/v1/overview", { params: { query: { limit: MAX_FOUND, contains: part || undefined } }, signal }));
  const names = found.queues.map((queue) => queue.queue);
  return names.includes(part) ? [part, ...names.filter((name) => name !== part)] : names;
}
