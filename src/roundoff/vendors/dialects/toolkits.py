"""The settings of toolkits that are told which layers to leave out: ours, onnxruntime, NNCF, RKNN, TPU-MLIR."""

import inspect
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT, PRECISION_PARTS, Precision, Rule
from roundoff.core.quantizers import Quantizer, representable_range
from roundoff.graph.nodes import opset_of
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    COMMON_BITS,
    Decisions,
    Dialect,
    NodeDecision,
    Written,
    decision_summary,
    graph_digest,
    names_of,
    scaled,
    unsupported,
    unsupported_codes,
    unsupported_of,
    unsupported_scales,
    unsupported_weight_scales,
    unsupported_weights,
)

# NNCF: the ignored scope.

_NNCF_METHODS = {"minmax": "min_max"}

_NNCF_SCRIPT = '''\
"""The settings beside this file as arguments of nncf.quantize(model, dataset, **arguments())."""

import json
import os
from pathlib import Path

# onnxruntime, which nncf brings along, must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
SETTINGS = json.loads(Path(__file__).with_name("{settings}").read_text(encoding="utf-8"))


def arguments():
    import nncf

    return {{
        "ignored_scope": nncf.IgnoredScope(**SETTINGS["ignored_scope"]),
        "preset": nncf.QuantizationPreset(SETTINGS["preset"]),
    }}
'''


def _write_nncf(decisions: Decisions) -> Written:
    settings_name, script = f"{decisions.made.stem}_nncf.json", f"{decisions.made.stem}_nncf.py"
    ignored = names_of(node for node in decisions.nodes if node.in_float or (node.wide and not node.moves))
    settings = {
        "ignored_scope": {"names": ignored, "validate": False},
        "preset": "performance" if decisions.mostly_symmetric("activation") else "mixed",
    }
    missing = (
        *unsupported_of("16-bit integers (float instead): {names}", names_of(decisions.wide)),
        *unsupported(decisions, _NNCF_METHODS, english("its own ranges")),
    )
    files = {
        settings_name: json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
        script: _NNCF_SCRIPT.format(settings=settings_name),
    }
    use = english(
        "nncf.quantize(model, dataset, **arguments()) with {model} and arguments() of {script}",
        model=decisions.model,
        script=script,
    )
    return Written(files, decision_summary(decisions), missing, use)


NNCF = Dialect("nncf", "IgnoredScope of nncf.quantize", _write_nncf)


# RKNN-Toolkit2: custom_quantize_layers of hybrid quantization.

_RKNN_METHODS = {"minmax": "normal", "entropy": "kl_divergence", "mse": "mmse"}
_RKNN_FLOAT = "float16"

