import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeInAddress } from "../src/card";
import { DECIBELS, badness, shadeAt } from "../src/colours";
import { DIALECTS } from "../src/dialects";
import { csvText, jsonText } from "../src/exporting";
import { matcher } from "../src/glob";
import { closedAtFirst, grouped, scopesOf } from "../src/groups";
import { say } from "../src/language";
import { type Box, edgesOf, layOut } from "../src/layout";
import { endText } from "../src/legend";
import { compareKeys, sortedPlaces } from "../src/sorting";
import { word } from "../src/words";

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
  assert.equal(shadeAt(1), 5);
  assert.equal(shadeAt(null), null);
});

test("decibels have the same classes in every report", () => {
  const shades = [55, 40, 39.9, 30, 20, 10, 0, -0.1, -40].map((value) => shadeAt(badness(value, DECIBELS, true)));
  assert.deepEqual(shades, [0, 0, 1, 1, 2, 3, 4, 5, 5]);
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
