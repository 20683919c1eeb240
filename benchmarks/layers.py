"""`roundoff layers` with both methods against onnxruntime's own loss debugging, on the same model and samples.

A network of the shape of MobileNetV2 (96 x 96, random weights), quantized by onnxruntime per channel. Each side
runs in a process of its own, in turns; both start from the two model files. onnxruntime gives the SQNR of 66
tensors; roundoff gives all scores of all 100, local and accumulated, and the verdict. Targets: less time, and less
than a third of the memory on top. Leaves with 1 when one of them is missed.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.models import RandomImages, save_mobilenet_v2

SAMPLES = 32
SIZE = 96
ROUNDS = 5
CALIBRATED = 4
MEMORY_TARGET = 1 / 3
FLOAT, QUANTIZED = "float.onnx", "quantized.onnx"


class Reader:
    """The samples the way onnxruntime's quantization tools read them."""

    def __init__(self, count: int) -> None:
        self._samples = RandomImages(count, SIZE)
        self._feeds = iter(range(count))

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> dict[str, Any]:
        return dict(self._samples.feed(next(self._feeds)))

    def get_next(self) -> dict[str, Any] | None:
        return next(self, None)


def prepare(folder: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_static

    save_mobilenet_v2(folder / FLOAT, SIZE)
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    reader: Any = Reader(CALIBRATED)
    quantize_static(folder / FLOAT, folder / QUANTIZED, reader, per_channel=True, **types)


def debug_loss(folder: Path) -> Callable[[], int]:
    """The peer's way: every tensor of every sample of both models is kept, then compared."""
    from onnxruntime.quantization.qdq_loss_debug import (
        collect_activations,
        compute_activation_error,
        create_activation_matching,
        modify_model_output_intermediate_tensors,
    )

    def work() -> int:
        for name in (FLOAT, QUANTIZED):
            modify_model_output_intermediate_tensors(folder / name, folder / f"tapped_{name}")
        exact, quantized = (
            collect_activations(str(folder / f"tapped_{name}"), Reader(SAMPLES)) for name in (FLOAT, QUANTIZED)
        )
        return len(compute_activation_error(create_activation_matching(quantized, exact)))

    return work


def analyze(folder: Path) -> Callable[[], int]:
    import onnx  # noqa: F401 - imported by the peer before its clock starts, too
    import onnxruntime  # noqa: F401

    from roundoff.graph.load import load_model
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.studies.layers.study import analyze_layers

    def work() -> int:
        quantized = read_quantized(load_model(folder / QUANTIZED), float_model=load_model(folder / FLOAT))
        return len(analyze_layers(quantized, RandomImages(SAMPLES, SIZE)).rows)

    return work


SIDES = {"onnxruntime": debug_loss, "roundoff": analyze}


def resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def child(side: str, folder: Path) -> None:
    """Do the work once, in a process that has imported everything before."""
    work = SIDES[side](folder)
    before, start, computing = resident_mb(), time.perf_counter(), time.process_time()
    tensors = work()
    elapsed = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - computing}
    print(json.dumps({**elapsed, "growth_mb": resident_mb() - before, "tensors": tensors}))


def run_child(side: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.layers", side, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    rounds: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for _ in range(ROUNDS):
            for side, results in rounds.items():
                results.append(run_child(side, folder))
            print(
                "   ".join(f"{side} {results[-1]['seconds']:5.2f} s" for side, results in rounds.items()),
                flush=True,
            )
    # Other programs disturb single rounds.
    middle = {
        side: {key: statistics.median(each[key] for each in results) for key in results[0]}
        for side, results in rounds.items()
    }
    for side, result in middle.items():
        figures = f"{result['seconds']:.2f} s ({result['cpu_seconds']:.2f} s of all cores)"
        print(f"{side}: {figures}, {result['growth_mb']:.0f} MB on top, {result['tensors']:.0f} tensors")
    ours, theirs = middle["roundoff"], middle["onnxruntime"]
    time_ratio = statistics.median(
        mine["seconds"] / other["seconds"]
        for mine, other in zip(rounds["roundoff"], rounds["onnxruntime"], strict=True)
    )
    memory_ratio = ours["growth_mb"] / theirs["growth_mb"]
    met = time_ratio < 1 and memory_ratio < MEMORY_TARGET
    print(f"time ratio {time_ratio:.2f}, target below 1; memory ratio {memory_ratio:.2f}, target below 0.33: "
          f"{'met' if met else 'missed'}")  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main())
