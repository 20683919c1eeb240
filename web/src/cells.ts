// Tables of the page as data: what stands in a cell, and the number behind it.
import { type Language, current } from "./language";

export interface Column {
  id: string;
  kind: string;
  label: string;
}

export interface TableData {
  id: string;
  caption: string;
  columns: Column[];
  rows: HTMLTableRowElement[];
}

/** The text of an element in one language; hidden ones do not count. */
export function textOf(element: Element, language: Language = current()): string {
  let text = "";
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) text += child.nodeValue ?? "";
    else if (child instanceof HTMLElement) {
      const own = child.getAttribute("lang");
      if (own === null || own === language) text += textOf(child, language);
    }
  }
  return text.trim();
}

export function valueOf(cell: HTMLTableCellElement | undefined): number | null {
  const raw = cell?.dataset.v;
  return raw === undefined ? null : Number(raw);
}

export function readTable(table: HTMLTableElement): TableData {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  const columns = heads.map((head) => ({
    id: head.dataset.id ?? "",
    kind: head.dataset.kind ?? "text",
    label: textOf(head),
  }));
  const summary = table.closest("details")?.querySelector("summary");
  return {
    id: table.id.replace(/^table-/, ""),
    caption: summary ? textOf(summary) : "",
    columns,
    rows: [...(table.tBodies[0]?.rows ?? [])],
  };
}
