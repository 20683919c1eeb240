// Draws charts from the tables of their pages, when they come into view.
import { BarChart, BoxplotChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import { AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, VisualMapComponent } from "echarts/components";
import { type ECharts, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { readTable, textOf, valueOf } from "./cells";
import { type ChartSpec, type ColumnValues, chartOptions } from "./chart_options";
import { colours } from "./colours";
import { current, onChange } from "./language";
import { word } from "./words";

use([
  BarChart, BoxplotChart, HeatmapChart, LineChart, ScatterChart,
  AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent, VisualMapComponent,
  CanvasRenderer,
]);

export function setUpCharts(specs: ChartSpec[]): void {
  const waiting = new Map<Element, ChartSpec>();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const spec = waiting.get(entry.target);
      if (!entry.isIntersecting || !spec) continue;
      watcher.unobserve(entry.target);
      draw(entry.target as HTMLElement, spec);
    }
  }, { rootMargin: "400px" });
  for (const spec of specs) {
    const figure = document.getElementById(`chart-${spec.id}`);
    if (!figure) continue;
    waiting.set(figure, spec);
    watcher.observe(figure);
  }
  // Paper shows everything at once.
  addEventListener("beforeprint", () => {
    for (const [figure, spec] of waiting) if (!figure.querySelector(".canvas")) draw(figure as HTMLElement, spec);
  });
}

function draw(figure: HTMLElement, spec: ChartSpec): void {
  const table = document.getElementById(`table-${spec.table}`);
  if (!(table instanceof HTMLTableElement)) return;
  const columns = columnsOf(table);
  const place = document.createElement("div");
  place.className = "canvas";
  place.setAttribute("role", "img");
  figure.append(place);
  const chart: ECharts = init(place);
  const show = (): void => {
    chart.setOption(chartOptions(spec, columns, current(), colours()), { notMerge: true });
    place.setAttribute("aria-label", word("seeTable", current(), { table: readTable(table).caption }));
  };
  show();
  onChange(show);
  new ResizeObserver(() => chart.resize()).observe(place);
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
        return cell ? valueOf(cell) ?? (textOf(cell) || null) : null;
      }),
    ]),
  );
}