_RKNN_SCRIPT = '''\
"""Builds with the layers and ranges beside this file.

python {script} {model} DATASET.txt PLATFORM OUT.rknn [SAMPLE.npy ...]

DATASET.txt names a file on each line, of several inputs one after the other. With samples the simulator's tensors
are written to OUT.rknn.analysis.
"""

import json
import os
import re
import sys
from pathlib import Path

# onnxruntime, which the toolkit brings along, must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
LAYERS = Path(__file__).with_name("{layers}").read_text(encoding="utf-8")
RANGES = json.loads(Path(__file__).with_name("{ranges}").read_text(encoding="utf-8"))
# The toolkit takes static shapes only.
INPUTS = {inputs!r}
EMPTY = "custom_quantize_layers: {{}}"


def with_range(text, tensor, low, high):
    """The configuration with the range of a tensor; None where it has none of its own."""
    start = re.search("^    ['\\"]?" + re.escape(tensor) + "['\\"]?:[ ]*\\n", text, re.MULTILINE)
    if start is None:
        return None
    # Only these two lines change: the toolkit refuses a file in which anything else was written anew.
    end = re.search("^    [^ ]", text[start.end():], re.MULTILINE)
    stop = len(text) if end is None else start.end() + end.start()
    block = text[start.end():stop]
    for key, value in (("min", low), ("max", high)):
        line = "(^        " + key + ":\\n        -   )[^\\n]+"
        block, count = re.subn(line, lambda m: m[1] + repr(value), block, count=1, flags=re.MULTILINE)
        if not count:
            return None
    return text[:start.end()] + block + text[stop:]


def main(model, dataset, platform, out, *samples):
    from rknn.api import RKNN

    rknn = RKNN()
    # Add mean_values and std_values as for the plain build.
    rknn.config(target_platform=platform, quantized_algorithm="{algorithm}", quantized_method="{method}")
    sizes = {{"inputs": list(INPUTS), "input_size_list": list(INPUTS.values())}} if INPUTS else {{}}
    if rknn.load_onnx(model=model, **sizes) or rknn.hybrid_quantization_step1(dataset=dataset, proposal=False):
        return 1
    stem = Path(model).stem
    config = Path(stem + ".quantization.cfg")
    text = config.read_text(encoding="utf-8")
    if EMPTY not in text:
        print(f"{{config}} has no line {{EMPTY!r}}", file=sys.stderr)
        return 1
    text = text.replace(EMPTY, LAYERS.rstrip(), 1)
    absent = []
    for tensor, (low, high) in RANGES.items():
        before = text
        # Inputs and outputs have their codes under another name, products too.
        for name in (tensor, tensor + "_int8", tensor + "_mm"):
            text = with_range(text, name, low, high) or text
        absent += [tensor] * (text == before)
    config.write_text(text, encoding="utf-8")
    print(f"ranges of {{len(RANGES) - len(absent)}} tensors written, it has none for", absent or "no other")
    # The second step wants an object that has loaded nothing.
    built = RKNN()
    failed = built.hybrid_quantization_step2(
        model_input=stem + ".model", data_input=stem + ".data", model_quantization_cfg=str(config)
    )
    if failed or built.export_rknn(out):
        return 1
    return built.accuracy_analysis(inputs=list(samples), output_dir=out + ".analysis") if samples else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) >= 5 else __doc__)
'''
_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish")


def _write_rknn(decisions: Decisions) -> Written:
    layers_name, script = f"{decisions.made.stem}.quantization.cfg", f"{decisions.made.stem}_rknn.py"
    ranges_name = f"{decisions.made.stem}_rknn_ranges.json"
    chosen = [node for node in decisions.computing if node.in_float or node.wide]
    outputs = dict.fromkeys(name for node in chosen for name in node.outputs)
    lines = [
        "custom_quantize_layers:",
        *(f"    {json.dumps(name, ensure_ascii=False)}: {_RKNN_FLOAT}" for name in outputs),
    ]
    if not outputs:
        lines[0] += " {}"
    ranges = _ranges(decisions)
    code = _RKNN_SCRIPT.format(
        script=script,
        model=decisions.model,
        layers=layers_name,
        ranges=ranges_name,
        inputs=_input_shapes(decisions, only_free=True),
        algorithm=_RKNN_METHODS.get(decisions.made.method, "normal"),
        method="channel" if decisions.mostly_per_channel else "layer",
    )
    sliced = [each.tensor for each in decisions.of_kind("activation") if each.params.scale.ndim]
    missing = (
        *unsupported_of("16-bit integers (float16 instead): {names}", names_of(decisions.wide)),
        *unsupported_of("one scale per slice of activations: {names}", sliced),
        *unsupported_weights(decisions),
        *unsupported_weight_scales(decisions),
        *unsupported_codes(decisions),
    )
    use = english(
        "python {script} {model} DATASET.txt PLATFORM OUT.rknn [SAMPLE.npy]; layers go by their output tensors",
        script=script,
        model=decisions.model,
    )
    files = {
        layers_name: "\n".join(lines) + "\n",
        ranges_name: json.dumps(ranges, indent=1, ensure_ascii=False) + "\n",
        script: code,
    }
    said = english("{said}, ranges of {count} tensors", said=decision_summary(decisions), count=len(ranges))
    return Written(files, said, missing, use)


