// A JSON parser that keeps numbers, order and duplicate keys as they were sent.
export type Node =
  | { kind: "object"; entries: [key: string, value: Node][] }
  | { kind: "array"; items: Node[] }
  | { kind: "string"; value: string }
  | { kind: "number" | "literal"; text: string };

const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
const LITERAL = /true|false|null/y;
const SPACE = /[ \t\n\r]*/y;

class Reader {
  at = 0;
  constructor(readonly text: string) {}

  value(): Node {
    this.space();
    const first = this.text[this.at];
    if (first === "{") return this.object();
    if (first === "[") return this.array();
    if (first === '"') return { kind: "string", value: this.string() };
    return this.match(NUMBER, "number") ?? this.match(LITERAL, "literal") ?? this.fail();
  }

  object(): Node {
    const entries: [string, Node][] = [];
    this.list("}", () => {
      const key = this.string();
      this.space();
      if (this.text[this.at++] !== ":") this.fail();
      entries.push([key, this.value()]);
    });
    return { kind: "object", entries };
  }

  array(): Node {
    const items: Node[] = [];
    this.list("]", () => items.push(this.value()));
    return { kind: "array", items };
  }

  list(end: string, item: () => void): void {
    this.at++;
    this.space();
    if (this.text[this.at] === end) {
      this.at++;
      return;
    }
    for (;;) {
      this.space();
      item();
      this.space();
      const next = this.text[this.at++];
      if (next === end) return;
      if (next !== ",") this.fail();
    }
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
  reader.space();
  reader.list("}", () => {
    const key = reader.string();
    reader.space();
    reader.at++;
    reader.space();
    const from = reader.at;
    reader.value();
    if (key === name) {
      raw = text.slice(from, reader.at);
      cut = [from, reader.at];
    }
  });
  const rest = cut ? `${text.slice(0, cut[0])}null${text.slice(cut[1])}` : text;
  return { rest: JSON.parse(rest) as T, raw };
}

/** Indents JSON without changing a token. */
export function indent(node: Node, level = 0): string {
  const pad = "  ".repeat(level + 1);
  const end = "  ".repeat(level);
  if (node.kind === "object") {
    if (!node.entries.length) return "{}";
    const lines = node.entries.map(([key, value]) => `${pad}${JSON.stringify(key)}: ${indent(value, level + 1)}`);
    return `{\n${lines.join(",\n")}\n${end}}`;
  }
  if (node.kind === "array") {
    if (!node.items.length) return "[]";
    return `[\n${node.items.map((each) => pad + indent(each, level + 1)).join(",\n")}\n${end}]`;
  }
  return node.kind === "string" ? JSON.stringify(node.value) : node.text;
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
