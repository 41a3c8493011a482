// Cron expressions in words.
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const NICKNAMES: Record<string, string> = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *" };
const two = (value: number): string => String(value).padStart(2, "0");
const join = (words: string[]): string => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** One part of a field: all, a value, a range, each with a step. */
interface Part {
  first: number | null;
  last: number | null;
  step: number;
}

/** Reads a field, in which names of days or months count from `from`. */
function read(text: string, names: string[], from: number): Part[] | null {
  const number = (word: string): number => (/^\d+$/.test(word) ? Number(word) : names.findIndex((name) => name.slice(0, 3).toUpperCase() === word.toUpperCase()) + from);
  const parts = text.split(",").map((each): Part | null => {
    const found = /^(?:(\*)|(\w+)(?:-(\w+))?)(?:\/(\d+))?$/.exec(each);
    if (!found) return null;
    const [, all, one, last, step] = found;
    if (all) return { first: null, last: null, step: Number(step ?? 1) };
    const first = number(one!);
    const end = last === undefined ? (step ? null : first) : number(last);
    return first < from || (end !== null && end < from) ? null : { first, last: end, step: Number(step ?? 1) };
  });
  return parts.some((each) => each === null) ? null : (parts as Part[]);
}
const isAll = (parts: Part[]): boolean => parts.length === 1 && parts[0]!.first === null && parts[0]!.step === 1;
const isOne = (part: Part): boolean => part.first !== null && part.first === part.last;
const listOnes = (parts: Part[]): number[] | null => (parts.every(isOne) ? parts.map((each) => each.first!) : null);

/** Names values and ranges: "Monday, Wednesday and Friday", "10 to 20". */
function name(parts: Part[], say: (value: number) => string, unit: string): string {
  return join(parts.map((part) => {
    const range = part.first === null ? "" : part.last === null ? `from ${say(part.first)}` : isOne(part) ? say(part.first) : `${say(part.first)} to ${say(part.last)}`;
    return part.step > 1 ? `every ${part.step} ${unit}s${range ? ` ${range}` : ""}` : range;
  }));
}

function describeTimes(minute: Part[], hour: Part[]): string {
  const minutes = listOnes(minute);
  const hours = listOnes(hour);
  if (minutes && hours && minutes.length * hours.length <= 6) return `at ${join(hours.flatMap((h) => minutes.map((m) => `${two(h)}:${two(m)}`)))}`;
  const [every] = minute;
  const often = minutes ? (minutes.join() === "0" ? "every hour" : `every hour at minute ${join(minutes.map(String))}`)
    : isAll(minute) ? "every minute" : minute.length === 1 && every!.first === null ? `every ${every!.step} minutes` : `at minutes ${name(minute, String, "minute")}`;
  if (isAll(hour)) return often;
  const [hourly] = hour;
  if (hour.length === 1 && hourly!.first === null) return minutes ? `every ${hourly!.step} hours at minute ${join(minutes.map(String))}` : `${often}, in every ${hourly!.step}. hour`;
  // A range of hours ends with its last minute.
  if (hour.length === 1 && hourly!.step === 1 && hourly!.last !== null && !isOne(hourly!)) return `${often} from ${two(hourly!.first!)}:00 to ${two(hourly!.last)}:59`;
  const spans = hour.map((part) => (part.first === null ? "" : isOne(part) ? two(part.first) : `${two(part.first)} to ${part.last === null ? "23" : two(part.last)}`) + (part.step > 1 ? ` by ${part.step}` : ""));
  return `${often} in the hours ${join(spans)}`;
}

function describeDays(day: Part[], weekday: Part[], often: boolean): string {
  const [date] = day;
  const days = isAll(day) ? "" : day.length === 1 && date!.first === null ? `every ${date!.step} days of each month` : `on day ${name(day, String, "day")} of each month`;
  const [first] = weekday;
  const work = weekday.length === 1 && first!.first === 1 && first!.last === 5 && first!.step === 1;
  const one = weekday.length === 1 && isOne(first!);
  const weekdays = isAll(weekday) ? "" : work ? "on weekdays" : one ? `every ${DAYS[first!.first! % 7]}` : `on ${name(weekday, (value) => DAYS[value % 7]!, "day")}`;
  // Cron runs on days that fit either field.
  return [days, weekdays].filter(Boolean).join(" or ") || (often ? "" : "every day");
}

/** Says what an expression means, or nothing if no words fit. */
export function describeCron(cron: string): string {
  const fields = (NICKNAMES[cron] ?? cron).trim().split(/\s+/);
  if (fields.length === 6) return /^\*\/\d+$/.test(fields[0]!) && fields.slice(1).every((each) => each === "*") ? `every ${fields[0]!.slice(2)} seconds` : "";
  if (fields.length !== 5) return "";
  const [minute, hour, day, month, weekday] = [read(fields[0]!, [], 0), read(fields[1]!, [], 0), read(fields[2]!, [], 1), read(fields[3]!, MONTHS, 1), read(fields[4]!, DAYS, 0)];
  if (!minute || !hour || !day || !month || !weekday) return "";
  const times = describeTimes(minute, hour);
  const days = describeDays(day, weekday, !times.startsWith("at "));
  const months = isAll(month) ? "" : `in ${name(month, (value) => MONTHS[value - 1] ?? String(value), "month")}`;
  const text = (times.startsWith("at ") ? [days, times] : [times, days]).filter(Boolean).join(" ");
  return [months ? text.replace("of each month", "of the month") : text, months].filter(Boolean).join(" ");
}
