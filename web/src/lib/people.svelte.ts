// How many messages of each queue wait for people.
import { client, unwrap } from "./api";
import { counters } from "./counters.svelte";
import { query, type Query } from "./query.svelte";

// As many ids as fit into one filter.
const MAX_IDS = 80;
// A message stays in its queue.
const queueOf = new Map<string, string>();

async function countByQueue(parents: string[], signal: AbortSignal): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const unknown = parents.filter((id) => !queueOf.has(id));
  for (let at = 0; at < unknown.length; at += MAX_IDS) {
    const filter = `id:${unknown.slice(at, at + MAX_IDS).join(",")}`;
    const page = await unwrap(client.GET("/v1/messages", { params: { query: { filter, limit: MAX_IDS, bodies: false } }, signal }));
    for (const message of page.messages) queueOf.set(message.id, message.queue);
  }
  for (const id of parents) {
    const queue = queueOf.get(id);
    if (queue) found.set(queue, (found.get(queue) ?? 0) + 1);
  }
  return found;
}

/** Call while a component is made. */
export function queryPeople(): Query<Map<string, number>> {
  const parents = $derived((counters.inbox ?? []).map((step) => step.parent_id).filter((id): id is string => !!id).join(" "));
  return query((signal) => countByQueue(parents.split(" ").filter(Boolean), signal));
}
