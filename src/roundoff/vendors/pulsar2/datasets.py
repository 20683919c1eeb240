"""Calibration data sets: archives or folders, one per input, as samples."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from roundoff.core.array_files import map_array, size_bytes, stat_file
from roundoff.core.files import reading, regular_file
from roundoff.core.names import FileNames, shown
from roundoff.core.tensors import Array, DType, InputSpec, as_values
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.preprocessing.colours import reordered
from roundoff.preprocessing.resize import resized
from roundoff.preprocessing.steps import InputProcessing, doubts
from roundoff.samples.arrays import check_symbols, input_dtype, input_error, matches, mismatch
from roundoff.samples.columns import Paired, SampleColumn, pair
from roundoff.samples.files import ARCHIVE_SUFFIXES, IMAGE_SUFFIXES, list_folder, unpack
from roundoff.samples.images import decode
from roundoff.samples.stored import intact, open_npy
from roundoff.tensors.pickled import read_pickled
from roundoff.vendors.pulsar2.config.checks import InputSettings, ResolvedConfig
from roundoff.vendors.pulsar2.config.document import ConfigProblem, Place, located, problem_of
from roundoff.vendors.pulsar2.config.schema import (
    EVERY,
    BuildConfig,
    CalibrationFormat,
    ColorSpace,
    InputQuantConfig,
    PictureLayout,
)

# One file of a calibration data set as the values of an input: exact, as the vendor's tool demands it.

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
        fix = english("save it with numpy.save(path, {{{name!r}: array}})", name=spec.name)
        if self._held is None or self._held[0] != path:
            self._held = None
            regular_file(path, what=english("The sample file"))
            with reading(path, what=english("The sample file")), intact(shown(path), spec, fix=fix):
                self._held = path, read_pickled(_pickle_of(path.read_bytes(), shown(path)))
        found = self._held[1]
        if not isinstance(found, dict) or not all(isinstance(each, np.ndarray) for each in found.values()):
            raise BadInput(
                "{where} does not hold a dictionary of arrays by the names of inputs.", fix=fix, where=where
            )
        if spec.name not in found:
            what = english(
                "{where} has no array for the input {name!r}: it holds {found}.",
                where=where,
                name=spec.name,
                found=", ".join(map(repr, found)),
            )
            raise BadInput(what, fix=nearest(spec.name, found))
        array: Array = found[spec.name]
        _check(
            english("{where} (array {name!r})", where=where, name=spec.name), array.dtype, array.shape, spec=spec
        )
        return as_values(np.asarray(array, order="C"))


def make_reader(settings: InputSettings, calibration: InputQuantConfig, *, objects: ObjectFiles) -> FileReader:
    """Decide how the files of an input are read.

    Args:
        settings: The input.
        calibration: Its data set.
        objects: Reads files that hold all inputs; one for them all.

    Raises:
        BadInput: The input cannot be fed from files of this format.
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
        hint = english("save it as {name}", name=wanted.name)
        if dtype == np.uint8:
            hint += english("; src_dtype U8 is for the deployed model, calibration feeds the float model")
        raise mismatch(where, spec, f"{dtype.name} {list(shape)}", fix=hint)
    if spec.shape is not None and not matches(shape, spec.shape):
        fix = english("save one sample per file with the input's shape, its batch axis included")
        raise mismatch(where, spec, f"{dtype.name} {list(shape)}", fix=fix)


def _binary(spec: InputSpec) -> FileReader:
    dtype = input_dtype(spec).newbyteorder("<")
    sizes = tuple(axis for axis in spec.shape or () if isinstance(axis, int))
    if spec.shape is None or len(sizes) != len(spec.shape):
        what = english(
            "Binary files say nothing of their shape, and the input {name!r} leaves it open", name=spec.name
        )
        raise BadInput(
            english("{what}: {describe}.", what=what, describe=spec.describe()),
            fix=english('fix it with "input_shapes": "{name}:1x3x224x224"', name=spec.name),
        )

    def check(path: Path) -> None:
        with (
            reading(path, what=english("The sample file")),
            intact(shown(path), spec, fix=english("give regular files")),
        ):
            held = stat_file(path)
        if held != size_bytes(dtype, sizes):
            got = f"{held} bytes where {size_bytes(dtype, sizes)} are needed"
            raise mismatch(shown(path), spec, got, fix=english("write one sample per file, raw and little-endian"))

    def read(path: Path) -> Array:
        check(path)
        with (
            reading(path, what=english("The sample file")),
            intact(shown(path), spec, fix=english("write it again")),
        ):
            return as_values(map_array(path, offset=0, dtype=dtype, shape=sizes))

    return FileReader(check, read)


