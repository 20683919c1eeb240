"""Layers of FlowNet against loops over pixels, as its program has them."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from tests.graph.caffe.nets import NetText, relative_error, run_all, values


def computed(folder: Path, kind: str, params: str, blobs: Sequence[Array] = (), **feed: Array) -> Array:
    net = NetText({name: array.shape for name, array in feed.items()})
    net.add(kind, "layer", list(feed), params=params, blobs=list(blobs))
    return run_all(net.load(folder).model, feed)["layer"]


def correlated(
    one: Array, two: Array, *, pad: int, kernel: int, reach: int, strides: tuple[int, int], kind: str
) -> Array:
    """Displacement by displacement, place by place."""
    edges = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    first, second = (np.pad(each.astype(np.float64), edges) for each in (one, two))
    border = reach + kernel // 2
    high, wide = (math.ceil((size - 2 * border) / strides[0]) for size in first.shape[2:])
    radius = reach // strides[1]
    moves = [strides[1] * number for number in range(-radius, radius + 1)]
    out = np.zeros((len(one), len(moves) ** 2, high, wide))
    for channel, (down, right) in enumerate((y, x) for y in moves for x in moves):
        for y, x in np.ndindex(high, wide):
            top, left = y * strides[0] + reach, x * strides[0] + reach
            here = first[:, :, top : top + kernel, left : left + kernel]
            there = second[:, :, top + down : top + down + kernel, left + right : left + right + kernel]
            each = here * there if kind == "MULTIPLY" else np.abs(here - there)
            out[:, channel, y, x] = each.mean((1, 2, 3))
    return out


@pytest.mark.parametrize("kind", ["MULTIPLY", "SUBTRACT"])
@pytest.mark.parametrize(
    ("pad", "kernel", "reach", "strides"),
    [
        (4, 1, 4, (1, 2)),
        (3, 1, 3, (1, 1)),
        (4, 3, 4, (1, 2)),
        (2, 3, 3, (2, 2)),
        (5, 1, 4, (3, 3)),
        (0, 1, 2, (1, 1)),
    ],
)
def test_correlation(
    pad: int, kernel: int, reach: int, strides: tuple[int, int], kind: str, tmp_path: Path
) -> None:
    one, two = values(2, 5, 9, 11, seed=1), values(2, 5, 9, 11, seed=2)
    said = (
        f"correlation_param {{ pad: {pad} kernel_size: {kernel} max_displacement: {reach} "
        f"stride_1: {strides[0]} stride_2: {strides[1]} correlation_type: {kind} }}"
    )
    found = computed(tmp_path, "Correlation", said, one=one, two=two)
    wanted = correlated(one, two, pad=pad, kernel=kernel, reach=reach, strides=strides, kind=kind)
    assert relative_error(found, wanted) < 1e-5


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("kernel_size: 2 max_displacement: 1", "odd kernel_size"),
        ("kernel_size: 1 max_displacement: 9", "do not fit into its input"),
        ("kernel_size: 1", "needs 'max_displacement'"),
    ],
)
def test_correlation_that_is_none(said: str, message: str, tmp_path: Path) -> None:
    one = values(1, 2, 6, 6)
    with pytest.raises(BadInput, match=message):
        computed(tmp_path, "Correlation", f"correlation_param {{ {said} }}", one=one, two=one)


@pytest.mark.parametrize(("fill", "outside"), [("ZERO", 0.0), ("NOT_A_NUMBER", math.nan)])
def test_flow_warp(fill: str, outside: float, tmp_path: Path) -> None:
    image, flow = values(2, 3, 7, 9, seed=1), values(2, 2, 7, 9, seed=2, low=-3, high=3)
    flow[0, :, 2, 3] = [2, -1]
    flow[1, :, 6, 8] = [0, 0]
    found = computed(tmp_path, "FlowWarp", f"flow_warp_param {{ fill_value: {fill} }}", image=image, flow=flow)
    wanted = np.full(image.shape, outside)
    for n, y, x in np.ndindex(2, 7, 9):
        right, down = x + flow[n, 0, y, x], y + flow[n, 1, y, x]
        if 0 <= right < 9 and 0 <= down < 7:
            left, top = int(right), int(down)
            across, along = right - left, down - top
            next_x, next_y = min(left + 1, 8), min(top + 1, 6)
            upper = (1 - across) * image[n, :, top, left] + across * image[n, :, top, next_x]
            lower = (1 - across) * image[n, :, next_y, left] + across * image[n, :, next_y, next_x]
            wanted[n, :, y, x] = (1 - along) * upper + along * lower
    assert 0.1 < np.equal(wanted, 0).mean() + np.isnan(wanted).mean() < 0.9
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert relative_error(np.nan_to_num(found), np.nan_to_num(wanted)) < 1e-5


def test_channel_norm(tmp_path: Path) -> None:
    data = values(2, 3, 5, 4)
    wanted = np.sqrt((data.astype(np.float64) ** 2).sum(1, keepdims=True))
    assert relative_error(computed(tmp_path, "ChannelNorm", "", data=data), wanted) < 1e-6


def cubic(x: float) -> float:
    x = abs(x)
    if x <= 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def half_away(x: float) -> int:
    return math.floor(x + 0.5) if x >= 0 else -math.floor(-x + 0.5)


def resampled(
    data: Array, size: tuple[int, int], filtered: Callable[[float], float], width: int, *, smooth: bool
) -> Array:
    """Pixel by pixel, with the sum of all weights in a window below."""
    high, wide = data.shape[2:]
    fy, fx = high / size[0], wide / size[1]
    ax, ay = (1 / fx, 1 / fy) if smooth and max(fx, fy) > 1 else (1.0, 1.0)
    rx, ry = (2 if f < 1 else math.ceil(width / a) for f, a in ((fx, ax), (fy, ay)))
    out = np.zeros((*data.shape[:2], *size))
    for y_out, x_out in np.ndindex(*size):
        x_in, y_in = x_out * fx + fy / 2 - 0.5, y_out * fy + fx / 2 - 0.5
        total, weights = np.zeros(data.shape[:2]), 0.0
        for y in range(half_away(y_in) - ry, half_away(y_in) + ry + 1):
            for x in range(half_away(x_in) - rx, half_away(x_in) + rx + 1):
                if 0 <= y < high and 0 <= x < wide:
                    weight = ax * filtered(ax * (x_in - x)) * ay * filtered(ay * (y_in - y))
                    total += weight * data[:, :, y, x]
                    weights += weight
        out[:, :, y_out, x_out] = total / weights if weights else 0
    return out


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("method", ["LINEAR", "CUBIC"])
@pytest.mark.parametrize("size", [(12, 14), (3, 4), (6, 7), (12, 4), (5, 21)])
def test_resample(size: tuple[int, int], method: str, *, smooth: bool, tmp_path: Path) -> None:
    data = values(2, 3, 6, 7)
    said = (
        f"resample_param {{ height: {size[0]} width: {size[1]} type: {method} antialias: {str(smooth).lower()} }}"
    )
    found = computed(tmp_path, "Resample", said, data=data)
    filtered = cubic if method == "CUBIC" else lambda x: max(0.0, 1 - abs(x))
    wanted = resampled(data, size, filtered, 4 if method == "CUBIC" else 2, smooth=smooth)
    assert relative_error(found, wanted) < 1e-5


def test_resample_takes_the_nearest_value_or_the_size_of_another_blob(tmp_path: Path) -> None:
    data = values(2, 3, 6, 7)
    found = computed(
        tmp_path,
        "Resample",
        "resample_param { type: NEAREST }",
        data=data,
        like=np.zeros((1, 1, 12, 14), np.float32),
    )
    assert np.array_equal(found, data.repeat(2, 2).repeat(2, 3))
    for said, message in (("type: AREA height: 3 width: 3", "AREA"), ("type: LINEAR", "says nothing of its size")):
        with pytest.raises(BadInput, match=message):
            computed(tmp_path, "Resample", f"resample_param {{ {said} }}", data=data)


def correlated_along(
    one: Array, two: Array, *, pad: int, kernel: int, reach: int, strides: tuple[int, int], side: int, kind: str
) -> Array:
    """Displacement by displacement along rows, place by place; what lies beyond the padding is zero."""
    more = 20
    first = np.pad(one.astype(np.float64), [(0, 0), (0, 0), (0, 0), (pad, pad)])
    second = np.pad(two.astype(np.float64), [(0, 0), (0, 0), (0, 0), (pad + more, pad + more)])
    high = math.ceil((first.shape[2] - 2 * (kernel // 2)) / strides[0])
    wide = math.ceil((first.shape[3] - 2 * (reach + kernel // 2)) / strides[0])
    radius = reach // strides[1]
    begin, count = {-1: (-radius - 1, radius + 1), 0: (-radius, 2 * radius + 1), 1: (0, radius + 1)}[side]
    out = np.zeros((len(one), count, high, wide))
    for channel, y, x in np.ndindex(count, high, wide):
        top, left = y * strides[0], x * strides[0] + reach
        right = left + (begin + channel) * strides[1] + more
        here = first[:, :, top : top + kernel, left : left + kernel]
        there = second[:, :, top : top + kernel, right : right + kernel]
        out[:, channel, y, x] = (here * there if kind == "MULTIPLY" else np.abs(here - there)).mean((1, 2, 3))
    return out


@pytest.mark.parametrize("kind", ["MULTIPLY", "SUBTRACT"])
@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize(
    ("pad", "kernel", "reach", "strides"), [(4, 1, 4, (1, 1)), (5, 3, 4, (2, 2)), (0, 1, 3, (1, 3))]
)
def test_correlation_along_rows(
    pad: int, kernel: int, reach: int, *, strides: tuple[int, int], side: int, kind: str, tmp_path: Path
) -> None:
    one, two = values(2, 3, 5, 11, seed=1), values(2, 3, 5, 11, seed=2)
    said = (
        f"correlation_param {{ pad: {pad} kernel_size: {kernel} max_displacement: {reach} "
        f"single_direction: {side} stride_1: {strides[0]} stride_2: {strides[1]} correlation_type: {kind} }}"
    )
    found = computed(tmp_path, "Correlation1D", said, one=one, two=two)
    wanted = correlated_along(one, two, pad=pad, kernel=kernel, reach=reach, strides=strides, side=side, kind=kind)
    assert relative_error(found, wanted) < 1e-5


@pytest.mark.parametrize("size", [(3, 4), (6, 7), (2, 7), (5, 3)])
def test_downsample(size: tuple[int, int], tmp_path: Path) -> None:
    data = values(2, 3, 6, 7)
    found = computed(
        tmp_path, "Downsample", f"downsample_param {{ top_height: {size[0]} top_width: {size[1]} }}", data=data
    )
    wanted, steps = np.zeros((2, 3, *size)), [(old - 1) / (new - 1) for old, new in zip((6, 7), size, strict=True)]
    for y, x in np.ndindex(*size):
        weights = np.zeros((6, 7))
        for row, column in np.ndindex(6, 7):
            down, right = abs(row - y * steps[0]) / steps[0], abs(column - x * steps[1]) / steps[1]
            weights[row, column] = max(0, 1 - down) * max(0, 1 - right)
        wanted[:, :, y, x] = (data * weights).sum((2, 3)) / weights.sum()
    assert relative_error(found, wanted) < 1e-5


def test_means_and_negative_halves(tmp_path: Path) -> None:
    data = values(2, 6, 4, 5)
    said = "mean_param { operation: SUBTRACT value: 1 value: 2 value: 3 mean_scale: 0.5 input_scale: 2 "
    found = computed(tmp_path, "Mean", said + "output_scale: 0.1 }", data=data)
    mean = np.tile([1.0, 2.0, 3.0], 2).reshape(-1, 1, 1)
    assert relative_error(found, 0.1 * (2 * data - 0.5 * mean)) < 1e-6
    with pytest.raises(BadInput, match="in a file of its own"):
        computed(tmp_path, "Mean", 'mean_param { operation: ADD file: "mean.binaryproto" }', data=data)
    for slope in (0.0, 0.25):
        found = computed(tmp_path, "NegReLU", f"relu_param {{ negative_slope: {slope} }}", data=data)
        assert relative_error(found, np.minimum(data, 0) + slope * np.maximum(data, 0)) < 1e-6


STORED = [np.full((1, 1, 1, 1), 5000.0, np.float32), values(1, 3, 9, 8, seed=3), values(1, 3, 1, 1, seed=4)]


@pytest.mark.parametrize(
    ("said", "mean"),
    [
        ("", np.zeros((3, 1, 1))),
        ("recompute_mean: 1000 mean_per_pixel: false mirror { prob: 0.5 }", STORED[2][0]),
        ("recompute_mean: 1000", STORED[1][0]),
        ("mean: 1 mean: 2 mean: 3 mean_per_pixel: false", np.array([1, 2, 3]).reshape(3, 1, 1)),
        ("mean: 1 mean: 2 mean: 3", np.zeros((3, 1, 1))),
    ],
)
@pytest.mark.parametrize("cut", [None, (9, 8), (5, 5)])
def test_augmentation_of_data_at_test_time(
    said: str, mean: Array, cut: tuple[int, int] | None, tmp_path: Path
) -> None:
    data = values(2, 3, 9, 8)
    words = f"crop_height: {cut[0]} crop_width: {cut[1]} " if cut else ""
    found = computed(tmp_path, "DataAugmentation", f"augmentation_param {{ {words}{said} }}", STORED, data=data)
    high, wide = cut or (9, 8)
    wanted = np.zeros((2, 3, high, wide))
    for y, x in np.ndindex(high, wide):
        down, right = (min(y + (9 - high) / 2, 7.95), min(x + (8 - wide) / 2, 6.95)) if cut else (y, x)
        top, left = min(int(down), 7), min(int(right), 6)
        below, beside = down - top, right - left
        upper = (1 - beside) * data[:, :, top, left] + beside * data[:, :, top, left + 1]
        lower = (1 - beside) * data[:, :, top + 1, left] + beside * data[:, :, top + 1, left + 1]
        wanted[:, :, y, x] = (1 - below) * upper + below * lower
    if mean.shape[1:] not in ((high, wide), (1, 1)):
        mean = mean.mean((1, 2), keepdims=True)
    assert relative_error(found, wanted - mean) < 1e-5


def test_augmentation_by_chance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="changes its input by chance"):
        computed(
            tmp_path,
            "DataAugmentation",
            "augmentation_param { augment_during_test: true }",
            data=values(1, 3, 4, 4),
        )


@pytest.mark.parametrize(
    ("said", "size"), [("", (6, 8)), ("size_divisible_by: 5", (10, 10)), ("have_reference: true", (3, 4))]
)
def test_accumulated_blobs(said: str, size: tuple[int, int], tmp_path: Path) -> None:
    one, two, like = values(1, 2, 3, 8, seed=1), values(1, 3, 6, 4, seed=2), values(1, 1, 3, 4)
    feed = {"one": one, "two": two} | ({"like": like} if "reference" in said else {})
    found = computed(tmp_path, "Accum", f"accum_param {{ {said} }}", (), **feed)
    parts = []
    for part in (one, two):
        down, right = (
            np.interp(np.linspace(0, old - 1, new)[:, None], np.arange(old), np.arange(old))
            for old, new in zip(part.shape[2:], size, strict=True)
        )
        weights = [
            np.maximum(0, 1 - np.abs(place - np.arange(old)))
            for place, old in zip((down, right), part.shape[2:], strict=True)
        ]
        parts.append(weights[0] @ part @ weights[1].T)
    assert relative_error(found, np.concatenate(parts, axis=1)) < 1e-5
