// Where in a JSON text an error is.
import { parse } from "./rawjson";

export interface Problem {
  line: number;
  text: string;
}
const lineAt = (text: string, at: number): number => text.slice(0, at).split("\n").length;

/** Finds the first place where a text is not JSON. */
export function findSyntaxError(text: string): Problem | null {
  try {
    parse(text);
    return null;
  } catch (error) {
    const at = Number(/(\d+)$/.exec(error instanceof Error ? error.message : "")?.[1] ?? 0);
    const near = text.slice(at, at + 12).split("\n")[0]?.trim();
    return { line: lineAt(text, at), text: near ? `this is not JSON, near ${near}` : "the text ends too early for JSON" };
  }
}

/** Finds the line of the field that an error of the server names first, such as `when: line 1, column 3: ...`. */
export function placeError(text: string, message: string): Problem | null {
  const field = /^([a-z_]+)(?:\[\d+\])?[:. ]/.exec(message)?.[1];
  const at = field ? text.search(new RegExp(`"${field}"\\s*:`)) : -1;
  return at < 0 ? null : { line: lineAt(text, at), text: message.replace(/^(\w+): line 1, column (\d+): /, "$1, column $2: ") };
}
