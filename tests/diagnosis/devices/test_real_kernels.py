"""Tensors that a runtime with integer kernels of its own computed: a real device, as far as numbers go."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import HeldDumps
from tests.golden_litert import Golden, golden_litert


@pytest.fixture
def recorded(tmp_path: Path) -> Golden:
    return golden_litert(tmp_path)


def rows(recorded: Golden) -> list[dict[str, Array]]:
    known = {name for node in recorded.model.proto.graph.node for name in node.output} | set(recorded.feed)
    return [{name: codes for name, codes in recorded.codes.items() if name in known}]


@pytest.mark.parametrize("known", [True, False], ids=["with scales", "without"])
def test_a_runtime_that_works_is_not_accused(recorded: Golden, known: bool) -> None:
    quantized = QuantizedModel(recorded.model, recorded.quantizers if known else ())
    found = diagnose_device(quantized, ArraySamples(recorded.feed), HeldDumps(rows(recorded)))
    assert found.accused == ()
    # Codes of the output without a scale are right up to a gain and an offset, which nobody can tell.
    told = "no fault found on the device" if known else "gain or offset there cannot be seen"
    assert told in str(found.verdict)


def test_a_channel_that_is_lost_is_found(recorded: Golden) -> None:
    dumped = rows(recorded)
    name = next(key for key, codes in list(dumped[0].items())[4:] if codes.ndim == 4 and codes[:, 2].std() > 3)
    broken = np.array(dumped[0][name])
    broken[:, 2] = 0
    dumped[0][name] = broken
    quantized = QuantizedModel(recorded.model, recorded.quantizers)
    found = diagnose_device(quantized, ArraySamples(recorded.feed), HeldDumps(dumped))
    assert name in found.findings[0].tensors
