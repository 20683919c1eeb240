// Which rows of a table are seen: those that fit a search, in the order of sorting, and of many only so many at first.
import type { TableData } from "./cells";

/** As many as the page itself shows before this script runs. */
export const AT_FIRST = 60;
const MORE = 200;
// Pixels before the end of what is shown at which more is.
const BEFORE_END = 600;

export class Rows {
  private order: HTMLTableRowElement[];
  private limit = AT_FIRST;
  private readonly body: HTMLElement | undefined;
  private started = false;

  private ready = new Set<HTMLTableRowElement>();

  /** `prepare` is called once for every row, when it is shown for the first time after `start`. */
  constructor(data: TableData, table: HTMLTableElement, private readonly prepare: (row: HTMLTableRowElement) => void) {
    this.order = [...data.rows];
    this.body = table.tBodies[0];
    const box = table.closest<HTMLElement>(".scroll");
    if (data.rows.length <= AT_FIRST || !box) return;
    box.addEventListener("scroll", () => {
      if (this.limit < this.order.length && box.scrollTop + box.clientHeight > box.scrollHeight - BEFORE_END) this.more();
    }, { passive: true });
  }

  /** The table comes into view. */
  start(): void {
    this.started = true;
    this.show();
  }

  sorted(order: HTMLTableRowElement[]): void {
    this.order = order;
    this.body?.append(...order);
    this.show();
  }

  /** How many rows fit. */
  filter(fits: (row: HTMLTableRowElement) => boolean): number {
    let count = 0;
    for (const row of this.order) {
      row.hidden = !fits(row);
      count += Number(!row.hidden);
    }
    this.limit = AT_FIRST;
    this.show();
    return count;
  }

  private more(): void {
    this.limit += MORE;
    this.show();
  }

  private show(): void {
    let shown = 0;
    for (const row of this.order) {
      const late = !row.hidden && ++shown > this.limit;
      row.classList.toggle("late", late);
      if (!this.started || late || row.hidden || this.ready.has(row)) continue;
      this.ready.add(row);
      this.prepare(row);
    }
  }
}
