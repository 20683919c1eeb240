"""Ranges far wider than their values, with the tool's scales and without: named, and healthy twins are not."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import diagnose_device
from roundoff.diagnosis.result import Diagnosis
from roundoff.graph.load import Model
from roundoff.graph.nodes import make_model
from roundoff.samples.sample_set import ArraySamples
from roundoff.tensors.stored import ToolScale
from tests.diagnosis.devices.devices import HeldDumps

_WIDTHS = (40, 64, 64, 32, 4)
_TIMES = (4, 6, 10, 16)


class _Scaled(HeldDumps):
    """Dumps with the scales of a tool."""

    scales: Mapping[str, ToolScale]


def _weights(seed: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(0, 1.2 / np.sqrt(a), (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
        for a, b in itertools.pairwise(_WIDTHS)
    ]


def _model(weights: list[tuple[Array, Array]]) -> Model:
    nodes, held, name = [], [], "x"
    for at, (factors, bias) in enumerate(weights):
        held += [numpy_helper.from_array(factors, f"w{at}"), numpy_helper.from_array(bias, f"b{at}")]
        nodes.append(helper.make_node("Gemm", [name, f"w{at}", f"b{at}"], [f"fc{at}"], name=f"fc{at}"))
        name = f"fc{at}"
        if at < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [name], [f"relu{at}"], name=f"relu{at}"))
            name = f"relu{at}"
    ends = [
        helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, [1, width])
        for each, width in (("x", _WIDTHS[0]), (name, _WIDTHS[-1]))
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], held)
    proto = make_model(graph)
    return Model(proto, Path("layers.onnx"), proto.ByteSize())


def _run(
    weights: list[tuple[Array, Array]], fed: Array, ranges: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, Array]:
    """All tensors; each rounded to 8 bits of its range, but for what is in front of an activation."""

    def rounded(name: str, values: Array) -> Array:
        if ranges is None:
            return values
        low, high = ranges[name]
        step = np.float32((high - low) / 255)
        zero = np.rint(-128 - low / step)
        return np.asarray((np.clip(np.rint(values / step) + zero, -128, 127) - zero) * step, np.float32)

    found, values = {"x": fed}, rounded("x", fed)
    for at, (factors, bias) in enumerate(weights):
        values = values @ factors + bias
        last = at == len(weights) - 1
        found[f"fc{at}"] = rounded(f"fc{at}", values) if last else values
        if not last:
            found[f"relu{at}"] = values = rounded(f"relu{at}", np.maximum(values, 0))
    return found


def _diagnosed(
    seed: int, wide: str, times: float, *, told: bool, quiet: float = 1.0, threshold: float = 0.0, dead: str = ""
) -> Diagnosis:
    weights, rng = _weights(seed), np.random.default_rng(seed + 1)
    weights[-2][1][:] -= threshold
    seen = _run(weights, rng.normal(size=(64, _WIDTHS[0])).astype(np.float32))
    observed = {name: (min(0.0, float(each.min())), float(each.max())) for name, each in seen.items()}
    ranges = {name: (low * factor, high * factor) for name, (low, high) in observed.items()
              for factor in (times if name == wide or (wide == "all" and name != "x") else 1,)}  # fmt: skip
    fed = (quiet * rng.normal(size=(1, _WIDTHS[0]))).astype(np.float32)
    if threshold:
        # What a camera gives: codes already.
        step = np.float32((ranges["x"][1] - ranges["x"][0]) / 255)
        fed = np.asarray(np.rint(fed / step) * step, np.float32)
    written = _run(weights, fed, ranges)
    if threshold:
        written = {name: each for name, each in written.items() if name not in ("fc0", "fc1", "fc2")}
    dumps = _Scaled([{name: each * np.float32(name != dead) for name, each in written.items()}])
    scales = {
        name: ToolScale((high - low) / 255, low, high, observed[name]) for name, (low, high) in ranges.items()
    }
    object.__setattr__(dumps, "scales", scales if told else {})
    return diagnose_device(_model(weights), ArraySamples({"x": fed}), dumps)


@pytest.mark.parametrize("times", _TIMES)
def test_the_tool_says_what_it_saw(times: float) -> None:
    """Also on one sample with values so small that every range is twice as wide as they are."""
    for quiet in (1.0, 0.4):
        found = _diagnosed(3, "relu1", times, told=True, quiet=quiet)
        assert [(each.cause, each.tensors) for each in found.findings] == [("wide-range", ("relu1",))]
        rounding = found.findings[0].measures[0]
        # As many decibels as times as wide, where nothing is cut off.
        assert rounding.after - rounding.before == pytest.approx(20 * np.log10(times), abs=3)


@pytest.mark.parametrize("times", _TIMES[1:])
def test_nobody_tells_the_scales(times: float) -> None:
    found = _diagnosed(3, "relu1", times, told=False)
    assert [(each.cause, each.tensors) for each in found.findings] == [("wide-range", ("relu1",))]


@pytest.mark.parametrize("told", [True, False])
def test_healthy_twins(told: bool) -> None:
    for seed in (3, 4):
        for quiet in (1.0, 0.4):
            found = _diagnosed(seed, "", 1, told=told, quiet=quiet)
            assert found.findings == ()


def test_all_ranges_too_wide_are_no_good_verdict() -> None:
    found = _diagnosed(3, "all", 8, told=False)
    assert found.kind == "not_enough_evidence"
    assert found.findings == ()


@pytest.mark.parametrize("quiet", [0.2, 0.4])
def test_a_head_behind_what_is_silent_is_healthy(quiet: float) -> None:
    """Its few values are those of its bias, far inside of the range of other samples."""
    for seed in (5, 6, 7):
        assert _diagnosed(seed, "", 1, told=False, quiet=quiet, threshold=2.5).findings == ()


def test_a_head_that_is_dead_behind_lively_values_is_not() -> None:
    found = _diagnosed(3, "", 1, told=False, dead="fc3")
    assert [each.tensors for each in found.findings] == [("fc3",)]
