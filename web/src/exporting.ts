// Tables as files for spreadsheets and programs.

export type Plain = string | number | null;

/** A cell that starts like this would be run as a formula; names come from strangers' files. */
const FORMULA = /^[=+\-@\t\r]/;

export function csvText(heading: readonly string[], rows: readonly (readonly Plain[])[]): string {
  return [heading, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(value: Plain): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Numbers that JSON lacks are written as strings, so that none is lost. */
export function jsonText(heading: readonly string[], rows: readonly (readonly Plain[])[]): string {
  const records = rows.map((row) =>
    Object.fromEntries(heading.map((name, at) => [name, jsonValue(row[at] ?? null)])),
  );
  return JSON.stringify(records, null, 1) + "\n";
}

function jsonValue(value: Plain): Plain {
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

export function download(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
