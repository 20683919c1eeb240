"""What other tools do, in a process of the Python that has them: ``PYTHON theirs.py JOB FOLDER``.

Knows nothing of roundoff. The folder holds ``float.onnx``, ``calibration.npy``, ``search.npy`` with
``labels.npy``, and for comparisons two runs in Polygraphy's form; ``calibration_INPUT.npy`` instead of the
first two where the network has several inputs. What is made is left there as ``JOB.onnx``; the last line that
is printed says what it took, imports aside.
"""

import json
import logging
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Work = Callable[[], dict[str, float]]
MAX_DROP = 0.01
RANKING_SAMPLES = 300


def _feeds(folder: Path, part: str) -> Iterator[dict[str, Any]]:
    if not (folder / "input.txt").exists():
        several = {path.stem.removeprefix(f"{part}_"): np.load(path) for path in folder.glob(f"{part}_*.npy")}
        gold = several.pop("gold", None)
        count = len(next(iter(several.values()))) if gold is None else len(gold)
        yield from ({name: each[at] for name, each in several.items()} for at in range(count))
        return
    name = (folder / "input.txt").read_text("utf-8")
    values = np.load(folder / f"{part}.npy")
    yield from ({name: values[at : at + 1]} for at in range(len(values)))


class Reader:
    """Samples the way onnxruntime's quantization tools read them."""

    def __init__(self, folder: Path, part: str) -> None:
        self._feeds = _feeds(folder, part)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self._feeds

    def get_next(self) -> Mapping[str, Any] | None:
        """The next one."""
        return next(self._feeds, None)


