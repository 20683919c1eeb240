"""What contradicts itself in the processing of inputs and outputs, whatever the model is."""

from collections.abc import Iterator, Sequence

from roundoff.data.processing import Csc
from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.documents import Place, Problem
from roundoff.vendors.pulsar2.config.enums import ColorSpace, CscMode
from roundoff.vendors.pulsar2.config.schema import InputProcessor, OutputProcessor

__all__ = ["YUV", "input_processor_problems", "output_processor_problems"]

YUV = (ColorSpace.YUV420SP, ColorSpace.YVU420SP, ColorSpace.YUYV422, ColorSpace.UYVY422)
"""What has to be converted into the model's colours."""

_MATRIX = 12


def input_processor_problems(processors: Sequence[InputProcessor]) -> Iterator[Problem]:
    """Everything that is wrong with the processing of inputs."""
    for index, each in enumerate(processors):
        place: Place = ("input_processors", index)
        yield from _colors(each, place)
        yield from _normalization(each, place)
        yield from _edges(each, place)
    groups = {len(each.src_extra_shapes) for each in processors}
    if len(groups) > 1:
        what = f"must have equally many entries for every input, not {' and '.join(map(str, sorted(groups)))}"
        yield Problem(("input_processors", "src_extra_shapes"), what)


def output_processor_problems(processors: Sequence[OutputProcessor]) -> Iterator[Problem]:
    """Everything that is wrong with the processing of outputs."""
    for index, each in enumerate(processors):
        perm = each.dst_perm
        if sorted(perm) != list(range(len(perm))):
            what = f"{list(perm)} is no order of {len(perm)} axes"
            yield Problem(("output_processors", index, "dst_perm"), what)


def _colors(processor: InputProcessor, place: Place) -> Iterator[Problem]:
    matrix = processor.csc_mat
    if processor.src_format in YUV and processor.csc_mode is CscMode.NoCSC:
        what = f"cannot be NoCSC for {processor.src_format.name}: choose FullRange, LimitedRange or Matrix"
        yield Problem((*place, "csc_mode"), what)
    if processor.src_format in YUV and processor.tensor_format is ColorSpace.GRAY:
        what = f"{processor.src_format.name} has three colours, a gray model takes one"
        yield Problem((*place, "src_format"), what)
    if processor.csc_mode is CscMode.Matrix:
        try:
            Csc("matrix", matrix)
        except BadInput as error:
            yield Problem((*place, "csc_mat"), f"{error.what.rstrip('.')}; {error.fix}")
    elif matrix and len(matrix) != _MATRIX:
        yield Problem((*place, "csc_mat"), f"must have 12 numbers (3 rows of 4), not {len(matrix)}")


def _normalization(processor: InputProcessor, place: Place) -> Iterator[Problem]:
    if processor.mean and processor.std and len(processor.mean) != len(processor.std):
        what = f"has {len(processor.std)} numbers, mean has {len(processor.mean)}"
        yield Problem((*place, "std"), what)
    if 0 in processor.std:
        yield Problem((*place, "std"), "holds a 0, by which nothing can be divided")
    if processor.scale < 0:
        yield Problem((*place, "scale"), f"must not be negative, is {processor.scale:g}")


def _edges(processor: InputProcessor, place: Place) -> Iterator[Problem]:
    for name in ("padding", "slicing"):
        values = getattr(processor, name)
        if len(values) % 2:
            what = f"has {len(values)} numbers; it takes a start and an end for every axis"
            yield Problem((*place, name), what)
        if any(value < 0 for value in values):
            yield Problem((*place, name), f"must not hold negative numbers: {list(values)}")
    if processor.padding_mode not in ("", "constant"):
        what = f"can be constant only, not {processor.padding_mode!r:.60}"
        yield Problem((*place, "padding_mode"), what)
