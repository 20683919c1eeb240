"""A minimal reproducer as data: models, inputs, what they should give and what they give."""

import io
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.files import write_bytes, write_text
from roundoff.core.tensors import Array
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.result import Finding, Measure
from roundoff.graph.load import Model
from roundoff.graph.save import save_model
from roundoff.measure.metrics import ratio_db
from roundoff.messages.numbers import counted

__all__ = [
    "BEST_DB",
    "CASE_NAME",
    "RUN_SCRIPT",
    "Gap",
    "Reproducer",
    "ReproducerSample",
    "Spot",
    "Verified",
    "as_good_as",
    "clearly_better",
    "largest_gap",
    "sqnr_at",
    "verify",
    "write_reproducer",
]


# Where two networks differ most: a tensor, or one slice of it, that one of them has clearly better.

BEST_DB = 60.0
"""Better than this is as good as exact."""

_SHARE_OF_WHOLE = 0.5
# A slice of fewer values is judged by chance, ...
_FEWEST_VALUES = 16
# ... one of more slices is no axis of channels, ...
_MOST_SLICES = 2048
# ... and one whose energy is less than this part of what others have on average holds nothing.
_SMALLEST_SHARE = 1e-9

Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor, or a slice of it.

    Attributes:
        tensor: The tensor.
        axis: Axis of the slice; None for all of it.
        index: Which slice.
    """

    tensor: str
    axis: int | None = None
    index: int = 0

    @property
    def text(self) -> str:
        """In words."""
        return repr(self.tensor) + ("" if self.axis is None else f", slice {self.index} of axis {self.axis}")

    def of(self, array: Array) -> Array:
        """Its elements."""
        return array if self.axis is None else array.take(self.index, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Gap:
    """How much worse one network is at a spot than another.

    Attributes:
        spot: Where.
        faulty_db: Signal to noise of the worse one; at most `BEST_DB`.
        mended_db: Of the better one.
    """

    spot: Spot
    faulty_db: float
    mended_db: float

    @property
    def db(self) -> float:
        """The difference."""
        return self.mended_db - self.faulty_db


def largest_gap(exact: Sequence[Arrays], faulty: Sequence[Arrays], mended: Sequence[Arrays]) -> Gap | None:
    """The spot where faulty values are worse than mended ones.

    A whole tensor is told where it has at least half of the decibels that its worst slice has.

    Args:
        exact: What the values should be, by sample.
        faulty: What they are.
        mended: What they are without the fault.

    Returns:
        None where nothing can be compared.
    """
    whole: list[Gap] = []
    sliced: list[Gap] = []
    for tensor in exact[0] if exact else ():
        arrays = [[each[tensor] for each in side] for side in (exact, faulty, mended)]
        shapes = {array.shape for side in arrays for array in side}
        if any(array.dtype.kind not in "fiu" for side in arrays for array in side):
            continue
        whole.append(
            Gap(Spot(tensor), _db(*_energies(arrays[0], arrays[1])), _db(*_energies(arrays[0], arrays[2])))
        )
        if len(shapes) == 1:
            sliced += _slices(tensor, *(np.stack(side).astype(np.float64) for side in arrays))
    best, worst_slice = (max(gaps, key=lambda gap: gap.db, default=None) for gaps in (whole, sliced))
    if best is None or worst_slice is None:
        return best
    return best if best.db >= _SHARE_OF_WHOLE * worst_slice.db else worst_slice


def sqnr_at(spot: Spot, exact: Sequence[Arrays], other: Sequence[Arrays]) -> float:
    """Signal to noise at a spot, at most `BEST_DB`."""
    pairs = [[spot.of(each[spot.tensor]) for each in side] for side in (exact, other)]
    return _db(*_energies(pairs[0], pairs[1]))


def _energies(exact: Sequence[Array], other: Sequence[Array]) -> tuple[float, float]:
    signal = noise = 0.0
    for left, right in zip(exact, other, strict=True):
        if left.shape != right.shape:
            return 0.0, math.inf
        a, b = left.astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(a)
        with np.errstate(over="ignore", invalid="ignore"):
            signal += float(np.square(a[finite]).sum())
            noise += float(np.nan_to_num(np.square(a[finite] - b[finite]), nan=math.inf).sum())
    return signal, noise


def _db(signal: float, noise: float) -> float:
    return max(-BEST_DB, min(BEST_DB, ratio_db(signal, noise)))


def _slices(tensor: str, exact: Array, faulty: Array, mended: Array) -> Iterator[Gap]:
    """Every slice along every axis but that of samples; arrays have the samples as their first axis."""
    if not all(np.isfinite(each).all() for each in (exact, faulty, mended)):
        return
    power, faults, rest = np.square(exact), np.square(exact - faulty), np.square(exact - mended)
    for axis in range(1, exact.ndim - 1):
        count = exact.shape[axis + 1]
        if not 1 < count <= _MOST_SLICES or exact.size // count < _FEWEST_VALUES:
            continue
        others = tuple(at for at in range(exact.ndim) if at != axis + 1)
        signal, noise, left = (each.sum(axis=others) for each in (power, faults, rest))
        enough = signal > _SMALLEST_SHARE * signal.mean()
        for index in np.flatnonzero(enough):
            one = Spot(tensor, axis, int(index))
            yield Gap(
                one, _db(float(signal[index]), float(noise[index])), _db(float(signal[index]), float(left[index]))
            )


# The outputs of the whole network are clearly better from this on.
_BETTER_DB = 1.0


def clearly_better(before: Loss, after: Loss) -> bool:
    """Whether the outputs of a network lose clearly less, or agree only then."""
    return after.sqnr_db - before.sqnr_db >= _BETTER_DB or (after.agrees and not before.agrees)


def as_good_as(found: Loss, expected: Loss) -> bool:
    """Whether outputs lose no more than is expected; what nobody notices, such as rounding, is no loss."""
    return found.excess_db(expected) < _BETTER_DB


@dataclass(frozen=True, slots=True, eq=False)
class ReproducerSample:
    """One set of inputs.

    Attributes:
        name: The sample of the run it was taken from.
        inputs: What the part reads.
        expected: What it should give.
        observed: What it gives.
    """

    name: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    observed: Mapping[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Reproducer:
    """The smallest part of a network that shows a fault by itself.

    Attributes:
        nodes: Names and operations of its nodes.
        float_model: The part in float.
        quantized_model: The same with its quantizers; None where none are known.
        samples: What it is fed.
        stored: Whether what was observed is a dump; otherwise the quantized model gives it again.
        spot: Where the fault shows.
        faulty_db: Signal to noise there.
        mended_db: The same without the fault.
        threshold_db: The fault is there at or below this.
        mending: What was changed so that it was gone.
        complement: Outputs of the whole network as it is, and with this part right.
        alone: SQNR of the outputs with nothing but the blamed quantizers on; None where that means nothing.
        passes: Whether the whole network is clearly better with this part right.
        fed: What it is fed, in words, where that is neither the float network's nor a device's.
        observer: What gave what was observed, likewise.
        right: How the whole network was put right, likewise.
        unnoticed: Whether the outputs are right as they are, too: the fault does not reach them.
    """

    nodes: tuple[tuple[str, str], ...]
    float_model: Model
    quantized_model: Model | None
    samples: tuple[ReproducerSample, ...]
    stored: bool
    spot: Spot
    faulty_db: float
    mended_db: float
    threshold_db: float
    mending: str
    complement: Measure | None
    alone: float | None
    passes: bool
    fed: str = ""
    observer: str = ""
    right: str = ""
    unnoticed: bool = False

    @property
    def fed_with(self) -> str:
        """What it is fed, in words."""
        return self.fed or ("the device's own inputs" if self.stored else "what the float network computes")


# The script of a reproducer: plain numpy and onnxruntime, the same text in every one.

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


# The folder of a reproducer: models, inputs, results, a script that shows the fault, and a text for readers.

CASE_NAME = "case.json"
"""By this file the folder of a reproducer is known."""

_SHOWN, _GONE = 1, 0
_MOST_SECONDS = 300


def write_reproducer(folder: Path, found: Reproducer, finding: Finding) -> tuple[str, ...]:
    """Write all files of a reproducer; gives their names.

    Args:
        folder: Where they go.
        found: The reproducer.
        finding: What it shows.
    """
    save_model(found.float_model, folder / "float.onnx")
    names = ["float.onnx"]
    if found.quantized_model is not None:
        save_model(found.quantized_model, folder / "quantized.onnx")
        names.append("quantized.onnx")
    inputs: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    observed: dict[str, Array] = {}
    samples = []
    for number, sample in enumerate(found.samples):
        keys = {name: f"s{number}_in{at}" for at, name in enumerate(sample.inputs)}
        results = {name: f"s{number}_out{at}" for at, name in enumerate(sample.expected)}
        inputs |= {keys[name]: array for name, array in sample.inputs.items()}
        expected |= {results[name]: array for name, array in sample.expected.items()}
        observed |= {results[name]: sample.observed[name] for name in sample.expected}
        samples.append({"name": sample.name, "inputs": keys, "outputs": results})
    for name, arrays in (("inputs.npz", inputs), ("expected.npz", expected), ("observed.npz", observed)):
        write_bytes(folder / name, _archive(arrays))
        names.append(name)
    case = {
        "cause": finding.cause,
        "nodes": dict(found.nodes),
        "tensor": found.spot.tensor,
        "axis": found.spot.axis,
        "index": found.spot.index,
        "sqnr_db": found.faulty_db,
        "without_fault_db": found.mended_db,
        "threshold_db": found.threshold_db,
        "dump": found.stored,
        "reference": "float.onnx" if found.quantized_model is None else "quantized.onnx",
        "samples": samples,
    }
    write_text(folder / CASE_NAME, json.dumps(case, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "run.py", RUN_SCRIPT)
    write_text(folder / "README.txt", _readme(found, finding))
    return (*names, CASE_NAME, "run.py", "README.txt")


def _archive(arrays: Mapping[str, Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **dict(arrays))  # type: ignore[arg-type]
    return buffer.getvalue()


def _readme(found: Reproducer, finding: Finding) -> str:
    """What this is, for whoever receives it."""
    nodes = ", ".join(f"{name} ({kind})" for name, kind in found.nodes)
    observed = found.observer or (
        "what the device wrote"
        if found.stored
        else "what quantized.onnx gives: the same nodes with quantize-dequantize pairs"
    )
    lines = [
        f"One fault: {finding.cause}",
        "",
        f"  nodes     {nodes}",
        f"  where     {found.spot.text}",
        f"  SQNR      {found.faulty_db:.2f} dB; {found.mended_db:.2f} dB {found.mending}",
        f"  fed with  {found.fed_with}, {counted(len(found.samples), 'sample')}",
        "",
        "python run.py shows it, with numpy and onnxruntime alone: exit code 1 while",
        "the fault is there, 0 when it is gone. To judge other results, store them under",
        "the keys of observed.npz and run: python run.py --observed FILE.npz",
        "",
        "  float.onnx      the nodes in float",
        *([] if found.quantized_model is None else ["  quantized.onnx  the same with their quantizers"]),
        "  inputs.npz      what they are fed; case.json says which key is which tensor",
        "  expected.npz    what they should give",
        f"  observed.npz    {observed}",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Verified:
    """What the script of a reproducer did when it was run.

    Attributes:
        shows: Whether it ended with exit code 1 on what is observed.
        passes: Whether it ended with exit code 0 on what is expected; True where that cannot be tried.
        text: What it printed last, or why it failed.
    """

    shows: bool
    passes: bool
    text: str


def verify(folder: Path) -> Verified:
    """Run the script of a reproducer as its receiver would, on what is observed and on what is expected."""
    shown = _run(folder)
    right = _run(folder, "--observed", "expected.npz")
    printed = (shown.stdout.strip() or shown.stderr.strip()).splitlines()
    return Verified(
        shown.returncode == _SHOWN and "FAULT" in shown.stdout, right.returncode == _GONE, " ".join(printed[-2:-1])
    )


def _run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "run.py", *words]
    return subprocess.run(  # noqa: S603 - our own script
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS
    )
