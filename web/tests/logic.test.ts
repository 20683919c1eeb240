import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeInAddress } from "../src/card";
import { DIALECTS } from "../src/dialects";
import { csvText, jsonText } from "../src/exporting";
import { matcher } from "../src/glob";
import { say } from "../src/language";
import { type NetworkSpec, type NodeSpec, boxOf, neighbours } from "../src/network";
import { compareKeys, sortedPlaces } from "../src/sorting";
import { word } from "../src/words";

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

test("a node is found in the box that holds it", () => {
  const node = (name: string, from: string): NodeSpec => ({ name, op: "Conv", inputs: [from], outputs: [name], value: null, facts: [] });
  const nodes = [node("a", "x"), node("b", "a"), node("c", "b"), node("e", "c")];
  const spec: NetworkSpec = { id: "n", kind: "decibels", nodes, boxes: [[0], [1, 2], [3]], views: [], opened: {} };
  assert.deepEqual(boxOf([spec], "c"), { spec, box: 1, members: ["b", "c"] });
  assert.equal(boxOf([spec], "d"), null);
  assert.deepEqual(neighbours(spec, ["b", "c"]), { before: ["a"], after: ["e"] });
});

test("every dialect names the node, and quotes hostile names", () => {
  for (const dialect of DIALECTS) assert.ok(dialect.write(["conv_1", "b"]).includes("conv_1"), dialect.name);
  assert.equal(DIALECTS[0]?.write(["it's"]), `--set 'it'"'"'s=float'`);
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
