"""Whole networks, renamed, shuffled, partly fused and noisy."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.core.tensors import Array
from tests.align.network import (
    Noise,
    activations,
    codes,
    exact,
    fused_and_renamed,
    gaussian,
    int8,
    nhwc_int8,
    padded_blocks,
)
from tests.real_models import real_models
from tests.sources import MemorySource

CERTAIN = 0.9


def judged(ours: dict[str, Array], noise: Noise, seed: int) -> tuple[float, float]:
    """Share of the tensors present that is matched right, and the highest confidence of a wrong match."""
    theirs, truth = fused_and_renamed(ours, noise, missing=0.2, seed=seed)
    pairs = align(MemorySource(ours), MemorySource(theirs)).pairs
    right = [pair for pair in pairs if truth[pair.candidate] == pair.reference]
    wrong = [pair.confidence for pair in pairs if truth[pair.candidate] != pair.reference]
    return len(right) / len(theirs), max(wrong, default=0.0)


@pytest.mark.parametrize("noise", [exact, int8, codes, gaussian(0.05), gaussian(0.1), nhwc_int8, padded_blocks])
def test_three_hundred_tensors(noise: Noise) -> None:
    right, worst = judged(activations(300, seed=3), noise, seed=4)
    assert right >= 0.95
    assert worst < CERTAIN


@pytest.mark.parametrize("path", real_models())
def test_real_networks(path: Path) -> None:
    ours = {name: array for name, array in run(path).items() if array.size > 3 and np.ptp(array) > 0}
    for noise in (int8, gaussian(0.05)):
        _, worst = judged(ours, noise, seed=0)
        assert worst < CERTAIN


def run(path: Path) -> dict[str, Array]:
    """Every intermediate tensor of a model on a made-up picture."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output if name]
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {
        spec.name: random.standard_normal([size if isinstance(size, int) else 1 for size in spec.shape]).astype(
            np.float32
        )
        for spec in session.get_inputs()
    }
    return dict(zip(names, map(np.asarray, session.run(names, feeds)), strict=True))
