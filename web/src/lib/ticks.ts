// Round ticks for the axes of a chart.

/** Returns up to five round values from 0 to at least `highest`. */
export function niceTicks(highest: number, whole = false): number[] {
  const top = Math.max(whole ? 4 : 1, highest);
  const rough = top / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? power * 10;
  const count = Math.ceil(top / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

const STEPS = [10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600];

/** Returns round moments of UTC in the span, with their texts. */
export function timeTicks(first: number, span: number, most: number): { at: number; text: string }[] {
  const step = STEPS.find((each) => span / each <= Math.max(2, most)) ?? 2_592_000;
  const ticks: { at: number; text: string }[] = [];
  for (let at = Math.ceil(first / step) * step; at <= first + span; at += step) {
    const iso = new Date(at * 1000).toISOString();
    ticks.push({ at, text: step >= 86_400 ? iso.slice(5, 10) : step < 60 ? iso.slice(11, 19) : iso.slice(11, 16) });
  }
  return ticks;
}

const DURATIONS = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800];

/** Returns round durations for a logarithmic axis around the values, at least three. */
export function durationTicks(lines: (number | null)[][]): number[] {
  const values = lines.flat().filter((each): each is number => each !== null && each > 0);
  if (!values.length) return [0.01, 0.1, 1, 10];
  const least = Math.min(...values);
  const most = Math.max(...values);
  let first = Math.max(0, DURATIONS.findLastIndex((each) => each <= least));
  let last = DURATIONS.findIndex((each) => each >= most);
  if (last < 0) last = DURATIONS.length - 1;
  while (last - first < 2) {
    if (last < DURATIONS.length - 1) last++;
    else first--;
  }
  return DURATIONS.slice(first, last + 1);
}
