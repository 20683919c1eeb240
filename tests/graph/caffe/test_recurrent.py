"""Recurrent layers and the smaller ones of Caffe and its forks, step by step in numpy."""

import math
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from tests.graph.caffe.nets import NetText, relative_error, run_all, values

STEPS, SAMPLES, WIDTH, HIDDEN = 6, 3, 5, 4
CONT = np.ones((STEPS, SAMPLES), np.float32)
CONT[0] = 0
CONT[3, 1] = 0  # a new sequence begins in the middle
X = values(STEPS, SAMPLES, WIDTH, seed=1)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("exposed", [False, True])
def test_lstm(tmp_path: Path, *, static: bool, exposed: bool) -> None:
    weights = values(4 * HIDDEN, WIDTH, seed=2)
    bias, fixed = values(4 * HIDDEN, seed=3), values(4 * HIDDEN, 2, seed=4)
    recurrent = values(4 * HIDDEN, HIDDEN, seed=5)
    feed = {"x": X, "cont": CONT if not exposed else np.ones_like(CONT)}
    if static:
        feed["s"] = values(SAMPLES, 2, seed=6)
    if exposed:
        feed["h0"], feed["c0"] = (values(1, SAMPLES, HIDDEN, seed=seed) for seed in (7, 8))
    net = NetText({name: array.shape for name, array in feed.items()})
    tops = ["h", "h_last", "c_last"] if exposed else ["h"]
    params = f"recurrent_param {{ num_output: {HIDDEN} expose_hidden: {str(exposed).lower()} }}"
    blobs = [weights, bias, *([fixed] if static else []), recurrent]
    net.add("LSTM", "lstm", list(feed), tops, params, blobs)
    found = run_all(net.load(tmp_path).model, feed)
    h, c = (feed[name][0] if exposed else np.zeros((SAMPLES, HIDDEN)) for name in ("h0", "c0"))
    wanted = []
    for step in range(STEPS):
        cont = feed["cont"][step][:, None]
        gates = X[step] @ weights.T + bias + (cont * h) @ recurrent.T
        if static:
            gates = gates + feed["s"] @ fixed.T
        i, f, o, g = np.split(gates, 4, axis=1)
        c = cont * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        wanted.append(h)
    assert relative_error(found["h"], np.array(wanted)) < 1e-5
    if exposed:
        assert relative_error(found["h_last"], h[None]) < 1e-5
        assert relative_error(found["c_last"], c[None]) < 1e-5


@pytest.mark.parametrize("form", ["steps x samples", "one axis", "one axis, told where sequences begin"])
def test_the_cell_of_forks(form: str, tmp_path: Path) -> None:
    blobs = [
        values(4 * HIDDEN, WIDTH, seed=2),
        values(4 * HIDDEN, HIDDEN, seed=5),
        values(4 * HIDDEN, seed=3),
    ]
    parted, told = form == "steps x samples", "told" in form
    feed = {"x": X if parted else X.reshape(-1, WIDTH, 1, 1)}
    cont = np.arange(STEPS)[:, None] * np.ones((1, SAMPLES)) > 0
    if told:
        cont = CONT > 0
        feed["clip"] = CONT.reshape(-1, 1, 1, 1)
    net = NetText({name: array.shape for name, array in feed.items()})
    samples = "" if parted else f"batch_size: {SAMPLES}"
    params = f"lstm_param {{ num_output: {HIDDEN} clipping_threshold: 1 {samples} }}"
    net.add("Lstm", "lstm", list(feed), params=params, blobs=blobs)
    found = run_all(net.load(tmp_path).model, feed)["lstm"]
    h = c = np.zeros((SAMPLES, HIDDEN))
    wanted = []
    for step in range(STEPS):
        on = cont[step][:, None]
        gates = X[step] @ blobs[0].T + blobs[2] + np.where(on, h @ blobs[1].T, 0)
        i, f, o, g = np.split(gates, 4, axis=1)
        c = np.where(on, sigmoid(f), 0) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        wanted.append(h)
    assert relative_error(found, np.array(wanted).reshape(found.shape)) < 1e-5
    assert found.shape == ((STEPS, SAMPLES, HIDDEN) if parted else (STEPS * SAMPLES, HIDDEN))


