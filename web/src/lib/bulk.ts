// Acting on many messages: chosen ones, or all that match a filter.
import { client, unwrap, type Schemas } from "./api";

export type BulkVerb = Schemas["NewBulk"]["verb"];
export type BulkAction = Schemas["BulkView"];
export interface Selection {
  /** All that match, as of the moment they are counted. */
  filter?: string;
  ids?: string[];
}
export const WORDS: Record<string, string> = { redrive: "Redrive", cancel: "Cancel", purge: "Purge", move: "Move", reprioritise: "Reprioritise" };
export const EFFECTS: Record<string, string> = {
  redrive: "Dead letters become ready again, with their attempts reset.",
  cancel: "Waiting messages end as cancelled. Workers of running ones are asked to stop.",
  purge: "Ready, scheduled and dead messages end as cancelled.",
  move: "Ready, scheduled and dead messages end as moved, and go on in the other queue under a new id.",
  reprioritise: "Waiting messages move in their queue.",
};
const ENDED = new Set(["done", "aborted", "failed"]);
const POLL_MS = 400;

export const hasEnded = (action: BulkAction): boolean => ENDED.has(action.state);

export const startBulk = (verb: BulkVerb, selection: Selection, more: Partial<Schemas["NewBulk"]> = {}): Promise<BulkAction> => unwrap(client.POST("/v1/bulk", { body: { verb, ...selection, ...more } }));

/** Counts what an action would change. A long count goes on in the background. */
export async function countBulk(verb: BulkVerb, selection: Selection, more: Partial<Schemas["NewBulk"]>, signal: AbortSignal): Promise<BulkAction> {
  let action = await startBulk(verb, selection, { ...more, dry_run: true });
  while (!hasEnded(action) && !signal.aborted) action = await waitAndGet(action);
  return action;
}

/** Follows an action for a while and returns it as it is then. */
export async function followBulk(action: BulkAction, seconds: number): Promise<BulkAction> {
  const end = Date.now() + seconds * 1000;
  let found = action;
  while (!hasEnded(found) && Date.now() < end) found = await waitAndGet(found);
  return found;
}

async function waitAndGet(action: BulkAction): Promise<BulkAction> {
  await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  return unwrap(client.GET("/v1/bulk/{id}", { params: { path: { id: action.id } } }));
}
