// From a chart's description and its table to what ECharts draws. Nothing here touches the page.
import { type Language, type Spoken, say } from "./language";

export interface SeriesSpec {
  columns: string[];
  label: Spoken;
  role: "line" | "bars" | "steps" | "points" | "band" | "box" | "heat";
  /** Of the rows of a heat map. */
  names?: Spoken[];
  /** Of the values of a heat map. */
  higherIsBetter?: boolean;
}

export interface ChartSpec {
  id: string;
  table: string;
  x: string;
  series: SeriesSpec[];
  yLabel: Spoken;
  yScale: "linear" | "log";
  marks: { at: number | string; label: Spoken }[];
}

/** Columns of a table by their ids; null where there is no value. */
export type ColumnValues = Record<string, (number | string | null)[]>;

export interface Colours {
  text: string;
  grid: string;
  series: readonly string[];
  scale: readonly string[];
}

// Options of ECharts are an open set.
type Options = Record<string, unknown>;

const MANY_PLACES = 60;

/** Drawing stops at infinity; what is exact has no height and leaves a gap. */
function drawable(value: number | string | null | undefined, log: boolean): number | string {
  return typeof value === "number" && Number.isFinite(value) && (!log || value > 0) ? value : "-";
}

export function chartOptions(spec: ChartSpec, columns: ColumnValues, language: Language, colours: Colours): Options {
  const places = columns[spec.x] ?? [];
  const numeric = places.every((place) => typeof place === "number") && spec.series.every((s) => isPointwise(s.role));
  const log = spec.yScale === "log";
  const heat = spec.series.find((series) => series.role === "heat");
  const text = { color: colours.text };
  const options: Options = {
    animation: false,
    color: colours.series,
    textStyle: { fontFamily: "inherit", ...text },
    grid: { left: heat ? 136 : 64, right: 24, top: spec.series.length > 1 ? 40 : 24, bottom: heat || places.length > MANY_PLACES ? 72 : 36 },
    // Tooltips as rich text: HTML ones would need inline styles, which the page forbids itself.
    tooltip: { trigger: heat || spec.series.some((s) => s.role === "box") ? "item" : "axis", renderMode: "richText", confine: true },
    aria: { enabled: true },
    xAxis: {
      type: numeric ? "value" : "category",
      ...(numeric ? { scale: true } : { data: places.map(String) }),
      axisLabel: { ...text, hideOverlap: true, overflow: "truncate", width: 110 },
      axisLine: { lineStyle: { color: colours.grid } },
      splitLine: { show: false },
    },
    yAxis: {
      type: log ? "log" : heat ? "category" : "value",
      ...(heat ? { data: (heat.names ?? heat.columns).map((name) => say(name, language)), inverse: true } : { scale: true }),
      name: heat ? "" : say(spec.yLabel, language),
      nameTextStyle: { ...text, align: "left" },
      axisLabel: heat ? { ...text, overflow: "truncate", width: 120 } : text,
      splitLine: { lineStyle: { color: colours.grid } },
    },
    series: spec.series.flatMap((series) => drawn(series, spec, { columns, places, numeric, log, language })),
  };
  if (spec.series.length > 1) options.legend = { top: 0, textStyle: text, type: "scroll", data: spec.series.map((series) => say(series.label, language)) };
  if (places.length > MANY_PLACES) options.dataZoom = [{ type: "inside" }, { type: "slider", height: 18, bottom: 12, textStyle: text }];
  if (heat) options.visualMap = heatScale(heat, columns, colours);
  return options;
}

function isPointwise(role: SeriesSpec["role"]): boolean {
  return role === "line" || role === "points" || role === "steps" || role === "band";
}

interface Context {
  columns: ColumnValues;
  places: (number | string | null)[];
  numeric: boolean;
  log: boolean;
  language: Language;
}

function drawn(series: SeriesSpec, spec: ChartSpec, context: Context): Options[] {
  const name = say(series.label, context.language);
  const values = (column: string): (number | string)[] =>
    (context.columns[column] ?? []).map((value) => drawable(value, context.log));
  const placed = (column: string): unknown[] =>
    context.numeric ? values(column).map((value, at) => [context.places[at], value]) : values(column);
  const [first = "", second = ""] = series.columns;
  const marks = spec.series[0] === series ? markLines(spec, context) : {};
  switch (series.role) {
    case "bars":
      return [{ name, type: "bar", data: placed(first), large: true, ...marks }];
    case "points":
      return [{ name, type: "scatter", symbolSize: 6, data: placed(first), ...marks }];
    case "box":
      return [{ name, type: "boxplot", data: context.places.map((_, at) => series.columns.map((c) => values(c)[at])), ...marks }];
    case "heat":
      return [{ name, type: "heatmap", data: heatCells(series, context) }];
    case "band":
      return bandSeries(name, values(first), values(second), context);
    default:
      return [{ name, type: "line", step: series.role === "steps" ? "middle" : false, showSymbol: context.places.length <= MANY_PLACES, symbolSize: 4, data: placed(first), ...marks }];
  }
}

/** A band is the area between two lines: the lower one invisible, the difference stacked on it. */
function bandSeries(name: string, low: (number | string)[], high: (number | string)[], context: Context): Options[] {
  const heights = high.map((value, at) => {
    const below = low[at];
    return typeof value === "number" && typeof below === "number" ? value - below : "-";
  });
  const at = (data: (number | string)[]): unknown[] => (context.numeric ? data.map((value, i) => [context.places[i], value]) : data);
  const common = { type: "line", stack: name, showSymbol: false, lineStyle: { opacity: 0 }, tooltip: { show: false } };
  return [
    { ...common, name: `${name} `, data: at(low), silent: true },
    { ...common, name, data: at(heights), areaStyle: { opacity: 0.25 } },
  ];
}

function heatCells(series: SeriesSpec, context: Context): unknown[] {
  return series.columns.flatMap((column, row) =>
    (context.columns[column] ?? []).map((value, at) => [at, row, drawable(value, false)]),
  );
}

function heatScale(series: SeriesSpec, columns: ColumnValues, colours: Colours): Options {
  const all = series.columns
    .flatMap((column) => columns[column] ?? [])
    .filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  const limits = all.reduce<[number, number]>(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const [min, max] = all.length ? limits : [0, 1];
  return { min, max, calculable: true, orient: "horizontal", left: "center", bottom: 0, textStyle: { color: colours.text }, inRange: { color: series.higherIsBetter ? [...colours.scale].reverse() : colours.scale } };
}

function markLines(spec: ChartSpec, context: Context): Options {
  if (!spec.marks.length) return {};
  const data = spec.marks.map((mark) => ({
    xAxis: context.numeric ? mark.at : context.places.map(String).indexOf(String(mark.at)),
    label: { formatter: say(mark.label, context.language) },
  }));
  return { markLine: { symbol: "none", silent: true, data } };
}