def _pickle_of(content: bytes, where: str) -> bytes:
    """What follows the header of an .npy file of objects; only its length is looked at."""
    width = 2 if content[6:7] == b"\x01" else 4
    start = _OBJECT_AT + width + int.from_bytes(content[_OBJECT_AT : _OBJECT_AT + width], "little")
    if not content.startswith(_OBJECT_MAGIC) or b"'O'" not in content[:start].replace(b"|O", b"O"):
        what = english("{where} does not hold a dictionary: it is no .npy file of objects.", where=where)
        raise BadInput(what, fix=english("use calibration_format Numpy for plain arrays"))
    return content[start:]


def _pictures(settings: InputSettings, calibration: InputQuantConfig) -> FileReader:
    """Decode, resize as OpenCV does, order channels, normalize, arrange."""
    spec, processor = settings.spec, settings.processor
    last = processor.tensor_layout is PictureLayout.NHWC
    height, width, channels = _picture_size(spec, last=last)
    _check_numbers(spec, calibration, channels=channels)
    color = processor.tensor_format
    if color is not ColorSpace.AutoColorSpace and (color is ColorSpace.GRAY) != (channels == 1):
        raise input_error(
            spec,
            "The input {name!r} takes {describe}: {channels} channel(s) are not {name2}.",
            fix=english("set tensor_format to {which}", which="GRAY" if channels == 1 else english("RGB or BGR")),
            channels=channels,
            name2=color.name,
        )
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
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, which is no picture.",
            fix=english("give its data as Numpy, Binary or NumpyObject"),
        )
    batch, height, width, channels = axes if last else (axes[0], axes[2], axes[3], axes[1])
    if not (isinstance(height, int) and isinstance(width, int) and isinstance(channels, int)):
        raise input_error(
            spec,
            "The size to which pictures are resized is not known: {name!r} takes {describe}.",
            fix=english('fix it with "input_shapes": "{name}:1x3x224x224"', name=spec.name),
        )
    if channels not in _CHANNELS:
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, with {channels} channels; pictures have 1 or 3.",
            fix=english("set tensor_layout to where the channels are, or give Numpy data"),
            channels=channels,
        )
    if isinstance(batch, int) and batch != 1:
        what = english(
            "The input {name!r} takes batches of {batch}; a picture is a batch of one.",
            name=spec.name,
            batch=batch,
        )
        raise BadInput(what, fix=english("set the batch to 1 with input_shapes, or give Numpy data"))
    return height, width, channels


def _check_numbers(spec: InputSpec, calibration: InputQuantConfig, *, channels: int) -> None:
    for name in ("calibration_mean", "calibration_std"):
        numbers = getattr(calibration, name)
        if len(numbers) not in (0, 1, channels):
            what = english(
                "{name} has {count} numbers, the input {name2!r} has {channels} channel(s).",
                name=name,
                count=len(numbers),
                name2=spec.name,
                channels=channels,
            )
            raise BadInput(what, fix=english("give {channels}, or one", channels=channels))
        trivial = 1.0 if name == "calibration_std" else 0.0
        if input_dtype(spec).kind != "f" and any(number != trivial for number in numbers):
            what = english(
                "{name} cannot be applied: the input {name2!r} takes {describe}, whole pixel values.",
                name=name,
                name2=spec.name,
                describe=spec.describe(),
            )
            raise BadInput(what, fix=english("leave {name} out", name=name))


_ALL = -1


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """The samples that a configuration names; each is read when it is asked for.

    Attributes:
        label: Where they come from.
        names: One per sample, from its files.
        skipped: Files beside them that were left alone.
        notes: What was decided without being asked, a sentence each.
        folders: Where the files of each input are.
    """

    label: str
    names: tuple[str, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    folders: Mapping[str, Path]
    _columns: tuple[SampleColumn, ...]
    _readers: tuple[FileReader, ...]
    _unpacked: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.names)

    def feed(self, index: int) -> dict[str, Array]:
        """The values of every input for one sample.

        Raises:
            BadInput: A file is damaged or does not fit its input.
        """
        if not 0 <= index < len(self.names):
            raise IndexError(f"sample {index} of {len(self.names)}")
        with _called(self._unpacked):
            feed = {
                column.spec.name: reader.read(column.path(index))
                for column, reader in zip(self._columns, self._readers, strict=True)
            }
        where = english("{label}, sample {names}", label=self.label, names=self.names[index])
        check_symbols(((column.spec, feed[column.spec.name].shape) for column in self._columns), where=where)
        return feed

    def files(self, index: int) -> dict[str, tuple[str, Path]]:
        """The file of every input for one sample: its name among the others, and where it is."""
        return {column.spec.name: (column.files[index], column.path(index)) for column in self._columns}


