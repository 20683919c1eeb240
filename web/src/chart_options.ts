// From a chart's description and its table to what ECharts draws. Nothing here touches the page.
import { type Language, type Spoken, say } from "./language";

export interface SeriesSpec {
  columns: string[];
  label: Spoken;
  role: "line" | "bars" | "steps" | "points" | "band" | "box" | "heat";
  /** A column and what stands in it, in the rows that are drawn. */
  only?: [string, string] | null;
  /** Of the columns, where they are several. */
  tables?: string[];
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
  xLabel: Spoken;
  yLabel: Spoken;
  yScale: "linear" | "log";
  marks: { at: number | string; label: Spoken }[];
}

/** Columns of a table by their ids; null where there is no value. Those of a heat map by the number of its row. */
export type ColumnValues = Record<string, (number | string | null)[]>;
/** The node of each row; null where a row is of none. */
export type NodeNames = readonly (string | null)[];

export interface Colours {
  text: string;
  grid: string;
  series: readonly string[];
  scale: readonly string[];
}

// Options of ECharts are an open set.
type Options = Record<string, unknown>;

const MANY_PLACES = 60;
// As many cells of a heat map as there are pixels; the rest is scrolled to.
const MOST_CELLS = 512;
const LEGEND = 34, TOP = 14, SLIDER = 30, SCALE = 44;

/** Drawing stops at infinity; what is exact has no height and leaves a gap. */
function drawable(value: number | string | null | undefined, log: boolean): number | string {
  return typeof value === "number" && Number.isFinite(value) && (!log || value > 0) ? value : "-";
}

/** On a logarithmic scale nothing stands for 0: steps end at half of the smallest value instead, where the axis does. */
function floorOf(spec: ChartSpec, columns: ColumnValues): number | null {
  if (spec.yScale !== "log" || !spec.series.every((series) => series.role === "steps")) return null;
  const values = spec.series.flatMap((series) => columns[series.columns[0] ?? ""] ?? []);
  const smallest = values.reduce<number>((least, value) => (typeof value === "number" && value > 0 && value < least ? value : least), Infinity);
  return Number.isFinite(smallest) ? smallest / 2 : null;
}

/** A value as a tooltip says it. */
export function shortNumber(value: unknown): string {
  return typeof value === "number" ? String(Number(value.toPrecision(5))) : String(value ?? "");
}

export function chartOptions(spec: ChartSpec, columns: ColumnValues, language: Language, colours: Colours, nodes: NodeNames = []): Options {
  const places = placesOf(spec, columns);
  const numeric = places.every((place) => typeof place === "number") && spec.series.every((s) => isPointwise(s.role));
  const log = spec.yScale === "log";
  const floor = floorOf(spec, columns);
  const heat = spec.series.find((series) => series.role === "heat");
  const text = { color: colours.text };
  const many = places.length > MANY_PLACES;
  const title = (label: Spoken): Options => ({ name: say(label, language), nameLocation: "middle", nameTextStyle: text });
  const options: Options = {
    animation: false,
    color: colours.series,
    textStyle: { fontFamily: "inherit", ...text },
    // The frame holds the numbers and titles of the axes as well, however wide they are.
    grid: { left: 8, right: 20, top: spec.series.length > 1 ? LEGEND : TOP, bottom: 8 + (many ? SLIDER : 0) + (heat ? SCALE : 0), outerBoundsMode: "same", outerBoundsContain: "all" },
    tooltip: tooltip(spec, language, nodes, floor),
    xAxis: {
      type: numeric ? "value" : "category",
      ...title(spec.xLabel),
      ...(numeric ? { scale: true } : { data: places.map(String) }),
      axisLabel: { ...text, hideOverlap: true, overflow: "truncate", width: 110 },
      axisLine: { lineStyle: { color: colours.grid } },
      splitLine: { show: false },
    },
    yAxis: {
      // Bars are as long as their values, so that they start at 0.
      type: log ? "log" : heat ? "category" : "value",
      ...title(spec.yLabel),
      ...(floor === null ? {} : { min: floor }),
      ...(heat ? { data: heatNames(heat, language), inverse: true } : { scale: !spec.series.some((series) => series.role === "bars") }),
      axisLabel: heat ? { ...text, overflow: "truncate", width: 120 } : text,
      splitLine: { lineStyle: { color: colours.grid } },
    },
    series: spec.series.flatMap((series) => drawn(series, spec, { columns, places, numeric, log, language, text: colours.text, floor })),
  };
  if (spec.series.length > 1) options.legend = { top: 0, textStyle: text, type: "scroll", data: spec.series.map((series) => say(series.label, language)) };
  if (many) {
    const window = heat && places.length > MOST_CELLS ? { startValue: 0, endValue: MOST_CELLS - 1 } : {};
    options.dataZoom = [{ type: "inside", ...window }, { type: "slider", height: 18, bottom: 8 + (heat ? SCALE : 0), textStyle: text, ...window }];
  }
  if (heat) options.visualMap = heatScale(heat, columns, language, colours);
  return options;
}

/** Where something stands along the bottom: one place for each row, or for each x where rows of several kinds share it. */
export function placesOf(spec: ChartSpec, columns: ColumnValues): (number | string | null)[] {
  const all = columns[spec.x] ?? [];
  if (!spec.series.some((series) => series.only) || spec.series.every((series) => isPointwise(series.role))) return all;
  return [...new Set(all)].filter((place) => place !== null).sort((a, b) => Number(a) - Number(b));
}

