"""Reading the files of one input, whatever they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.archives import Archives
from roundoff.data.casting import cast, check_type
from roundoff.data.columns import Column
from roundoff.data.decode import require_pillow
from roundoff.data.files import Kind
from roundoff.data.fit import possible_counts
from roundoff.data.images import ImagePlan, plan_images
from roundoff.data.options import IMAGE_FLAGS, ImageOptions, SampleOptions
from roundoff.data.stored import Stored, open_npy, open_raw
from roundoff.errors import BadInput

__all__ = ["Reader", "make_readers"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Opens the files of one column.

    Attributes:
        column: The files.
        options: How they are read.
        archives: Reads .npz members; shared by all inputs.
        images: How pictures become values; None when there are none.
    """

    column: Column
    options: SampleOptions
    archives: Archives
    images: ImagePlan | None

    def peek(self, index: int) -> Stored | None:
        """Type and shape of a file, its type checked; None for a picture, which is one row without looking."""
        if self.column.kind(index) == "images":
            return None
        stored = self._open(index)
        check_type(stored.dtype, stored.shape, spec=self.column.spec, where=stored.where)
        return stored

    def counts(self, stored: Stored | None) -> frozenset[Fraction]:
        """How many samples a peeked file may hold."""
        spec = self.column.spec
        if stored is not None:
            return possible_counts(stored.shape, spec, where=stored.where, dtype=stored.dtype.name)
        batch = spec.shape[0] if spec.shape is not None and len(spec.shape) == 4 else 1
        return frozenset((Fraction(1, batch if isinstance(batch, int) and batch > 1 else 1),))

    def take(self, index: int, row: int, *, count: Fraction) -> Array:
        """Values of sample `row` of the `count` samples in a file, in the input's type and rank."""
        spec = self.column.spec
        if self.images is not None and self.column.kind(index) == "images":
            return self.images.read(self.column.path(index))
        stored = self._open(index)
        rank = len(stored.shape) if spec.shape is None else len(spec.shape)
        if len(stored.shape) > rank:
            values = stored.load(slice(row, row + 1))[0]
        elif len(stored.shape) < rank:
            values = stored.load(None)[np.newaxis]
        elif count <= 1:
            values = stored.load(None)
        else:
            rows = int(stored.shape[0] // count)
            values = stored.load(slice(row * rows, (row + 1) * rows))
        return cast(np.asarray(values, order="C"), spec, where=stored.where)

    def _open(self, index: int) -> Stored:
        path = self.column.path(index)
        kind = self.column.kind(index)
        if kind == "npz":
            return self.archives.open(path, self.column.spec)
        return (
            open_npy(path, self.column.spec) if kind == "npy" else open_raw(path, self.column.spec, self.options)
        )


def make_readers(columns: Sequence[Column], options: SampleOptions) -> tuple[Reader, ...]:
    """A reader per input.

    Raises:
        BadInput: Options were given that none of the files can obey, or that contradict an input.
    """
    columns = [_with_raw_shape(column, options) for column in columns]
    _check_raw(columns, options)
    _check_image(columns, options)
    archives = Archives([column.spec for column in columns])
    return tuple(Reader(column, options, archives, _plan(column, options)) for column in columns)


def _with_raw_shape(column: Column, options: SampleOptions) -> Column:
    """Let the raw shape stand for that of an input whose rank is not known."""
    if options.raw_shape is None or column.spec.shape is not None:
        return column
    return replace(column, spec=replace(column.spec, shape=options.raw_shape))


def _plan(column: Column, options: SampleOptions) -> ImagePlan | None:
    if "images" not in column.kinds:
        return None
    require_pillow()
    return plan_images(column.spec, options.image or ImageOptions())


def _check_raw(columns: Sequence[Column], options: SampleOptions) -> None:
    given = [
        flag
        for flag, value in (("--raw-dtype", options.raw_dtype), ("--raw-shape", options.raw_shape))
        if value is not None
    ]
    if not given:
        return
    raw = [column.spec.name for column in columns if "bin" in column.kinds]
    if len(raw) == 1:
        return
    flags = " and ".join(given)
    if not raw:
        raise BadInput(
            f"{flags} cannot apply: the samples are {_kinds_found(columns)}, not raw files.",
            fix=f"leave {flags} out",
        )
    raise BadInput(
        f"{flags} can describe one input, but several are read from raw files: {', '.join(map(repr, raw))}.",
        fix=f"leave {flags} out when the model fixes all shapes, otherwise save the samples as .npy",
    )


def _check_image(columns: Sequence[Column], options: SampleOptions) -> None:
    if options.image is None or any("images" in column.kinds for column in columns):
        return
    flags = " and ".join(IMAGE_FLAGS[name] for name in options.image.given()) or "options for pictures"
    raise BadInput(
        f"{flags} cannot apply: the samples are {_kinds_found(columns)}, not pictures; "
        "their values are fed as they are.",
        fix=f"leave {flags} out, or give the pictures themselves",
    )


def _kinds_found(columns: Sequence[Column]) -> str:
    names: dict[Kind, str] = {"npy": ".npy", "npz": ".npz", "bin": "raw files", "images": "pictures"}
    found = {names[kind] for column in columns for kind in column.kinds}
    return " and ".join(sorted(found))
