// How many messages of each queue wait for people.
import { client, unwrap } from "./api";
import { counters } from "./counters.svelte";
import { query, type Query } from "./query.svelte";

const MAX_PARENTS = 20;
// A message stays in its queue.
const queueOf = new Map<string, string>();

async function countByQueue(parents: string[], signal: AbortSignal): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (const reference of parents) {
    const queue = queueOf.get(reference) ?? (await unwrap(client.GET("/v1/messages/{reference}", { params: { path: { reference } }, signal }))).queue;
    queueOf.set(reference, queue);
    found.set(queue, (found.get(queue) ?? 0) + 1);
  }
  return found;
}

/** Call while a component is made. */
export function queryPeople(): Query<Map<string, number>> {
  const parents = $derived((counters.inbox ?? []).map((step) => step.parent_id).filter((id): id is string => !!id).slice(0, MAX_PARENTS).join(" "));
  return query((signal) => countByQueue(parents.split(" ").filter(Boolean), signal));
}