def test_rnn(tmp_path: Path) -> None:
    blobs = [
        values(HIDDEN, WIDTH, seed=2), values(HIDDEN, seed=3), values(HIDDEN, HIDDEN, seed=4),
        values(HIDDEN, HIDDEN, seed=5), values(HIDDEN, seed=6),
    ]  # fmt: skip
    net = NetText({"x": X.shape, "cont": CONT.shape})
    net.add("RNN", "layer", ["x", "cont"], params=f"recurrent_param {{ num_output: {HIDDEN} }}", blobs=blobs)
    found = run_all(net.load(tmp_path).model, {"x": X, "cont": CONT})["layer"]
    h, wanted = np.zeros((SAMPLES, HIDDEN)), []
    for step in range(STEPS):
        h = np.tanh(X[step] @ blobs[0].T + blobs[1] + (CONT[step][:, None] * h) @ blobs[2].T)
        wanted.append(np.tanh(h @ blobs[3].T + blobs[4]))
    assert relative_error(found, np.array(wanted)) < 1e-5


def test_one_step_of_a_cell(tmp_path: Path) -> None:
    state, gates = values(1, SAMPLES, HIDDEN), values(1, SAMPLES, 4 * HIDDEN, seed=1)
    cont = np.array([[1, 0, 1]], np.float32)
    net = NetText({"c": state.shape, "x": gates.shape, "cont": cont.shape})
    net.add("LSTMUnit", "unit", ["c", "x", "cont"], ["c_next", "h_next"])
    found = run_all(net.load(tmp_path).model, {"c": state, "x": gates, "cont": cont})
    i, f, o, g = np.split(gates, 4, axis=2)
    c = cont[..., None] * sigmoid(f) * state + sigmoid(i) * np.tanh(g)
    assert relative_error(found["c_next"], c) < 1e-5
    assert relative_error(found["h_next"], sigmoid(o) * np.tanh(c)) < 1e-5


def test_both_directions_of_a_sequence(tmp_path: Path) -> None:
    blobs = [values(4 * HIDDEN, WIDTH, seed=2), values(4 * HIDDEN, seed=3), values(4 * HIDDEN, HIDDEN, seed=4)]
    params = f"recurrent_param {{ num_output: {HIDDEN} }}"
    net = NetText({"x": X.shape})
    said = f"continuation_indicator_param {{ time_step: {STEPS} batch_size: {SAMPLES} }}"
    net.add("ContinuationIndicator", "cont", (), params=said)
    net.add("LSTM", "forward", ["x", "cont"], params=params, blobs=blobs)
    net.add("Reverse", "turned", "x", params="reverse_param { axis: 0 }")
    net.add("LSTM", "backward", ["turned", "cont"], params=params, blobs=blobs)
    net.add("Reverse", "back", "backward")
    net.add("Concat", "both", ["forward", "back"], params="concat_param { axis: 2 }")
    model = net.load(tmp_path).model
    found, other = run_all(model, {"x": X}), run_all(model, {"x": X[::-1].copy()})
    assert found["both"].shape == (STEPS, SAMPLES, 2 * HIDDEN)
    assert np.allclose(found["back"], other["forward"][::-1], atol=1e-6)


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("height", [5, 7, 8, 13])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_spatial_pyramid(method: str, height: int, levels: int, tmp_path: Path) -> None:
    data = values(2, 3, height, height + 2, seed=height)
    params = f"spp_param {{ pyramid_height: {levels} pool: {method} }}"
    net = NetText({"data": data.shape}).add("SPP", "layer", "data", params=params)
    if (height, levels) == (5, 3):  # four cells of two values over five: Caffe refuses it as well
        with pytest.raises(BadInput, match="more padding than its window"):
            net.load(tmp_path)
        return
    found = run_all(net.load(tmp_path).model, {"data": data})["layer"]
    parts = []
    for level in range(levels):
        kernel = [math.ceil(size / 2**level) for size in data.shape[2:]]
        pads = [(k * 2**level - size + 1) // 2 for k, size in zip(kernel, data.shape[2:], strict=True)]
        sizes = []
        for size, k, pad in zip(data.shape[2:], kernel, pads, strict=True):
            many = math.ceil((size + 2 * pad - k) / k) + 1
            sizes.append(many - 1 if any(pads) and (many - 1) * k >= size + pad else many)
        plane = np.zeros((2, 3, *sizes))
        for y, x in np.ndindex(*sizes):
            rows, columns = (
                (place * k - pad, min(place * k - pad + k, size + pad))
                for place, k, pad, size in zip((y, x), kernel, pads, data.shape[2:], strict=True)
            )
            window = data[:, :, max(rows[0], 0) : rows[1], max(columns[0], 0) : columns[1]]
            area = (rows[1] - rows[0]) * (columns[1] - columns[0])
            plane[:, :, y, x] = window.max((2, 3)) if method == "MAX" else window.sum((2, 3)) / area
        parts.append(plane if levels == 1 else plane.reshape(2, -1))
    assert relative_error(found, np.concatenate(parts, axis=1)) < 1e-5


def test_filter_and_batch_reindex(tmp_path: Path) -> None:
    data, other = values(5, 2, 3), values(5, 4, seed=1)
    keep = np.array([1, 0, 0, 2, 1], np.float32)[:, None]
    net = NetText({"a": data.shape, "b": other.shape, "keep": keep.shape})
    net.add("Filter", "some", ["a", "b", "keep"], ["some_a", "some_b"])
    net.add("ReLU", "relu", "some_a")
    found = run_all(net.load(tmp_path).model, {"a": data, "b": other, "keep": keep})
    assert np.array_equal(found["some_b"], other[[0, 3, 4]])
    assert np.array_equal(found["relu"], data[[0, 3, 4]].clip(0))
    numbers = np.array([4, 0, 0], np.float32)
    net = NetText({"a": data.shape, "n": (3,)}).add("BatchReindex", "layer", ["a", "n"])
    assert np.array_equal(run_all(net.load(tmp_path).model, {"a": data, "n": numbers})["layer"], data[[4, 0, 0]])


def test_im2col(tmp_path: Path) -> None:
    data = values(2, 3, 6, 7)
    net = NetText({"data": data.shape})
    net.add("Im2col", "layer", "data", params="convolution_param { kernel_size: 3 stride: 2 pad: 1 }")
    found = run_all(net.load(tmp_path).model, {"data": data})["layer"]
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    assert np.array_equal(found, windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 27, *windows.shape[2:4]))


