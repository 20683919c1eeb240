"""What quantizers do to values, other quantizers in their place, and the parts of outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper

from roundoff.core.quantizers import Quantizer, QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis import evidence
from roundoff.diagnosis.evidence import channel_loss, channel_sums, quantize_values
from roundoff.diagnosis.interventions import per_slice, reach, with_bits, with_range, with_slice_ranges
from roundoff.diagnosis.loss import output_parts
from roundoff.graph.load import model_from_proto
from tests.models import value, wrapped

SPEC = QuantSpec(bits=8, signed=False, symmetric=False)
VALUES = arrays(np.float32, (3, 5), elements=st.floats(-50, 50, width=32))


def quantizer(low: float, high: float, spec: QuantSpec = SPEC) -> Quantizer:
    return Quantizer("q", "x", "activation", spec, parameters_from_range(low, high, spec), ())


@given(VALUES)
def test_sums_of_channels_add_up(values: Array) -> None:
    for axis in (None, 0, 1):
        assert np.isclose(channel_sums(values, axis).sum(), values.sum(dtype=np.float64), rtol=1e-6, atol=1e-4)


@given(VALUES, st.floats(1, 40), st.sampled_from([None, 0, 1]))
def test_damage_is_the_error_and_what_is_outside_is_part_of_it(
    values: Array, high: float, axis: int | None
) -> None:
    mine = quantizer(-high / 2, high)
    damage = quantize_values(values, mine, axis)
    error = fake_quantize(values, mine.params, mine.spec).astype(np.float64) - values
    assert np.isclose(damage.noise.sum(), np.square(error).sum(), rtol=1e-5, atol=1e-9)
    assert np.all(damage.clipped <= damage.noise)
    assert 0 <= damage.saturated <= damage.count == values.size
    assert 0.0 <= damage.clipped_share <= 1.0
    whole = quantize_values(values[:1], mine, axis if axis else None)
    rest = quantize_values(values[1:], mine, axis if axis else None)
    assert np.isclose(whole.merge(rest).noise.sum(), damage.noise.sum())


@pytest.mark.parametrize(("axis", "scaled"), [(None, None), (1, 1), (0, 1), (1, None)])
def test_large_tensors_are_looked_at_in_halves_with_the_same_sums(
    monkeypatch: pytest.MonkeyPatch, axis: int | None, scaled: int | None
) -> None:
    values = np.random.default_rng(0).normal(size=(7, 5, 6)).astype(np.float32)
    spec = SPEC.along(scaled)
    ends = np.linspace(0.5, 2, 5) if scaled else np.asarray(1.0)
    params = parameters_from_range(-ends, ends, spec)
    codes = np.random.default_rng(1).integers(0, 256, size=values.shape)
    for held in (None, codes):
        mine = Quantizer("q", "x", "weight", spec, params, (), codes=held)
        whole = quantize_values(values, mine, axis)
        monkeypatch.setattr(evidence, "_PIECE", 20)
        parts = quantize_values(values, mine, axis)
        monkeypatch.undo()
        for name in ("energy", "noise", "clipped", "shift"):
            np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-6)
        assert (parts.saturated, parts.count) == (whole.saturated, whole.count)


@given(VALUES)
def test_a_range_that_holds_all_values_cuts_none_off(values: Array) -> None:
    mine = with_range(quantizer(0, 1), float(values.min()), float(values.max()))
    assert quantize_values(values, mine, None).saturated == 0
    low, high = reach(mine)
    step = float(mine.params.scale)
    assert low <= min(0, values.min()) + step
    assert high >= max(0, values.max()) - step


@given(VALUES)
def test_scales_for_each_slice_are_no_worse(values: Array) -> None:
    one = with_range(quantizer(0, 1), float(values.min()), float(values.max()))
    each = with_slice_ranges(quantizer(0, 1), 1, values.min(axis=0), values.max(axis=0))
    assert np.all(each.params.scale <= one.params.scale * (1 + 1e-6) + 1e-30)


def test_slices_of_different_sizes_repeat_their_scale() -> None:
    mine = per_slice(quantizer(0, 1), 1, (2, 3), [(0.0, 255.0), (0.0, 2.55)])
    assert np.allclose(mine.params.scale, [1, 1, 0.01, 0.01, 0.01])
    assert mine.spec.axis == 1


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_more_bits_keep_the_range_and_make_steps_finer(low: float, high: float) -> None:
    mine = quantizer(-low, high)
    wide = with_bits(mine, 16)
    assert np.allclose(reach(wide), reach(mine), rtol=0.02, atol=float(mine.params.scale))
    assert float(wide.params.scale) < float(mine.params.scale) / 200


@given(arrays(np.float64, 6, elements=st.floats(0.01, 10)), arrays(np.float64, 6, elements=st.floats(0, 10)))
def test_the_loss_of_channels_grows_with_their_noise(energy: Array, noise: Array) -> None:
    assert 0.0 <= channel_loss(energy, noise) <= channel_loss(energy, noise * 2)
    assert channel_loss(np.zeros(3), np.ones(3)) == 0.0


@pytest.mark.parametrize(
    ("nodes", "shape", "axis"),
    [
        ([], (1, 5, 4), 1),
        ([helper.make_node("Transpose", ["j"], ["y"], name="t", perm=[0, 2, 1])], (1, 4, 5), 2),
        ([helper.make_node("Unsqueeze", ["j", "first"], ["y"], name="u")], (1, 1, 5, 4), 2),
    ],
)
def test_parts_of_an_output_are_what_was_joined(nodes: list[Any], shape: tuple[int, ...], axis: int) -> None:
    from roundoff.graph.shapes import values as known

    name = "y" if nodes else "j"
    join = helper.make_node("Concat", ["a", "b"], ["j"], name="join", axis=1)
    weights = (
        [_tensor("first", np.array([1], np.int64))] if any(node.op_type == "Unsqueeze" for node in nodes) else []
    )
    proto = wrapped([join, *nodes], [value("a", (1, 2, 4)), value("b", (1, 3, 4))], [value(name, shape)], weights)
    model = model_from_proto(proto, path=Path("joined.onnx"))
    shapes = {each.name: each.shape for each in known(model, {"a": (1, 2, 4), "b": (1, 3, 4)})}
    parts = output_parts(model, {name: shape}, shapes)
    assert [(part.source, part.axis, part.start, part.stop) for part in parts] == [
        ("a", axis, 0, 2),
        ("b", axis, 2, 5),
    ]


def _tensor(name: str, values: Array) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(values, name)
