// The columns of the message list, how wide they are, and which of them the viewer chose.
import type { Message } from "./api";
import { fit } from "./measure";

export interface Column {
  name: string;
  title: string;
  kind: "text" | "mono" | "num" | "time";
  value: (row: Message, narrow: boolean) => string | number | null | undefined;
  /** The widest text that is not cut, in pixels. */
  most?: number;
  /** Takes what is left. */
  grows?: boolean;
}

const lastPart = (type: string): string => type.split(".").at(-1) || type;
const runs = (row: Message): string => (row.attempt_limit ? `${row.attempts}/${row.attempt_limit}` : String(row.attempts));

export const COLUMNS: Column[] = [
  { name: "queue", title: "Queue", kind: "text", most: 180, value: (row) => row.queue },
  { name: "type", title: "Type", kind: "mono", most: 300, value: (row, narrow) => (narrow ? lastPart(row.type) : row.type) },
  { name: "priority", title: "Priority", kind: "num", value: (row) => row.priority },
  { name: "runs", title: "Runs", kind: "num", value: runs },
  { name: "error", title: "Last error", kind: "text", grows: true, value: (row) => row.error ?? row.note },
  { name: "key", title: "Ordering key", kind: "mono", value: (row) => row.ordering_key },
  { name: "correlation", title: "Correlation", kind: "mono", value: (row) => row.correlation_id },
  { name: "worker", title: "Worker", kind: "mono", value: (row) => row.consumer ?? row.timeline?.at(-1)?.consumer },
  { name: "due", title: "Due", kind: "time", value: (row) => row.due_at },
  { name: "published", title: "Published", kind: "time", value: (row) => row.created_at },
];
export const DEFAULT_COLUMNS = ["queue", "type", "runs", "error"];
const KEY = "penstock.columns";
const PADDING = 16;
const TIME = 70;
const MAX_TEXT = 160;
const MAX_NARROW = 130;
const MIN_GROWING = 140;
const ICON = 20;

/** Returns the tracks of the grid: as wide as what is in them, and the rest for one column. */
export function fitColumns(columns: Column[], rows: Message[], states: string[], narrow: boolean): string {
  const growing = columns.find((each) => each.grows) ?? columns.at(-1);
  const tracks = columns.map((column) => {
    const width = column === growing && column.grows ? MIN_GROWING : PADDING + fitColumn(column, rows, narrow);
    return column === growing ? `minmax(${width}px, 1fr)` : `${width}px`;
  });
  const id = PADDING + fit(rows.map((row) => row.id), "mono", 44, 150);
  const state = PADDING + ICON + fit(states, "text", 30, 80);
  return ["34px", `${id}px`, `${state}px`, ...tracks, growing ? `${TIME + PADDING}px` : "minmax(100px, 1fr)"].join(" ");
}

function fitColumn(column: Column, rows: Message[], narrow: boolean): number {
  if (column.kind === "time") return TIME;
  const title = fit([column.title], "text", 24, MAX_TEXT);
  const texts = rows.map((row) => String(column.value(row, narrow) ?? ""));
  return fit(texts, column.kind === "mono" ? "mono" : "text", title, narrow ? MAX_NARROW : (column.most ?? MAX_TEXT));
}

export function readColumns(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "null");
    if (Array.isArray(found)) return COLUMNS.map((each) => each.name).filter((name) => found.includes(name));
  } catch {
    // Those that everyone begins with.
  }
  return DEFAULT_COLUMNS;
}

export function saveColumns(names: string[]): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(names));
  } catch {
    // They last as long as the page.
  }
}
