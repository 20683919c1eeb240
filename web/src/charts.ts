// Draws charts from the tables of their pages, when they come into view.
import { BarChart, BoxplotChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, VisualMapComponent } from "echarts/components";
import { type ECharts, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { readTable, textOf, valueOf } from "./cells";
import { type ChartSpec, type ColumnValues, chartOptions, placesOf } from "./chart_options";
import { colours } from "./colours";
import { current, onChange } from "./language";
import { onceInView } from "./viewing";
import { word } from "./words";

use([
  BarChart, BoxplotChart, HeatmapChart, LineChart, ScatterChart,
  DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, VisualMapComponent,
  CanvasRenderer,
]);

// A heat map with more rows needs more height.
const MANY_ROWS = 12;

export function setUpCharts(specs: ChartSpec[]): void {
  for (const spec of specs) {
    const figure = document.getElementById(`chart-${spec.id}`);
    if (figure) onceInView(figure, () => draw(figure, spec));
  }
}

function draw(figure: HTMLElement, spec: ChartSpec): void {
  const table = tableOf(spec.table);
  if (!table) return;
  const columns = columnsOf(table);
  const heat = spec.series.find((series) => series.role === "heat");
  heat?.columns.forEach((column, row) => {
    const own = tableOf(heat.tables?.[row] ?? spec.table);
    columns[String(row)] = own ? columnsOf(own)[column] ?? [] : [];
  });
  const nodes = nodesOf(table, columns, spec);
  const place = document.createElement("div");
  place.className = heat && heat.columns.length > MANY_ROWS ? "canvas high" : "canvas";
  place.setAttribute("role", "img");
  figure.append(place);
  const chart: ECharts = init(place);
  const show = (): void => {
    chart.setOption(chartOptions(spec, columns, current(), colours(), nodes), { notMerge: true });
    const key = heat ? "seeTables" : "seeTable";
    const caption = figure.querySelector("figcaption");
    place.setAttribute("aria-label", `${caption ? textOf(caption) : ""} ${word(key, current(), { table: readTable(table).caption, n: heat?.columns.length ?? 1 })}`);
  };
  show();
  onChange(show);
  chart.on("click", ({ dataIndex }) => {
    const node = nodes[dataIndex];
    if (node) location.hash = `#node=${encodeURIComponent(node)}`;
  });
  new ResizeObserver(() => chart.resize()).observe(place);
}

function tableOf(id: string): HTMLTableElement | null {
  const found = document.getElementById(`table-${id}`);
  return found instanceof HTMLTableElement ? found : null;
}

/** The node at each place, where the table has a column of nodes. */
function nodesOf(table: HTMLTableElement, columns: ColumnValues, spec: ChartSpec): (string | null)[] {
  const column = readTable(table).columns.find((each) => each.kind === "node");
  if (!column) return [];
  const names = (columns[column.id] ?? []).map((value) => (value === null ? null : String(value)));
  const rows = columns[spec.x] ?? [];
  const places = placesOf(spec, columns);
  return places === rows ? names : places.map((place) => names[rows.indexOf(place)] ?? null);
}

/** In the order in which the rows were written, however the table is sorted now. */
const original = new Map<HTMLTableElement, HTMLTableRowElement[]>();

export function rememberOrder(): void {
  for (const table of document.querySelectorAll<HTMLTableElement>("table[id]"))
    original.set(table, [...(table.tBodies[0]?.rows ?? [])]);
}

function columnsOf(table: HTMLTableElement): ColumnValues {
  const data = readTable(table);
  const rows = original.get(table) ?? data.rows;
  return Object.fromEntries(
    data.columns.map((column, at) => [
      column.id,
      rows.map((row) => {
        const cell = row.cells[at];
        // Texts in English, as series choose rows by them; names are the same in every language.
        return cell ? valueOf(cell) ?? (textOf(cell, "en") || null) : null;
      }),
    ]),
  );
}
