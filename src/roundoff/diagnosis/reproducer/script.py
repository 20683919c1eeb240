"""The script of a reproducer: plain numpy and onnxruntime, the same text in every one."""

__all__ = ["RUN_SCRIPT"]

RUN_SCRIPT = '''\
"""Shows one fault. Needs numpy and onnxruntime:

    python run.py                  computes it again
    python run.py --observed FILE  judges other results, laid out as observed.npz

Exit code 1 while the fault is there, 0 when it is gone.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def run(model, feed):
    """Outputs of a model by name, computed as its graph says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(HERE / model), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))


def sqnr_db(pairs):
    """Energy of what is expected over that of the difference, in decibels."""
    signal = noise = 0.0
    for expected, observed in pairs:
        if expected.shape != observed.shape:
            return -math.inf
        a, b = expected.astype(np.float64), observed.astype(np.float64)
        good = np.isfinite(a)
        signal += float(np.square(a[good]).sum())
        noise += float(np.nan_to_num(np.square(a[good] - b[good]), nan=math.inf).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observed", type=Path)
    given = parser.parse_args().observed
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    tensor, axis, index = case["tensor"], case["axis"], case["index"]
    stored = {name: np.load(HERE / f"{name}.npz") for name in ("inputs", "expected", "observed")}
    if given is not None:
        stored["observed"] = np.load(given)
    pairs = []
    for sample in case["samples"]:
        feed = {name: stored["inputs"][key] for name, key in sample["inputs"].items()}
        key = sample["outputs"][tensor]
        if case["dump"]:
            # A device wrote what is observed; what it should be follows from the device's own inputs.
            expected, observed = run(case["reference"], feed)[tensor], stored["observed"][key]
        else:
            expected = run("float.onnx", feed)[tensor]
            observed = stored["observed"][key] if given else run("quantized.onnx", feed)[tensor]
        if axis is not None and expected.shape == observed.shape:
            expected, observed = expected.take(index, axis=axis), observed.take(index, axis=axis)
        pairs.append((expected, observed))
        print(f"{sample['name']}: {sqnr_db(pairs[-1:]):.2f} dB")
    found = sqnr_db(pairs)
    there = found <= case["threshold_db"]
    where = tensor if axis is None else f"{tensor}, slice {index} of axis {axis}"
    print(f"{where}: {found:.2f} dB; the fault is there at or below {case['threshold_db']:.2f} dB")
    print("FAULT" if there else "no fault")
    return 1 if there else 0


if __name__ == "__main__":
    sys.exit(main())
'''
