"""The settings of toolkits that are told which layers to leave out: NNCF, RKNN-Toolkit2 and TPU-MLIR."""

import json

from roundoff.core.quantizers import representable_range
from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
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
"""Builds with the layers beside this file in float16: python {script} {model} DATASET.txt PLATFORM OUT.rknn"""

import os
import sys
from pathlib import Path

# onnxruntime, which the toolkit brings along, must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
LAYERS = Path(__file__).with_name("{layers}").read_text(encoding="utf-8")
EMPTY = "custom_quantize_layers: {{}}"


def main(model, dataset, platform, out):
    from rknn.api import RKNN

    rknn = RKNN()
    # Add mean_values and std_values as for the plain build.
    rknn.config(target_platform=platform, quantized_algorithm="{algorithm}", quantized_method="{method}")
    if rknn.load_onnx(model=model) or rknn.hybrid_quantization_step1(dataset=dataset, proposal=False):
        return 1
    stem = Path(model).stem
    config = Path(stem + ".quantization.cfg")
    text = config.read_text(encoding="utf-8")
    if EMPTY not in text:
        print(f"{{config}} has no line {{EMPTY!r}}", file=sys.stderr)
        return 1
    config.write_text(text.replace(EMPTY, LAYERS.rstrip(), 1), encoding="utf-8")
    failed = rknn.hybrid_quantization_step2(
        model_input=stem + ".model", data_input=stem + ".data", model_quantization_cfg=str(config)
    )
    return failed or rknn.export_rknn(out)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 5 else __doc__)
'''


def _write_rknn(decisions: Decisions) -> Written:
    layers_name, script = f"{decisions.made.stem}.quantization.cfg", f"{decisions.made.stem}_rknn.py"
    chosen = [node for node in decisions.computing if node.in_float or node.wide]
    outputs = dict.fromkeys(name for node in chosen for name in node.outputs)
    lines = [
        "custom_quantize_layers:",
        *(f"    {json.dumps(name, ensure_ascii=False)}: {_RKNN_FLOAT}" for name in outputs),
    ]
    if not outputs:
        lines[0] += " {}"
    code = _RKNN_SCRIPT.format(
        script=script,
        model=decisions.model,
        layers=layers_name,
        algorithm=_RKNN_METHODS.get(decisions.made.method, "normal"),
        method="channel" if decisions.mostly_per_channel else "layer",
    )
    missing = (
        *unsupported_of("16-bit integers (float16 instead): {names}", names_of(decisions.wide)),
        *unsupported(decisions, _RKNN_METHODS, "normal"),
    )
    use = english(
        "python {script} {model} DATASET.txt PLATFORM OUT.rknn, or copy the lines of {layers} into the file of "
        "that name that hybrid_quantization_step1 writes; layers go by their output tensors",
        script=script,
        model=decisions.model,
        layers=layers_name,
    )
    return Written({layers_name: "\n".join(lines) + "\n", script: code}, decision_summary(decisions), missing, use)


RKNN = Dialect("rknn", "custom_quantize_layers of hybrid quantization", _write_rknn)


# TPU-MLIR: the quantization table, and the calibration table with the ranges.

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
    use = english(
        "{model} into model_transform, then model_deploy --quantize INT8 --quantize_table {table} "
        "--calibration_table {ranges}; where the chip has no F32, write F16 or BF16 instead",
        model=decisions.model,
        table=table,
        ranges=ranges,
    )
    files = {table: "\n".join(lines) + "\n", ranges: "\n".join(rows) + "\n"}
    said = english("{said}, ranges of {count} tensors", said=decision_summary(decisions), count=len(rows) - 1)
    return Written(files, said, missing, use)


TPU_MLIR = Dialect("tpu-mlir", "qtable and cali_table", _write_tpu_mlir)
