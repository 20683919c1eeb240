"""Cost of calibration: over a plain onnxruntime pass, and beside onnxruntime's own quantize_static.

A network of the shape of MobileNetV2, all of its tensors, the same samples for all. Passes are timed in turns in
one process. What takes memory runs in a process of its own; there too, theirs and ours take turns.
Leaves with 1 when a target is missed: medians of ratios, and growth of the largest resident memory.
"""

import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.models import RandomImages, save_mobilenet_v2
from benchmarks.peers.theirs import peak_mb
from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, load_model
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.quantize.calibration.calibration import calibrate, weight_range
from roundoff.run.session import open_session

SIZE = 96
SAMPLES = 100
MANY_SAMPLES = 1000
ROUNDS = 5
PEER_ROUNDS = 3
ACTIVATION = QuantSpec(8, False, False)
WEIGHT = QuantSpec(8, True, True, axis=0)
# Most times that a pass may take over a plain one, by what is observed.
MOST_OVER_PLAIN = {"range": 2.0, "histogram": 3.0}
# Least times that ours must be faster than quantize_static, by method.
LEAST_OVER_PEER = {"minmax": 1.0, "entropy": 3.0, "percentile": 3.0}
MOST_GROWTH_MB = 100
MOST_GROWTH_WITH_SAMPLES_MB = 10


def tensors(model: Model) -> dict[str, int | None]:
    """All tensors but constants."""
    return dict.fromkeys(["image", *(name for node in model.proto.graph.node for name in node.output)])


def plain_pass(model: Model, samples: RandomImages) -> None:
    """What the tensors cost when nothing looks at them."""
    session = open_session(model, outputs=tap(model, list(tensors(model))[1:]))
    for index in range(len(samples.names)):
        session.run(samples.feed(index))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare_with_plain(model: Model) -> bool:
    samples = RandomImages(SAMPLES, SIZE)
    seconds: dict[str, list[float]] = {"plain": [], "range": [], "histogram": []}
    for _ in range(ROUNDS):
        seconds["plain"].append(timed(lambda: plain_pass(model, samples)))
        seconds["range"].append(timed(lambda: calibrate(model, samples, tensors(model), detail="range")))
        seconds["histogram"].append(timed(lambda: calibrate(model, samples, tensors(model), detail="histogram")))
    plain = statistics.median(seconds["plain"])
    print(f"{len(tensors(model))} tensors, {SAMPLES} samples; a plain pass takes {plain:.2f} s")
    met = True
    for detail, most in MOST_OVER_PLAIN.items():
        # Rounds are compared with themselves: other programs slow down whole rounds.
        ratio = statistics.median(own / base for own, base in zip(seconds[detail], seconds["plain"], strict=True))
        met &= judge(f"observing the {detail}, over a plain pass", ratio, most=most)
    return met


def judge(what: str, found: float, *, most: float | None = None, least: float | None = None) -> bool:
    met = (most is None or found <= most) and (least is None or found >= least)
    target = f"at most {most:g}" if least is None else f"at least {least:g}"
    print(f"  {what}: {found:.2f}, target {target}: {'met' if met else 'MISSED'}", flush=True)
    return met


def ours(path: Path, method: str, count: int) -> None:
    """Everything that finds scales: observing, and ranges of all tensors and weights."""
    model = load_model(path)
    wanted = tensors(model)
    detail: Any = "range" if method == "minmax" else "histogram"
    seen = calibrate(model, RandomImages(count, SIZE), wanted, detail=detail)
    for name in wanted:
        seen.range([name], ACTIVATION, method)
    weights = Weights(model)
    for node in model.proto.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            weight_range(weights[node.input[1]], WEIGHT, "minmax")


def theirs(path: Path, method: str, count: int) -> None:
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, quantize_static

    samples = RandomImages(count, SIZE)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds = map(samples.feed, range(count))

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self._feeds, None)

    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    methods = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    quantize_static(
        path, path.with_suffix(".quantized.onnx"), Reader(), per_channel=True, calibrate_method=methods[method]
    )


def alone(who: str, path: Path, method: str, count: int) -> tuple[float, float]:
    """Seconds and growth of memory in MB of one quantization in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.calibration", who, str(path), method, str(count)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, growth = json.loads(output.splitlines()[-1])
    return float(seconds), float(growth)


def run_alone(who: str, path: Path, method: str, count: int) -> None:
    import onnxruntime.quantization  # noqa: F401 - both sides start with everything imported

    work = {"ours": ours, "theirs": theirs}[who]
    before = peak_mb()
    seconds = timed(lambda: work(path, method, count))
    print(json.dumps([seconds, peak_mb() - before]))


def compare_with_peer(path: Path) -> bool:
    met = True
    for method, least in LEAST_OVER_PEER.items():
        rounds = [
            (alone("ours", path, method, SAMPLES), alone("theirs", path, method, SAMPLES))
            for _ in range(PEER_ROUNDS)
        ]
        own, peer = (statistics.median(each[side][0] for each in rounds) for side in (0, 1))
        growth, peer_growth = (max(each[side][1] for each in rounds) for side in (0, 1))
        print(f"{method}: {own:.2f} s, +{growth:.0f} MB; quantize_static {peer:.2f} s, +{peer_growth:.0f} MB")
        met &= judge("times as fast", statistics.median(b[0] / a[0] for a, b in rounds), least=least)
        met &= judge("growth in MB", growth, most=MOST_GROWTH_MB)
    few, many = (alone("ours", path, "entropy", count)[1] for count in (SAMPLES, MANY_SAMPLES))
    return met & judge(
        f"growth in MB from {SAMPLES} to {MANY_SAMPLES} samples", many - few, most=MOST_GROWTH_WITH_SAMPLES_MB
    )


def main() -> int:
    """Measure and judge; or, with arguments, do one of the measurements."""
    if len(sys.argv) > 1:
        who, given, method, count = sys.argv[1:]
        run_alone(who, Path(given), method, int(count))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = save_mobilenet_v2(Path(folder) / "mobilenet_v2.onnx", SIZE)
        met = compare_with_plain(load_model(path))
        met &= compare_with_peer(path)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
