"""One file of a calibration data set as the values of an input: exact, as the vendor's tool demands it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.dtypes import as_values
from roundoff.core.files import reading, regular_file
from roundoff.core.mapped import map_array, size_bytes, stat_file
from roundoff.core.names import shown
from roundoff.core.pickled_arrays import read_pickled
from roundoff.core.tensors import Array, DType, InputSpec
from roundoff.data.casting import input_dtype
from roundoff.data.decode import decode, require_pillow
from roundoff.data.files import IMAGE_SUFFIXES
from roundoff.data.fit import matches, mismatch
from roundoff.data.processing import InputProcessing, resized
from roundoff.data.processing.colours import reordered
from roundoff.data.stored import intact, open_npy
from roundoff.errors import BadInput, nearest
from roundoff.vendors.pulsar2.config.enums import CalibrationFormat, ColorSpace, Layout
from roundoff.vendors.pulsar2.config.schema import InputQuantConfig
from roundoff.vendors.pulsar2.config.settling import InputSettings

__all__ = ["SUFFIXES", "FileReader", "ObjectFiles", "make_reader"]

SUFFIXES: dict[CalibrationFormat, tuple[str, ...]] = {
    CalibrationFormat.Image: IMAGE_SUFFIXES,
    CalibrationFormat.Numpy: (".npy",),
    CalibrationFormat.Binary: (".bin", ".raw"),
    CalibrationFormat.NumpyObject: (".npy",),
}
"""How the files of each format end."""

_OBJECT_MAGIC, _OBJECT_AT = b"\x93NUMPY", 8
_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads the files of one input.

    Attributes:
        check: Refuses a file that does not fit, without reading its values.
        read: The values, in the input's type and shape.
    """

    check: Callable[[Path], None]
    read: Callable[[Path], Array]


class ObjectFiles:
    """Files that hold a dictionary of arrays; the last one is kept, as every input asks for its part of it."""

    def __init__(self) -> None:
        self._held: tuple[Path, Any] | None = None

    def array(self, path: Path, spec: InputSpec) -> Array:
        """The array of an input.

        Raises:
            BadInput: The file holds none, or one that does not fit.
        """
        where = shown(path)
        fix = f"save it with numpy.save(path, {{{spec.name!r}: array}})"
        found = self._content(path, spec, fix)
        if not isinstance(found, dict) or not all(isinstance(each, np.ndarray) for each in found.values()):
            raise BadInput(f"{where} does not hold a dictionary of arrays by the names of inputs.", fix=fix)
        if spec.name not in found:
            what = f"{where} has no array for the input {spec.name!r}: it holds {', '.join(map(repr, found))}."
            raise BadInput(what, fix=nearest(spec.name, found))
        array: Array = found[spec.name]
        _check(f"{where} (array {spec.name!r})", array.dtype, array.shape, spec=spec)
        return as_values(np.asarray(array, order="C"))

    def _content(self, path: Path, spec: InputSpec, fix: str) -> Any:
        if self._held is None or self._held[0] != path:
            self._held = None
            regular_file(path, what="The sample file")
            with reading(path, what="The sample file"), intact(shown(path), spec, fix=fix):
                self._held = path, read_pickled(_pickle_of(path.read_bytes(), shown(path)))
        return self._held[1]


def make_reader(settings: InputSettings, calibration: InputQuantConfig, *, objects: ObjectFiles) -> FileReader:
    """Decide how the files of an input are read.

    Args:
        settings: The input.
        calibration: Its data set.
        objects: Reads files that hold all inputs; one for them all.

    Raises:
        BadInput: The input cannot be fed from files of this format.
        MissingExtra: They are pictures and Pillow is not installed.
    """
    spec = settings.spec
    if calibration.calibration_format is CalibrationFormat.Image:
        return _pictures(settings, calibration)
    if calibration.calibration_format is CalibrationFormat.Binary:
        return _binary(spec)
    if calibration.calibration_format is CalibrationFormat.NumpyObject:
        return FileReader(lambda _: None, lambda path: objects.array(path, spec))
    return FileReader(lambda path: _check_npy(path, spec), lambda path: _npy(path, spec))


def _check_npy(path: Path, spec: InputSpec) -> None:
    stored = open_npy(path, spec)
    _check(stored.where, stored.dtype, stored.shape, spec=spec)


def _npy(path: Path, spec: InputSpec) -> Array:
    _check_npy(path, spec)
    return as_values(np.asarray(open_npy(path, spec).load(None), order="C"))


def _check(where: str, dtype: DType, shape: tuple[int, ...], *, spec: InputSpec) -> None:
    """Type and shape must be the input's, batch axis included: nothing is converted."""
    wanted = input_dtype(spec)
    if dtype.newbyteorder("=") != wanted:
        hint = f"save it as {wanted.name}"
        if dtype == np.uint8:
            hint += "; src_dtype U8 is for the deployed model, calibration feeds the float model"
        raise mismatch(where, spec, f"{dtype.name} {list(shape)}", fix=hint)
    if spec.shape is not None and not matches(shape, spec.shape):
        fix = "save one sample per file with the input's shape, its batch axis included"
        raise mismatch(where, spec, f"{dtype.name} {list(shape)}", fix=fix)


