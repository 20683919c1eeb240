"""The check of a deployment, stage by stage."""

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from roundoff.core.array_files import map_array, stat_file
from roundoff.core.files import reading, regular_file
from roundoff.core.names import shown
from roundoff.core.tensors import Array, DType, parse_dtype
from roundoff.errors import BadInput, CannotAlign
from roundoff.messages.message import NOTHING, Message, english, message, some, verbatim
from roundoff.messages.numbers import first_of
from roundoff.preprocessing.conventions import MeanStd
from roundoff.samples.files import Kind, kind_of, list_folder
from roundoff.samples.images import decode
from roundoff.studies.check_io.candidates import ClaimCriteria
from roundoff.studies.check_io.explanation import (
    RESIZED_OTHERWISE,
    ArrayDistance,
    all_finite,
    array_distance,
    differences,
    excluded,
    rows_of,
    search_difference,
    similarity_note,
)
from roundoff.studies.check_io.layouts import layout_change, other_layout, unbatched
from roundoff.studies.check_io.normalization import mean_std_correction
from roundoff.studies.check_io.origins import InputOrigin, find_origin
from roundoff.studies.check_io.result import (
    STAGES,
    Correction,
    Explanation,
    IoChange,
    IoCheck,
    SidePicture,
    Stage,
    StageCheck,
)
from roundoff.tensors import open_source

_MOST_NAMED = 3
_COLOURS = 3
# What raw values mostly are, by their size in bytes.
_TYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64"}


@dataclass(frozen=True, slots=True)
class RawLayout:
    """What the user, or the model, says of raw files.

    Attributes:
        dtype: Their type, as people write it; None when not said.
        shape: Their shape; None when not said.
    """

    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class StageValues:
    """The values of one stage, paired.

    Attributes:
        names: Names of the samples.
        training: Training's arrays, one for each name; empty when that side was not given.
        deployed: The deployed side's; empty when that side was not given.
        notes: What was left out, and what was assumed.
        lonely: Samples of either side that have no partner.
    """

    names: tuple[str, ...]
    training: tuple[Array, ...]
    deployed: tuple[Array, ...]
    notes: tuple[Message, ...] = ()
    lonely: int = 0


def read_sides(training: "SideLike | None", deployed: "SideLike | None", raw: RawLayout) -> StageValues:
    """Read one stage.

    Args:
        training: File or folder of training, or its values; None when not given.
        deployed: The same of the deployed side; None when not given.
        raw: What is known of raw files.

    Raises:
        BadInput: Something cannot be read.
        CannotAlign: No file of one side has a partner on the other.
    """
    first, second = (_loaded(each, raw) for each in (training, deployed))
    if training is None or deployed is None:
        only = first or second
        values, notes = _finished(only, {}, raw)
        given = tuple(values.values())
        return StageValues(
            tuple(values), given if training is not None else (), given if training is None else (), notes
        )
    names, left_out = _paired(first, second, (training, deployed))
    ones = {name: first[one] for name, one, _ in names}
    others = {name: second[other] for name, _, other in names}
    # Raw files are described by their partners where these describe themselves.
    known, notes = _finished(ones, others, raw)
    partners, more = _finished(others, ones, raw)
    return StageValues(
        tuple(ones),
        tuple(known.values()),
        tuple(partners.values()),
        tuple(dict.fromkeys((*left_out, *notes, *more))),
        len(first) + len(second) - 2 * len(names),
    )


Loaded = Array | Path
"""Values, or a raw file that does not say what its bytes mean."""

SideLike = Path | Array | Mapping[str, Array]
"""A file or folder, an array, or arrays by the name of their sample."""


def _loaded(given: SideLike | None, raw: RawLayout) -> dict[str, Loaded]:
    """What a side holds, by sample."""
    if given is None:
        return {}
    if isinstance(given, Path):
        return _flat({name: _typed(path, kind) for name, (path, kind) in _files(given, raw).items()})
    return {"": given} if isinstance(given, np.ndarray) else dict(given)


