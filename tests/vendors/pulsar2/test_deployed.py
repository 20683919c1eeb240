"""A model as deployed: fed what the chip is fed, it computes what the float model does of the processed input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.run.session import open_session
from roundoff.vendors.pulsar2.config.checks import YUV, resolve_config
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    ColorSpace,
    CscMode,
    DataType,
    InputProcessor,
    OutputProcessor,
    PictureLayout,
)
from roundoff.vendors.pulsar2.deployed import deployed_model, input_processing
from tests.models import value, with_if, wrapped

MODEL = Path("model.onnx")
MATRIX = (1.164, 0.0, 1.596, -0.871, 1.164, -0.392, -0.813, 0.529, 1.164, 2.017, 0.0, -1.082)


def echo(shape: tuple[int | str, ...] = (1, 3, 4, 6), dtype: int = TensorProto.FLOAT, **versions: Any) -> Model:
    """Gives back what it is fed."""
    node = helper.make_node("Identity", ["x"], ["y"], name="Echo")
    return model_from_proto(
        wrapped([node], [value("x", shape, dtype)], [value("y", shape, dtype)], **versions), path=MODEL
    )


def deployed(
    model: Model, processor: InputProcessor | None = None, output: OutputProcessor | None = None
) -> tuple[Model, tuple[str, ...]]:
    config = BuildConfig(
        input_processors=() if processor is None else (processor,),
        output_processors=() if output is None else (output,),
    )
    return deployed_model(model, resolve_config(config, inputs(model), outputs(model)))


def run(model: Model, **feed: Array) -> Array:
    (result,) = open_session(model).run(feed)
    return result


def random_values(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind == "f":
        return (rng.random(shape) * 255).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -1000), min(limits.max, 1000), shape, dtype, endpoint=True)


@st.composite
def processors(draw: st.DrawFn) -> InputProcessor:
    source = draw(st.sampled_from([ColorSpace.AutoColorSpace, ColorSpace.RGB, ColorSpace.BGR, *YUV]))
    yuv = source in YUV
    dtypes = [each for each in DataType if each.name in ("U8", "S8", "U16", "S16", "U32", "S32", "FP16", "FP32")]
    mode = (
        draw(st.sampled_from([CscMode.Matrix, CscMode.FullRange, CscMode.LimitedRange])) if yuv else CscMode.NoCSC
    )
    count = draw(st.sampled_from([0, 1, 3]))
    numbers = st.floats(1, 200, width=32)
    edges = st.one_of(st.just(()), st.lists(st.integers(0, 2), min_size=8, max_size=8).map(tuple))
    slicing, padding = draw(edges), draw(edges)
    return InputProcessor(
        "x",
        tensor_format=draw(st.sampled_from([ColorSpace.AutoColorSpace, ColorSpace.RGB, ColorSpace.BGR])),
        tensor_layout=draw(st.sampled_from([PictureLayout.NCHW, PictureLayout.NHWC])),
        src_format=source,
        src_layout=draw(st.sampled_from([PictureLayout.NCHW, PictureLayout.NHWC])),
        src_dtype=draw(st.sampled_from(dtypes)),
        csc_mode=mode,
        csc_mat=MATRIX if mode is CscMode.Matrix else (),
        mean=tuple(draw(numbers) for _ in range(count)),
        std=tuple(draw(numbers) for _ in range(count)),
        slicing=slicing,
        padding=padding,
        padding_constant_value=draw(st.integers(0, 200)),
        scale=draw(st.sampled_from([0.0, 0.5])),
        zeropoint=draw(st.integers(-3, 3)),
    )


def _without_channels(edges: tuple[int, ...], *, last: bool) -> tuple[int, ...]:
    """Only height and width are cut and padded."""
    if not edges:
        return ()
    return (0, 0, *edges[4:], 0, 0) if last else (0, 0, 0, 0, *edges[4:])


@settings(max_examples=150)
@given(processors(), st.sampled_from([10, 13, 17]))
def test_the_nodes_do_what_the_processing_says(processor: InputProcessor, opset: int) -> None:
    last = processor.src_layout is PictureLayout.NHWC or processor.src_format in YUV
    slicing, padding = (_without_channels(each, last=last) for each in (processor.slicing, processor.padding))
    processor = replace(processor, slicing=slicing, padding=padding)
    shape = (1, 8, 8, 3) if processor.tensor_layout is PictureLayout.NHWC else (1, 3, 8, 8)
    processing = input_processing(processor)
    try:
        wanted = processing.source_shape(shape)
    except BadInput:
        assume(False)
    model, _ = deployed(echo(shape, opset=opset), processor)
    spec = inputs(model)[0]
    assert (spec.shape, spec.dtype) == (wanted, processing.dtype)
    values = random_values(wanted, processing.dtype)
    np.testing.assert_allclose(run(model, x=values), processing.apply(values), rtol=2e-4, atol=2e-3)


def test_a_model_that_is_deployed_as_it_is_stays_as_it_is() -> None:
    model = echo()
    same, notes = deployed(model, InputProcessor("x", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
    assert same is model
    assert not [note for note in notes if note.startswith("x")]


def test_bytes_of_a_picture() -> None:
    processor = InputProcessor(
        "x", src_dtype=DataType.U8, src_layout=PictureLayout.NHWC, mean=(1.0, 2.0, 3.0), std=(2.0,) * 3
    )
    model, notes = deployed(echo(), processor)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 4, 6, 3), np.uint8)
    expected = ((pixels - np.array([1, 2, 3])) / 2).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(run(model, x=pixels), expected, rtol=1e-6)
    assert "x: receives uint8 [1, 4, 6, 3]; put in front: Cast, Sub, Div, Transpose" in notes


def test_colours_are_never_exchanged_and_that_is_said() -> None:
    processor = InputProcessor("x", tensor_format=ColorSpace.RGB, src_format=ColorSpace.BGR, src_dtype=DataType.U8)
    model, notes = deployed(echo(), processor)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 4, 6), np.uint8)
    np.testing.assert_array_equal(run(model, x=pixels), pixels)
    assert any("channels are not swapped" in note for note in notes)


def test_nv12_has_three_halves_of_the_height() -> None:
    processor = InputProcessor(
        "x", src_format=ColorSpace.YUV420SP, csc_mode=CscMode.FullRange, src_dtype=DataType.U8
    )
    model, _ = deployed(echo((1, 3, 224, 224)), processor)
    assert inputs(model)[0].shape == (1, 336, 224, 1)
    gray = np.full((1, 336, 224, 1), 128, np.uint8)
    np.testing.assert_allclose(run(model, x=gray), 128, atol=0.01)


def test_a_free_batch_stays_free() -> None:
    processor = InputProcessor("x", src_dtype=DataType.U8, src_layout=PictureLayout.NHWC)
    model, _ = deployed(echo(("N", 3, "H", 6)), processor)
    assert inputs(model)[0].shape == ("N", "H", 6, 3)
    yuv = InputProcessor("x", src_format=ColorSpace.YUYV422, csc_mode=CscMode.LimitedRange, src_dtype=DataType.U8)
    model, _ = deployed(echo(("N", 3, 4, 6)), yuv)
    assert inputs(model)[0].shape == ("N", 4, 6, 2)
    assert run(model, x=np.zeros((5, 4, 6, 2), np.uint8)).shape == (5, 3, 4, 6)


def test_half_precision_models() -> None:
    model, _ = deployed(echo(dtype=TensorProto.FLOAT16), InputProcessor("x", src_dtype=DataType.U8, std=(2.0,)))
    found = run(model, x=np.full((1, 3, 4, 6), 3, np.uint8))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, 1.5)


def test_inputs_that_are_no_pictures() -> None:
    tokens, notes = deployed(echo((1, 5), TensorProto.INT64), InputProcessor("x", src_dtype=DataType.U8))
    assert inputs(tokens)[0].dtype == "int64"
    assert "its processing is left out, as it is no picture" in notes[0]
    flat, notes = deployed(
        echo((1, 5)), InputProcessor("x", src_layout=PictureLayout.NHWC, src_dtype=DataType.FP16)
    )
    assert (inputs(flat)[0].shape, inputs(flat)[0].dtype) == ((1, 5), "float16")
    assert "which has no layout; src_layout is left out" in notes[0]
    with pytest.raises(BadInput, match="colours and layouts need 4 axes"):
        deployed(echo((1, 5)), InputProcessor("x", mean=(1.0, 2.0, 3.0)))


def test_free_sizes_cannot_be_yuv() -> None:
    processor = InputProcessor("x", src_format=ColorSpace.YUV420SP, csc_mode=CscMode.FullRange)
    with pytest.raises(BadInput, match="what it is fed cannot be of free size"):
        deployed(echo((1, 3, "H", "W")), processor)


def test_more_padding_than_there_is() -> None:
    with pytest.raises(BadInput, match=r"leave the input 'x' nothing to receive: \[1, 3, 4, -14\]"):
        deployed(echo(), InputProcessor("x", padding=(0, 0, 0, 0, 0, 0, 10, 10)))


def test_subgraphs_see_the_processed_input() -> None:
    model = model_from_proto(with_if(), path=MODEL)
    feed = {each.name: _some(each) for each in inputs(model)}
    name = next(each.name for each in inputs(model) if each.dtype == "float32")
    half, _ = deployed(model, InputProcessor(name, std=(2.0,)))
    expected = open_session(model).run({**feed, name: feed[name] / 2})
    for one, other in zip(open_session(half).run(feed), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def _some(spec: InputSpec) -> Array:
    shape = tuple(axis if isinstance(axis, int) else 1 for axis in spec.shape or ())
    return np.ones(shape, bool) if spec.dtype == "bool" else random_values(shape, spec.dtype)


def test_outputs_are_turned() -> None:
    model, notes = deployed(echo(), output=OutputProcessor("y", dst_perm=(0, 2, 3, 1)))
    values = random_values((1, 3, 4, 6), "float32")
    np.testing.assert_array_equal(run(model, x=values), values.transpose(0, 2, 3, 1))
    assert outputs(model) == ("y",)
    assert "y: put behind: Transpose" in notes
    with pytest.raises(BadInput, match=r"dst_perm \[1, 0\] does not fit the output 'y', which has 4 axes"):
        deployed(echo(), output=OutputProcessor("y", dst_perm=(1, 0)))


def quantized(zero_point: Any) -> Model:
    """x, quantized with a step of 0.5 and dequantized again."""
    weights = [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(zero_point, "z")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["codes"], name="Q"),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["y"], name="D"),
    ]
    return model_from_proto(wrapped(nodes, [value("x", (2, 2))], [value("y", (2, 2))], weights), path=MODEL)


def test_outputs_as_codes() -> None:
    asked = OutputProcessor("y", output_dtype=DataType.U8, dst_perm=(1, 0))
    model, _ = deployed(quantized(np.uint8(3)), output=asked)
    values = np.array([[0, 1], [2, 3]], np.float32)
    found = run(model, x=values)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, (values * 2 + 3).T)
    for other in (quantized(np.int8(0)), echo((2, 2))):
        same, notes = deployed(other, output=OutputProcessor("y", output_dtype=DataType.U8))
        assert same is other
        assert any("output_dtype U8 is left out: this output has no 8-bit codes here" in note for note in notes)