def _ranges(decisions: Decisions) -> dict[str, tuple[float, float]]:
    """The range of every tensor of 8 bits, and of what is fused in front of it; of copies none."""
    found: dict[str, tuple[float, float]] = {}
    producers = {name: node for node in decisions.quantized.float_model.proto.graph.node for name in node.output}
    own = {each.tensor for each in decisions.of_kind("activation")}
    for each in decisions.of_kind("activation"):
        if each.after or each.params.scale.ndim or each.spec.bits != COMMON_BITS:
            continue
        ends = representable_range(each.params, each.spec)
        name = each.tensor
        found.setdefault(name, (float(ends[0]), float(ends[1])))
        while name in producers and producers[name].op_type in _ACTIVATIONS:
            name = producers[name].input[0]
            if name in own:
                break
            found[name] = found[each.tensor]
    return found


def _input_shapes(decisions: Decisions, *, only_free: bool = False) -> dict[str, list[int]]:
    """The inputs with the shape of one sample; on wish none where the model leaves nothing open."""
    inputs = decisions.quantized.float_model.proto.graph.input
    shapes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in inputs}
    if only_free and all(all(shape) for shape in shapes.values()):
        return {}
    return {name: [size or 1 for size in shape] for name, shape in shapes.items()}


RKNN = Dialect("rknn", "layers and ranges of hybrid quantization, with a script that builds", _write_rknn)


# TPU-MLIR: the quantization table, and the calibration table with the ranges.

_TPU_SCRIPT = '''\
"""Builds with the tables beside this file, in an environment of TPU-MLIR.

python {script} {model} PROCESSOR OUT.bmodel [SAMPLE.npz]

PROCESSOR as model_deploy.py takes it: bm1684x, bm1688, ... With a sample the tensors of the float graph and of the
lowered one are written beside OUT.bmodel, as OUT_top.npz and OUT_tpu.npz.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHAPES = {shapes!r}


def run(*words):
    return subprocess.run([str(word) for word in words], check=False).returncode


def main(model, processor, out, sample=""):
    out = Path(out)
    name, folder = out.stem, out.resolve().parent
    mlir = folder / (name + ".mlir")
    tests = ["--test_input", sample, "--test_result", folder / (name + "_top.npz")] if sample else []
    failed = run("model_transform.py", "--model_name", name, "--model_def", model, "--mlir", mlir,
                 "--input_shapes", str(SHAPES).replace(" ", ""), *tests)
    failed = failed or run("model_deploy.py", "--mlir", mlir, "--quantize", "INT8", "--processor", processor,
                           "--calibration_table", HERE / "{ranges}", "--quantize_table", HERE / "{table}",
                           "--model", out, "--debug")
    lowered = sorted(Path.cwd().glob(name + "_*_tpu.mlir")) + sorted(folder.glob(name + "_*_tpu.mlir"))
    if not failed and sample:
        failed = run("model_runner.py", "--input", sample, "--model", lowered[0], "--dump_all_tensors",
                     "--output", folder / (name + "_tpu.npz"))
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) in (4, 5) else __doc__)
'''
_FLOAT, _HALF = "F32", "F16"


