"""The layers that a vendor's tool adds: rounding, shifting and scaling as its forward passes do."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.graph.caffe.layers.convolution import find_codes
from roundoff.graph.readers.reader import read_quantized
from tests.graph.caffe.nets import NetText, run_all, values

DATA = values(2, 4, 5, 6, seed=3, low=-3, high=3)


def blob(folder: Path, net: NetText, name: str = "layer") -> np.ndarray:
    return run_all(net.load(folder).model, {"data": DATA})[name]


def net() -> NetText:
    return NetText({"data": DATA.shape})


@pytest.mark.parametrize("offset", [-128, -5, 0, 127])
def test_quant_rounds_to_int8_and_back(offset: int, tmp_path: Path) -> None:
    byte = f"\\{offset % 256:03o}"
    found = blob(
        tmp_path, net().add("Quant", "layer", "data", params=f'quant_param {{ scale: 32 offset: "{byte}" }}')
    )
    codes = np.clip(np.rint(DATA * 32) + offset, -128, 127)
    assert np.allclose(found, (codes - offset) / 32)


@pytest.mark.parametrize("scale", ["0", "-1", "inf", "nan"])
def test_a_scale_that_is_none_is_refused(scale: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"above zero|not a finite number"):
        net().add("Quant", "layer", "data", params=f"quant_param {{ scale: {scale} }}").load(tmp_path)


def test_quant_is_recognised_as_a_quantizer(tmp_path: Path) -> None:
    weights = [values(2, 4, 3, 3), values(2)]
    quantized = net().add("Quant", "q", "data", params="quant_param { scale: 32 }")
    quantized.add(
        "Convolution", "conv", "q", params="convolution_param { num_output: 2 kernel_size: 3 }", blobs=weights
    )
    found = read_quantized(quantized.load(tmp_path).model).quantizers
    assert [(each.tensor, float(each.params.scale)) for each in found] == [("data", 1 / 32)]


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_that_were_rounded_are_recognised_as_such(*, per_channel: bool, tmp_path: Path) -> None:
    codes = np.random.default_rng(1).integers(-127, 128, (2, 4, 3, 3))
    step = np.array([0.013, 0.0071] if per_channel else [0.013], np.float32)
    weights = (codes * step.reshape(-1, 1, 1, 1)).astype(np.float32)
    factor = (step * np.float32(1 / 32)).astype(np.float32)
    bias = (np.array([77, -1234]) * factor).astype(np.float32)
    quantized = net().add("Quant", "q", "data", params="quant_param { scale: 32 }")
    params = "convolution_param { num_output: 2 kernel_size: 3 }"
    quantized.add("Convolution", "conv", "q", params=params, blobs=[weights, bias])
    zeros = np.zeros_like(factor)
    quantized.add("DeQuant", "d", "conv", blobs=[factor, zeros, zeros])
    imported = quantized.load(tmp_path)
    found = {each.kind: each for each in read_quantized(imported.model).quantizers}
    assert found["weight"].spec.dtype == "s8"
    assert np.allclose(found["weight"].params.scale.ravel(), step, rtol=1e-6)
    assert found["bias"].spec.dtype == "s32"
    # Not one number changes by it.
    values_now = run_all(imported.model, {"data": DATA})
    assert np.array_equal(values_now["conv/weight"], weights)
    assert np.array_equal(values_now["conv/bias"], bias)


def test_weights_that_are_no_codes_stay_floats(tmp_path: Path) -> None:
    quantized = net().add("Quant", "q", "data", params="quant_param { scale: 32 }")
    params = "convolution_param { num_output: 2 kernel_size: 3 bias_term: false }"
    quantized.add("Convolution", "conv", "q", params=params, blobs=[values(2, 4, 3, 3)])
    quantized.add("DeQuant", "d", "conv", blobs=[np.array([0.001], np.float32)])
    model = quantized.load(tmp_path).model
    assert {each.kind for each in read_quantized(model).quantizers} == {"activation"}


@given(st.integers(0, 1000), st.floats(2**-20, 8, width=32), st.sampled_from([0, 1]))
def test_codes_are_found_exactly_or_not_at_all(seed: int, step: float, axis: int) -> None:
    generator = np.random.default_rng(seed)
    codes = generator.integers(-128, 128, (3, 4))
    steps = np.asarray(step * generator.uniform(0.5, 2, codes.shape[axis]), np.float32)
    spread = (-1, 1) if axis == 0 else (1, -1)
    stored = np.asarray(codes * steps.reshape(spread), np.float32)
    nearly = steps * np.float32(1 + 1e-7)
    found = find_codes(stored, nearly, axis=axis)
    assert found is not None
    assert np.array_equal(found.values, codes)
    again = np.asarray(found.values * found.scale.reshape(spread), np.float32)
    assert np.array_equal(again, stored)
    assert find_codes(stored + np.float32(step / 3), nearly, axis=axis) is None
    assert find_codes(stored, steps[:2], axis=axis) is None


def test_dequant_without_shift_does_nothing(tmp_path: Path) -> None:
    blobs = [values(4, low=0.1), np.zeros(4, np.float32), np.zeros(4, np.float32)]
    assert np.array_equal(blob(tmp_path, net().add("DeQuant", "layer", "data", blobs=blobs)), DATA)
    assert np.array_equal(blob(tmp_path, net().add("DeQuant", "layer", "data")), DATA)


def test_dequant_with_shift_rounds_twice_and_limits_to_16_bits(tmp_path: Path) -> None:
    factor, shift = np.array([1e-6, 0.01, 0.02, 0.05], np.float32), np.array([1, 2, 3, 4], np.float32)
    found = blob(tmp_path, net().add("DeQuant", "layer", "data", blobs=[factor, shift, np.zeros(4, np.float32)]))
    unit, power = factor[:, None, None], np.exp2(shift)[:, None, None]
    rounded = np.rint(np.rint(DATA / unit) / power)
    assert np.allclose(found, np.clip(rounded, -(2**15), 2**15 - 1) * unit * power, rtol=1e-5)


def test_mixed_shifts_are_refused(tmp_path: Path) -> None:
    params = "dequant_param { deqscale: 0.1 deqscale: 0.1 deqscale: 0.1 deqscale: 0.1 shift_bit: 1 shift_bit: 0 "
    params += "shift_bit: 1 shift_bit: 1 }"
    with pytest.raises(BadInput, match="mixes shift bits"):
        net().add("DeQuant", "layer", "data", params=params).load(tmp_path)


@pytest.mark.parametrize("shift", [0, 2])
def test_a_net_of_integers(shift: int, tmp_path: Path) -> None:
    weights = np.arange(-27, 27).reshape(2, 3, 3, 3).astype(np.int8)
    bias, factor = np.array([100, -7], np.int32), np.array([0.001, 0.002], np.float32)
    packed = factor.view(np.uint32).astype(np.uint64) | np.uint64(shift) << np.uint64(32)
    data = values(1, 3, 6, 6, seed=1)
    deployed = NetText({"data": data.shape}).add(
        "Quant", "q", "data", params='quant_param { scale: 50 offset: "\\003" }'
    )
    deployed.add("Convolution", "conv", "q", params="convolution_param { num_output: 2 kernel_size: 3 }",
                 blobs=[weights, bias])  # fmt: skip
    deployed.add("DeQuant", "layer", "conv", blobs=[packed])
    found = run_all(deployed.load(tmp_path).model, {"data": data})["layer"][0]
    codes = np.clip(np.rint(data[0] * 50) + 3, -128, 127) - 3
    windows = np.lib.stride_tricks.sliding_window_view(codes, (3, 3), axis=(1, 2))
    sums = np.einsum("chwij,ocij->ohw", windows, weights.astype(np.float64)) + bias[:, None, None]
    sums = np.rint(sums / 2**shift) * 2**shift
    assert np.allclose(found, sums * factor[:, None, None], rtol=1e-5)


def test_a_quant_layer_between_integers_and_floats_is_refused(tmp_path: Path) -> None:
    mixed = NetText({"data": (1, 3, 6, 6)}).add("Quant", "q", "data", params="quant_param { scale: 50 }")
    mixed.add("Convolution", "conv", "q", params="convolution_param { num_output: 2 kernel_size: 3 }",
              blobs=[np.ones((2, 3, 3, 3), np.int8), np.ones(2, np.int32)])  # fmt: skip
    mixed.add("ReLU", "relu", "q")
    with pytest.raises(BadInput, match="which take different numbers"):
        mixed.load(tmp_path)


def test_anti_quant_multiplies_and_calibration_layers_are_dropped(tmp_path: Path) -> None:
    scaled = net().add("AntiQuant", "layer", "data", params="antiquant_param { scale: 0.25 }")
    assert np.array_equal(blob(tmp_path, scaled), DATA * np.float32(0.25))
    text = scaled.text + 'layer { name: "ifmr" type: "IFMR" bottom: "layer" ifmr_param { batch_num: 2 } }\n'
    imported = NetText({}, text).load(tmp_path)
    assert [dropped.name for dropped in imported.dropped] == ["ifmr"]
