// Widths of texts in the fonts of the page, so that columns fit what is in them.
const MAX_KNOWN = 20_000;
const known = new Map<string, number>();
let pen: CanvasRenderingContext2D | null | undefined;
let fonts: { text: string; mono: string } | undefined;

function measure(text: string, kind: "text" | "mono"): number {
  const key = kind + text;
  const before = known.get(key);
  if (before !== undefined) return before;
  pen ??= document.createElement("canvas").getContext("2d");
  if (!fonts) {
    const style = getComputedStyle(document.documentElement);
    fonts = { text: `13px ${style.getPropertyValue("--font")}`, mono: `12px ${style.getPropertyValue("--mono")}` };
  }
  if (!pen) return text.length * 7.3;
  pen.font = fonts[kind];
  const width = pen.measureText(text).width;
  if (known.size >= MAX_KNOWN) known.clear();
  known.set(key, width);
  return width;
}

/** Returns the width of the widest text, between two bounds. */
export function fit(texts: Iterable<string>, kind: "text" | "mono", least: number, most: number): number {
  let widest = least;
  for (const text of new Set(texts)) {
    widest = Math.max(widest, measure(text, kind));
    if (widest >= most) return most;
  }
  return Math.ceil(widest);
}