def open_datasets(settled: ResolvedConfig, folder: Path, *, base: Path | None = None) -> CalibrationSet:
    """Open the calibration data of all inputs.

    Archives are unpacked to ``<folder>/<input>/``, one that several inputs name only once; a folder is read where
    it is. Types and shapes of arrays are checked at once, pictures and dictionaries when they are fed.

    Args:
        settled: What the configuration says about the inputs.
        folder: Where archives are unpacked to.
        base: Where relative paths are looked for besides the current folder: that of the configuration.

    Raises:
        BadInput: There is no data for an input, it cannot be read, or does not fit.
    """
    inputs = list(settled.inputs.values())
    calibrations = [_calibration(each) for each in inputs]
    objects = ObjectFiles()
    readers = tuple(
        make_reader(each, own, objects=objects) for each, own in zip(inputs, calibrations, strict=True)
    )
    places = _places(inputs, calibrations, folder, base)
    columns = _all_of(
        partial(_column, each, own, places[own.calibration_dataset])
        for each, own in zip(inputs, calibrations, strict=True)
    )
    paired = pair(columns)
    count, notes = _count(calibrations, len(paired.names))
    chosen = _first(paired, count)
    unpacked = {shown(place): given for given, place in places.items()}
    with _called(unpacked):
        _all_of(
            partial(_check_files, column, reader) for column, reader in zip(chosen.columns, readers, strict=True)
        )
    return CalibrationSet(
        label=", ".join(dict.fromkeys(each.calibration_dataset for each in calibrations)),
        names=chosen.names,
        skipped=tuple(dict.fromkeys(name for column in columns for name in column.skipped)),
        notes=(*notes, *(note for pair_ in zip(inputs, calibrations, strict=True) for note in _doubts(*pair_))),
        folders={column.spec.name: column.base for column in columns},
        _columns=chosen.columns,
        _readers=readers,
        _unpacked=unpacked,
    )


_Made = TypeVar("_Made")


def _all_of(makers: Iterable[Callable[[], _Made]]) -> list[_Made]:
    """What each input's data give; what is wrong with several inputs is told at once."""
    made: list[_Made] = []
    errors: list[BadInput] = []
    for make in makers:
        try:
            made.append(make())
        except BadInput as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        what = "\n".join(f"  {error.what}" for error in errors)
        fix = "; ".join(dict.fromkeys(error.fix for error in errors))
        raise BadInput(
            "The calibration data of {count} {count:input|inputs} cannot be used:\n{what}",
            fix=fix,
            count=len(errors),
            what=what,
        )
    return made


def _check_files(column: SampleColumn, reader: FileReader) -> None:
    for index in range(len(column.files)):
        reader.check(column.path(index))


def dataset_problems(
    config: BuildConfig, settled: ResolvedConfig, *, base: Path | None = None
) -> list[ConfigProblem]:
    """What is wrong with the calibration data that a configuration names, without opening any of it."""
    entries = [each.tensor_name for each in config.quant.input_configs]
    objects = ObjectFiles()
    found: dict[str, ConfigProblem] = {}
    for name, settings in settled.inputs.items():
        own = settings.calibration
        place: Place = ("quant", "input_configs")
        if own is not None:
            place = (*place, entries.index(name if name in entries else EVERY))
        attempts: list[Callable[[], object]] = [partial(_calibration, settings)]
        if own is not None:
            attempts = [
                partial(_located, own.calibration_dataset, base, input_name=name),
                partial(make_reader, settings, own, objects=objects),
            ]
        for attempt in attempts:
            try:
                attempt()
            except BadInput as error:
                problem = problem_of(place, error)
                # An entry for all inputs is wrong once.
                found.setdefault(problem.text.replace(repr(name), ""), problem)
    return list(found.values())


@contextmanager
def _called(unpacked: Mapping[str, str]) -> Iterator[None]:
    """Call files by the archive they come from: the folder they are unpacked to has a passing name."""
    try:
        yield
    except BadInput as error:
        what = error.what
        for folder, given in unpacked.items():
            what = what.replace(folder, given)
        if what == error.what:
            raise
        raise BadInput(what, fix=error.fix) from error


def _calibration(settings: InputSettings) -> InputQuantConfig:
    if settings.calibration is None:
        spec = settings.spec
        raise input_error(
            spec,
            "No calibration data is configured for the input {name!r}, which takes {describe}.",
            fix=english("add an entry to quant.input_configs, or one for DEFAULT"),
        )
    return settings.calibration


def _places(
    inputs: list[InputSettings], calibrations: list[InputQuantConfig], folder: Path, base: Path | None
) -> dict[str, Path]:
    """Where the files of each data set are; archives are unpacked for the first input that names them."""
    names = FileNames()
    found: dict[str, Path] = {}
    for each, own in zip(inputs, calibrations, strict=True):
        given = own.calibration_dataset
        stem = names.stem(each.spec.name)
        if given in found:
            continue
        source = _located(given, base, input_name=each.spec.name)
        if source.is_dir():
            found[given] = source
        else:
            found[given] = folder / stem
            unpack(source, folder / stem)
    return found


