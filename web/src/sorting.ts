// The order of rows. What does not exist comes last, whichever way a column is sorted.

export type Key = number | string | null;

export function compareKeys(left: Key, right: Key, descending: boolean): number {
  if (left === null || right === null) return left === right ? 0 : left === null ? 1 : -1;
  const order =
    typeof left === "number" && typeof right === "number"
      ? compareNumbers(left, right)
      : String(left).localeCompare(String(right), undefined, { numeric: true });
  return descending ? -order : order;
}

/** NaN is worse than any number: it stands at the small end. */
function compareNumbers(left: number, right: number): number {
  if (Number.isNaN(left) || Number.isNaN(right)) return Number(Number.isNaN(right)) - Number(Number.isNaN(left));
  return left < right ? -1 : left > right ? 1 : 0;
}

/** The places of rows in their new order; rows that compare equal keep theirs. */
export function sortedPlaces(keys: readonly Key[], descending: boolean): number[] {
  return keys
    .map((_, place) => place)
    .sort((a, b) => compareKeys(keys[a] ?? null, keys[b] ?? null, descending) || a - b);
}
