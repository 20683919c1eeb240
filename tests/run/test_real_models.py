"""Real networks, where a checkout has them beside it; every other test builds its models itself."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import load_model
from roundoff.run.capture import LiveSource
from tests.real_models import real_models
from tests.run.samples import MemorySamples


@pytest.mark.parametrize("path", real_models())
def test_capturing_everything_changes_nothing(path: Path) -> None:
    model = load_model(path)
    rng = np.random.default_rng(0)
    feed = {
        spec.name: rng.standard_normal([size if isinstance(size, int) else 1 for size in spec.shape or ()]).astype(
            spec.dtype
        )
        for spec in inputs(model)
    }
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    expected = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feed)

    source = LiveSource(model, MemorySamples([feed]))

    assert not [info for info in source.tensors if info.problem]
    for info in source.tensors:
        array = source.read(info.name, "s0")
        assert (array.shape, array.dtype.name) == (info.shape, info.dtype), info.name
    for name, array in zip(outputs(model), expected, strict=True):
        np.testing.assert_array_equal(source.read(name, "s0"), array)
