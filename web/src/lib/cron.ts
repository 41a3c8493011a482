// Cron expressions in words, and their next times, for the common forms.
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const NICKNAMES: Record<string, string> = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *" };
const two = (value: string): string => value.padStart(2, "0");
const isNumber = (text: string | undefined): text is string => !!text && /^\d+$/.test(text);

/** Says what an expression means, or returns it as it is if no words fit. */
export function describeCron(cron: string): string {
  const parts = (NICKNAMES[cron] ?? cron).trim().split(/\s+/);
  if (parts.length === 6) return /^\*\/\d+$/.test(parts[0] ?? "") && parts.slice(1).every((each) => each === "*") ? `every ${parts[0]!.slice(2)} seconds` : cron;
  const [minute, hour, day, month, weekday] = parts;
  if (parts.length !== 5 || month !== "*") return cron;
  const every = /^\*\/(\d+)$/;
  if (hour === "*" && day === "*" && weekday === "*") {
    if (minute === "*") return "every minute";
    const step = every.exec(minute ?? "");
    if (step) return `every ${step[1]} minutes`;
    if (isNumber(minute)) return minute === "0" ? "every hour" : `every hour at minute ${minute}`;
  }
  if (!isNumber(minute)) return cron;
  const step = every.exec(hour ?? "");
  if (step && day === "*" && weekday === "*") return `every ${step[1]} hours at minute ${minute}`;
  if (!isNumber(hour)) return cron;
  const at = `at ${two(hour)}:${two(minute)}`;
  if (day === "*" && weekday === "*") return `every day ${at}`;
  if (day === "*" && /^(1-5|MON-FRI)$/i.test(weekday ?? "")) return `on weekdays ${at}`;
  if (day === "*" && isNumber(weekday)) return `every ${DAYS[Number(weekday) % 7]} ${at}`;
  if (isNumber(day) && weekday === "*") return `on day ${day} of each month ${at}`;
  return cron;
}
