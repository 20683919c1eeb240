// Colours come from the style sheet, so that light, dark and print agree.
import type { Colours } from "./chart_options";

const STEPS = ["--scale-0", "--scale-1", "--scale-2", "--scale-3", "--scale-4"];
const SERIES = ["--series-0", "--series-1", "--series-2", "--series-3", "--series-4", "--series-5"];

export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string): string => style.getPropertyValue(name).trim();
  return { text: read("--text"), grid: read("--line"), series: SERIES.map(read), scale: STEPS.map(read) };
}

/** The place of a value on the scale from good (0) to bad (1); null without a value. */
export function badness(value: number | null, limits: readonly [number, number], higherIsBetter: boolean): number | null {
  if (value === null || Number.isNaN(value)) return value === null ? null : 1;
  const [low, high] = limits;
  if (!(low < high)) return 0;
  const part = (Math.min(Math.max(value, low), high) - low) / (high - low);
  return higherIsBetter ? 1 - part : part;
}

export function colourAt(bad: number | null, scale: readonly string[]): string | null {
  if (bad === null) return null;
  return scale[Math.min(scale.length - 1, Math.floor(bad * scale.length))] ?? null;
}
