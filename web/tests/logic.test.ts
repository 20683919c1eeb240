import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeInAddress } from "../src/card";
import { type ChartSpec, chartOptions } from "../src/chart_options";
import { badness, colourAt } from "../src/colours";
import { DIALECTS } from "../src/dialects";
import { csvText, jsonText } from "../src/exporting";
import { matcher } from "../src/glob";
import { closedAtFirst, grouped, scopesOf } from "../src/groups";
import { say } from "../src/language";
import { type Box, edgesOf, layOut } from "../src/layout";
import { endText } from "../src/legend";
import { compareKeys, sortedPlaces } from "../src/sorting";
import { word } from "../src/words";

const COLOURS = { text: "#000", grid: "#ccc", series: ["#111", "#222"], scale: ["#a", "#b", "#c"] };

function chain(names: string[]): Box[] {
  return names.map((id, at) => ({ id, inputs: [at ? `t${at - 1}` : "x"], outputs: [`t${at}`] }));
}

test("a glob fits whole names, a plain word any part, nothing everything", () => {
  assert.ok(matcher("conv_*")("conv_1") && !matcher("conv_*")("my_conv_1"));
  assert.ok(matcher("CONV")("my_conv_1") && !matcher("conv?")("conv"));
  assert.ok(matcher("  ")("anything"));
  assert.ok(matcher("a.b[0]*")("a.b[0]/c") && !matcher("a.b*")("axb"));
  assert.ok(matcher("卷积*")("卷积_1"));
});

test("what does not exist comes last either way, NaN at the small end", () => {
  assert.deepEqual(sortedPlaces([2, null, 1, Number.NaN, Infinity], false), [3, 2, 0, 4, 1]);
  assert.deepEqual(sortedPlaces([2, null, 1, Number.NaN, Infinity], true), [4, 0, 2, 3, 1]);
  assert.equal(compareKeys("conv_2", "conv_10", false) < 0, true);
  assert.deepEqual(sortedPlaces([1, 1, 1], true), [0, 1, 2]);
});

test("CSV quotes what needs it and disarms formulas; JSON loses no number", () => {
  assert.equal(csvText(["a", "b"], [['x,"y"', 1.5], ["=cmd()", null]]), 'a,b\r\n"x,""y""",1.5\r\n\'=cmd(),\r\n');
  assert.deepEqual(JSON.parse(jsonText(["a", "b"], [["n", Infinity], [null, 2]])), [{ a: "n", b: "Infinity" }, { a: null, b: 2 }]);
});

test("layers follow the longest way, and every node of a layer has room", () => {
  const boxes: Box[] = [
    { id: "a", inputs: ["x"], outputs: ["1"] },
    { id: "b", inputs: ["1"], outputs: ["2"] },
    { id: "c", inputs: ["1"], outputs: ["3"] },
    { id: "d", inputs: ["2", "3", "1"], outputs: ["4"] },
  ];
  const places = layOut(boxes);
  assert.deepEqual(["a", "b", "c", "d"].map((id) => places.get(id)?.layer), [0, 1, 1, 2]);
  assert.ok(Math.abs((places.get("b")?.x ?? 0) - (places.get("c")?.x ?? 0)) >= 1);
  assert.deepEqual(edgesOf(boxes).length, 5);
});

test("two thousand nodes are laid out at once", () => {
  const places = layOut(chain(Array.from({ length: 2000 }, (_, at) => `n${at}`)));
  assert.equal(places.get("n1999")?.layer, 1999);
});

test("scopes close until few boxes are left, and never swallow what stands between", () => {
  assert.deepEqual(scopesOf("/a/b/conv"), ["/a", "/a/b"]);
  assert.deepEqual(scopesOf("a.b.conv"), ["a", "a.b"]);
  const nodes = chain(["m/x/1", "m/x/2", "other", "m/x/3", "m/y/4"]);
  const boxes = grouped(nodes, (scope) => scope === "m");
  assert.deepEqual(boxes.map((box) => box.members), [["m/x/1", "m/x/2"], ["other"], ["m/x/3", "m/y/4"]]);
  assert.deepEqual([...closedAtFirst(nodes, 4)], ["m/x", "m/y"]);
  assert.equal(closedAtFirst(nodes, 10).size, 0);
});

test("colours go from good to bad whichever way is better; unknown has none", () => {
  assert.equal(badness(10, [10, 50], true), 1);
  assert.equal(badness(10, [10, 50], false), 0);
  assert.equal(badness(Infinity, [10, 50], true), 0);
  assert.equal(badness(null, [10, 50], true), null);
  assert.equal(colourAt(1, COLOURS.scale), "#c");
  assert.equal(colourAt(null, COLOURS.scale), null);
});

const SPEC: ChartSpec = {
  id: "c", table: "t", x: "order", xLabel: { en: "place", zh: "位置" }, yLabel: { en: "dB", zh: "分贝" }, yScale: "linear", marks: [{ at: 1, label: "knee" }],
  series: [{ columns: ["db"], label: { en: "error", zh: "误差" }, role: "line" }],
};