def _write_tpu_mlir(decisions: Decisions) -> Written:
    table, ranges = f"{decisions.made.stem}_qtable", f"{decisions.made.stem}_cali_table"
    graph = decisions.quantized.float_model.proto.graph
    kinds = {name: node.op_type for node in graph.node for name in node.output if name}
    spaced = [name for name in kinds if any(letter.isspace() for letter in name)]
    lines = ["# op_name   quantize_mode"]
    for node in decisions.computing:
        mode = _FLOAT if node.in_float else _HALF if node.wide else ""
        if mode:
            lines += [f"{name}_{node.op_type} {mode}" for name in node.outputs if name not in spaced]
    sliced: list[str] = []
    rows = ["# op_name    threshold    min    max"]
    for each in decisions.of_kind("activation"):
        tensor = each.tensor
        if tensor in spaced or each.after:
            continue
        if each.params.scale.ndim:
            sliced.append(tensor)
            continue
        low, high = (float(end) for end in representable_range(each.params, each.spec))
        name = f"{tensor}_{kinds[tensor]}" if tensor in kinds else tensor
        row = f"{name} {max(abs(low), abs(high)):.9g} {low:.9g} {high:.9g}"
        if row not in rows:
            rows.append(row)
    missing = (
        *unsupported_of("16-bit integers (F16 instead): {names}", names_of(decisions.wide)),
        *unsupported_of("one scale per slice of activations: {names}", sliced),
        *unsupported_of("names with blanks: {names}", spaced),
        *unsupported_weights(decisions),
        *unsupported_weight_scales(decisions),
        *unsupported_codes(decisions),
    )
    script = f"{decisions.made.stem}_tpu_mlir.py"
    use = english(
        "python {script} {model} bm1684x OUT.bmodel [SAMPLE.npz]; where the chip has no F32, write F16 or BF16 "
        "into {table} instead",
        script=script,
        model=decisions.model,
        table=table,
    )
    shapes = list(_input_shapes(decisions).values())
    code = _TPU_SCRIPT.format(script=script, model=decisions.model, shapes=shapes, table=table, ranges=ranges)
    files = {table: "\n".join(lines) + "\n", ranges: "\n".join(rows) + "\n", script: code}
    said = english("{said}, ranges of {count} tensors", said=decision_summary(decisions), count=len(rows) - 1)
    return Written(files, said, missing, use)


TPU_MLIR = Dialect("tpu-mlir", "qtable and cali_table, with a script that builds", _write_tpu_mlir)


def _write(decisions: Decisions) -> Written:
    asked = decisions.made.rules
    rules = asked if asked and _known(decisions, asked) else tuple(_derived(decisions))
    target = decisions.made.target or "TARGET"
    lines = [f"# For: roundoff quantize {decisions.model} --target {target} --rules FILE", ""]
    for rule in rules:
        lines += ["[[rule]]", *_selector(rule), f"precision = {_precision(rule.precision)}", ""]
    if not rules:
        lines.append("rule = []")
    name = f"{decisions.made.stem}_rules.toml"
    calibration = f" --calibration {decisions.made.method}" if decisions.made.method else ""
    return Written(
        {name: "\n".join(lines).rstrip() + "\n"},
        decision_summary(decisions, weights=True),
        (*unsupported_scales(decisions), *unsupported_codes(decisions)),
        english(
            "roundoff quantize {model} --data DATA --target {target}{calibration} --rules {name} -o DIR; the "
            "scales are in plan.json, which --quantized DIR reads",
            model=decisions.model,
            target=target,
            calibration=calibration,
            name=name,
        ),
    )


def _known(decisions: Decisions, rules: Iterable[Rule]) -> bool:
    """Whether all that rules name is there: in a changed graph some of the user's names may not be."""
    if not decisions.made.graph:
        return True
    graph = decisions.quantized.float_model.proto.graph
    names = {name for node in graph.node for name in (node.name, node.op_type, *node.input, *node.output)}
    asked = (name for rule in rules for name in (*rule.selector, *rule.end))
    return all(name in names or any(letter in "*?[" for letter in name) for name in asked)


def _derived(decisions: Decisions) -> Iterable[Rule]:
    """A rule for the nodes of each precision that is not the most common one."""
    common = Precision(decisions.common_dtype("activation"), decisions.common_dtype("weight"))
    found: dict[Precision, list[str]] = {}
    for node in decisions.computing:
        one = {part: getattr(node.precision, part).split("/")[-1] for part in ("activation", "weight")}
        differs = {part: dtype for part, dtype in one.items() if dtype and dtype != getattr(common, part)}
        if node.float_between:
            differs["activation"] = FLOAT
        if differs:
            found.setdefault(Precision(**differs), []).append(node.name)
    return [Rule("node", tuple(names), precision) for precision, names in found.items()]


def _selector(rule: Rule) -> list[str]:
    if rule.kind == "between":
        return [f"between = {{ start = {_texts(rule.selector)}, end = {_texts(rule.end)} }}"]
    return [f"{rule.kind} = {_texts(rule.selector)}"]


def _texts(names: Iterable[str]) -> str:
    # What JSON escapes is escaped in the same way in a basic string of TOML.
    return json.dumps(list(names), ensure_ascii=False).replace("\x7f", "\\u007f")