def test_swish_with_its_factor(tmp_path: Path) -> None:
    data = values(1, 3, 4, 4)
    net = NetText({"data": data.shape}).add("Swish", "layer", "data", params="swish_param { beta: 1.7 }")
    found = run_all(net.load(tmp_path).model, {"data": data})["layer"]
    assert relative_error(found, data * sigmoid(1.7 * data)) < 1e-6


# Two layers called BN, and one fork's BatchNorm.

DATA = values(2, 4, 5, 6, seed=3)
FACTOR, TERM, MEAN, VARIANCE = (values(4, seed=seed, low=0.2) for seed in range(4))


def one(folder: Path, kind: str, params: str, blobs: list[Array]) -> Array:
    net = NetText({"data": DATA.shape}).add(kind, "layer", "data", params=params, blobs=blobs)
    return run_all(net.load(folder).model, {"data": DATA})["layer"]


def each(values_: Array) -> Array:
    return values_.astype(np.float64)[:, None, None]


def test_the_bn_of_segnet(tmp_path: Path) -> None:
    stored = [FACTOR.reshape(1, 4, 1, 1), TERM.reshape(1, 4, 1, 1)]
    found = one(tmp_path, "BN", "bn_param { scale_filler { value: 1 } bn_mode: INFERENCE }", stored)
    assert relative_error(found, DATA * each(FACTOR) + each(TERM)) < 1e-6
    found = one(tmp_path, "BN", "bn_param { shift_filler { value: 0.001 } }", stored)
    mean, variance = DATA.mean((0, 2, 3), keepdims=True), DATA.var((0, 2, 3), keepdims=True)
    assert relative_error(found, (DATA - mean) / np.sqrt(variance + 1e-9) * each(FACTOR) + each(TERM)) < 1e-5


def test_the_bn_of_pspnet(tmp_path: Path) -> None:
    stored = [blob.reshape(1, 4, 1, 1) for blob in (FACTOR, TERM, MEAN, VARIANCE)]
    params = "bn_param { slope_filler { type: 'constant' value: 1 } momentum: 0.95 frozen: true eps: 0.01 }"
    wanted = (DATA - each(MEAN)) / np.sqrt(each(VARIANCE) + 0.01) * each(FACTOR) + each(TERM)
    assert relative_error(one(tmp_path, "BN", params, stored), wanted) < 1e-5


def test_batch_norm_with_the_scale_layer_in_it(tmp_path: Path) -> None:
    stored = [MEAN * 2, VARIANCE * 2, np.array([2], np.float32), FACTOR, TERM]
    wanted = (DATA - each(MEAN)) / np.sqrt(each(VARIANCE) + 1e-5) * each(FACTOR) + each(TERM)
    found = one(tmp_path, "BatchNorm", "batch_norm_param { scale_bias: true }", stored)
    assert relative_error(found, wanted) < 1e-5


def test_a_recurrent_layer_without_its_second_bottom_s_shape_is_refused(tmp_path: Path) -> None:
    net = NetText({"x": X.shape, "cont": (STEPS, SAMPLES + 1)})
    with pytest.raises(BadInput, match="it got the shapes 6x3x5 and 6x4"):
        net.add("LSTM", "l", ["x", "cont"], params="recurrent_param { num_output: 4 }").load(tmp_path)