def quantize_static(folder: Path, method: str, only: Sequence[str] = ()) -> Work:
    """Calibration and quantization by onnxruntime, its own preparation included; of some operations only."""
    from onnxruntime import quantization as ort
    from onnxruntime.quantization.shape_inference import quant_pre_process

    kinds = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}

    def work() -> dict[str, float]:
        quant_pre_process(str(folder / "float.onnx"), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
        ort.quantize_static(
            folder / "prepared.onnx",
            folder / f"onnxruntime-{'products' if only else method}.onnx",
            Reader(folder, "calibration"),
            op_types_to_quantize=list(only) or None,
            quant_format=ort.QuantFormat.QDQ,
            per_channel=True,
            activation_type=ort.QuantType.QUInt8,
            weight_type=ort.QuantType.QInt8,
            calibrate_method=getattr(ort.CalibrationMethod, kinds[method]),
        )
        return {}

    return work


def debug_loss(folder: Path) -> Work:
    """Every tensor of both models kept, then compared: onnxruntime's own loss debugging."""
    from onnxruntime.quantization import qdq_loss_debug as debug

    def work() -> dict[str, float]:
        seen = []
        for name in ("float.onnx", "onnxruntime-minmax.onnx"):
            debug.modify_model_output_intermediate_tensors(folder / name, folder / f"tapped-{name}")
            seen.append(debug.collect_activations(str(folder / f"tapped-{name}"), Reader(folder, "search")))
        found = debug.compute_activation_error(debug.create_activation_matching(seen[1], seen[0]))
        return {"tensors": len(found)}

    return work


def nncf_quantize(folder: Path, bias: str, kind: str = "") -> Work:
    """NNCF's post-training quantization with one of its corrections of biases, told the kind of network."""
    import nncf  # type: ignore[import-not-found,unused-ignore]
    import onnx

    advanced = nncf.AdvancedQuantizationParameters(disable_bias_correction=bias == "none")

    def work() -> dict[str, float]:
        feeds = list(_feeds(folder, "calibration"))
        made = nncf.quantize(
            onnx.load(folder / "float.onnx"),
            nncf.Dataset(feeds),
            subset_size=len(feeds),
            fast_bias_correction=bias != "exact",
            advanced_parameters=advanced,
            model_type=nncf.ModelType(kind) if kind else None,
        )
        onnx.save(made, folder / f"nncf-{kind or bias}.onnx")
        return {}

    return work


def nncf_search(folder: Path) -> Work:
    """NNCF's search for what has to stay in float."""
    import nncf
    import onnx
    import onnxruntime as ort

    labels = np.load(folder / "labels.npy")

    def work() -> dict[str, float]:
        samples, runs = list(_feeds(folder, "search")), [0]

        def validate(model: Any, indices: Any) -> tuple[float, list[float]]:
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            places = list(indices)
            runs[0] += len(places)
            right = [float(session.run(None, samples[at])[0].argmax() == labels[at]) for at in places]
            return float(np.mean(right)), right

        made = nncf.quantize_with_accuracy_control(
            onnx.load(folder / "float.onnx"),
            nncf.Dataset(list(_feeds(folder, "calibration"))),
            nncf.Dataset(range(len(samples))),
            validate,
            max_drop=MAX_DROP,
            advanced_accuracy_restorer_parameters=nncf.AdvancedAccuracyRestorerParameters(
                ranking_subset_size=min(RANKING_SAMPLES, len(samples))
            ),
        )
        onnx.save(made, folder / "nncf-search.onnx")
        return {"runs": runs[0]}

    return work


def polygraphy_save(folder: Path) -> Work:
    """Both runs in Polygraphy's own form; what is compared later."""
    from polygraphy.comparator import IterationResult, RunResults  # type: ignore[import-not-found,unused-ignore]

    def work() -> dict[str, float]:
        for side in "ab":
            with np.load(folder / f"{side}.npz") as arrays:
                outputs = {name: arrays[name] for name in arrays.files}
            RunResults([(side, [IterationResult(outputs, runner_name=side)])]).save(str(folder / f"{side}.json"))
        return {}

    return work


def polygraphy_compare(folder: Path) -> Work:
    """Polygraphy's comparison of two stored runs."""
    from polygraphy.comparator import Comparator, CompareFunc, RunResults  # type: ignore[import-not-found,unused-ignore]
    from polygraphy.logger import G_LOGGER  # type: ignore[import-not-found,unused-ignore]

    G_LOGGER.severity = G_LOGGER.ERROR

    def work() -> dict[str, float]:
        both = RunResults([*RunResults.load(str(folder / "a.json")), *RunResults.load(str(folder / "b.json"))])
        found = Comparator.compare_accuracy(both, compare_func=CompareFunc.simple(check_error_stat="mean"))
        return {"tensors": len(found.output_names())}

    return work


def rebuild_loop(folder: Path) -> Work:
    """What one would write by hand: a model for each node with its quantizers alone, and a session of its own."""
    import onnxruntime as ort

    def work() -> dict[str, float]:
        feeds, scores = list(_feeds(folder, "search")), {}
        for path in [folder / "float.onnx", *sorted((folder / "single").glob("*.onnx"))]:
            options = ort.SessionOptions()
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            scores[path.stem] = np.concatenate([session.run(None, feed)[0] for feed in feeds])
        return {"nodes": len(scores) - 1}

    return work


JOBS: dict[str, Callable[[Path], Work]] = {
    "onnxruntime-minmax": partial(quantize_static, method="minmax"),
    "onnxruntime-entropy": partial(quantize_static, method="entropy"),
    "onnxruntime-percentile": partial(quantize_static, method="percentile"),
    "onnxruntime-products": partial(quantize_static, method="minmax", only=("MatMul", "Gemm", "Conv")),
    "onnxruntime-layers": debug_loss,
    "onnxruntime-loop": rebuild_loop,
    "nncf-none": partial(nncf_quantize, bias="none"),
    "nncf-fast": partial(nncf_quantize, bias="fast"),
    "nncf-exact": partial(nncf_quantize, bias="exact"),
    "nncf-transformer": partial(nncf_quantize, bias="fast", kind="transformer"),
    "nncf-search": nncf_search,
    "polygraphy-save": polygraphy_save,
    "polygraphy-compare": polygraphy_compare,
}


def peak_mb() -> float:
    """Most memory this process ever held; `resource` would begin with that of the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def run(make: Callable[[Path], Work], folder: Path) -> None:
    """Do a job and say what it took."""
    work = make(folder)
    before, began, children = peak_mb(), time.process_time(), sum(os.times()[2:4])
    found = work()
    seconds = time.process_time() - began + sum(os.times()[2:4]) - children
    print(json.dumps({"cpu_s": seconds, "growth_mb": peak_mb() - before, **found}), flush=True)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    run(JOBS[sys.argv[1]], Path(sys.argv[2]))
