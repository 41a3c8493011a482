// The columns of the message list, and which of them the viewer chose.
import type { Message } from "./api";

export interface Column {
  name: string;
  title: string;
  /** The width as a track of a grid. */
  wide: string;
  narrow: string;
  kind: "text" | "mono" | "num" | "time";
  value: (row: Message) => string | number | null | undefined;
}

const lastPart = (type: string): string => type.split(".").at(-1) || type;
export const shortType = (row: Message, narrow: boolean): string => (narrow ? lastPart(row.type) : row.type);

export const COLUMNS: Column[] = [
  { name: "queue", title: "Queue", wide: "minmax(80px, 1fr)", narrow: "minmax(70px, 1fr)", kind: "text", value: (row) => row.queue },
  { name: "type", title: "Type", wide: "minmax(90px, 1.2fr)", narrow: "minmax(80px, 1fr)", kind: "mono", value: (row) => row.type },
  { name: "priority", title: "Priority", wide: "68px", narrow: "62px", kind: "num", value: (row) => row.priority },
  { name: "runs", title: "Runs", wide: "56px", narrow: "46px", kind: "num", value: (row) => row.attempts },
  { name: "error", title: "Last error", wide: "minmax(140px, 3fr)", narrow: "minmax(100px, 2.4fr)", kind: "text", value: (row) => row.error ?? row.note },
  { name: "key", title: "Ordering key", wide: "minmax(90px, 1fr)", narrow: "minmax(80px, 1fr)", kind: "mono", value: (row) => row.ordering_key },
  { name: "correlation", title: "Correlation", wide: "minmax(100px, 1.2fr)", narrow: "minmax(80px, 1fr)", kind: "mono", value: (row) => row.correlation_id },
  { name: "worker", title: "Worker", wide: "minmax(80px, .8fr)", narrow: "80px", kind: "mono", value: (row) => row.consumer ?? row.timeline?.at(-1)?.consumer },
  { name: "due", title: "Due", wide: "104px", narrow: "92px", kind: "time", value: (row) => row.due_at },
  { name: "published", title: "Published", wide: "104px", narrow: "92px", kind: "time", value: (row) => row.created_at },
];
export const DEFAULT_COLUMNS = ["queue", "type", "runs", "error"];
const KEY = "penstock.columns";

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
