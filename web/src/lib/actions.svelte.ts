// Toasts, dialogs and the keyboard: what every page shares.
import { explainError } from "./api";

export interface Toast {
  id: number;
  kind: "good" | "bad";
  text: string;
}

class Toasts {
  all = $state<Toast[]>([]);
  private next = 1;
  show(kind: Toast["kind"], text: string): void {
    const id = this.next++;
    this.all.push({ id, kind, text });
    setTimeout(() => this.drop(id), kind === "bad" ? 12_000 : 5_000);
  }
  drop(id: number): void {
    this.all = this.all.filter((each) => each.id !== id);
  }
}
export const toasts = new Toasts();

/** Runs an act of the user and says how it ended. */
export async function act(done: string | ((result: never) => string), run: () => Promise<unknown>): Promise<boolean> {
  try {
    const result = await run();
    toasts.show("good", typeof done === "string" ? done : done(result as never));
    return true;
  } catch (error) {
    toasts.show("bad", explainError(error));
    return false;
  }
}

export interface Confirmation {
  title: string;
  text: string;
  /** Names the number: "Purge 41". */
  button: string;
  danger?: boolean;
  /** Above 1,000 the number is typed. */
  count?: number;
  run: () => Promise<unknown> | unknown;
}

class Dialogs {
  confirmation = $state.raw<Confirmation | null>(null);
  help = $state(false);
  palette = $state(false);
  confirm(given: Confirmation): void {
    this.confirmation = given;
  }
  get open(): boolean {
    return this.confirmation !== null || this.help || this.palette || document.querySelector("dialog[open]") !== null;
  }
}
export const dialogs = new Dialogs();

export type Shortcuts = Record<string, (event: KeyboardEvent) => void>;
const layers: Shortcuts[] = [];
let prefix = "";
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

/** Call while a component is made: its shortcuts work while it is shown. */
export function shortcuts(given: Shortcuts): void {
  $effect(() => {
    layers.push(given);
    return () => void layers.splice(layers.indexOf(given), 1);
  });
}

function inField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && target.type === "checkbox");
}

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    dialogs.palette = !dialogs.palette;
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || inField(event.target) || dialogs.open) return;
  // Enter on a button or a link is theirs.
  if (event.key === "Enter" && event.target instanceof Element && event.target.closest("a, button, summary")) return;
  const key = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  clearTimeout(prefixTimer);
  for (const layer of [...layers].reverse()) {
    const action = layer[key];
    if (action) {
      event.preventDefault();
      action(event);
      return;
    }
  }
  if (event.key === "g") {
    prefix = "g";
    prefixTimer = setTimeout(() => (prefix = ""), 1_200);
  }
});

/** Puts the focus on the first link or button of the next row, whatever rows the page has. */
export function moveRow(by: 1 | -1): void {
  const rows = [...document.querySelectorAll("#main :is(tbody tr, article, .attention li)")].filter((row) => row.querySelector("a, button"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(0, at + by), rows.length - 1)];
  next?.querySelector<HTMLElement>("a, button")?.focus();
}

/** Copies text, also on plain http, where browsers have no clipboard API. */
export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyByCommand(text);
    toasts.show("good", what);
  } catch {
    try {
      copyByCommand(text);
      toasts.show("good", what);
    } catch {
      toasts.show("bad", "The browser refused to copy. Select the text and copy it by hand.");
    }
  }
}

function copyByCommand(text: string): void {
  const area = document.createElement("textarea");
  area.value = text;
  // What is behind a modal dialog cannot be selected.
  ([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("refused");
}
