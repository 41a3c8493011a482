// Which words of an explanation an operator looks for: figures, times, names and ids.
export interface Part {
  kind: "plain" | "strong" | "id" | "queue" | "error";
  text: string;
}
type Evidence = Record<string, string | number | null>;

const FIGURE = String.raw`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?: ?UTC|Z)?|\b\d[\d,.]*\d?(?: of \d[\d,]*)?(?: ?(?:ms|min|s|m|h|d|%|(?:second|minute|hour|day|message|attempt|slot|worker)s?)\b)?`;
const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** Splits a sentence into parts. What follows a colon in a sentence with an error stays as it is. */
export function emphasise(sentence: string, queue: string, evidence: Evidence): Part[] {
  const cut = /^([^:]*: )(\w+(?:Error|Exception|Timeout|Warning)\b.*)$/s.exec(sentence);
  const body = cut?.[1] ?? sentence;
  const names = Object.values(evidence).filter((each): each is string => typeof each === "string" && each.length > 2 && !/^\d+$/.test(each));
  const words = [...new Set([queue, ...names])].sort((a, b) => b.length - a.length).map(escape);
  const pattern = new RegExp(`(?<id>(?<=\\bmessages? |, )\\d{2,19}\\b)|(?<name>(?<![\\w-])(?:${words.join("|")})(?![\\w-]))|(?<figure>${FIGURE})`, "g");
  const parts: Part[] = [];
  let from = 0;
  for (const found of body.matchAll(pattern)) {
    if (found.index > from) parts.push({ kind: "plain", text: body.slice(from, found.index) });
    const kind = found.groups?.id ? "id" : found[0] === queue ? "queue" : "strong";
    parts.push({ kind, text: found[0] });
    from = found.index + found[0].length;
  }
  if (from < body.length) parts.push({ kind: "plain", text: body.slice(from) });
  if (cut?.[2]) parts.push({ kind: "error", text: cut[2] });
  return parts;
}