test("a chart draws its columns in the language of the page, and leaves gaps for what cannot be drawn", () => {
  const columns = { order: [0, 1, 2], db: [3, Infinity, null] };
  const options = chartOptions(SPEC, columns, "zh", COLOURS) as { series: { name: string; data: unknown[] }[] };
  assert.equal(options.series[0]?.name, "误差");
  assert.deepEqual(options.series[0]?.data, [[0, 3], [1, "-"], [2, "-"]]);
});

test("names along the bottom become places, bands two stacked lines, heat a scale", () => {
  const named = chartOptions({ ...SPEC, series: [{ columns: ["low", "high"], label: "b", role: "band" }], marks: [{ at: "y", label: "here" }] },
    { order: ["x", "y"], low: [1, 2], high: [3, 5] }, "en", COLOURS) as { series: { data: unknown[] }[]; xAxis: { data: string[] } };
  assert.deepEqual(named.xAxis.data, ["x", "y"]);
  assert.deepEqual(named.series.map((each) => each.data), [[1, 2], [2, 3]]);
  const heat = chartOptions({ ...SPEC, series: [{ columns: ["low", "high"], label: "h", role: "heat" }] },
    { order: ["x", "y"], 0: [1, 2], 1: [3, null] }, "en", COLOURS) as { visualMap: { min: number; max: number } };
  assert.deepEqual([heat.visualMap.min, heat.visualMap.max], [1, 3]);
});

interface Axes {
  xAxis: { name: string };
  yAxis: { name: string };
  tooltip: { formatter: (points: object[]) => string };
}

test("axes have titles in the language of the page, and tooltips name the node", () => {
  const columns = { order: [0, 1, 2], db: [3, Infinity, null] };
  const options = chartOptions(SPEC, columns, "zh", COLOURS, ["conv", null, null]) as unknown as Axes;
  assert.deepEqual([options.xAxis.name, options.yAxis.name], ["位置", "分贝"]);
  const point = { dataIndex: 0, seriesName: "误差", value: [0, 1 / 3], axisValueLabel: "0" };
  assert.equal(options.tooltip.formatter([point]), "conv\n位置 0\n误差: 0.33333");
});

test("rows of several kinds share a place, and each kind is a series of its own", () => {
  const columns = { order: [1, 0, 0, null], kind: ["a", "a", "b", "a"], db: [5, 6, 7, 8] };
  const series = (only: [string, string]): ChartSpec["series"][number] => ({ columns: ["db"], label: only[1], role: "bars", only });
  const options = chartOptions({ ...SPEC, series: [series(["kind", "a"]), series(["kind", "b"])], marks: [] }, columns, "en", COLOURS) as
    { series: { data: unknown[] }[]; xAxis: { data: string[] } };
  assert.deepEqual(options.xAxis.data, ["0", "1"]);
  assert.deepEqual(options.series.map((each) => each.data), [[6, 5], [7, "-"]]);
});

test("steps on a logarithmic scale end where the axis does, and are still called 0", () => {
  const spec: ChartSpec = { ...SPEC, yScale: "log", marks: [], series: [{ columns: ["n"], label: "n", role: "steps" }] };
  const options = chartOptions(spec, { order: [0, 1], n: [4, 0] }, "en", COLOURS) as unknown as Axes & { yAxis: { min: number }; series: { data: unknown[] }[] };
  assert.deepEqual([options.yAxis.min, options.series[0]?.data], [2, [[0, 4], [1, 2]]]);
  assert.equal(options.tooltip.formatter([{ dataIndex: 1, seriesName: "n", value: [1, 2], axisValueLabel: "1" }]), "place 1\nn: 0");
});

test("a line through some of the points leaves the others where they are", () => {
  const spec: ChartSpec = { ...SPEC, marks: [], series: [{ columns: ["db"], label: "all", role: "points" }, { columns: ["db"], label: "some", role: "line", only: ["on", "1"] }] };
  const options = chartOptions(spec, { order: [2, 1, 1], on: [1, 0, 1], db: [5, 6, 7] }, "en", COLOURS) as { series: { data: unknown[] }[] };
  assert.deepEqual(options.series.map((each) => each.data), [[[2, 5], [1, 6], [1, 7]], [[1, 7], [2, 5]]]);
});

test("the ends of a legend are in the unit of their values", () => {
  assert.deepEqual([endText(0.3243, "share"), endText(-11.26, "decibels"), endText(0.5, "number")], ["32.4 %", "-11.3 dB", "0.5"]);
});

test("every dialect names the node, and quotes hostile names", () => {
  for (const dialect of DIALECTS) assert.ok(dialect.write("conv_1").includes("conv_1"), dialect.name);
  assert.equal(DIALECTS[0]?.write("it's"), `--set 'it'"'"'s=float'`);
});

test("addresses name nodes, also damaged ones", () => {
  assert.equal(nodeInAddress("#node=a%2Fb"), "a/b");
  assert.equal(nodeInAddress("#node=%"), "%");
  assert.equal(nodeInAddress("#page-layers"), null);
});

test("words are filled, phrases spoken", () => {
  assert.equal(word("shown", "en", { n: 1, all: 3 }), "1 of 3 rows");
  assert.equal(say("same", "zh"), "same");
});
