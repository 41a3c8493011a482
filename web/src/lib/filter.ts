// What the filter bar knows about the grammar: colours, completion and counts.
import type { Message } from "./api";
import { count } from "./format";
import { quoteTerm } from "./router.svelte";

export const FIELDS: [name: string, hint: string][] = [
  ["state:", "ready, scheduled, claimed, dead, …"], ["queue:", "name, * is a glob"], ["type:", "message type"], ["error:", "text of the last error"],
  ["error.kind:", "such as TimeoutError"], ["age>", "older than, such as 10m"], ["age<", "younger than, such as 1h"], ["label.", "label.tier:gold"],
  ["body.", "body.country:BR"], ["header.", "header.tenant:acme"], ["id:", "message id"], ["name:", "unique name"], ["key:", "ordering key"],
  ["correlation:", "correlation id"], ["causation:", "causation id"], ["parent:", "id of the parent"], ["consumer:", "worker that ran it"], ["reason:", "why it ended"],
  ["priority>", "number"], ["attempts>", "number"], ["deliveries>", "number"], ["created>", "time, such as today or -2h"], ["ended>", "time"], ["failed>", "when it died or failed"], ["fingerprint:", "errors that differ in numbers and names only"], ["due<", "time"], ["wait>", "duration"], ["size>", "bytes"],
];
export const STATES = ["ready", "scheduled", "claimed", "dead", "completed", "failed", "expired", "cancelled", "unfinished", "ended"];

export interface Piece {
  text: string;
  kind: "space" | "name" | "value" | "not" | "word";
}

const TERM = /(\s+)|(-?)([\w.]+)(:|>=|<=|>|<)((?:"(?:\\.|[^"\\])*"?|[^\s()])*)|([()]|[^\s()]+)/gy;

/** Splits a filter into the pieces that are coloured. */
export function paint(text: string): Piece[][] {
  const terms: Piece[][] = [];
  for (const [whole, space, minus, name, operator, value] of text.matchAll(TERM)) {
    if (space) terms.push([{ text: space, kind: "space" }]);
    else if (name) terms.push([{ text: `${minus}${name}${operator}`, kind: minus ? "not" : "name" }, { text: value ?? "", kind: minus ? "not" : "value" }]);
    else terms.push([{ text: whole, kind: "word" }]);
  }
  return terms;
}

export interface Option {
  text: string;
  hint: string;
}

/** Finds the word at the caret and what may be there. */
export function complete(text: string, caret: number, queues: string[], types: string[]): { from: number; options: Option[] } {
  const from = Math.max(text.lastIndexOf(" ", caret - 1), text.lastIndexOf("(", caret - 1)) + 1;
  const word = text.slice(from, caret);
  const minus = word.startsWith("-") ? "-" : "";
  const bare = word.slice(minus.length);
  const values = (name: string, all: string[]): Option[] => {
    const typed = bare.slice(name.length + 1).toLowerCase();
    return all.filter((each) => each.toLowerCase().includes(typed) && each !== typed).slice(0, 8).map((each) => ({ text: `${minus}${name}:${/\s/.test(each) ? JSON.stringify(each) : each}`, hint: name }));
  };
  if (bare.startsWith("state:")) return { from, options: values("state", STATES) };
  if (bare.startsWith("queue:")) return { from, options: values("queue", queues) };
  if (bare.startsWith("type:")) return { from, options: values("type", types) };
  if (/[:><]/.test(bare)) return { from, options: [] };
  const options = FIELDS.filter(([name]) => name.startsWith(bare) && name !== bare).slice(0, 10).map(([name, hint]) => ({ text: minus + name, hint }));
  return { from, options };
}

/** Counts the terms that would select some of these messages. */
function countTerms(rows: Message[]): Map<string, number> {
  const counts = new Map<string, number>();
  const add = (field: string, value: string | null | undefined): void => {
    if (!value) return;
    const term = `${field}:${quoteTerm(value)}`;
    counts.set(term, (counts.get(term) ?? 0) + 1);
  };
  for (const row of rows) {
    for (const [field, value] of [["state", row.state], ["queue", row.queue], ["type", row.type], ["error.kind", findKind(row.error)], ["reason", row.reason], ["key", row.ordering_key], ["correlation", row.correlation_id], ["consumer", row.consumer ?? row.timeline?.at(-1)?.consumer]] as const) add(field, value);
    for (const [name, value] of Object.entries(row.labels ?? {})) add(`label.${name}`, value);
  }
  return counts;
}

const findKind = (error: string | null | undefined): string | undefined => error?.split("\n", 1)[0]?.split(":", 1)[0];

const MAX_VALUES = 6;

/** Returns the most common terms that begin with a word and select some of these messages, and how many. */
export function offerTerms(word: string, rows: Message[], more: boolean): Option[] {
  const minus = word.startsWith("-") ? "-" : "";
  const bare = word.slice(minus.length);
  if (!bare) return [];
  const fitting = [...countTerms(rows)].filter(([term, number]) => term.startsWith(bare) && term !== bare && (more || number < rows.length));
  return fitting.sort((a, b) => b[1] - a[1]).slice(0, MAX_VALUES).map(([term, number]) => ({ text: minus + term, hint: `${count(number)}${more ? "+" : ""}` }));
}

/** Reads the state that a filter is limited to, and the rest of the filter. */
export function splitState(text: string): { state: string; rest: string } {
  const found = /(?:^|\s)state:(\w+)(?=\s|$)/.exec(text);
  if (!found) return { state: "", rest: text.trim() };
  return { state: found[1] ?? "", rest: (text.slice(0, found.index) + text.slice(found.index + found[0].length)).trim() };
}

export const joinState = (state: string, rest: string): string => [state ? `state:${state}` : "", rest].filter(Boolean).join(" ");
