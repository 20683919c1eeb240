"""Layers of videos against loops over windows, and the forms in which C3D and its followers have them."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import import_caffe
from roundoff.graph.caffe.net import read_weights
from roundoff.graph.caffe.wire import varint
from tests.graph.caffe.nets import NetText, relative_error, run_all, values

Triple = tuple[int, int, int]


def convolved(data: Array, weights: Array, stride: Triple, pad: Triple) -> Array:
    """Sums under the window, place by place."""
    padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), *((each, each) for each in pad)])
    sizes = [
        (size - kernel) // step + 1
        for size, kernel, step in zip(padded.shape[2:], weights.shape[2:], stride, strict=True)
    ]
    out = np.zeros((len(data), len(weights), *sizes))
    for place in np.ndindex(*sizes):
        window = tuple(
            slice(at * step, at * step + kernel)
            for at, step, kernel in zip(place, stride, weights.shape[2:], strict=True)
        )
        out[(..., *place)] = np.einsum("nczyx,oczyx->no", padded[(slice(None), slice(None), *window)], weights)
    return out


def pooled(data: Array, kernel: Triple, stride: Triple, pad: Triple, *, method: str, down: bool = False) -> Array:
    """The largest or the mean value under the window, cut at the padding, place by place."""
    rounded = math.floor if down else math.ceil
    inside = data.shape[2:]
    every = list(zip(inside, kernel, stride, pad, strict=True))
    sizes = [rounded((size + 2 * edge - width) / step) + 1 for size, width, step, edge in every]
    if any(pad):
        sizes = [
            n - ((n - 1) * step >= size + edge) for n, (size, _, step, edge) in zip(sizes, every, strict=True)
        ]
    out = np.zeros((*data.shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        window, counted = [], 1
        for at, (size, width, step, edge) in zip(place, every, strict=True):
            start = at * step - edge
            counted *= min(start + width, size + edge) - start
            window.append(slice(max(start, 0), min(start + width, size)))
        seen = data[(slice(None), slice(None), *window)].astype(np.float64)
        axes = (2, 3, 4)
        out[(..., *place)] = seen.max(axes) if method == "MAX" else seen.sum(axes) / counted
    return out


WORDS = {
    "Convolution3D": "kernel_size: {1} kernel_depth: {0} stride: {3} temporal_stride: {2} pad: {5} "
    "temporal_pad: {4}",
    "Pooling3D": "kernel_h: {1} kernel_w: {1} kernel_l: {0} stride: {3} stride_l: {2} pad: {5} pad_l: {4}",
    "NdConvolution": "kernel_shape {{ dim: {0} dim: {1} dim: {1} }} stride_shape {{ dim: {2} dim: {3} dim: {3} }} "
    "pad_shape {{ dim: {4} dim: {5} dim: {5} }}",
    "Convolution": "kernel_size: {0} kernel_size: {1} kernel_size: {1} stride: {2} stride: {3} stride: {3} "
    "pad: {4} pad: {5} pad: {5}",
}
SIZES = [(3, 2, 1, 2, 1, 1), (1, 3, 1, 1, 0, 2), (2, 2, 2, 2, 0, 0), (3, 4, 3, 2, 2, 1)]


def triples(sizes: tuple[int, ...]) -> tuple[Triple, Triple, Triple]:
    kernel, stride, pad = ((sizes[at], sizes[at + 1], sizes[at + 1]) for at in (0, 2, 4))
    return kernel, stride, pad


@pytest.mark.parametrize(("kind", "param", "words"), [
    ("Convolution3D", "convolution_param", "Convolution3D"),
    ("Convolution3D", "convolution3d_param", "Convolution3D"),
    ("Convolution3D", "convolution3d_param", "Pooling3D"), ("NdConvolution", "convolution_param", "NdConvolution"),
    ("Convolution", "convolution_param", "Convolution"),
])  # fmt: skip
@pytest.mark.parametrize("sizes", SIZES)
def test_convolution(kind: str, param: str, words: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    kernel, stride, pad = triples(sizes)
    data, weights, bias = values(2, 4, 6, 7, 5), values(6, 2, *kernel, seed=1), values(6, seed=2)
    said = f"{param} {{ num_output: 6 group: 2 {WORDS[words].format(*sizes)} }}"
    net = NetText({"data": data.shape}).add(kind, "conv", "data", params=said, blobs=[weights, bias])
    found = run_all(net.load(tmp_path).model, {"data": data})["conv"]
    halves = [convolved(data[:, at : at + 2], weights[at // 2 * 3 :][:3], stride, pad) for at in (0, 2)]
    assert relative_error(found, np.concatenate(halves, axis=1) + bias[:, None, None, None]) < 1e-5


@pytest.mark.parametrize("sizes", SIZES)
def test_deconvolution(sizes: tuple[int, ...], tmp_path: Path) -> None:
    kernel, stride, pad = triples(sizes)
    data, weights, bias = values(2, 4, 3, 4, 3), values(4, 2, *kernel, seed=1), values(4, seed=2)
    said = f"convolution_param {{ num_output: 4 group: 2 {WORDS['Convolution3D'].format(*sizes)} }}"
    net = NetText({"data": data.shape})
    net.add("Deconvolution3D", "up", "data", params=said, blobs=[weights, bias])
    found = run_all(net.load(tmp_path).model, {"data": data})["up"]
    whole = np.zeros((2, 4, *((n - 1) * s + k for n, s, k in zip(data.shape[2:], stride, kernel, strict=True))))
    for place in np.ndindex(*data.shape[2:]):
        window = tuple(slice(at * step, at * step + k) for at, step, k in zip(place, stride, kernel, strict=True))
        for group in (0, 2):
            spread = np.einsum("nc,cozyx->nozyx", data[(..., *place)][:, group : group + 2], weights[group:][:2])
            whole[(slice(None), slice(group, group + 2), *window)] += spread
    inner = tuple(slice(edge, size - edge) for edge, size in zip(pad, whole.shape[2:], strict=True))
    kept = whole[(slice(None), slice(None), *inner)]
    assert relative_error(found, kept + bias[:, None, None, None]) < 1e-5


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("kind", "param", "words"), [
    ("Pooling3D", "pooling_param", "Convolution3D"), ("Pooling3D", "pooling3d_param", "Pooling3D"),
    ("Pooling", "pooling_param", "Convolution3D"), ("Pooling", "pooling_param", "Convolution"),
])  # fmt: skip
@pytest.mark.parametrize("sizes", SIZES)
def test_pooling(method: str, kind: str, param: str, words: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    kernel, stride, pad = triples(sizes)
    data = values(2, 3, 6, 7, 5)
    said = f"{param} {{ pool: {method} {WORDS[words].format(*sizes)} }}"
    net = NetText({"data": data.shape}).add(kind, "pool", "data", params=said)
    found = run_all(net.load(tmp_path).model, {"data": data})["pool"]
    assert relative_error(found, pooled(data, kernel, stride, pad, method=method)) < 1e-6


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("sizes", "shape"), [
    ((3, 2, 1, 2, 1, 1), (2, 3, 6, 4, 3)), ((6, 4, 3, 2, 0, 0), (2, 3, 2)), ((3, 4, 2, 2, 0, 0), (2, 3, 2, 2)),
])  # fmt: skip
def test_pooling_by_shapes_rounds_down_and_leaves_out_single_values(
    method: str, sizes: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    kernel, stride, pad = triples(sizes)
    data = values(2, 3, 6, 7, 5)
    said = f"pooling_param {{ pool: {method} {WORDS['NdConvolution'].format(*sizes)} }}"
    net = NetText({"data": data.shape}).add("NdPooling", "pool", "data", params=said)
    found = run_all(net.load(tmp_path).model, {"data": data})["pool"]
    wanted = pooled(data, kernel, stride, pad, method=method, down=True)
    assert found.shape == shape
    assert relative_error(found, wanted.reshape(shape)) < 1e-6


def test_places_of_the_largest_values_and_pooling_over_all(tmp_path: Path) -> None:
    data = values(2, 3, 4, 6, 6)
    net = NetText({"data": data.shape})
    net.add("Pooling3D", "pool", "data", ["pool", "places"], "pooling_param { kernel_size: 3 kernel_depth: 2 "
            "stride: 3 temporal_stride: 2 }")  # fmt: skip
    net.add("Pooling", "all", "data", params="pooling_param { pool: AVE global_pooling: true }")
    found = run_all(net.load(tmp_path).model, {"data": data})
    for place in np.ndindex(*found["pool"].shape):
        at = int(found["places"][place])
        assert data[place[:2]].ravel()[at] == found["pool"][place]
    assert relative_error(found["all"], data.mean((2, 3, 4), keepdims=True)) < 1e-6


def test_what_is_said_of_time_needs_an_input_that_has_it(tmp_path: Path) -> None:
    net = NetText().add("Pooling3D", "pool", "data", params="pooling_param { kernel_size: 2 kernel_depth: 2 }")
    with pytest.raises(BadInput, match="needs kernel_depth, and an input with 5 axes"):
        net.load(tmp_path)
    net = NetText({"data": (1, 3, 4, 8, 8)}).add(
        "Pooling3D", "pool", "data", params="pooling_param { kernel_size: 2 }"
    )
    with pytest.raises(BadInput, match="needs kernel_depth, and an input with 5 axes"):
        net.load(tmp_path)
    net = NetText({"data": (1, 3, 8)}).add("Pooling", "pool", "data", params="pooling_param { kernel_size: 2 }")
    with pytest.raises(BadInput, match="has 3 axes, not 4 or 5"):
        net.load(tmp_path)


# The files of C3D.

OLD_NET = """
name: "c3d"
layers {
  name: "data" type: VIDEO_DATA top: "data" top: "label"
  image_data_param {
    source: "list.txt" use_image: false mean_file: "mean.binaryproto" batch_size: 2 crop_size: 12 mirror: false
    show_data: 0 new_height: 16 new_width: 20 new_length: 4 shuffle: false
  }
}
layers {
  name: "conv1a" type: CONVOLUTION3D bottom: "data" top: "conv1a" blobs_lr: 1 blobs_lr: 2
  convolution_param {
    num_output: 5 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1
    weight_filler { type: "gaussian" std: 0.01 }
  }
}
layers { name: "relu1a" type: RELU bottom: "conv1a" top: "conv1a" }
layers {
  name: "pool1" type: POOLING3D bottom: "conv1a" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 kernel_depth: 1 stride: 2 temporal_stride: 1 }
}
layers { name: "fc8" type: INNER_PRODUCT bottom: "pool1" top: "fc8" inner_product_param { num_output: 7 } }
layers { name: "prob" type: SOFTMAX bottom: "fc8" top: "prob" }
layers { name: "accuracy" type: ACCURACY bottom: "prob" bottom: "label" top: "accuracy" }
"""


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def old_blob(blob: Array) -> bytes:
    """A blob as C3D numbers its fields: five sizes, then the values."""
    sizes = (1,) * (5 - blob.ndim) + blob.shape
    head = b"".join(field(number, size) for number, size in enumerate(sizes, 1))
    return head + field(6, blob.astype("<f4").tobytes())


def old_layer(name: str, kind: int, blobs: list[Array], params: bytes = b"") -> bytes:
    whole = field(4, name.encode()) + field(5, kind) + b"".join(field(6, old_blob(blob)) for blob in blobs)
    return field(2, whole + params)


def test_files_of_c3d(tmp_path: Path) -> None:
    weights, bias = values(5, 3, 3, 3, 3, seed=1), values(5, seed=2)
    dense, last = values(7, 5 * 4 * 6 * 6, seed=3, low=-0.1, high=0.1), values(7, seed=4)
    # Its parameters have other numbers too: 7 is a stride, 9 a filler.
    params = field(10, field(1, 5) + field(4, 3) + field(6, 3) + field(7, 1) + field(9, field(1, b"gaussian")))
    prototxt, caffemodel = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    prototxt.write_text(OLD_NET)
    caffemodel.write_bytes(
        field(1, b"c3d") + old_layer("conv1a", 30, [weights, bias], params) + old_layer("fc8", 14, [dense, last])
    )
    assert np.array_equal(read_weights(caffemodel).blobs["conv1a"][0], weights)
    imported = import_caffe(prototxt, caffemodel)
    data = values(2, 3, 4, 12, 12, seed=5)
    found = run_all(imported.model, {"data": data})
    volume = np.maximum(convolved(data, weights, (1, 1, 1), (1, 1, 1)) + bias[:, None, None, None], 0)
    wanted = pooled(volume, (1, 2, 2), (1, 2, 2), (0, 0, 0), method="MAX")
    assert relative_error(found["pool1"], wanted) < 1e-5
    assert relative_error(found["fc8"], wanted.reshape(2, -1) @ dense.T + last) < 1e-5


def test_nets_of_the_second_c3d_say_their_sizes_elsewhere(tmp_path: Path) -> None:
    net = NetText({})
    net.add("VideoData", "data", (), ["data", "label"], "transform_param { crop_size: 12 mean_value: 128 } "
            "video_data_param { new_length: 8 new_height: 16 new_width: 20 batch_size: 3 }")  # fmt: skip
    said = "num_output: 4 kernel_size: 7 kernel_depth: 3 pad: 3 temporal_pad: 1 stride: 2 temporal_stride: 1"
    weights = values(4, 3, 3, 7, 7)
    net.add(
        "Convolution3D",
        "conv1",
        "data",
        params=f"convolution3d_param {{ {said} bias_term: false }}",
        blobs=[weights],
    )
    net.add("BatchNorm", "bn", "conv1", "conv1", "batch_norm_param { use_global_stats: true }",
            [values(4), values(4, low=0.5), np.ones(1, np.float32)])  # fmt: skip
    net.add("Pooling3D", "pool5", "conv1", params="pooling3d_param { kernel_size: 6 kernel_depth: 1 pool: AVE }")
    data = values(3, 3, 8, 12, 12, seed=5)
    found = run_all(net.load(tmp_path).model, {"data": data})
    mean, variance = (blob[:, None, None, None] for blob in net.blobs["bn"][1][:2])
    wanted = (convolved(data, weights, (1, 2, 2), (1, 3, 3)) - mean) / np.sqrt(variance + 1e-5)
    assert relative_error(found["pool5"], wanted.mean((3, 4), keepdims=True)) < 1e-5


def test_every_way_to_say_a_window_is_one_window(tmp_path: Path) -> None:
    data = values(1, 2, 6, 8, 8)
    models = []
    for words in itertools.islice(WORDS.values(), 4):
        said = f"pooling_param {{ {words.format(2, 3, 1, 2, 0, 1)} }}"
        net = NetText({"data": data.shape}).add("Pooling", "pool", "data", params=said)
        models.append(run_all(net.load(tmp_path).model, {"data": data})["pool"])
    assert all(np.array_equal(models[0], other) for other in models[1:])


def test_unpooling_of_videos_puts_values_back_to_where_pooling_found_them(tmp_path: Path) -> None:
    """The size is that of what was pooled, which kernel and stride do not tell: 5 rows make 3, and 6 do."""
    data = values(2, 3, 4, 5, 7)
    net = NetText({"data": data.shape})
    said = "kernel_size: 2 kernel_depth: 2 stride: 2 temporal_stride: 2"
    net.add("Pooling3D", "pool", "data", ["pool", "places"], f"pooling_param {{ {said} }}")
    net.add("Power", "less", "pool", params="power_param { scale: -0.5 }")
    net.add("Unpooling3D", "up", ["less", "places"], params=f"unpooling_param {{ {said} }}")
    found = run_all(net.load(tmp_path).model, {"data": data})["up"]
    wanted = np.zeros_like(data)
    for n, c, z, y, x in np.ndindex(2, 3, 2, 3, 4):
        window = data[n, c, 2 * z : 2 * z + 2, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        at = np.unravel_index(window.argmax(), window.shape)
        wanted[n, c, 2 * z + at[0], 2 * y + at[1], 2 * x + at[2]] = -0.5 * window.max()
    assert np.array_equal(found, wanted)
    net = NetText({"data": (1, 3, 4, 8, 8)}).add("Unpooling3D", "up", ["data", "data"])
    with pytest.raises(BadInput, match="says nothing of its size") as caught:
        net.load(tmp_path)
    assert "the places of a Pooling" in str(caught.value.fix)
