// Colours come from the style sheet, so that light, dark and print agree.

/** Shades of the style sheet, from good to bad. */
export const SHADES = 6;
/** Decibels have the same six classes in every report: 40 and more, ..., under 0. */
export const DECIBELS: readonly [number, number] = [-10, 50];

/** The place of a value on the scale from good (0) to bad (1); null without a value. */
export function badness(value: number | null, limits: readonly [number, number], higherIsBetter: boolean): number | null {
  if (value === null || Number.isNaN(value)) return value === null ? null : 1;
  const [low, high] = limits;
  if (!(low < high)) return 0;
  const part = (Math.min(Math.max(value, low), high) - low) / (high - low);
  return higherIsBetter ? 1 - part : part;
}

/** Which shade stands for it; null without a value. A limit belongs to the better class, whatever was lost in dividing. */
export function shadeAt(bad: number | null): number | null {
  return bad === null ? null : Math.min(SHADES - 1, Math.max(0, Math.floor(bad * SHADES - 1e-9)));
}