def _precision(precision: Precision) -> str:
    parts = {part: getattr(precision, part) for part in PRECISION_PARTS}
    return "{ " + ", ".join(f'{part} = "{dtype}"' for part, dtype in parts.items() if dtype) + " }"


ROUNDOFF = Dialect("roundoff", "rules of roundoff quantize", _write)


_TYPES = {"u8": "QUInt8", "s8": "QInt8", "u16": "QUInt16", "s16": "QInt16", "u4": "QUInt4", "s4": "QInt4"}
_FIRST_16_BITS = 21
"""From this opset on ONNX itself has QuantizeLinear for 16 bits."""

_SCRIPT = '''\
"""Quantizes with the settings beside this file: python {script} {model} OUT.onnx SAMPLES.npz

The archive holds one array for each input of the model, its first axis counting samples.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx

# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SETTINGS = json.loads(Path(__file__).with_name("{settings}").read_text(encoding="utf-8"))


def _override(entry):
    made = dict(entry, quant_type=QuantType[entry["quant_type"]])
    if "scale" in made:
        made["scale"] = np.array(made["scale"], dtype=np.float32)
        made["zero_point"] = np.array(made["zero_point"], dtype=entry["quant_type"].lower().lstrip("q"))
    if "convert" in made:
        made["convert"] = dict(_override(entry["convert"]), recv_nodes=set(entry["convert"]["recv_nodes"]))
    return made


def arguments():
    """What quantize_static takes, besides the models and the data."""
    options = dict(SETTINGS["extra_options"])
    options["TensorQuantOverrides"] = {{
        tensor: [_override(entry) for entry in entries]
        for tensor, entries in options["TensorQuantOverrides"].items()
    }}
    return {{
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType[SETTINGS["activation_type"]],
        "weight_type": QuantType[SETTINGS["weight_type"]],
        "per_channel": SETTINGS["per_channel"],
        "nodes_to_exclude": SETTINGS["nodes_to_exclude"],
        "extra_options": options,
    }}


{digest}

def check(path):
    """Ends with a message where settings are those of another graph: its scales would be wrong, silently."""
    graph = onnx.load(path).graph
    known = {{node.name for node in graph.node}}
    same = graph_digest(graph, onnx.numpy_helper.to_array) == SETTINGS["graph"]
    if not same or not known.issuperset(SETTINGS["nodes_to_exclude"]):
        ours = {given}
        sys.exit(
            f"{{path}} is not the model that these settings are for, which was {why}\\n"
            f"fix: python {{sys.argv[0]}} {{ours}} {{sys.argv[2]}} {{sys.argv[3]}}"
        )


class Reader(CalibrationDataReader):
    """The samples of an archive, one at a time."""

    def __init__(self, archive):
        arrays = {{name: archive[name] for name in archive.files}}
        count = min(len(values) for values in arrays.values())
        self._feeds = ({{name: values[i : i + 1] for name, values in arrays.items()}} for i in range(count))

    def get_next(self):
        return next(self._feeds, None)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    check(sys.argv[1])
    with np.load(sys.argv[3]) as data:
        quantize_static(sys.argv[1], sys.argv[2], Reader(data), **arguments())
'''


