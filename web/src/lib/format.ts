// Numbers, durations and times as people read them.
const whole = new Intl.NumberFormat("en-US");

export const count = (value: number): string => whole.format(value);

/** 9100 -> 9.1k; from 10,000 on capped if the count was. */
export function short(value: number, capped = false): string {
  const plus = capped ? "+" : "";
  if (value < 1_000) return `${value}${plus}`;
  if (value < 10_000) return `${(Math.floor(value / 100) / 10).toString()}k${plus}`;
  if (value < 1_000_000) return `${Math.floor(value / 1_000)}k${plus}`;
  return `${(Math.floor(value / 100_000) / 10).toString()}M${plus}`;
}

export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.05) return "<0.1";
  if (value < 10) return value.toFixed(1).replace(/\.0$/, "");
  return count(Math.round(value));
}

export function seconds(value: number): string {
  const s = Math.max(0, value);
  if (s < 0.0005) return "0 s";
  if (s < 1) return `${Math.round(s * 1_000)} ms`;
  if (s < 10) return `${(Math.round(s * 10) / 10).toString()} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3_600) return pair(s, 60, "m", 1, "s");
  if (s < 86_400) return pair(s, 3_600, "h", 60, "m");
  return pair(s, 86_400, "d", 3_600, "h");
}

function pair(value: number, large: number, one: string, small: number, two: string): string {
  const first = Math.floor(value / large);
  const second = Math.floor((value - first * large) / small);
  return second && first < 10 ? `${first} ${one} ${second} ${two}` : `${first} ${one}`;
}

/** One unit only, for columns: 4 m, 3 h, 1 d. */
export function brief(value: number): string {
  const s = Math.max(0, value);
  if (s < 9.95) return `${(Math.round(s * 10) / 10).toString()} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} m`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

export function ago(value: number): string {
  if (value < 0) return `in ${seconds(-value)}`;
  if (value < 5) return "just now";
  if (value < 60) return `${Math.round(value)} s ago`;
  if (value < 3_600) return `${Math.floor(value / 60)} min ago`;
  if (value < 86_400) return `${Math.floor(value / 3_600)} h ago`;
  return `${Math.floor(value / 86_400)} d ago`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Times are shown in UTC, as in logs and on the command line. */
export function clock(iso: string): string {
  const at = new Date(iso);
  return `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
}

export function stamp(iso: string): string {
  const at = new Date(iso);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())} ${clock(iso)} UTC`;
}

export function bytes(size: number): string {
  if (size < 1_024) return `${size} ${size === 1 ? "byte" : "bytes"}`;
  if (size < 1_048_576) return `${(size / 1_024).toFixed(1)} KB`;
  return `${(size / 1_048_576).toFixed(1)} MB`;
}

export const plural = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** The word for a state: operators say running, the API says claimed. */
export const stateWord = (state: string | null | undefined): string => (state === "claimed" ? "running" : (state ?? "hidden"));
