// What needs an operator, the worst first, and the action that helps.
import { act, toasts } from "./actions.svelte";
import { client, explainError, unwrap, type Overview, type Schemas } from "./api";
import { plural } from "./format";
import { go, href, messagesHref, quoteTerm } from "./router.svelte";
import type { Right } from "./session.svelte";

export interface Item {
  key: string;
  rank: number;
  level: string;
  color: string;
  icon: string;
  subject: string;
  text: string;
  detail: string;
  at: string | null;
  action: string;
  /** The right on the queue that the action needs. */
  right?: Right;
  run: (refresh: () => void) => unknown;
}
type Found = Overview["attention"][number];
const HOUR_MS = 3_600_000;

/** Opens a message that waits: its page says why. */
async function explainWaiting(queue: string): Promise<void> {
  const filter = `state:ready queue:${quoteTerm(queue)}`;
  try {
    const page = await unwrap(client.GET("/v1/messages", { params: { query: { filter, limit: 1, bodies: false } } }));
    go(page.messages[0] ? href(["message", page.messages[0].id]) : messagesHref(filter));
  } catch (error) {
    toasts.show("bad", explainError(error));
  }
}
const resume = (queue: string): Promise<boolean> => act(`Queue ${queue} delivers again.`, () => unwrap(client.POST("/v1/queues/{queue}/resume", { params: { path: { queue } } })));

const ACTIONS: Record<string, Pick<Item, "action" | "right"> & { run: (item: Found, refresh: () => void) => unknown }> = {
  dead_letters: { action: "Open failures", run: (item) => go(href("failures", { queue: item.subject })) },
  no_worker: { action: "Explain", run: (item) => explainWaiting(item.subject) },
  paused: { action: "Resume", right: "manage", run: (item, refresh) => resume(item.subject).then(refresh) },
  agent_failed: { action: "Open agents", run: () => go(href("agents")) },
};

function fromOverview(item: Found): Item {
  const bad = item.severity === "bad";
  const action = ACTIONS[item.kind] ?? ACTIONS.agent_failed!;
  return {
    key: `${item.kind} ${item.subject}`, rank: bad ? 0 : 1, level: bad ? "problem" : "warning", color: bad ? "c-dead" : "c-retry", icon: bad ? "dead" : "warning",
    subject: item.subject, text: item.text, detail: item.detail, at: item.at ?? null, action: action.action, right: action.right, run: (refresh) => action.run(item, refresh),
  };
}

function fromAnomaly(item: Schemas["AnomalyView"]): Item {
  const bad = item.severity === "critical";
  const [action, to] = item.kind === "export_stalled" ? ["Run pipeline", href("analytics")]
    : item.kind === "rule_suspended" || item.kind === "routing_loop" ? ["Open rules", href("rules")]
    : item.kind === "stuck_consumer" ? ["Open workers", href("workers")]
    : item.message_id ? ["Explain", href(["message", item.message_id])] : ["Open anomalies", href("anomalies")];
  return {
    key: item.id, rank: bad ? 3 : 4, level: item.severity, color: bad ? "c-dead" : "c-retry", icon: bad ? "dead" : "warning",
    subject: item.queue, text: item.text, detail: "", at: item.last_at, action, run: () => go(to),
  };
}

function fromInbox(steps: Schemas["HumanStepView"][], queues: string[], now: number): Item[] {
  if (!steps.length) return [];
  const ends = steps.map((each) => each.times_out_at).filter((each): each is string => !!each).sort();
  const soon = ends.filter((each) => Date.parse(each) - now < HOUR_MS).length;
  const text = soon ? `${plural(soon, "decision")} ${soon === 1 ? "is" : "are"} due within the hour` : `${plural(steps.length, "decision")} ${steps.length === 1 ? "waits" : "wait"} for people`;
  const title = steps.length === 1 ? steps[0]!.title : "";
  return [{ key: "inbox", rank: 0.5, level: "people", color: "c-human", icon: "human", subject: queues.length === 1 ? queues[0]! : "", text: title ? `${text}: ${title}` : text, detail: "", at: ends[0] ?? null, action: "Open inbox", run: () => go(href("inbox")) }];
}

/** Returns the first items, of which at most half are of one kind if there are others. */
export function pickFirst(items: Item[], most: number): Item[] {
  const seen = new Map<string, number>();
  const common: Item[] = [];
  const first = items.filter((item) => {
    const many = (seen.get(item.action) ?? 0) + 1;
    seen.set(item.action, many);
    if (many > most / 2) common.push(item);
    return many <= most / 2;
  });
  const picked = new Set([...first, ...common].slice(0, most));
  return items.filter((item) => picked.has(item));
}

export function listAttention(overview: Overview, anomalies: Schemas["AnomalyView"][], steps: Schemas["HumanStepView"][], queues: string[], now: number): Item[] {
  const known = new Set(overview.attention.map((each) => `${each.kind} ${each.subject}`));
  // What a line above already says.
  const SAME: Record<string, string> = { dlq_movement: "dead_letters", poison_message: "dead_letters", near_dlq: "dead_letters", no_consumer: "no_worker" };
  const fresh = new Map<string, Schemas["AnomalyView"]>();
  for (const each of anomalies) {
    // One line for each kind and queue: the case with the most messages.
    const key = `${each.kind} ${each.queue}`;
    const before = fresh.get(key);
    if (!known.has(`${SAME[each.kind]} ${each.queue}`) && (!before || each.count > before.count)) fresh.set(key, each);
  }
  return [...overview.attention.map(fromOverview), ...[...fresh.values()].map(fromAnomaly), ...fromInbox(steps, queues, now)].sort((a, b) => a.rank - b.rank);
}