def _onnxruntime_write(decisions: Decisions) -> Written:
    overrides, missing = _overrides(decisions)
    graph, model = decisions.made.graph, decisions.quantized.float_model
    settings_name, script = f"{decisions.made.stem}_onnxruntime.json", f"{decisions.made.stem}_onnxruntime.py"
    activation, weight = (decisions.common_dtype(kind) for kind in ("activation", "weight"))
    options: dict[str, Any] = {
        "ActivationSymmetric": decisions.mostly_symmetric("activation"),
        "WeightSymmetric": decisions.mostly_symmetric("weight"),
        "UseQDQContribOps": _needs_contrib(decisions),
        "TensorQuantOverrides": overrides,
    }
    settings = {
        "activation_type": _TYPES.get(activation, "QUInt8"),
        "weight_type": _TYPES.get(weight, "QInt8"),
        "per_channel": decisions.mostly_per_channel,
        "nodes_to_exclude": names_of(filter(_excluded, decisions.nodes)),
        "extra_options": options,
        "graph": graph_digest(model.proto.graph, lambda tensor: constant_value(tensor, model)),
    }
    files = {
        settings_name: json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
        script: _SCRIPT.format(
            script=script,
            settings=settings_name,
            model=decisions.model,
            digest=inspect.getsource(graph_digest),
            given=f"Path(__file__).with_name({graph!r})" if graph else '"MODEL.onnx"',
            why="changed before it was quantized" if graph else "quantized as it was",
        ),
    }
    kept = [node.name for node in decisions.computing if not node.in_float and node.precision.output == FLOAT]
    missing += unsupported_of("results of quantized nodes that stay in float: {names}", kept)
    said = scaled(decisions, len(overrides))
    use = f"python {script} {decisions.model} OUT.onnx SAMPLES.npz"
    return Written(files, said, (*missing, *unsupported_codes(decisions)), use)


def _excluded(node: NodeDecision) -> bool:
    """Whether a node is to be left out; those that only pass values on would quantize what they pass to others."""
    return node.in_float or (node.moves and node.precision.output == FLOAT)


def _needs_contrib(decisions: Decisions) -> bool:
    wide = any(each.spec.bits != COMMON_BITS for each in decisions.quantized.quantizers if each.kind != "bias")
    return wide and opset_of(decisions.quantized.float_model.proto) < _FIRST_16_BITS


def _overrides(decisions: Decisions) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The entry of each tensor, and what has none."""
    found: dict[str, list[dict[str, Any]]] = {}
    sliced: list[str] = []
    unknown: list[str] = []
    twice: list[str] = []
    rounded: list[str] = []
    initializers = {each.name for each in decisions.quantized.float_model.proto.graph.initializer}
    by_tensor: dict[str, list[Quantizer]] = {}
    for each in decisions.quantized.quantizers:
        if each.kind != "bias":
            by_tensor.setdefault(each.tensor, []).append(each)
    for tensor, members in by_tensor.items():
        first = min(members, key=lambda each: bool(each.after))
        others = [each for each in members if each is not first and not _same(each, first)]
        if any(each.spec.dtype not in _TYPES for each in members):
            unknown.append(tensor)
        elif first.params.scale.ndim and tensor not in initializers:
            sliced.append(tensor)
        else:
            found[tensor] = _entries(first)
            if len(others) == 1 and others[0].spec.dtype != first.spec.dtype and not others[0].params.scale.ndim:
                readers = sorted({consumer.node for consumer in others[0].consumers})
                found[tensor][0]["convert"] = {**_entries(others[0])[0], "recv_nodes": readers}
            elif others:
                twice.append(tensor)
        if first.spec.rounding != "half_even":
            rounded.append(tensor)
    missing = [
        *unsupported_of("one scale per slice of activations: {names}", sliced),
        *unsupported_of("codes of other widths than 4, 8 and 16 bits: {names}", unknown),
        *unsupported_of("several scales for the readers of a tensor: {names}", twice),
        *unsupported_of("rounding otherwise than half to even: {names}", rounded),
    ]
    return found, missing


def _same(one: Quantizer, other: Quantizer) -> bool:
    return one.spec.dtype == other.spec.dtype and one.params.equals(other.params)


def _entries(quantizer: Quantizer) -> list[dict[str, Any]]:
    scales, points = np.atleast_1d(quantizer.params.scale), np.atleast_1d(quantizer.params.zero_point)
    entries: list[dict[str, Any]] = [
        {"quant_type": _TYPES[quantizer.spec.dtype], "scale": float(scale), "zero_point": int(point)}
        for scale, point in zip(scales, points, strict=True)
    ]
    if quantizer.params.scale.ndim:
        for entry in entries:
            entry["axis"] = quantizer.spec.axis
    return entries


ONNXRUNTIME = Dialect(
    "onnxruntime", "nodes_to_exclude and TensorQuantOverrides of quantize_static", _onnxruntime_write
)
