// Sorting, searching and downloading of every table; names of nodes become links to their cards.
import { type Column, type TableData, readTable, textOf, valueOf } from "./cells";
import { type Plain, csvText, download, jsonText } from "./exporting";
import { matcher } from "./glob";
import { current, onChange } from "./language";
import { Rows } from "./rows";
import { type Key, sortedPlaces } from "./sorting";
import { onceInView } from "./viewing";
import { word, wordElement } from "./words";

const NUMBERS = new Set(["count", "number", "decibels", "share", "score", "truth", "seconds"]);
// A table this short needs no search.
const FEW_ROWS = 8;

export function setUpTables(): void {
  for (const table of document.querySelectorAll<HTMLTableElement>("table[id]")) setUp(table);
}

function setUp(table: HTMLTableElement): void {
  const data = readTable(table);
  const rows = new Rows(data, table, (row) => linkNodes(row, data.columns));
  // Long tables cost time for every row; none is touched before it comes into view.
  onceInView(table.closest("details") ?? table, () => {
    sortAtFirst(table, data, rows);
    rows.start();
  });
  setUpSorting(table, data, rows);
  const tools = document.createElement("div");
  tools.className = "tools";
  if (data.rows.length > FEW_ROWS) tools.append(searchField(data, rows));
  tools.append(downloads(data));
  table.closest(".scroll")?.before(tools);
}

export function nodeLink(name: string): HTMLAnchorElement {
  const link = document.createElement("a");
  link.href = `#node=${encodeURIComponent(name)}`;
  link.textContent = name;
  return link;
}

function linkNodes(row: HTMLTableRowElement, columns: readonly Column[]): void {
  columns.forEach((column, at) => {
    const cell = row.cells[at];
    const name = cell && column.kind === "node" ? textOf(cell) : "";
    if (name) cell?.replaceChildren(nodeLink(name));
  });
}

function setUpSorting(table: HTMLTableElement, data: TableData, rows: Rows): void {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    // The first click shows the worst, or the largest where neither way is better.
    const first = head.dataset.better === "higher" || !NUMBERS.has(data.columns[at]?.kind ?? "");
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sort(table, data, at, now === null ? !first : now === "ascending", rows);
    });
  });
}

function sortAtFirst(table: HTMLTableElement, data: TableData, rows: Rows): void {
  const asked = table.dataset.sort ?? "";
  if (table.querySelector("[aria-sort]")) return;
  const place = data.columns.findIndex((column) => column.id === asked.replace(/^-/, ""));
  if (asked && place >= 0) sort(table, data, place, asked.startsWith("-"), rows);
}

function keyOf(row: HTMLTableRowElement, at: number): Key {
  const cell = row.cells[at];
  if (!cell) return null;
  return valueOf(cell) ?? (textOf(cell) || null);
}

function sort(table: HTMLTableElement, data: TableData, at: number, descending: boolean, rows: Rows): void {
  const keys = data.rows.map((row) => keyOf(row, at));
  rows.sorted(sortedPlaces(keys, descending).flatMap((place) => data.rows[place] ?? []));
  for (const head of table.tHead?.rows[0]?.cells ?? []) head.removeAttribute("aria-sort");
  table.tHead?.rows[0]?.cells[at]?.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function searchField(data: TableData, rows: Rows): HTMLElement {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  input.id = `search-${data.id}`;
  const count = document.createElement("output");
  count.htmlFor.add(input.id);
  const namesOf = (row: HTMLTableRowElement): string[] =>
    data.columns.flatMap((column, at) => {
      const cell = row.cells[at];
      return cell && !NUMBERS.has(column.kind) ? [textOf(cell)] : [];
    });
  let names: Map<HTMLTableRowElement, string[]> | null = null;
  let shown = data.rows.length;
  const tell = (): void => {
    input.placeholder = word("search", current());
    input.setAttribute("aria-label", word("searchLabel", current()));
    count.textContent = word("shown", current(), { n: shown, all: data.rows.length });
  };
  input.addEventListener("input", () => {
    const fits = matcher(input.value);
    names ??= new Map(data.rows.map((row) => [row, namesOf(row)]));
    const all = names;
    shown = rows.filter((row) => (all.get(row) ?? []).some(fits));
    tell();
  });
  onChange(tell);
  tell();
  label.append(input, count);
  return label;
}

function downloads(data: TableData): HTMLElement {
  const group = document.createElement("span");
  group.className = "downloads";
  for (const form of ["csv", "json"] as const) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(wordElement(form));
    const tell = (): void =>
      button.setAttribute("aria-label", `${word("download", current())} ${word(form, current())}: ${data.caption}`);
    onChange(tell);
    tell();
    button.addEventListener("click", () => {
      const heading = data.columns.map((column) => column.id);
      const rows = data.rows.map((row) => data.columns.map((column, at) => plainCell(row.cells[at], column.kind)));
      if (form === "csv") download(`${data.id}.csv`, "text/csv", csvText(heading, rows));
      else download(`${data.id}.json`, "application/json", jsonText(heading, rows));
    });
    group.append(button);
  }
  return group;
}

function plainCell(cell: HTMLTableCellElement | undefined, kind: string): Plain {
  if (!cell) return null;
  const value = NUMBERS.has(kind) ? valueOf(cell) : null;
  return value ?? (textOf(cell) || null);
}
