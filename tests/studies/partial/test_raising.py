"""The same range in finer steps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roundoff.core.quantizers import (
    Quantizer,
    QuantParams,
    QuantSpec,
    fake_quantize,
    parameters_from_range,
    representable_range,
)
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.studies.partial.study import Changes, raised
from tests.graph.quantized_nets import make_quantizer, mixed_net, mixed_quantizers, run_model
from tests.models import random_feed

SPECS = st.builds(
    QuantSpec,
    bits=st.sampled_from([4, 8]),
    signed=st.booleans(),
    symmetric=st.booleans(),
    symmetric_scale=st.sampled_from(["max_code", "half_span", "larger_side"]),
    power_of_two=st.booleans(),
    narrow=st.booleans(),
)


def of(spec: QuantSpec, params: QuantParams) -> Quantizer:
    return Quantizer("q", "x", "activation", spec, params, ())


@given(SPECS, st.booleans(), st.floats(-50, 0), st.floats(0, 50))
def test_the_range_stays_and_the_step_shrinks(spec: QuantSpec, signed: bool, low: float, high: float) -> None:
    assume(high - low > 1e-3)
    old = of(spec, parameters_from_range(low, high, spec))
    new = raised(old, signed=signed)
    assert (new.spec.dtype, new.spec.symmetric) == ("s16" if signed else "u16", spec.symmetric)
    ratio = float(old.params.scale / new.params.scale)
    assert 2 ** (16 - spec.bits) <= round(ratio, 3) < 2 ** (16 - spec.bits) * 1.2
    before, after = ([float(end) for end in representable_range(each.params, each.spec)] for each in (old, new))
    step = float(old.params.scale)
    # What was calibrated is still representable; a code beyond the symmetric range may be lost.
    assert after[0] <= max(before[0], low) + step / 2
    assert after[1] >= min(before[1], high) - step / 2
    assert after[0] >= before[0] - 1.1 * step
    assert after[1] <= before[1] + 1.1 * step


@given(SPECS, st.booleans(), st.floats(-50, 0), st.floats(0, 50))
def test_values_in_the_range_are_hardly_changed_any_more(
    spec: QuantSpec, signed: bool, low: float, high: float
) -> None:
    assume(high - low > 1e-3)
    old = of(spec, parameters_from_range(low, high, spec))
    new = raised(old, signed=signed)
    ends = [float(end) for end in representable_range(new.params, new.spec)]
    values = np.linspace(max(low, ends[0]), min(high, ends[1]), 101, dtype=np.float32)
    error = np.abs(fake_quantize(values, new.params, new.spec) - values)
    assert error.max() <= 0.51 * float(new.params.scale) + 1e-5
    assert fake_quantize(np.zeros(1, np.float32), new.params, new.spec) == 0


def test_the_numbers_of_plain_cases() -> None:
    asymmetric = make_quantizer("x", QuantSpec(8, False, False), 0.1, zero_point=100)
    unsigned = raised(asymmetric, signed=False)
    assert float(unsigned.params.scale) == pytest.approx(0.1 / 257)
    assert int(unsigned.params.zero_point) == 100 * 257
    signed = raised(asymmetric, signed=True)
    assert int(signed.params.zero_point) == 100 * 257 - 32768
    symmetric = make_quantizer("w", QuantSpec(8, True, True, axis=0), [0.1, 0.2])
    wide = raised(symmetric, signed=True)
    assert wide.params.scale == pytest.approx(np.array([0.1, 0.2]) * 127 / 32767)
    assert wide.params.zero_point.tolist() == [0, 0]
    shift = make_quantizer("w", QuantSpec(8, True, True, axis=0, power_of_two=True), [0.25, 0.5])
    assert raised(shift, signed=True).params.scale.tolist() == [2**-10, 2**-9]


def test_what_has_16_bits_stays_and_learned_codes_go() -> None:
    wide = make_quantizer("x", QuantSpec(16, True, True), 0.1)
    assert raised(wide, signed=True) is wide
    learned = replace(make_quantizer("x", QuantSpec(8, True, True), 0.1), codes=np.zeros(3, np.int8))
    assert raised(learned, signed=True).codes is None


def test_float_leaves_out_and_16_bits_replaces() -> None:
    quantizers = mixed_quantizers()
    names = [each.name for each in quantizers]
    left = Changes(quantizers, "float").with_changed(["w1_q", "act_q"])
    assert [each.name for each in left] == [name for name in names if name not in ("w1_q", "act_q")]
    changes = Changes(quantizers, "u16")
    found = {each.name: each for each in changes.with_changed(["w1_q", "act_q"])}
    assert {name: each.spec.dtype for name, each in found.items() if each.spec.bits == 16} == {
        "w1_q": "s16",
        "act_q": "u16",
    }
    # Biases of the nodes that read them stay in float, that of the last node does not.
    assert [name for name in names if name not in found] == ["b1_q", "b2_q"]
    again = {each.name: each for each in changes.with_changed(["act_q"])}
    assert again["act_q"] is found["act_q"]
    assert list(changes.with_changed([])) == list(quantizers)


def test_a_network_of_16_bits_is_much_nearer_to_float() -> None:
    model = Model(mixed_net(), Path("net.onnx"), 0)
    feed = random_feed({"image": (1, 3, 4, 4)})
    quantizers = mixed_quantizers()
    expected = run_model(model, feed)[0]
    errors = []
    for names in ([], [each.name for each in quantizers]):
        on = Changes(quantizers, "s16").with_changed(names)
        errors.append(float(np.abs(run_model(insert_quantizers(model, on), feed)[0] - expected).max()))
    assert errors[1] < errors[0] / 30
