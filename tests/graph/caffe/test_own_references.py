"""Layers that no other runtime has in the same form, against Caffe's formulas in numpy."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from tests.graph.caffe.nets import NetText, relative_error, run_all, values

SHAPE = (2, 4, 5, 6)
Reduced = Callable[[Array, tuple[int, ...]], Array]
DATA = values(*SHAPE, seed=3)


def computed(folder: Path, net: NetText, **feed: Array) -> Array:
    """The blob of the layer called 'layer'."""
    return run_all(net.load(folder).model, feed or {"data": DATA})["layer"]


def one(folder: Path, kind: str, params: str = "", blobs: tuple[Array, ...] = (), data: Array = DATA) -> Array:
    net = NetText({"data": data.shape}).add(kind, "layer", "data", params=params, blobs=blobs)
    return computed(folder, net, data=data)


def test_inner_product_transposed_and_over_all_axes(tmp_path: Path) -> None:
    weights, bias = values(120, 7, seed=1), values(7, seed=2)
    params = "inner_product_param { num_output: 7 transpose: true }"
    found = one(tmp_path, "InnerProduct", params, (weights, bias))
    assert relative_error(found, DATA.reshape(2, -1) @ weights + bias) < 1e-5
    whole = values(3, 240, seed=1)
    found = one(
        tmp_path, "InnerProduct", "inner_product_param { num_output: 3 axis: 0 bias_term: false }", (whole,)
    )
    assert relative_error(found, whole @ DATA.ravel()) < 1e-5


@pytest.mark.parametrize("kind", ["DepthwiseConvolution", "ConvolutionDepthwise"])
def test_depthwise_convolution_is_a_convolution_in_as_many_groups_as_channels(kind: str, tmp_path: Path) -> None:
    weights, bias = values(4, 1, 3, 3, seed=1), values(4, seed=2)
    params = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 %s }"
    grouped = one(tmp_path, "Convolution", params % "group: 4", (weights, bias))
    assert np.array_equal(one(tmp_path, kind, params % "", (weights, bias)), grouped)


def test_three_spatial_axes(tmp_path: Path) -> None:
    data, weights = values(1, 2, 4, 5, 6, seed=1), values(3, 2, 2, 2, 2, seed=2)
    params = "convolution_param { num_output: 3 kernel_size: 2 stride: 2 bias_term: false }"
    found = one(tmp_path, "Convolution", params, (weights,), data)
    windows = np.lib.stride_tricks.sliding_window_view(data[0], (2, 2, 2), axis=(1, 2, 3))[:, ::2, ::2, ::2]
    assert relative_error(found[0], np.einsum("cdhwijk,ocijk->odhw", windows, weights)) < 1e-5


def test_logarithm_with_base_scale_and_shift(tmp_path: Path) -> None:
    found = one(tmp_path, "Log", "log_param { base: 3 scale: 0.2 shift: 2 }")
    assert relative_error(found, np.log(DATA * 0.2 + 2) / math.log(3)) < 1e-5
    assert relative_error(one(tmp_path, "Log", data=np.abs(DATA) + 1), np.log(np.abs(DATA) + 1)) < 1e-5


def test_lrn_uses_k(tmp_path: Path) -> None:
    found = one(tmp_path, "LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.7 k: 2 }")
    padded = np.pad(DATA**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    assert relative_error(found, DATA / (2 + 0.5 / 3 * sums) ** 0.7) < 1e-5


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("SUM", lambda x, axes: x.sum(axes)),
        ("ASUM", lambda x, axes: np.abs(x).sum(axes)),
        ("SUMSQ", lambda x, axes: (x * x).sum(axes)),
        ("MEAN", lambda x, axes: x.mean(axes)),
    ],
)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_reduction(operation: str, wanted: Reduced, axis: int, tmp_path: Path) -> None:
    params = f"reduction_param {{ operation: {operation} axis: {axis} coeff: -1.5 }}"
    found = one(tmp_path, "Reduction", params)
    axes = tuple(range(axis % 4, 4))
    assert relative_error(found, -1.5 * wanted(DATA, axes)) < 1e-5


def largest(row: Array, count: int) -> list[int]:
    """As Caffe sorts: by value, then by place, falling."""
    return sorted(range(row.size), key=lambda place: (row[place], place), reverse=True)[:count]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("values_too", ["false", "true"])
def test_arg_max_over_everything(count: int, values_too: str, tmp_path: Path) -> None:
    data = np.round(DATA * 3)  # many equal values
    found = one(tmp_path, "ArgMax", f"argmax_param {{ top_k: {count} out_max_val: {values_too} }}", data=data)
    places = [largest(sample.ravel(), count) for sample in data]
    wanted = np.array(places, np.float32)[:, None]
    if values_too == "true":
        best = np.stack([sample.ravel()[where] for sample, where in zip(data, places, strict=True)])[:, None]
        wanted = np.concatenate([wanted, best], axis=1)
    assert np.array_equal(found, wanted[..., None])


@pytest.mark.parametrize("count", [1, 2])
def test_arg_max_along_an_axis(count: int, tmp_path: Path) -> None:
    data = np.round(DATA * 2)
    found = one(tmp_path, "ArgMax", f"argmax_param {{ axis: 1 top_k: {count} }}", data=data)
    rows = np.moveaxis(data, 1, -1).reshape(-1, 4)
    wanted = np.array([largest(row, count) for row in rows], np.float32).reshape(2, 5, 6, count)
    assert np.array_equal(found, np.moveaxis(wanted, -1, 1))
    found = one(tmp_path, "ArgMax", f"argmax_param {{ axis: 1 top_k: {count} out_max_val: true }}", data=data)
    assert np.array_equal(found, -np.sort(-data, axis=1)[:, :count])


def test_small_layers(tmp_path: Path) -> None:
    assert np.array_equal(one(tmp_path, "Tile", "tile_param { axis: 2 tiles: 3 }"), np.tile(DATA, (1, 1, 3, 1)))
    found = one(tmp_path, "Threshold", "threshold_param { threshold: 0.25 }")
    assert np.array_equal(found, (DATA > 0.25).astype(np.float32))
    assert np.array_equal(one(tmp_path, "Clip", "clip_param { min: -0.5 max: 0.25 }"), DATA.clip(-0.5, 0.25))
    assert np.array_equal(one(tmp_path, "Clip", "clip_param { min: 0 max: inf }"), DATA.clip(0))
    assert relative_error(one(tmp_path, "Swish"), DATA / (1 + np.exp(-DATA))) < 1e-5
    bias = values(4, seed=8)
    assert np.array_equal(one(tmp_path, "Bias", blobs=(bias,)), DATA + bias[:, None, None])
    wide = values(5, 6, seed=9)
    params = "bias_param { axis: 2 num_axes: 2 }"
    assert np.array_equal(one(tmp_path, "Bias", params, (wide,)), DATA + wide)
    one_number = np.array(2.5, np.float32)
    assert np.array_equal(one(tmp_path, "Scale", "scale_param { num_axes: 0 }", (one_number,)), DATA * 2.5)
    halved = one(tmp_path, "Dropout", "dropout_param { dropout_ratio: 0.25 scale_train: false }")
    assert np.array_equal(halved, DATA * np.float32(0.75))


def test_scale_by_a_second_bottom_with_a_stored_bias(tmp_path: Path) -> None:
    net = NetText({"data": SHAPE, "gate": (2, 4)})
    bias = values(2, 4, seed=5)
    net.add("Scale", "layer", ["data", "gate"], params="scale_param { axis: 0 bias_term: true }", blobs=[bias])
    gate = values(2, 4, seed=6)
    found = computed(tmp_path, net, data=DATA, gate=gate)
    assert relative_error(found, DATA * gate[..., None, None] + bias[..., None, None]) < 1e-6


def test_scale_by_one_number_per_sample_and_by_one_for_all(tmp_path: Path) -> None:
    net = NetText({"data": (1, 1, 5, 6), "gate": (1, 1)})
    net.add("Scale", "layer", ["data", "gate"], params="scale_param { axis: 0 }")
    data, gate = values(3, 1, 5, 6), values(3, 1, seed=6)
    assert np.array_equal(computed(tmp_path, net, data=data, gate=gate), data * gate[..., None, None])
    net = NetText({"data": SHAPE}).add("Reduction", "sum", "data").add("Scale", "layer", ["data", "sum"])
    found = run_all(net.load(tmp_path).model, {"data": DATA})
    assert np.array_equal(found["layer"], DATA * found["sum"])


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 1, 1)])
def test_axpy(shape: tuple[int, ...], tmp_path: Path) -> None:
    net = NetText({"a": shape, "x": SHAPE, "y": SHAPE}).add("Axpy", "layer", ["a", "x", "y"])
    factor, other = values(*shape, seed=1), values(*SHAPE, seed=2)
    found = computed(tmp_path, net, a=factor, x=DATA, y=other)
    assert relative_error(found, factor.reshape(2, 4, 1, 1) * DATA + other) < 1e-6


def test_embed(tmp_path: Path) -> None:
    table, bias = values(7, 4, seed=1), values(4, seed=2)
    numbers = np.array([[0, 1, 2], [6, 5, 4]], np.float32)
    found = one(tmp_path, "Embed", "embed_param { input_dim: 7 num_output: 4 }", (table, bias), numbers)
    assert np.array_equal(found, table[numbers.astype(int)] + bias)


def test_parameter_is_a_stored_blob(tmp_path: Path) -> None:
    stored = values(2, 4, 5, 6, seed=1)
    net = NetText({"data": SHAPE})
    net.add(
        "Parameter", "p", (), params="parameter_param { shape { dim: 2 dim: 4 dim: 5 dim: 6 } }", blobs=[stored]
    )
    net.add("Eltwise", "layer", ["data", "p"])
    assert np.array_equal(computed(tmp_path, net, data=DATA), DATA + stored)


def test_batch_norm_of_the_batch_at_hand_and_with_a_factor_of_zero(tmp_path: Path) -> None:
    blobs = (values(4), values(4, low=0.1), np.array([0], np.float32))
    found = one(tmp_path, "BatchNorm", "batch_norm_param { use_global_stats: false eps: 0.01 }", blobs)
    mean, variance = DATA.mean((0, 2, 3), keepdims=True), DATA.var((0, 2, 3), keepdims=True)
    assert relative_error(found, (DATA - mean) / np.sqrt(variance + 0.01)) < 1e-5
    found = one(tmp_path, "BatchNorm", "batch_norm_param { eps: 0.25 }", blobs)
    assert relative_error(found, DATA / np.sqrt(0.25)) < 1e-6


def test_normalize_across_the_plane_with_a_number_per_channel(tmp_path: Path) -> None:
    factor = values(4, seed=2)
    params = "norm_param { across_spatial: true channel_shared: false }"
    found = one(tmp_path, "Normalize", params, (factor,))
    length = np.sqrt((DATA.astype(np.float64) ** 2).sum((1, 2, 3), keepdims=True))
    assert relative_error(found, DATA / length * factor[:, None, None]) < 1e-5


def test_interp_crops_shrinks_and_follows_a_second_bottom(tmp_path: Path) -> None:
    data = values(1, 2, 9, 9, seed=1)
    params = "interp_param { shrink_factor: 2 }"
    assert np.allclose(one(tmp_path, "Interp", params, data=data), data[:, :, ::2, ::2], atol=1e-6)
    params = "interp_param { pad_beg: -1 pad_end: -2 height: 6 width: 6 }"
    assert np.array_equal(one(tmp_path, "Interp", params, data=data), data[:, :, 1:7, 1:7])
    net = NetText({"data": data.shape, "like": (1, 5, 17, 17)}).add("Interp", "layer", ["data", "like"])
    found = computed(tmp_path, net, data=data, like=values(1, 5, 17, 17))
    assert np.allclose(found[:, :, ::2, ::2], data, atol=1e-6)


def test_upsample_repeats_values(tmp_path: Path) -> None:
    wanted = DATA.repeat(2, axis=2).repeat(3, axis=3)
    assert np.array_equal(one(tmp_path, "Upsample", "upsample_param { stride_h: 2 stride_w: 3 }"), wanted)
    assert np.array_equal(one(tmp_path, "Upsample", "upsample_param { scale_h: 2 scale_w: 3 }"), wanted)
    scaled = one(tmp_path, "Upsample", "upsample_param { stride: 2 scale: 0.5 }")
    assert np.array_equal(scaled, DATA.repeat(2, axis=2).repeat(2, axis=3) * np.float32(0.5))


@pytest.mark.parametrize("pad", [0, 1])
def test_upsample_puts_values_back_where_pooling_found_them(pad: int, tmp_path: Path) -> None:
    data = values(2, 3, 6, 8, seed=4)
    pool = f"pooling_param {{ pool: MAX kernel_size: 2 stride: 2 pad: {pad} }}"
    net = NetText({"data": data.shape}).add("Pooling", "pool", "data", ["pool", "mask"], pool)
    size = "upsample_h: 6 upsample_w: 8" if pad else ""
    net.add("Upsample", "layer", ["pool", "mask"], params=f"upsample_param {{ scale: 2 {size} }}")
    found = computed(tmp_path, net, data=data)
    wanted = np.zeros_like(data)
    for row in range(-pad, 6, 2):
        for column in range(-pad, 8, 2):
            top, left = max(row, 0), max(column, 0)
            window = data[:, :, top : row + 2, left : column + 2]
            best = window.reshape(2, 3, -1).argmax(-1)
            for sample, channel in np.ndindex(2, 3):
                y, x = np.unravel_index(best[sample, channel], window.shape[2:])
                place = sample, channel, top + y, left + x
                wanted[place] = data[place]
    assert np.array_equal(found, wanted)


@given(
    size=st.integers(1, 12), kernel=st.integers(1, 5), stride=st.integers(1, 4), pad=st.integers(0, 4),
    maximum=st.booleans(), down=st.booleans(),
)  # fmt: skip
@settings(max_examples=150)
def test_pooling_follows_caffe_loop(
    size: int,
    kernel: int,
    stride: int,
    pad: int,
    *,
    maximum: bool,
    down: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("pool")
    data = values(1, 1, size, size + 1, seed=size)
    params = f"kernel_size: {kernel} stride: {stride} pad: {pad} pool: {'MAX' if maximum else 'AVE'}"
    net = NetText({"data": data.shape})
    net.add(
        "Pooling", "layer", "data", params=f"pooling_param {{ {params} {'round_mode: FLOOR' if down else ''} }}"
    )
    wanted = pooled(data[0, 0], kernel, stride, pad, maximum=maximum, down=down)
    if wanted is None:
        with pytest.raises(BadInput):
            net.load(folder)
    else:
        found = computed(folder, net, data=data)[0, 0]
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-5)


def pooled(plane: Array, kernel: int, stride: int, pad: int, *, maximum: bool, down: bool) -> Array | None:
    """Pooling window by window; None for what is refused."""
    if pad >= kernel:
        return None
    rounded = math.floor if down else math.ceil
    sizes = [rounded((size + 2 * pad - kernel) / stride) + 1 for size in plane.shape]
    if pad:
        sizes = [n - ((n - 1) * stride >= size + pad) for n, size in zip(sizes, plane.shape, strict=True)]
    if min(sizes) < 1:
        return None
    out = np.full(sizes, np.finfo(np.float32).min, np.float32)
    for place in np.ndindex(*sizes):
        starts = [step * stride - pad for step in place]
        ends = [min(start + kernel, size + pad) for start, size in zip(starts, plane.shape, strict=True)]
        counted = math.prod(end - start for start, end in zip(starts, ends, strict=True))
        rows, columns = (
            slice(max(start, 0), min(end, size))
            for start, end, size in zip(starts, ends, plane.shape, strict=True)
        )
        window = plane[rows, columns]
        if maximum:
            out[place] = window.max(initial=float(out[place]))
        elif any(start >= size + pad for start, size in zip(starts, plane.shape, strict=True)):
            return None
        else:
            out[place] = window.sum() / counted
    return out


# Layers of forks.


@pytest.mark.parametrize("size", ["unpool_size: 9", "unpool_h: 9 unpool_w: 9"])
def test_unpooling_puts_values_back_on_a_plane_of_a_given_size(size: str, tmp_path: Path) -> None:
    data = values(2, 3, 9, 9)
    net = NetText({"data": data.shape})
    net.add("Pooling", "pool", "data", ["pool", "mask"], "pooling_param { kernel_size: 2 stride: 2 }")
    net.add("Unpooling", "up", ["pool", "mask"], params=f"unpooling_param {{ kernel_size: 2 stride: 2 {size} }}")
    found = run_all(net.load(tmp_path).model, {"data": data})["up"]
    wanted = np.zeros_like(data)
    for n, c, y, x in np.ndindex(2, 3, 5, 5):
        window = data[n, c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        row, column = np.unravel_index(window.argmax(), window.shape)
        wanted[n, c, 2 * y + row, 2 * x + column] = window.max()
    assert np.array_equal(found, wanted)
    whole = net.text
    net.text = whole.replace(size, "")  # as large as what was pooled
    assert np.array_equal(run_all(net.load(tmp_path).model, {"data": data})["up"], wanted)
    net.text = whole.replace(size, "unpool_size: 8")
    with pytest.raises(BadInput, match="has less room than the Pooling"):
        net.load(tmp_path)
    net.text = whole.replace(size, "").replace('bottom: "mask"', 'bottom: "pool"')
    with pytest.raises(BadInput, match="says nothing of its size"):
        net.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("Mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
        ("HSigmoid", lambda x: np.clip(x + 3, 0, 6) / 6),
        ("HSwish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
        ("HardSwish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ],
)
def test_activations_of_later_nets(kind: str, formula: Callable[[Array], Array], tmp_path: Path) -> None:
    data = values(2, 3, 9, 5, low=-5, high=5)
    assert relative_error(one(tmp_path, kind, data=data), formula(data.astype(np.float64))) < 1e-6


def test_other_words_of_forks_mean_the_same(tmp_path: Path) -> None:
    data, rows = values(2, 4, 7, 7), values(3, 5)
    weights = values(6, 4, 3, 3, seed=1)
    net = NetText({"data": data.shape})
    net.add("Transpose", "turned", "data", params="transpose_param { dim: 3 dim: 0 dim: 2 dim: 1 }")
    net.add("SpatialDropout", "dropped", "data")
    python = r"""python_param { module: "m" layer: "SpatialDropoutLayer" param_str: "{\'p\': \'0.01\'}" }"""
    net.add("Python", "dropped_too", "data", params=python)
    for name, word in (("holes", "hole: 2"), ("dilated", "dilation: 2")):
        said = f"convolution_param {{ num_output: 6 kernel_size: 3 {word} bias_term: false }}"
        net.add("Convolution", name, "data", params=said, blobs=[weights])
    found = run_all(net.load(tmp_path).model, {"data": data})
    assert np.array_equal(found["turned"], data.transpose(3, 0, 2, 1))
    assert np.array_equal(found["dropped"], data)
    assert np.array_equal(found["dropped_too"], data)
    assert np.array_equal(found["holes"], found["dilated"])
    assert found["holes"].shape == (2, 6, 3, 3)
    net = NetText({"data": rows.shape}).add("Normalize", "norm", "data")
    found = run_all(net.load(tmp_path).model, {"data": rows})
    assert relative_error(found["norm"], rows / np.linalg.norm(rows, axis=1, keepdims=True)) < 1e-6
