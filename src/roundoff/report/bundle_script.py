"""The test script of a bundle: plain numpy and onnxruntime, the same text in every bundle."""

__all__ = ["TEST_SCRIPT"]

TEST_SCRIPT = '''\
"""Shows the numbers of this bundle's ticket. Needs numpy and onnxruntime: python test_case.py"""

import json
import math
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Arithmetic differs in the last bits from machine to machine.
CLOSE_DB = 1.0


def scores(reference, candidate):
    """Signal to noise in decibels, and cosine."""
    a = np.asarray(reference, np.float64).ravel()
    b = np.asarray(candidate, np.float64).ravel()
    good = np.isfinite(a) & np.isfinite(b)
    a, b = a[good], b[good]
    signal, noise = float(a @ a), float((a - b) @ (a - b))
    db = math.inf if noise == 0 else (-math.inf if signal == 0 else 10 * math.log10(signal / noise))
    size = math.sqrt(signal * float(b @ b))
    return db, (float(a @ b) / size if size else float(signal == float(b @ b)))


def run(model, feed):
    """Outputs of a model by name, computed as its graph says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(HERE / model), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))


def pairs(case):
    """Name, reference and candidate of everything that is compared."""
    for sample in case["samples"]:
        feed = {name: np.load(HERE / path) for name, path in sample["inputs"].items()}
        if "quantized" in case:
            left, right = run(case["float"], feed), run(case["quantized"], feed)
            for name in case["outputs"]:
                yield f"{sample['name']}: {name}", left[name], right[name]
            continue
        computed = run(case["float"], feed) if feed else {}
        for name, paths in sample["tensors"].items():
            stored, candidate = (np.load(HERE / path) for path in paths)
            yield f"{sample['name']}: {name}", computed.get(name, stored), candidate


def main():
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    worst = math.inf
    for name, reference, candidate in pairs(case):
        db, cosine = scores(reference, candidate)
        print(f"{name}: {db:.2f} dB, cosine {cosine:.6f}")
        worst = min(worst, db)
    expected = float(case["expected_sqnr_db"])
    print(f"worst {worst:.2f} dB, expected {expected:.2f} dB")
    met = worst == expected or abs(worst - expected) <= CLOSE_DB
    print("the numbers are those of the ticket" if met else "the numbers are NOT those of the ticket")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
'''
