// How each tool is told to keep one node in higher precision.

export interface Dialect {
  name: string;
  write: (node: string) => string;
}

const quoted = (text: string): string => JSON.stringify(text);
const shell = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
const yaml = quoted;

export const DIALECTS: readonly Dialect[] = [
  { name: "roundoff", write: (node) => `--set ${shell(`${node}=float`)}` },
  { name: "onnxruntime", write: (node) => `nodes_to_exclude=[${quoted(node)}]` },
  { name: "Pulsar2", write: (node) => `{"layer_names": [${quoted(node)}], "data_type": "U16"}` },
  { name: "Horizon", write: (node) => `node_info: {${yaml(node)}: {InputType: int16, OutputType: int16}}` },
  { name: "AMCT", write: (node) => `skip_layers: ${quoted(node)}` },
  { name: "RKNN", write: (node) => `custom_quantize_layers:\n  ${yaml(node)}: float16` },
  { name: "NNCF", write: (node) => `IgnoredScope(names=[${quoted(node)}])` },
  { name: "tpu-mlir", write: (node) => `${node} F16` },
];
