from pathlib import Path

import numpy as np
import pytest

from roundoff.core.target import Arithmetic
from roundoff.core.tensors import TensorSource
from roundoff.errors import BadInput
from roundoff.run.capture import LiveSource
from roundoff.run.integer.runner import IntegerRunner, IntegerSource
from tests.models import conv_net, loaded, random_feed
from tests.quantized import quantized_simply
from tests.run.samples import MemorySamples


@pytest.fixture
def samples() -> MemorySamples:
    return MemorySamples([random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(2)])


@pytest.fixture
def source(tmp_path: Path, samples: MemorySamples) -> IntegerSource:
    model = loaded(conv_net(), tmp_path)
    return IntegerSource(model, quantized_simply(model, samples.feeds).quantizers, Arithmetic(), samples)


def test_it_offers_what_the_float_model_offers(
    tmp_path: Path, source: IntegerSource, samples: MemorySamples
) -> None:
    live = LiveSource(loaded(conv_net(), tmp_path), samples)
    as_source: TensorSource = source

    assert as_source.tensors == live.tensors
    assert as_source.samples == ("s0", "s1")
    assert as_source.ordered
    assert as_source.label.endswith("model.onnx on memory, with integers")
    live.close()


def test_values_and_codes_are_those_of_a_run(
    tmp_path: Path, source: IntegerSource, samples: MemorySamples
) -> None:
    model = loaded(conv_net(), tmp_path)
    runner = IntegerRunner(model, quantized_simply(model, samples.feeds).quantizers, Arithmetic())
    run = runner.run(samples.feeds[1], ["relu1", "conv1", "logits"])

    for name in ("relu1", "conv1", "logits"):
        assert np.array_equal(source.read(name, "s1"), run.values[name])
    codes = source.codes("relu1", "s1")
    assert codes is not None
    assert np.array_equal(codes, run.codes["relu1"])
    assert source.codes("conv1", "s1") is None
    assert source.report.integer_nodes == runner.report.integer_nodes


def test_a_sample_runs_once_while_it_is_read(source: IntegerSource, samples: MemorySamples) -> None:
    samples.asked.clear()
    for sample in source.samples:
        for info in source.tensors:
            source.read(info.name, sample)
    source.close()

    assert samples.asked == [0, 1]


def test_a_choice_of_tensors(tmp_path: Path, samples: MemorySamples) -> None:
    model = loaded(conv_net(), tmp_path)
    chosen = IntegerSource(model, (), Arithmetic(), samples, tensors=["relu?"])

    assert [info.name for info in chosen.tensors] == ["relu1", "relu2"]
    with pytest.raises(BadInput, match="has no tensor 'conv1'"):
        chosen.read("conv1", "s0")
    with pytest.raises(BadInput, match="has no sample 's9'"):
        chosen.read("relu1", "s9")