def _binary(spec: InputSpec) -> FileReader:
    dtype = input_dtype(spec).newbyteorder("<")
    sizes = tuple(axis for axis in spec.shape or () if isinstance(axis, int))
    if spec.shape is None or len(sizes) != len(spec.shape):
        what = f"Binary files say nothing of their shape, and the input {spec.name!r} leaves it open"
        raise BadInput(f"{what}: {spec.describe()}.", fix=f'fix it with "input_shapes": "{spec.name}:1x3x224x224"')

    def check(path: Path) -> None:
        with reading(path, what="The sample file"), intact(shown(path), spec, fix="give regular files"):
            held = stat_file(path)
        if held != size_bytes(dtype, sizes):
            got = f"{held} bytes where {size_bytes(dtype, sizes)} are needed"
            raise mismatch(shown(path), spec, got, fix="write one sample per file, raw and little-endian")

    def read(path: Path) -> Array:
        check(path)
        with reading(path, what="The sample file"), intact(shown(path), spec, fix="write it again"):
            return as_values(map_array(path, offset=0, dtype=dtype, shape=sizes))

    return FileReader(check, read)


def _pickle_of(content: bytes, where: str) -> bytes:
    """What follows the header of an .npy file of objects; only its length is looked at."""
    width = 2 if content[6:7] == b"\x01" else 4
    start = _OBJECT_AT + width + int.from_bytes(content[_OBJECT_AT : _OBJECT_AT + width], "little")
    if not content.startswith(_OBJECT_MAGIC) or b"'O'" not in content[:start].replace(b"|O", b"O"):
        what = f"{where} does not hold a dictionary: it is no .npy file of objects."
        raise BadInput(what, fix="use calibration_format Numpy for plain arrays")
    return content[start:]


def _pictures(settings: InputSettings, calibration: InputQuantConfig) -> FileReader:
    """Decode, resize as OpenCV does, order channels, normalize, arrange."""
    require_pillow()
    spec, processor = settings.spec, settings.processor
    last = processor.tensor_layout is Layout.NHWC
    height, width, channels = _picture_size(spec, last=last)
    _check_numbers(spec, calibration, channels=channels)
    color = processor.tensor_format
    if color is not ColorSpace.AutoColorSpace and (color is ColorSpace.GRAY) != (channels == 1):
        what = f"The input {spec.name!r} takes {spec.describe()}: {channels} channel(s) are not {color.name}."
        raise BadInput(what, fix=f"set tensor_format to {'GRAY' if channels == 1 else 'RGB or BGR'}")
    steps = InputProcessing(
        source_layout="NHWC",
        source_dtype="U8",
        model_layout="NHWC" if last else "NCHW",
        mean=calibration.calibration_mean,
        std=calibration.calibration_std,
    )
    bgr = channels == 3 and color is not ColorSpace.RGB

    def read(path: Path) -> Array:
        picture: Any = decode(path, channels)
        pixels = np.asarray(picture).reshape(picture.height, picture.width, channels)
        pixels = resized(pixels, (height, width))
        ordered = reordered(pixels, "RGB", "BGR") if bgr else pixels
        return steps.apply(ordered[np.newaxis]).astype(input_dtype(spec))

    return FileReader(lambda _: None, read)


def _picture_size(spec: InputSpec, *, last: bool) -> tuple[int, int, int]:
    axes = spec.shape or ()
    if len(axes) != 4 or input_dtype(spec).kind not in "fu":
        what = f"The input {spec.name!r} takes {spec.describe()}, which is no picture."
        raise BadInput(what, fix="give its data as Numpy, Binary or NumpyObject")
    batch, height, width, channels = axes if last else (axes[0], axes[2], axes[3], axes[1])
    if not (isinstance(height, int) and isinstance(width, int) and isinstance(channels, int)):
        what = f"The size to which pictures are resized is not known: {spec.name!r} takes {spec.describe()}."
        raise BadInput(what, fix=f'fix it with "input_shapes": "{spec.name}:1x3x224x224"')
    if channels not in _CHANNELS:
        what = f"The input {spec.name!r} takes {spec.describe()}, with {channels} channels; pictures have 1 or 3."
        raise BadInput(what, fix="set tensor_layout to where the channels are, or give Numpy data")
    if isinstance(batch, int) and batch != 1:
        what = f"The input {spec.name!r} takes batches of {batch}; a picture is a batch of one."
        raise BadInput(what, fix="set the batch to 1 with input_shapes, or give Numpy data")
    return height, width, channels


def _check_numbers(spec: InputSpec, calibration: InputQuantConfig, *, channels: int) -> None:
    for name in ("calibration_mean", "calibration_std"):
        numbers = getattr(calibration, name)
        if len(numbers) not in (0, 1, channels):
            what = f"{name} has {len(numbers)} numbers, the input {spec.name!r} has {channels} channel(s)."
            raise BadInput(what, fix=f"give {channels}, or one")
        trivial = 1.0 if name == "calibration_std" else 0.0
        if input_dtype(spec).kind != "f" and any(number != trivial for number in numbers):
            what = (
                f"{name} cannot be applied: the input {spec.name!r} takes {spec.describe()}, whole pixel values."
            )
            raise BadInput(what, fix=f"leave {name} out")