def _located(given: str, base: Path | None, *, input_name: str) -> Path:
    if "://" in given:
        what = english(
            "The calibration data of {input_name!r} is at {given}, and nothing is ever downloaded.",
            input_name=input_name,
            given=given,
        )
        raise BadInput(what, fix=english("fetch it, and give the path of the archive or folder"))
    source = located(given, base, what=english("The calibration data"))
    if not source.exists():
        raise BadInput(
            "The calibration data of {input_name!r} does not exist: {given}.",
            fix=english(
                "give the path of an archive ({archive_suffixes}) or of a folder",
                archive_suffixes=", ".join(ARCHIVE_SUFFIXES),
            ),
            input_name=input_name,
            given=shown(given),
        )
    return source


def _column(settings: InputSettings, calibration: InputQuantConfig, folder: Path) -> SampleColumn:
    found = list_folder(folder)
    # An archive is known by its own name, not by where it happens to be unpacked.
    skipped = tuple(name.replace(shown(folder), calibration.calibration_dataset, 1) for name in found.skipped)
    listing = replace(found, skipped=skipped)
    kind = calibration.calibration_format
    suffixes = SUFFIXES[kind]
    where = english("The calibration data of {name!r}", name=settings.spec.name)
    if not listing.files:
        beside = english(" beside {skipped} and the like", skipped=listing.skipped[0]) if listing.skipped else ""
        raise BadInput(
            "{where}, {calibration_dataset}, holds no sample files{beside}.",
            fix=english("put {name} files there ({suffixes})", name=kind.name, suffixes=", ".join(suffixes)),
            where=where,
            calibration_dataset=calibration.calibration_dataset,
            beside=beside,
        )
    strange = [file for file in listing.files if not file.lower().endswith(suffixes)]
    if strange:
        what = english(
            "{where} is to be {name} ({suffixes}), but holds {strange}",
            where=where,
            name=kind.name,
            suffixes=", ".join(suffixes),
            strange=shown(strange[0]),
        )
        more = english(" and {number} more like it", number=len(strange) - 1) if len(strange) > 1 else ""
        raise BadInput(
            english("{what}{more}.", what=what, more=more),
            fix=english("correct calibration_format, or remove what is no sample"),
        )
    # The files, named from the deepest folder that holds them all: archives differ in what they put around.
    parents = [PurePosixPath(file).parent.parts for file in listing.files]
    shared = 0
    while all(len(parts) > shared and parts[shared] == parents[0][shared] for parts in parents):
        shared += 1
    base = listing.folder.joinpath(*parents[0][:shared])
    files = tuple(str(PurePosixPath(*PurePosixPath(file).parts[shared:])) for file in listing.files)
    return SampleColumn(settings.spec, base, files, ("npy",), keyed=True, skipped=listing.skipped)


def _count(calibrations: list[InputQuantConfig], present: int) -> tuple[int, list[str]]:
    """How many samples are taken: the fewest that an input asks for, and no more than there are."""
    asked = [own.calibration_size for own in calibrations if own.calibration_size != _ALL]
    count = min([present, *asked])
    notes = []
    if len({own.calibration_size for own in calibrations}) > 1:
        notes.append(
            english(
                "the inputs ask for different calibration_size; {count} {count:sample|samples} taken for all",
                count=count,
            )
        )
    return count, notes


def _first(paired: Paired, count: int) -> Paired:
    columns = tuple(replace(column, files=column.files[:count]) for column in paired.columns)
    return Paired(columns, paired.names[:count])


def _doubts(settings: InputSettings, calibration: InputQuantConfig) -> list[str]:
    name, processor = settings.spec.name, settings.processor
    picture = calibration.calibration_format is CalibrationFormat.Image
    if picture:
        mean, std = calibration.calibration_mean, calibration.calibration_std
        made = InputProcessing(source_dtype="U8", mean=mean, std=std)
        found = [english("{name}: {note}", name=name, note=doubt) for doubt in doubts(made)]
        unknown = processor.tensor_format is ColorSpace.AutoColorSpace
        if unknown and (settings.spec.shape or ())[1:2] != (1,):
            found.append(
                english(
                    "{name}: tensor_format is not given; pictures are read as BGR, as OpenCV reads them", name=name
                )
            )
        return found
    if calibration.calibration_mean or calibration.calibration_std:
        kind = calibration.calibration_format.name
        return [
            english(
                "{name}: calibration_mean and calibration_std are not applied to {kind} data, only to pictures",
                name=name,
                kind=kind,
            )
        ]
    return []
