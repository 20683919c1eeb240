// How each tool is told to keep nodes in higher precision.

export interface Dialect {
  name: string;
  write: (nodes: readonly string[]) => string;
  /** Names of the chips it serves. */
  chips?: RegExp;
}

const quoted = (text: string): string => JSON.stringify(text);
const listed = (nodes: readonly string[]): string => nodes.map(quoted).join(", ");
const shell = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
const yaml = quoted;
const lines = (nodes: readonly string[], write: (node: string) => string): string => nodes.map(write).join("\n");

export const DIALECTS: readonly Dialect[] = [
  { name: "roundoff", write: (nodes) => lines(nodes, (node) => `--set ${shell(`${node}=float`)}`) },
  { name: "onnxruntime", chips: /onnxruntime/, write: (nodes) => `nodes_to_exclude=[${listed(nodes)}]` },
  { name: "Pulsar2", chips: /^(axera|ax\d)/i, write: (nodes) => `{"layer_names": [${listed(nodes)}], "data_type": "U16"}` },
  {
    name: "Horizon",
    chips: /horizon/,
    write: (nodes) => `node_info: {${nodes.map((node) => `${yaml(node)}: {InputType: int16, OutputType: int16}`).join(", ")}}`,
  },
  { name: "AMCT", chips: /ascend/, write: (nodes) => lines(nodes, (node) => `skip_layers: ${quoted(node)}`) },
  { name: "RKNN", chips: /^(rknn|rk\d)/i, write: (nodes) => `custom_quantize_layers:\n${lines(nodes, (node) => `  ${yaml(node)}: float16`)}` },
  { name: "NNCF", write: (nodes) => `IgnoredScope(names=[${listed(nodes)}])` },
  { name: "tpu-mlir", write: (nodes) => lines(nodes, (node) => `${node} F16`) },
];
