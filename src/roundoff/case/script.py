"""The test script of a case: plain numpy and onnxruntime, the same text for every reproducer and every bundle."""

__all__ = ["SCRIPT"]

SCRIPT = '''\
"""Shows what this case is about. Needs numpy and onnxruntime.

A reproducer holds one fault. Exit code 1 while the fault is there, 0 when it is gone:

    python run.py                  computes it again
    python run.py --observed FILE  judges other results, laid out as observed.npz

A bundle holds the numbers of its ticket. Exit code 0 when they are met:

    python test_case.py
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
# Arithmetic differs in the last bits from machine to machine.
CLOSE_DB = 1.0


def run(model, feed):
    """Outputs of a model by name, computed as its graph says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(HERE / model), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))


def scores(pairs):
    """SQNR in decibels and cosine of all pairs as one tensor, and how many values the candidate alone lacks.

    Values that are not finite count for nothing but the last.
    """
    signal = noise = power = product = 0.0
    lost = 0
    for reference, candidate in pairs:
        if reference.shape != candidate.shape:
            return -math.inf, 0.0, reference.size
        a, b = (np.asarray(each, np.float64).ravel() for each in (reference, candidate))
        lost += int((np.isfinite(a) & ~np.isfinite(b)).sum())
        good = np.isfinite(a) & np.isfinite(b)
        a, b = a[good], b[good]
        signal, noise = signal + float(a @ a), noise + float((a - b) @ (a - b))
        power, product = power + float(b @ b), product + float(a @ b)
    if noise == 0:
        db = math.inf
    else:
        db = -math.inf if signal == 0 else 10 * (math.log10(signal) - math.log10(noise))
    size = math.sqrt(signal) * math.sqrt(power)
    return db, (product / size if size else float(signal == power)), lost


def show(name, found):
    db, cosine, lost = found
    print(f"{name}: {db:.2f} dB, cosine {cosine:.6f}" + (f", {lost} values are not finite" if lost else ""))


def fault_pairs(case, given):
    """Sample, expected and observed values where the fault of a reproducer shows."""
    tensor, axis, index = case["tensor"], case["axis"], case["index"]
    inputs, results = np.load(HERE / "inputs.npz"), np.load(given or HERE / "observed.npz")
    for sample in case["samples"]:
        feed = {name: inputs[key] for name, key in sample["inputs"].items()}
        # A device wrote what is observed; what it should be follows from the device's own inputs.
        expected = run(case["reference"] if case["dump"] else "float.onnx", feed)[tensor]
        stored = case["dump"] or given
        observed = results[sample["outputs"][tensor]] if stored else run("quantized.onnx", feed)[tensor]
        if axis is not None and expected.shape == observed.shape:
            expected, observed = expected.take(index, axis=axis), observed.take(index, axis=axis)
        yield sample["name"], expected, observed


def ticket_pairs(case):
    """Name, reference and candidate of everything that a bundle compares."""
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


def judge_fault(case, given):
    """Whether the fault is there: values are lost, or all samples together are as bad as they were."""
    pairs = []
    for name, expected, observed in fault_pairs(case, given):
        pairs.append((expected, observed))
        show(name, scores(pairs[-1:]))
    db, _, lost = scores(pairs)
    there = lost > 0 or db <= case["threshold_db"]
    where = case["tensor"] + ("" if case["axis"] is None else f", slice {case['index']} of axis {case['axis']}")
    print(f"{where}: {db:.2f} dB; the fault is there at or below {case['threshold_db']:.2f} dB")
    print("FAULT" if there else "no fault")
    return 1 if there else 0


def judge_numbers(case):
    """Whether the worst of what is compared has the number of the ticket."""
    worst = math.inf
    for name, reference, candidate in ticket_pairs(case):
        found = scores([(reference, candidate)])
        show(name, found)
        worst = min(worst, found[0])
    expected = float(case["expected_sqnr_db"])
    print(f"worst {worst:.2f} dB, expected {expected:.2f} dB")
    met = worst == expected or abs(worst - expected) <= CLOSE_DB
    print("the numbers are those of the ticket" if met else "the numbers are NOT those of the ticket")
    return 0 if met else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observed", type=Path, help="other results; of a reproducer only")
    given = parser.parse_args().observed
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    if "threshold_db" in case:
        return judge_fault(case, given)
    if given is not None:
        parser.error("a bundle has no observed.npz; its results are computed again, or are in tensors/")
    return judge_numbers(case)


if __name__ == "__main__":
    sys.exit(main())
'''
