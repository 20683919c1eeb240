"""The processing of an input as a whole, its doubts and its refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.errors import BadInput
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import shown
from roundoff.preprocessing.colours import Csc, packed
from roundoff.preprocessing.steps import InputProcessing, doubts, padded, sliced
from tests.preprocessing.yuv import to_yuv
from tests.samples.support import complaint

PIXELS = np.random.default_rng(0).integers(0, 256, (1, 6, 4, 3), dtype=np.uint8)


def test_nothing_said_changes_nothing() -> None:
    for shape in ((2, 3, 4, 5), (7,), ()):
        values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(InputProcessing().apply(values), values)


def test_bytes_last_become_normalized_planes() -> None:
    mean, std = (103.94, 116.78, 123.68), (58.8, 57.1, 57.4)
    processing = InputProcessing(
        source_dtype="U8", source_layout="NHWC", source_format="BGR", model_format="BGR", mean=mean, std=std
    )
    got = processing.apply(PIXELS)
    assert got.dtype == np.float32
    assert got.shape == (1, 3, 6, 4)
    for channel in range(3):
        expected = (PIXELS[..., channel] - mean[channel]) / std[channel]
        np.testing.assert_allclose(got[:, channel], expected, rtol=1e-6)
    assert processing.dtype == "uint8"
    assert processing.source_shape((1, 3, 6, 4)) == (1, 6, 4, 3)


def test_channels_are_swapped_only_where_that_is_said() -> None:
    formats: dict[str, Any] = {"source_format": "RGB", "model_format": "BGR", "source_layout": "NHWC"}
    np.testing.assert_array_equal(InputProcessing(**formats).apply(PIXELS)[0, 0], PIXELS[0, ..., 0])
    swapped = InputProcessing(**formats, swaps_channels=True)
    np.testing.assert_array_equal(swapped.apply(PIXELS)[0, 0], PIXELS[0, ..., 2])
    assert doubts(swapped) == ()
    (doubt,) = doubts(InputProcessing(**formats))
    assert "still expects BGR" in doubt


@pytest.mark.parametrize("first", ["RGB", "BGR"])
@pytest.mark.parametrize("color", ["YUV420SP", "YVU420SP", "YUYV422", "UYVY422"])
def test_yuv_becomes_the_models_colours(first: Any, color: Any) -> None:
    rgb = np.full((1, 6, 4, 3), (200.0, 90.0, 40.0))
    received = packed(np.rint(to_yuv(rgb, "BT.601 full range")).astype(np.uint8), color)
    processing = InputProcessing(
        source_format=color, source_dtype="U8", model_format=first, csc=Csc("full-range"), mean=(1.0, 2.0, 3.0)
    )
    assert processing.source_shape((1, 3, 6, 4)) == received.shape
    got = processing.apply(received)[0, :, 0, 0] + (1, 2, 3)
    np.testing.assert_allclose(got if first == "RGB" else got[::-1], rgb[0, 0, 0], atol=1.5)


def test_codes_are_dequantized_before_the_mean() -> None:
    codes = np.array([-128, 0, 127], np.int8)
    processing = InputProcessing(source_dtype="S8", scale=0.5, zero_point=-128, mean=(1.0,), std=(2.0,))
    np.testing.assert_allclose(processing.apply(codes), [-0.5, 31.5, 63.25])


def test_cut_and_pad_along_the_axes_of_the_source() -> None:
    processing = InputProcessing(
        source_layout="NHWC", slicing=(0, 0, 0, 1, 1, 0, 0, 0), padding=(0, 0, 2, 0, 0, 0, 0, 0), padding_value=9.0
    )
    got = processing.apply(PIXELS)
    assert got.shape == (1, 3, 7, 3)
    assert (got[:, :, :2] == 9).all()
    np.testing.assert_array_equal(got[0, 1, 2:], PIXELS[0, :-1, 1:, 1])
    assert processing.source_shape((1, 3, 7, 3)) == PIXELS.shape


@settings(max_examples=50, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=4), st.data())
def test_cutting_undoes_padding(shape: tuple[int, ...], data: st.DataObject) -> None:
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    pads = data.draw(st.lists(st.integers(0, 3), min_size=2 * len(shape), max_size=2 * len(shape)))
    np.testing.assert_array_equal(sliced(padded(values, pads, value=-1), pads), values)


@pytest.mark.parametrize(
    ("fields", "what", "fix"),
    [
        ({"source_format": "RBG"}, "no colour format 'RBG'", "did you mean"),
        ({"model_format": "YUV420SP"}, "no colour format 'YUV420SP'", "choose"),
        ({"source_layout": "HWC"}, "no layout 'HWC'", "NHWC"),
        ({"source_dtype": "U9"}, "no source type 'U9'", "U8"),
        ({"source_format": "YUV420SP"}, "needs a colour conversion", "full-range"),
        ({"csc": Csc("full-range")}, "given for a source in no named format", "YUV"),
        ({"std": (1.0, 0.0)}, "leaves nothing", "other than 0"),
        ({"mean": (float("inf"),)}, "not finite", "plain numbers"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        InputProcessing(**fields)
    complaint(caught, what, fix=fix)


@pytest.mark.parametrize(
    ("fields", "shape", "what"),
    [
        ({"mean": (1.0, 2.0)}, (1, 3, 2, 2), "The mean has 2 numbers, the input 3 channel(s)"),
        ({"std": (1.0, 2.0, 3.0)}, (3,), "What is received has the shape [3]"),
        ({"source_format": "RGB"}, (1, 4, 2, 2), "RGB has 3 channel(s), but 4 were received"),
        ({"slicing": (0, 1)}, (1, 3, 2, 2), "The slicing [0, 1] does not fit"),
        ({"slicing": (0, 0, 0, 0, 2, 0, 0, 0)}, (1, 3, 2, 2), "takes 2 and 0 from axis 2, which has 2"),
        ({"padding": (-1, 0) * 4}, (1, 3, 2, 2), "The padding [-1, 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(fields: dict[str, Any], shape: tuple[int, ...], what: str) -> None:
    with pytest.raises(BadInput) as caught:
        InputProcessing(**fields).apply(np.zeros(shape))
    complaint(caught, what, fix="")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"source_dtype": "U8", "std": (1 / 255,) * 3}, "looks like 1/255"),
        ({"source_dtype": "U8", "std": (0.229, 0.224, 0.225)}, "[58.4, 57.12, 57.38]"),
        ({"source_dtype": "U8", "mean": (0.485, 0.456, 0.406)}, "[123.7, 116.3, 103.5]"),
        ({"mean": (123.7, 116.3, 103.5), "std": (0.229, 0.224, 0.225)}, "of values from 0 to 1"),
        ({"mean": (58.4, 57.1, 57.4), "std": (123.7, 116.3, 103.5)}, "were they exchanged?"),
    ],
)
def test_slips_are_doubted(fields: dict[str, Any], words: str) -> None:
    found = doubts(InputProcessing(**fields))
    assert any(words in doubt for doubt in found)
    with use_language("zh"):
        assert all(any("\u4e00" <= letter <= "\u9fff" for letter in shown(doubt)) for doubt in found)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"source_dtype": "U8", "mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)},
        {"source_dtype": "U8", "mean": (127.5,) * 3, "std": (128.0,) * 3},
        {"source_dtype": "U8", "mean": (0.0,) * 3, "std": (255.0,) * 3},
        {"source_dtype": "U8", "mean": (123.7, 116.3, 103.5), "std": (255.0,) * 3},
        {"source_dtype": "U8", "scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
        {"source_dtype": "FP32", "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
    ],
)
def test_what_is_common_is_not_doubted(fields: dict[str, Any]) -> None:
    assert doubts(InputProcessing(**fields)) == ()
