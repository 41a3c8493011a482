// A JSON parser that keeps numbers, order and duplicate keys as they were sent.
export type Node =
  | { kind: "object"; entries: [key: string, value: Node][] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; value: string }
  | { kind: "number" | "literal"; text: string };

type Container = Extract<Node, { kind: "object" | "array" }>;
const END = { object: "}", array: "]" } as const;
const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;
const SPACE = /[ \t\n\r]*/y;

class Reader {
  at = 0;
  constructor(readonly text: string) {}

  /** Reads a value. Containers that are open are kept in a list: nesting may be deeper than the stack. */
  value(): Node {
    const open: Container[] = [];
    const keys: string[] = [];
    for (;;) {
      let node = this.start();
      if (node.kind === "object" || node.kind === "array") {
        this.space();
        if (this.text[this.at] === END[node.kind]) this.at++;
        else {
          open.push(node);
          if (node.kind === "object") keys.push(this.key());
          continue;
        }
      }
      for (;;) {
        const parent = open.at(-1);
        if (!parent) return node;
        if (parent.kind === "object") parent.entries.push([keys.pop()!, node]);
        else parent.items.push(node);
        this.space();
        const next = this.text[this.at++];
        if (next === ",") {
          if (parent.kind === "object") keys.push(this.key());
          break;
        }
        if (next !== END[parent.kind]) this.fail();
        open.pop();
        node = parent;
      }
    }
  }

  /** Reads a scalar, or the bracket that opens a container. */
  start(): Node {
    this.space();
    const first = this.text[this.at];
    if (first === "{" || first === "[") {
      this.at++;
      return first === "{" ? { kind: "object", entries: [] } : { kind: "array", items: [] };
    }
    if (first === '"') return { kind: "string", value: this.string() };
    return this.match(NUMBER, "number") ?? this.match(LITERAL, "literal") ?? this.fail();
  }

  key(): string {
    this.space();
    const key = this.string();
    this.space();
    if (this.text[this.at++] !== ":") this.fail();
    return key;
  }

  string(): string {
    const from = this.at;
    if (this.text[this.at] !== '"') this.fail();
    for (this.at++; this.text[this.at] !== '"'; this.at++) {
      if (this.at >= this.text.length) this.fail();
      if (this.text[this.at] === "\\") this.at++;
    }
    this.at++;
    return JSON.parse(this.text.slice(from, this.at)) as string;
  }

  match(pattern: RegExp, kind: "number" | "literal"): Node | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return null;
    this.at += found[0].length;
    return { kind, text: found[0] };
  }

  space(): void {
    SPACE.lastIndex = this.at;
    this.at += SPACE.exec(this.text)?.[0].length ?? 0;
  }

  fail(): never {
    throw new SyntaxError(`not JSON at ${this.at}`);
  }
}

export function parse(text: string): Node {
  const reader = new Reader(text);
  const found = reader.value();
  reader.space();
  if (reader.at < text.length) reader.fail();
  return found;
}

/** Returns the text of one field of an object as it was sent, and the rest as values. */
export function splitField<T>(text: string, name: string): { rest: T; raw: string | undefined } {
  const reader = new Reader(text);
  let raw: string | undefined;
  let cut: [number, number] | undefined;
  reader.start();
  reader.space();
  for (let more = text[reader.at] !== "}"; more; more = text[reader.at++] === ",") {
    const key = reader.key();
    reader.space();
    const from = reader.at;
    reader.value();
    if (key === name) {
      raw = text.slice(from, reader.at);
      cut = [from, reader.at];
    }
    reader.space();
  }
  const rest = cut ? `${text.slice(0, cut[0])}null${text.slice(cut[1])}` : text;
  return { rest: JSON.parse(rest) as T, raw };
}

// Beyond, lines would be longer than what they show.
const MAX_INDENT = 50;
const pad = (level: number): string => `\n${"  ".repeat(Math.min(level, MAX_INDENT))}`;

/** Indents JSON without changing a token. */
export function indent(node: Node): string {
  const done: string[] = [];
  // What is still to be written, the last first.
  const rest: (string | { node: Node; level: number })[] = [{ node, level: 0 }];
  let next: (typeof rest)[number] | undefined;
  while ((next = rest.pop()) !== undefined) {
    if (typeof next === "string") done.push(next);
    else if (next.node.kind === "string") done.push(JSON.stringify(next.node.value));
    else if ("text" in next.node) done.push(next.node.text);
    else {
      const level = next.level + 1;
      const given = next.node;
      const children = given.kind === "object" ? given.entries.map(([key, value]) => [`${JSON.stringify(key)}: `, value] as const) : given.items.map((value) => ["", value] as const);
      done.push(given.kind === "object" ? "{" : "[");
      rest.push(`${children.length ? pad(next.level) : ""}${END[given.kind]}`);
      for (let at = children.length - 1; at >= 0; at--) {
        const [key, value] = children[at]!;
        rest.push({ node: value, level }, `${at ? "," : ""}${pad(level)}${key}`);
      }
    }
  }
  return done.join("");
}

/** Returns one field of an object. */
export function find(node: Node | undefined, name: string): Node | undefined {
  return node?.kind === "object" ? node.entries.find(([key]) => key === name)?.[1] : undefined;
}

/** Returns the elements of a list that is a field of an object. */
export function list(node: Node, name: string): Node[] {
  const found = find(node, name);
  return found?.kind === "array" ? found.items : [];
}

/** Writes JSON on one line without changing a token. */
export function write(node: Node): string {
  if (node.kind === "object") return `{${node.entries.map(([key, value]) => `${JSON.stringify(key)}:${write(value)}`).join(",")}}`;
  if (node.kind === "array") return `[${node.items.map(write).join(",")}]`;
  return node.kind === "string" ? JSON.stringify(node.value) : node.text;
}
