// Sorting, searching and downloading of every table; names of nodes become links to their cards.
import { type TableData, readTable, textOf, valueOf } from "./cells";
import { type Plain, csvText, download, jsonText } from "./exporting";
import { matcher } from "./glob";
import { current, onChange } from "./language";
import { type Key, sortedPlaces } from "./sorting";
import { word, wordElement } from "./words";

const NUMBERS = new Set(["count", "number", "decibels", "share", "score", "truth"]);
// A table this short needs no search.
const FEW_ROWS = 8;

export function setUpTables(): void {
  for (const table of document.querySelectorAll<HTMLTableElement>("table[id]")) setUp(table);
}

function setUp(table: HTMLTableElement): void {
  const data = readTable(table);
  linkNodes(data);
  setUpSorting(table, data);
  const tools = document.createElement("div");
  tools.className = "tools";
  if (data.rows.length > FEW_ROWS) tools.append(searchField(data));
  tools.append(downloads(data));
  table.closest(".scroll")?.before(tools);
}

export function nodeLink(name: string): HTMLAnchorElement {
  const link = document.createElement("a");
  link.href = `#node=${encodeURIComponent(name)}`;
  link.textContent = name;
  return link;
}

function linkNodes(data: TableData): void {
  data.columns.forEach((column, at) => {
    for (const row of data.rows) {
      const cell = row.cells[at];
      if (!cell) continue;
      if (NUMBERS.has(column.kind)) cell.classList.add("number");
      const name = column.kind === "node" ? textOf(cell) : "";
      if (name) cell.replaceChildren(nodeLink(name));
    }
  });
}

function setUpSorting(table: HTMLTableElement, data: TableData): void {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    if (NUMBERS.has(data.columns[at]?.kind ?? "")) head.classList.add("number");
    // The first click shows the worst, or the largest where neither way is better.
    const first = head.dataset.better === "higher" || !NUMBERS.has(data.columns[at]?.kind ?? "");
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sort(table, data, at, now === null ? !first : now === "ascending");
    });
  });
  const asked = table.dataset.sort ?? "";
  const place = data.columns.findIndex((column) => column.id === asked.replace(/^-/, ""));
  if (asked && place >= 0) sort(table, data, place, asked.startsWith("-"));
}

function keyOf(row: HTMLTableRowElement, at: number): Key {
  const cell = row.cells[at];
  if (!cell) return null;
  return valueOf(cell) ?? (textOf(cell) || null);
}

function sort(table: HTMLTableElement, data: TableData, at: number, descending: boolean): void {
  const keys = data.rows.map((row) => keyOf(row, at));
  const body = table.tBodies[0];
  body?.append(...sortedPlaces(keys, descending).flatMap((place) => data.rows[place] ?? []));
  for (const head of table.tHead?.rows[0]?.cells ?? []) head.removeAttribute("aria-sort");
  table.tHead?.rows[0]?.cells[at]?.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function searchField(data: TableData): HTMLElement {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  input.id = `search-${data.id}`;
  const count = document.createElement("output");
  count.htmlFor.add(input.id);
  const names = data.rows.map((row) =>
    data.columns.flatMap((column, at) => {
      const cell = row.cells[at];
      return cell && !NUMBERS.has(column.kind) ? [textOf(cell)] : [];
    }),
  );
  let shown = data.rows.length;
  const tell = (): void => {
    input.placeholder = word("search", current());
    input.setAttribute("aria-label", word("searchLabel", current()));
    count.textContent = word("shown", current(), { n: shown, all: data.rows.length });
  };
  input.addEventListener("input", () => {
    const fits = matcher(input.value);
    shown = 0;
    data.rows.forEach((row, at) => {
      row.hidden = !(names[at] ?? []).some(fits);
      shown += Number(!row.hidden);
    });
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
