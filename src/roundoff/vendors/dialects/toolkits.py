"""The settings of toolkits that are told which layers to leave out: NNCF, RKNN-Toolkit2 and TPU-MLIR."""

import json

from roundoff.core.quantizers import representable_range
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    COMMON_BITS,
    Decisions,
    Dialect,
    Written,
    decision_summary,
    names_of,
    unsupported,
    unsupported_codes,
    unsupported_of,
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