def _files(path: Path, raw: RawLayout) -> dict[str, tuple[Path, Kind]]:
    with reading(path, what=english("The path")):
        is_folder = path.is_dir()
    if not is_folder:
        regular_file(path, what=english("The file"))
        kind = kind_of(path.name)
        if kind is None and not raw.dtype:
            raise _unknown(path)
        return {"": (path, kind or "bin")}
    listing = list_folder(path)
    found: dict[str, tuple[Path, Kind]] = {}
    for file in listing.files:
        kind = kind_of(file)
        if kind is None:
            raise _unknown(path / file)
        name = str(PurePosixPath(file).with_suffix(""))
        if name in found:
            raise BadInput(
                english(
                    "{path} has two files for the sample {name!r}: {name2} and {file}.",
                    path=shown(path),
                    name=name,
                    name2=shown(found[name][0].name),
                    file=shown(file),
                ),
                fix=english("keep one of them"),
            )
        found[name] = (path / file, kind)
    if not found:
        raise BadInput(
            english("The folder {path} holds no values.", path=shown(path)),
            fix=english("give .npy, .npz, .bin files or pictures"),
        )
    return found


def _unknown(path: Path) -> BadInput:
    what = english("{path} is none of .npy, .npz, .bin, .raw or a picture.", path=shown(path))
    return BadInput(
        what, fix=english("save it as one of these; raw bytes of any ending are read with --dtype float32")
    )


def _typed(path: Path, kind: Kind) -> dict[str, Loaded]:
    """The arrays of a file by their own names; a raw file stays a path."""
    if kind == "bin":
        if not regular_file(path, what=english("The file")):
            raise BadInput(english("{path} is empty.", path=shown(path)), fix=english("write it again"))
        return {"": path}
    if kind == "images":
        return {"": np.asarray(decode(path, _COLOURS))}
    source = open_source(path, format=kind)
    sample = source.samples[0]
    arrays: dict[str, Loaded] = {info.name: source.read(info.name, sample) for info in source.tensors}
    if len(arrays) == 1:
        return {"": next(iter(arrays.values()))}
    return arrays


def _flat(side: Mapping[str, Mapping[str, Loaded]]) -> dict[str, Loaded]:
    return {
        "/".join(part for part in (name, member) if part): value
        for name, members in side.items()
        for member, value in members.items()
    }


def _paired(
    first: Mapping[str, Loaded], second: Mapping[str, Loaded], paths: tuple[SideLike, SideLike]
) -> tuple[list[tuple[str, str, str]], tuple[Message, ...]]:
    """Names of samples with the names they have on either side, and what has no partner."""
    if len(first) == len(second) == 1:
        (one,), (other,) = first, second
        return [(one or other or _stem(paths[0]), one, other)], ()
    common = [name for name in first if name in second]
    if not common:
        raise CannotAlign(
            english(
                "No file of {called} ({some}) is named like one of {called2} ({some2}).",
                called=_called(paths[0]),
                some=some(_shown(first), _MOST_NAMED),
                called2=_called(paths[1]),
                some2=some(_shown(second), _MOST_NAMED),
            ),
            fix=english("name the files of one sample alike on both sides, whatever their endings"),
        )
    notes = [
        message(f"check_io.without_partner_{side}", count=len(lonely), names=some(_shown(lonely), _MOST_NAMED))
        for side, lonely in (
            ("training", [name for name in first if name not in second]),
            ("deployed", [name for name in second if name not in first]),
        )
        if lonely
    ]
    return [(name, name, name) for name in common], tuple(notes)


def _stem(given: SideLike) -> str:
    return given.stem if isinstance(given, Path) else "array"


def _called(given: SideLike) -> str:
    return shown(given) if isinstance(given, Path) else english("the arrays")


def _finished(
    side: Mapping[str, Loaded], partners: Mapping[str, Loaded], raw: RawLayout
) -> tuple[dict[str, Array], tuple[Message, ...]]:
    """All values of a side; raw files get the type and shape that were said, or those of their partners."""
    found: dict[str, Array] = {}
    # What is to be said of files, once for all of which it is the same.
    notes: dict[_Note, list[str]] = {}
    for name, value in side.items():
        if isinstance(value, Path):
            partner = partners.get(name)
            array, note = _raw(value, raw, partner if isinstance(partner, np.ndarray) else None)
            if note is not None:
                notes.setdefault(note, []).append(value.name)
        else:
            array = value
        found[name] = _comparable(array, name)
    return found, tuple(note.said_of(files) for note, files in notes.items())