/** The values of a column that belong to a series, by place. */
function chosen(series: SeriesSpec, spec: ChartSpec, context: Context, column: string): (number | string | null)[] {
  const values = context.columns[column] ?? [];
  if (!series.only || context.numeric) return values;
  const [where, what] = series.only;
  const found = new Map<number | string | null, number | string | null>();
  (context.columns[spec.x] ?? []).forEach((place, row) => {
    if (String(context.columns[where]?.[row]) === what) found.set(place, values[row] ?? null);
  });
  return context.places.map((place) => found.get(place) ?? null);
}

/** Points of the rows that belong to a series, from left to right. */
function pairs([where, what]: [string, string], values: readonly (number | string)[], context: Context): unknown[] {
  const rows = values.map((value, row) => [context.places[row], value, row] as const);
  return rows
    .filter(([, , row]) => String(context.columns[where]?.[row]) === what)
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([x, value]) => [x, value]);
}

function heatNames(heat: SeriesSpec, language: Language): string[] {
  return (heat.names ?? heat.columns).map((name) => say(name, language));
}

/** One point under the pointer, as ECharts describes it. */
interface Point {
  dataIndex: number;
  marker?: string;
  seriesName?: string;
  name?: string;
  value?: unknown;
  axisValueLabel?: string;
}

// Tooltips as rich text: HTML ones would need inline styles, which the page forbids itself.
function tooltip(spec: ChartSpec, language: Language, nodes: NodeNames, floor: number | null): Options {
  const common = { renderMode: "richText", confine: true };
  const heat = spec.series.find((series) => series.role === "heat");
  if (heat) {
    const names = heatNames(heat, language);
    const formatter = ({ value }: Point): string => {
      const [at, row, found] = Array.isArray(value) ? value : [];
      return `${names[Number(row)] ?? ""}\n${say(spec.xLabel, language)} ${String(at)}: ${shortNumber(found)}`;
    };
    return { ...common, trigger: "item", formatter };
  }
  if (spec.series.some((series) => series.role === "box")) return { ...common, trigger: "item", valueFormatter: shortNumber };
  const hidden = new Set(spec.series.filter((series) => series.role === "band").map((series) => say(series.label, language)));
  const shown = (value: unknown): unknown => {
    const found: unknown = Array.isArray(value) ? value[1] : value;
    return found === floor ? 0 : found;
  };
  const formatter = (given: Point | Point[]): string => {
    const points = (Array.isArray(given) ? given : [given]).filter((point) => !hidden.has((point.seriesName ?? "").trim()));
    const [first] = points;
    if (!first) return "";
    const place = `${say(spec.xLabel, language)} ${first.axisValueLabel ?? first.name ?? ""}`;
    const node = nodes[first.dataIndex];
    const lines = points.map((point) => `${point.marker ?? ""}${point.seriesName ?? ""}: ${shortNumber(shown(point.value))}`);
    return [...(node ? [node] : []), place, ...lines].join("\n");
  };
  return { ...common, trigger: "axis", formatter };
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
  /** Its colour. */
  text: string;
  floor: number | null;
}

function drawn(series: SeriesSpec, spec: ChartSpec, context: Context): Options[] {
  const name = say(series.label, context.language);
  const values = (column: string): (number | string)[] =>
    chosen(series, spec, context, column).map((value) => (value === 0 && context.floor !== null ? context.floor : drawable(value, context.log)));
  const placed = (column: string): unknown[] =>
    context.numeric && series.only ? pairs(series.only, values(column), context) : context.numeric ? values(column).map((value, at) => [context.places[at], value]) : values(column);
  const [first = "", second = ""] = series.columns;
  const marks = spec.series[0] === series ? markLines(spec, context) : {};
  switch (series.role) {
    case "bars":
      return [{ name, type: "bar", data: placed(first), large: true, barMaxWidth: 40, ...marks }];
    case "points":
      return [{ name, type: "scatter", symbolSize: 6, data: placed(first), ...marks }];
    case "box":
      return [{ name, type: "boxplot", boxWidth: [3, 40], data: context.places.map((_, at) => series.columns.map((c) => values(c)[at])), ...marks }];
    case "heat":
      return [{ name, type: "heatmap", data: heatCells(series, context) }];
    case "band":
      return bandSeries(name, values(first), values(second), context);
    default:
      return [{ name, type: "line", step: series.role === "steps" ? "middle" : false, showSymbol: context.places.length <= MANY_PLACES, symbol: "circle", symbolSize: 5, data: placed(first), ...marks }];
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
  return series.columns.flatMap((_, row) =>
    (context.columns[String(row)] ?? []).map((value, at) => [at, row, drawable(value, false)]),
  );
}

function heatScale(series: SeriesSpec, columns: ColumnValues, language: Language, colours: Colours): Options {
  const all = series.columns
    .flatMap((_, row) => columns[String(row)] ?? [])
    .filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  const limits = all.reduce<[number, number]>(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const [min, max] = all.length ? limits : [0, 1];
  return { min, max, calculable: true, orient: "horizontal", left: "center", bottom: 0, text: [say(series.label, language), ""], textStyle: { color: colours.text }, inRange: { color: series.higherIsBetter ? [...colours.scale].reverse() : colours.scale } };
}

function markLines(spec: ChartSpec, context: Context): Options {
  if (!spec.marks.length) return {};
  const data = spec.marks.map((mark) => ({
    xAxis: context.numeric ? mark.at : context.places.map(String).indexOf(String(mark.at)),
    label: { formatter: say(mark.label, context.language), color: context.text, textBorderWidth: 0 },
  }));
  return { markLine: { symbol: "none", silent: true, data } };
}
