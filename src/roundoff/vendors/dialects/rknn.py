"""RKNN-Toolkit2: custom_quantize_layers of hybrid quantization."""

import json

from roundoff.messages.message import english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    decision_summary,
    names_of,
    unsupported,
    unsupported_of,
)

_METHODS = {"minmax": "normal", "entropy": "kl_divergence", "mse": "mmse"}
_FLOAT = "float16"

_SCRIPT = '''\
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


def _write(decisions: Decisions) -> Written:
    layers_name, script = f"{decisions.made.stem}.quantization.cfg", f"{decisions.made.stem}_rknn.py"
    chosen = [node for node in decisions.computing if node.in_float or node.wide]
    outputs = dict.fromkeys(name for node in chosen for name in node.outputs)
    lines = [
        "custom_quantize_layers:",
        *(f"    {json.dumps(name, ensure_ascii=False)}: {_FLOAT}" for name in outputs),
    ]
    if not outputs:
        lines[0] += " {}"
    code = _SCRIPT.format(
        script=script,
        model=decisions.model,
        layers=layers_name,
        algorithm=_METHODS.get(decisions.made.method, "normal"),
        method="channel" if decisions.mostly_per_channel else "layer",
    )
    missing = (
        *unsupported_of("16-bit integers (float16 instead): {names}", names_of(decisions.wide)),
        *unsupported(decisions, _METHODS, "normal"),
    )
    use = english(
        "python {script} {model} DATASET.txt PLATFORM OUT.rknn, or copy the lines of {layers} into the file of "
        "that name that hybrid_quantization_step1 writes; layers go by their output tensors",
        script=script,
        model=decisions.model,
        layers=layers_name,
    )
    return Written({layers_name: "\n".join(lines) + "\n", script: code}, decision_summary(decisions), missing, use)


DIALECT = Dialect("rknn", "custom_quantize_layers of hybrid quantization", _write)