@dataclass(frozen=True, slots=True)
class _Note:
    """What is to be said of raw files: that they are plain rows, or not of the shape that was expected.

    Attributes:
        dtype: Their type.
        values: How many they hold.
        shape: What was expected; None where nothing was.
    """

    dtype: str = ""
    values: int = 0
    shape: tuple[int, ...] | None = None

    def said_of(self, files: Sequence[str]) -> Message:
        if self.shape is None:
            return message("check_io.plain_rows")
        names, shape = some(_shown(files), _MOST_NAMED), str(list(self.shape))
        return message("check_io.values_expected", names=names, count=self.values, dtype=self.dtype, shape=shape)


def _comparable(array: Array, name: str) -> Array:
    """Values that can be subtracted: switches count as 0 and 1."""
    where = english("The sample {name!r}", name=name) if name else english("The file")
    if not array.size:
        what = english("{where} holds no values: its shape is {shape}.", where=where, shape=list(array.shape))
        raise BadInput(what, fix=english("write it again, or remove it from both sides"))
    if array.dtype.kind == "c":
        raise BadInput(
            english("{where} holds {name} numbers.", where=where, name=array.dtype.name),
            fix=english("save real and imaginary parts as two"),
        )
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _raw(path: Path, raw: RawLayout, partner: Array | None) -> tuple[Array, _Note | None]:
    """The values, and what is to be said of the file."""
    with reading(path, what=english("The file")):
        size = stat_file(path)
    shape = raw.shape if raw.shape is not None else None if partner is None else partner.shape
    dtype = _raw_type(raw, size, shape, partner)
    if size % dtype.itemsize:
        raise BadInput(
            english(
                "{path} has {size} bytes, which are no whole number of values of {name}.",
                path=shown(path),
                size=size,
                name=dtype.name,
            ),
            fix=english("give the right type with --dtype"),
        )
    with reading(path, what=english("The file")):
        values = map_array(path, offset=0, dtype=dtype, shape=(size // dtype.itemsize,))
    if dtype != dtype.newbyteorder("="):
        values = values.astype(dtype.newbyteorder("="))
    if shape is not None and values.size == math.prod(shape):
        return values.reshape(shape), None
    return values, _Note() if shape is None else _Note(dtype.name, values.size, shape)


def numeric_type(name: str) -> DType:
    """The type that people call so.

    Raises:
        BadInput: There is none, or it holds no numbers.
    """
    try:
        return parse_dtype(name)
    except ValueError as error:
        fix = english("give --dtype float32, int8, uint8 or the like; {error}", error=error)
        raise BadInput(english("{name!r} is not a numeric type.", name=name), fix=fix) from error


def _raw_type(raw: RawLayout, size: int, shape: tuple[int, ...] | None, partner: Array | None) -> DType:
    if raw.dtype is not None:
        return numeric_type(raw.dtype)
    if shape is None:
        return np.dtype("float32" if size % 4 == 0 else "uint8")
    # Rows may be padded, so a file may be a little larger than its values.
    fitting = [width for width in _TYPES if width * math.prod(shape) <= size]
    width = fitting[-1] if fitting else 1
    if partner is not None and partner.dtype.itemsize == width and size == width * math.prod(shape):
        return partner.dtype
    return np.dtype(_TYPES[width])


def _shown(names: Iterable[str]) -> list[str]:
    return [shown(name) or "one file" for name in names]


# Where two ways from the same original part.


def explain_by_origins(
    training: InputOrigin, deployed: InputOrigin, *, before: float, samples: int
) -> Explanation | None:
    """What the deployed side does differently with the original.

    Args:
        training: How training's values came from it.
        deployed: How the deployed side's did.
        before: Largest absolute difference between the two.
        samples: How many samples both were verified on.

    Returns:
        None when one of them is not certain, or when both do the same.
    """
    if not (training.claim.proven and deployed.claim.proven):
        return None
    changes = (*_pictures(training, deployed), *_arranged(training, deployed), *_numbers(training, deployed))
    if not changes:
        return None
    rivals = [
        message(f"check_io.rivals_{side}", ways=origin.rivals)
        for side, origin in (("training", training), ("deployed", deployed))
        if origin.rivals
    ]
    return Explanation(
        changes=changes,
        exact=training.claim.exact and deployed.claim.exact,
        before=before,
        residual=max(training.claim.residual, deployed.claim.residual),
        residual_rms=max(training.claim.rms, deployed.claim.rms),
        samples=samples,
        alternatives=tuple(rivals),
        notes=(message("check_io.follow_original"),),
    )


def _pictures(training: InputOrigin, deployed: InputOrigin) -> Iterator[IoChange]:
    one, other = training.pipeline, deployed.pipeline
    if one.decoding != other.decoding:
        words = one.decoding.words
        text = message("check_io.decodes_original", training=words, deployed=other.decoding.words)
        correction = Correction(message("check_io.set_yuv"), words, (("YUV matrix", ""),))
        yield IoChange("colour-matrix", text, correction)
    if one.shaping != other.shaping:
        text = message("check_io.shaped", training=one.shaping.words, deployed=other.shaping.words)
        yield IoChange("placement", text, Correction(message("check_io.set_size_place"), one.shaping.words))
    if one.resizes and other.resizes and (one.resampling, one.rounded) != (other.resampling, other.rounded):
        ways = [each.resampling.words for each in (one, other)]
        if one.rounded != other.rounded:
            keys = [
                "check_io.resized_bytes" if each.rounded else "check_io.resized_float" for each in (one, other)
            ]
            ways = [message(key, how=way) for key, way in zip(keys, ways, strict=True)]
        text = message("check_io.resizes", training=ways[0], deployed=ways[1])
        yield IoChange("resize", text, Correction(message("check_io.set_resizing"), ways[0]))
    if training.border != deployed.border and None not in (training.border, deployed.border):
        wanted = f"{training.border:.4g}"
        text = message("check_io.letterbox_border", deployed=f"{deployed.border:.4g}", training=wanted)
        yield IoChange("padding", text, Correction(message("check_io.set_padding"), verbatim(wanted)))


def _arranged(training: InputOrigin, deployed: InputOrigin) -> Iterator[IoChange]:
    if training.layout != deployed.layout:
        yield layout_change(training.layout, deployed.layout)
    kinds = (
        {change.kind: change for change in training.arranged},
        {change.kind: change for change in deployed.arranged},
    )
    for kind in dict.fromkeys((*kinds[0], *kinds[1])):
        if (kind in kinds[0]) != (kind in kinds[1]):
            yield kinds[0].get(kind) or kinds[1][kind]


def _numbers(training: InputOrigin, deployed: InputOrigin) -> Iterator[IoChange]:
    if training.numbers == deployed.numbers:
        return
    gain, offset = _relative(training, deployed)
    correction = None if gain is None or offset is None else mean_std_correction(gain, offset)
    text = message("check_io.training_has", training=training.numbers, deployed=deployed.numbers)
    yield IoChange("normalization", text, correction)


def _relative(training: InputOrigin, deployed: InputOrigin) -> tuple[Array | None, Array | None]:
    """Training's numbers from the deployed side's, per channel of training."""
    one, other = _by_colour(training), _by_colour(deployed)
    if set(one) != set(other):
        return None, None
    pairs = [(one[colour], other[colour]) for colour in one]
    gain = np.array([a[0] / b[0] for a, b in pairs])
    return gain, np.array([a[1] for a, _ in pairs]) - gain * np.array([b[1] for _, b in pairs])


def _by_colour(origin: InputOrigin) -> dict[int, tuple[float, float]]:
    matrix, offset = origin.claim.linear.matrix, origin.claim.linear.offset
    colours = np.abs(matrix).argmax(axis=1)
    return {int(c): (float(matrix[row, c]), float(offset[row])) for row, c in enumerate(colours)}


# Small pictures as PNG, with the standard library alone.

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# By the number of channels: grey, and red, green, blue.
_COLOUR_TYPES = {1: 0, 3: 2}
_BITS = 8
_NO_FILTER = b"\0"


def png_bytes(pixels: Array) -> bytes:
    """A picture as PNG.

    Args:
        pixels: Bytes of shape [height, width, channels], with one channel or three.
    """
    height, width, channels = pixels.shape
    if pixels.dtype != np.uint8 or channels not in _COLOUR_TYPES or not height or not width:
        raise ValueError(f"no picture: {pixels.dtype} {pixels.shape}")
    head = struct.pack(">IIBBBBB", width, height, _BITS, _COLOUR_TYPES[channels], 0, 0, 0)
    lines = b"".join(_NO_FILTER + np.ascontiguousarray(line).tobytes() for line in pixels)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


# Both sides of a sample as small pictures, for people to see what a table says.

# Enough to see what is wrong; at most 48 KiB of pixels.
_MOST_PIXELS = 128
# Smaller ones are no pictures, but vectors or tables.
_LEAST_PIXELS = 4
_CHANNELS = (1, 3)
_BRIGHTEST = 255.0


def side_pictures(training: Array, deployed: Array) -> tuple[SidePicture, ...]:
    """The sample as training and as the deployed side has it; empty unless both look like pictures.

    Each is stretched from its smallest value to its largest, and every n-th pixel is taken where there are many.

    Args:
        training: Training's values.
        deployed: The deployed side's.
    """
    pixels = [_pixels(training), _pixels(deployed)]
    one, other = (None if each is None else base64.b64encode(png_bytes(each)).decode() for each in pixels)
    if one is None or other is None:
        return ()
    return (SidePicture("training", one), SidePicture("deployed", other))


def _pixels(values: Array) -> Array | None:
    """Values as pixels; None where they have no shape of a picture."""
    picture = _as_picture(values)
    if picture is None:
        return None
    height, width, channels = picture.shape
    if channels not in _CHANNELS or min(height, width) < _LEAST_PIXELS:
        return None
    step = -(-max(height, width) // _MOST_PIXELS)
    thinned = picture[::step, ::step].astype(np.float64)
    known = thinned[np.isfinite(thinned)]
    if not known.size:
        return None
    low, high = known.min(), known.max()
    stretched = (np.nan_to_num(thinned, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    pixels: Array = np.rint(stretched * _BRIGHTEST).astype(np.uint8)
    return pixels


# Fewer numbers than these may well be all the same.
_FEWEST_NUMBERS = 16
# Samples that are looked for among each other, and how many of those that moved are named.
_MOST_ORDERED, _NAMED = 256, 8
# What goes into a model may be a picture; what comes out is shown as numbers.
_PICTURED: tuple[Stage, ...] = ("original", "preprocessed")
_ORIGINAL_TRIED = message("check_io.excluded_original")


@dataclass(frozen=True, slots=True)
class IoCheckSettings:
    """What passes.

    Attributes:
        input_tolerance: Largest absolute difference allowed in originals and preprocessed inputs.
        result_tolerance: The same for outputs and results.
        known: Training's own mean and std of values from 0 to 1.
    """

    input_tolerance: float = 1e-4
    result_tolerance: float = 1e-3
    known: tuple[MeanStd, ...] = ()

    def tolerance(self, stage: Stage) -> float:
        """What is allowed at a stage."""
        return self.input_tolerance if stage in ("original", "preprocessed") else self.result_tolerance


def check_io(stages: Mapping[Stage, StageValues], settings: IoCheckSettings = IoCheckSettings()) -> IoCheck:
    """Compare both sides at every stage that is there, and explain what differs.

    Args:
        stages: The values of each stage.
        settings: What passes.
    """
    originals = stages.get("original")
    found = []
    for stage in STAGES:
        values = stages.get(stage)
        # An original of one side serves to follow the other stages.
        if values is not None and (stage != "original" or (values.training and values.deployed)):
            checked = _compared(stage, values, settings)
            if stage == "preprocessed" and originals is not None:
                checked = _followed(checked, values, originals, settings)
            found.append(checked)
    return IoCheck(tuple(found), _overall(found))


def _compared(stage: Stage, values: StageValues, settings: IoCheckSettings) -> StageCheck:
    tolerance = settings.tolerance(stage)
    if not values.training or not values.deployed:
        note = message("check_io.only_deployed" if values.deployed else "check_io.only_training")
        return StageCheck(stage, tolerance, 0, None, None, None, notes=(*values.notes, note))
    worst = [differences([one], [other])[0] for one, other in zip(values.training, values.deployed, strict=True)]
    place = int(np.argmax(worst))
    ones, others = rows_of(list(values.training), list(values.deployed))
    rows = [differences([a], [b])[0] for a, b in zip(ones, others, strict=True)]
    notes = (*values.notes, *_not_finite("training", values.names, values.training))
    notes += _not_finite("deployed", values.names, values.deployed)
    doubts = tuple(_doubts(values)) if worst[place] <= tolerance else ()
    passed = None if doubts else worst[place] <= tolerance
    checked = StageCheck(
        stage=stage,
        tolerance=tolerance,
        samples=len(rows),
        passed=passed,
        max_abs_error=worst[place],
        mean_abs_error=_mean_abs(values),
        # Of a batch the place in it; of files their name.
        worst_sample=values.names[place] if len(rows) == len(worst) else str(int(np.argmax(rows))),
        shapes=_shapes(values),
        notes=(*doubts, *notes),
    )
    if passed is not False:
        return checked
    one, other = rows_of([values.training[place]], [values.deployed[place]])
    worst_row = int(np.argmax([differences([a], [b])[0] for a, b in zip(one, other, strict=True)]))
    shown = side_pictures(one[worst_row], other[worst_row]) if stage in _PICTURED else ()
    return _explained(replace(checked, pictures=shown), values, settings)


def _doubts(values: StageValues) -> Iterator[Message]:
    """Why it tells nothing that both sides agree."""
    if values.lonely:
        yield message("check_io.doubt_lonely", count=values.lonely)
    empty = sum(not np.isfinite(each).any() for each in values.training)
    if empty:
        yield message("check_io.doubt_nonfinite", count=empty)
    ends = {float(end) for each in values.training for end in (each.min(), each.max())}
    if sum(each.size for each in values.training) >= _FEWEST_NUMBERS and len(ends) == 1:
        yield message("check_io.doubt_constant", value=f"{ends.pop():g}")


def _reordered(checked: StageCheck, values: StageValues) -> Explanation | None:
    """Samples of the deployed side that are others of training, each exactly; None where that is not so."""
    ones, others = rows_of(list(values.training), list(values.deployed))
    if not 1 < len(ones) <= _MOST_ORDERED or len({each.shape for each in (*ones, *others)}) > 1:
        return None
    places: list[int] = []
    for other in others:
        alike = [at for at, one in enumerate(ones) if differences([one], [other])[0] <= checked.tolerance]
        if not alike:
            return None
        places.append(len(places) if len(places) in alike else alike[0])
    moved = [f"{at}->{place}" for at, place in enumerate(places) if at != place]
    residual = max(differences([ones[place]], [other])[0] for place, other in zip(places, others, strict=True))
    named = first_of(moved, _NAMED)
    text = message("check_io.sample_order", count=len(moved), pairs=named)
    before = checked.max_abs_error or 0.0
    return Explanation((IoChange("row-order", text),), True, before, residual, residual, len(ones))


def _explained(checked: StageCheck, values: StageValues, settings: IoCheckSettings) -> StageCheck:
    pictures = checked.stage in _PICTURED
    ordered = _reordered(checked, values)
    if ordered is not None:
        return replace(checked, explanation=ordered)
    explanation, nearest = search_difference(
        list(values.training),
        list(values.deployed),
        tolerance=checked.tolerance,
        known=settings.known,
        pictures=pictures,
    )
    if explanation is not None:
        return replace(checked, explanation=explanation)
    first, second = rows_of(list(values.training), list(values.deployed))
    notes = list(checked.notes)
    alike = similarity_note(first, second) if pictures else NOTHING
    notes += [note for note in (nearest, alike) if note]
    if len({each.shape for each in first}) > 1 or len({each.shape for each in second}) > 1:
        notes.append(message("check_io.different_shapes"))
    return replace(checked, excluded=excluded(first, second, pictures=pictures), notes=tuple(notes))


def _followed(
    checked: StageCheck, values: StageValues, originals: StageValues, settings: IoCheckSettings
) -> StageCheck:
    """Follow both sides from the original where the two alone do not explain each other."""
    if checked.passed or (checked.explanation is not None and checked.explanation.exact):
        return checked
    judging = ClaimCriteria(checked.tolerance, None, settings.known)
    origins = {
        "training": _origin(
            originals.names, originals.training or originals.deployed, values.names, values.training, judging
        ),
        "deployed": _origin(
            originals.names, originals.deployed or originals.training, values.names, values.deployed, judging
        ),
    }
    one, other = origins["training"], origins["deployed"]
    if other is None and all(other_layout(each) is not None for each in values.deployed):
        # A raw file has the shape of its partner, whatever the order in which it was written.
        made = [each for each in map(other_layout, values.deployed) if each is not None]
        known = originals.deployed or originals.training
        other = _origin(originals.names, known, values.names, made, judging)
    checked = replace(
        checked,
        training_from_original=one.words() if one is not None and one.claim.proven else (),
        deployed_from_original=other.words() if other is not None and other.claim.proven else (),
    )
    if checked.passed is None:
        return checked
    explanation = None
    if one is not None and other is not None:
        before = checked.max_abs_error if checked.max_abs_error is not None else np.inf
        explanation = explain_by_origins(one, other, before=before, samples=checked.samples)
    if explanation is None:
        return replace(checked, excluded=(*checked.excluded, _ORIGINAL_TRIED) if checked.excluded else ())
    if checked.explanation is not None and not explanation.exact:
        return checked
    notes = tuple(note for note in checked.notes if note.key != RESIZED_OTHERWISE)
    return replace(checked, explanation=explanation, excluded=(), notes=notes)


def _origin(
    names: Sequence[str],
    originals: Sequence[Array],
    made_names: Sequence[str],
    made: Sequence[Array],
    judging: ClaimCriteria,
) -> InputOrigin | None:
    """Pair originals with what was made of them by name, or one with one."""
    if not originals or not made:
        return None
    known = dict(zip(names, originals, strict=True))
    pairs = [(known[name], each) for name, each in zip(made_names, made, strict=True) if name in known]
    if not pairs and len(originals) == len(made) == 1:
        pairs = [(originals[0], made[0])]
    pictures = [(_as_picture(original), each) for original, each in pairs]
    usable = [(original, each) for original, each in pictures if original is not None]
    if not usable or len({each.shape for _, each in usable}) > 1:
        return None
    return find_origin([original for original, _ in usable], [each for _, each in usable], judging)


def _as_picture(array: Array) -> Array | None:
    """An array as [height, width, channels], whatever axes of one surround it; None where it is no picture."""
    array = unbatched(array)
    if array.ndim == 2:
        return array[..., np.newaxis]
    if array.ndim != 3:
        return None
    planar = array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 2, 3, 4)
    return array.transpose(1, 2, 0) if planar else array


def _mean_abs(values: StageValues) -> float:
    found = ArrayDistance()
    for one, other in zip(values.training, values.deployed, strict=True):
        if one.shape != other.shape:
            return np.inf
        found = found.merge(array_distance(one, other))
    return found.total / max(found.count, 1) if np.isfinite(found.total) else np.nan


def _not_finite(side: str, names: Sequence[str], arrays: Sequence[Array]) -> tuple[Message, ...]:
    """That a side holds what is no number."""
    odd = [name for name, each in zip(names, arrays, strict=True) if not all_finite(each)]
    if not odd:
        return ()
    return (message(f"check_io.nonfinite_{side}", count=len(odd), name=shown(odd[0])),)


def _shapes(values: StageValues) -> Message:
    one, other = values.training[0], values.deployed[0]
    first, second = (f"{each.dtype.name} {list(each.shape)}" for each in (one, other))
    return (
        verbatim(first) if first == second else message("check_io.shapes_against", training=first, deployed=second)
    )


def _overall(stages: Sequence[StageCheck]) -> tuple[Message, ...]:
    """What the stages say together."""
    by_stage = {stage.stage: stage.passed for stage in stages}
    if by_stage.get("preprocessed") is True and by_stage.get("output") is False:
        return (message("check_io.model_differs"),)
    if by_stage.get("output") is True and by_stage.get("result") is False:
        return (message("check_io.after_differs"),)
    if by_stage.get("original") is False and by_stage.get("preprocessed") is False:
        return (message("check_io.originals_differ"),)
    return ()
