"""Constants as quantizers leave them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.quantizers import Consumer, Quantizer, QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.graph import quantized_model as fake_constants
from roundoff.graph.quantized_model import FakeConstants, chain_of, fake_quantized
from tests.graph.quantized_nets import S8, make_quantizer, mixed_net
from tests.models import loaded


def quantizer_of(values: Array, axis: int | None, bits: int = 8) -> Quantizer:
    spec = QuantSpec(bits, signed=True, symmetric=True, axis=axis)
    others = tuple(other for other in range(values.ndim) if axis is None or other != axis % values.ndim)
    largest = np.abs(values).max(axis=others)
    return Quantizer("q", "w", "weight", spec, parameters_from_range(-largest, largest, spec), (Consumer("n", 1),))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_parts_are_what_the_whole_would_be(shape: list[int], data: st.DataObject) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    quantizer = quantizer_of(values, axis)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_constants, "_BLOCK_ELEMENTS", data.draw(st.integers(1, 9)))
        found = fake_quantized(values, quantizer)
    np.testing.assert_array_equal(found, fake_quantize(values, quantizer.params, quantizer.spec))


def test_codes_of_its_own_count_instead_of_the_values() -> None:
    values = np.ones((3, 2), np.float32)
    codes = np.array([[1, 2], [3, 4], [5, 6]], np.int8)
    quantizer = make_quantizer("w", S8.along(0), [0.5, 1, 2], ("n", 1), kind="weight", codes=codes)
    np.testing.assert_array_equal(fake_quantized(values, quantizer), codes * np.array([[0.5], [1], [2]]))


def test_values_keep_their_type() -> None:
    values = np.linspace(-1, 1, 7).astype(np.float16)
    found = fake_quantized(values, quantizer_of(values, None))
    assert found.dtype == np.float16
    scalar = np.asarray(np.float32(0.3))
    assert fake_quantized(scalar, quantizer_of(scalar, None, bits=2)).shape == ()


def test_quantizers_follow_one_another(tmp_path: Path) -> None:
    constants = FakeConstants(loaded(mixed_net(), tmp_path))
    coarse = make_quantizer("w1", S8, 0.25, ("first", 1), kind="weight", name="coarse")
    fine = make_quantizer("w1", S8, 0.1, ("first", 1), kind="weight", name="fine", after="coarse")
    both = {"coarse": coarse, "fine": fine}
    assert chain_of(fine, both) == [coarse, fine]
    assert chain_of(fine, {"fine": fine}) == [fine]
    twice = fake_quantized(constants.values(coarse, {}), fine)
    np.testing.assert_array_equal(constants.values(fine, both), twice)
    assert not np.array_equal(constants.values(fine, {}), twice)


def test_a_quantizer_is_idle_when_its_constant_is_on_the_grid(tmp_path: Path) -> None:
    proto: Any = mixed_net()
    for tensor in proto.graph.initializer:
        if tensor.name == "b1":
            tensor.raw_data = (np.arange(4) / 4).astype(np.float32).tobytes()
    constants = FakeConstants(loaded(proto, tmp_path))
    on_grid = make_quantizer("b1", S8, 0.125, ("first", 2), kind="bias")
    assert constants.is_idle(on_grid)
    assert not constants.is_idle(replace(on_grid, name="other", params=quantizer_of(np.ones(1), None).params))
    assert not constants.is_idle(make_quantizer("act", S8, 0.125, ("add", 0)))


def test_only_so_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_constants, "_KEPT_BYTES", 500)
    constants = FakeConstants(loaded(mixed_net(), tmp_path))
    quantizers = [make_quantizer(name, S8, 0.1, ("n", 1), kind="weight") for name in ("w1", "w2", "w3")]
    first = [constants.values(each, {}) for each in quantizers]
    again = [constants.values(each, {}) for each in reversed(quantizers)][::-1]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    kept = [one is other for one, other in zip(first, again, strict=True)]
    # w1 alone takes 432 bytes, w2 144 and w3 160: the last two fit.
    assert kept == [False, True, True]
