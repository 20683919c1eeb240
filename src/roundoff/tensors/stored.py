"""Tensors that lie in files: what each format hands over, and the one `TensorSource` made of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.names import shown
from roundoff.core.tensors import Array, DType, TensorInfo, TensorSource, as_values, is_extended, parse_dtype
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import Message, english


@dataclass(frozen=True, slots=True)
class Content:
    """What a header says, and how to get at the values.

    Attributes:
        dtype: Name of the type the values were stored or computed in.
        shape: Shape of the array that `load` returns.
        load: Maps or reads the values; raises `Unreadable` or `OSError`.
    """

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class Declared:
    """What a manifest or a model says about a tensor that lies in a file.

    Attributes:
        dtype: Type as written there; `roundoff.core.tensors.parse_dtype` reads it.
        shape: Its shape.
        source: Who says so, for messages.
    """

    dtype: str
    shape: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True)
class TensorFile:
    """One tensor of one sample in one file.

    Attributes:
        name: The tensor.
        sample: The sample.
        where: The file (and member), as the user would name it.
        probe: Reads the header; raises `Unreadable` or `OSError`.
        node: The node that computes it, when known.
        op_type: That node's operation, when known.
        origin: What it was in the original model, when recorded.
        copy_of: The tensor that it is in another form, when known.
    """

    name: str
    sample: str
    where: str
    probe: Callable[[], Content]
    node: str = ""
    op_type: str = ""
    origin: str = ""
    copy_of: str = ""


@dataclass(frozen=True, slots=True)
class ToolScale:
    """How a tool says that it codes a tensor; a value is ``scale * (code - zero_point)``.

    Attributes:
        scale: The step between two codes.
        low: The smallest value that has a code.
        high: The largest one.
        observed: Smallest and largest value that the tool saw when it calibrated, where it says so.
    """

    scale: float
    low: float
    high: float
    observed: tuple[float, float] | None = None

    @property
    def reach(self) -> float:
        """The largest magnitude that has a code."""
        return max(abs(self.low), abs(self.high))


class StoredSource:
    """A `TensorSource` over stored tensors; keeps no file open and no values in memory.

    Args:
        stored: All tensors of all samples, in the order in which tensors are to be listed.
        label: Where they come from.
        samples: All samples in order; by default those of `stored` as they come.
        ordered: Whether the order is known to be that of execution.
        broken: Samples of which nothing can be read, with the reason.
        runs: Where there are several runs: the one these tensors are of, then the others.
        scales: How the tool codes them, where its files say so.
        target: The target that says how the tool quantizes and computes, where there is one.
        remarks: What the tool's own files say against each other; asked for when it is told.
        statistics: Whether a tensor stands for its largest, smallest and mean value and its norm.
        rungs: Opens each of the tool's runs of the same samples, its own float run first, the chip's last.
    """

    def __init__(  # noqa: PLR0913 - what is known of a dump
        self,
        stored: Iterable[TensorFile],
        *,
        label: str,
        samples: Sequence[str] = (),
        ordered: bool = False,
        broken: Mapping[str, str] | None = None,
        runs: Sequence[str] = (),
        scales: Mapping[str, ToolScale] | None = None,
        target: str = "",
        remarks: Callable[[], Sequence[Message]] | None = None,
        statistics: bool = False,
        rungs: Mapping[str, Callable[[], TensorSource]] | None = None,
    ) -> None:
        self._label = label
        self.runs = tuple(runs)
        self.scales = {shown(name): scale for name, scale in (scales or {}).items()}
        self.target = target
        self.remarks, self.statistics, self.rungs = remarks, statistics, rungs or {}
        self._ordered = ordered
        self._broken = dict(broken or {})
        self._places: dict[str, dict[str, TensorFile]] = {}
        for place in map(_printable, stored):
            _add(self._places.setdefault(place.name, {}), place)
        seen = [sample for places in self._places.values() for sample in places]
        self._samples = tuple(dict.fromkeys([*map(shown, samples), *seen])) or ("",)
        self._tensors = tuple(_describe(places.values()) for places in self._places.values())

    @property
    def label(self) -> str:
        """The path as the user gave it."""
        return self._label

    @property
    def samples(self) -> tuple[str, ...]:
        """Sample names."""
        return self._samples

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All tensors, as their headers or the map describe them."""
        return self._tensors

    @property
    def ordered(self) -> bool:
        """Whether `tensors` is known to be in execution order."""
        return self._ordered

    def read(self, name: str, sample: str) -> Array:
        """Map or read the values of one tensor in one sample."""
        place = self._find(name, sample)
        try:
            return place.probe().load()
        except Unreadable as error:
            what = english(
                "Tensor {name!r} cannot be read from {where}: {problem}.",
                name=name,
                where=place.where,
                problem=error.problem,
            )
            raise BadInput(what, fix=error.fix) from error
        except OSError as error:
            what = english(
                "Tensor {name!r} cannot be read from {where}: {reason}.",
                name=name,
                where=place.where,
                reason=_reason(error),
            )
            raise BadInput(what, fix=english("check the file and the disk")) from error
        except MemoryError as error:
            what = english("Tensor {name!r} in {where} does not fit into memory.", name=name, where=place.where)
            raise BadInput(what, fix=english("store it uncompressed, so that it can be mapped")) from error

    def _find(self, name: str, sample: str) -> TensorFile:
        if sample not in self._samples:
            what = english("{label} has no sample {sample!r}.", label=self._label, sample=sample)
            raise BadInput(what, fix=nearest(sample, self._samples))
        if sample in self._broken:
            what = english(
                "Sample {sample!r} of {label} cannot be read: {broken}.",
                sample=sample,
                label=self._label,
                broken=self._broken[sample],
            )
            raise BadInput(what, fix=english("write that file again, or move it away"))
        if name not in self._places:
            raise BadInput(
                english("{label} has no tensor {name!r}.", label=self._label, name=name),
                fix=nearest(name, self._places),
            )
        if sample not in self._places[name]:
            what = english(
                "{label} has no tensor {name!r} in sample {sample!r}.", label=self._label, name=name, sample=sample
            )
            raise BadInput(what, fix=nearest(sample, self._places[name]))
        return self._places[name][sample]


def runs_of(source: TensorSource) -> tuple[str, ...]:
    """Where a folder holds several runs: the one that a source was made of, then the others; else nothing."""
    return getattr(source, "runs", ())


def scales_of(source: TensorSource) -> Mapping[str, ToolScale]:
    """How the tool that wrote a source codes its tensors, as far as its files say so."""
    return cast("Mapping[str, ToolScale]", _told(source, "scales", {}))


def target_of(source: TensorSource) -> str:
    """The target that says how the tool that wrote a source quantizes; empty where there is none."""
    return str(_told(source, "target", ""))


def remarks_of(source: TensorSource) -> tuple[Message, ...]:
    """What the files of a tool say against each other."""
    remarks = _told(source, "remarks", None)
    return () if remarks is None else tuple(remarks())


def holds_statistics(source: TensorSource) -> bool:
    """Whether tensors of a source stand for their statistics: largest, smallest, mean, norm."""
    return bool(_told(source, "statistics", False))


def rungs_of(source: TensorSource) -> Mapping[str, Callable[[], TensorSource]]:
    """The runs of the same samples that a tool wrote, its own float run first, the one of the chip last."""
    return cast("Mapping[str, Callable[[], TensorSource]]", _told(source, "rungs", {}))


def _told(source: TensorSource, what: str, default: Any) -> Any:
    """What a dump says of itself, also through a view of some of its tensors."""
    inner: Any = source
    while inner is not None:
        if hasattr(inner, what):
            return getattr(inner, what)
        inner = getattr(inner, "source", None) or getattr(inner, "_source", None)
    return default


def _printable(place: TensorFile) -> TensorFile:
    """Refuse names that are not valid Unicode, under a spelling that every screen and file can take."""
    names = (place.name, place.sample, place.node, place.op_type)
    name, sample, node, op_type = map(shown, names)
    if (name, sample, node, op_type) == names:
        return place

    def refuse() -> Content:
        raise Unreadable(
            english("its name is not valid Unicode"), fix=english("write it again under a name that is")
        )

    return TensorFile(name, sample, place.where, refuse, node, op_type)


def _add(places: dict[str, TensorFile], place: TensorFile) -> None:
    """Keep one place per sample; of two that claim the same name neither can be trusted, so say so."""
    first = places.get(place.sample)
    if first is None:
        places[place.sample] = place
        return

    def clash() -> Content:
        raise Unreadable(
            english("stored twice: in {where} and in {where2}", where=first.where, where2=place.where),
            fix=english("remove or rename one of the two"),
        )

    places[place.sample] = TensorFile(place.name, place.sample, first.where, clash)


def _describe(places: Iterable[TensorFile]) -> TensorInfo:
    """Describe a tensor by the first sample in which it can be read, else by what is wrong in the first."""
    infos: list[TensorInfo] = []
    for place in places:
        infos.append(_info(place))
        if not infos[-1].problem:
            return infos[-1]
    return infos[0]


def _info(place: TensorFile) -> TensorInfo:
    dtype, shape, problem = "", tuple[int, ...](), ""
    try:
        content = place.probe()
        dtype, shape = content.dtype, content.shape
    except Unreadable as error:
        dtype, shape, problem = error.dtype, error.shape, error.problem
    except OSError as error:
        problem = _reason(error)
    names = shown(place.origin), shown(place.copy_of)
    return TensorInfo(place.name, dtype, shape, problem, place.node, place.op_type, *names)


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return english("the file is missing")
    if isinstance(error, PermissionError):
        return english("the file may not be read")
    return error.strerror or str(error)


# What the values of a file are when the file says one thing and a manifest another.


def resolve_content(
    dtype: DType, shape: tuple[int, ...], *, load: Callable[[], Array], declared: Declared | None
) -> Content:
    """Combine a file's own header with what is declared about it.

    Types that numpy does not know by itself (bfloat16 and its kin) come as float32 with the true type declared,
    or as raw values of the right width; both are understood.

    Args:
        dtype: Type in the header; void when the file holds raw values.
        shape: Shape in the header.
        load: Gets the array that the header describes.
        declared: What a manifest says, None without one.

    Raises:
        Unreadable: The two contradict each other, or neither says what the values are.
    """
    if declared is None:
        if _is_raw(dtype):
            raise Unreadable(
                english(
                    "holds raw values of {itemsize} bytes without saying of which type", itemsize=dtype.itemsize
                ),
                fix=english('name the type in tensors.json beside it, as in "dtype": "bfloat16"'),
                shape=shape,
            )
        return Content(dtype.name, shape, lambda: as_values(load()))
    wanted = parse_dtype(declared.dtype)
    if shape == declared.shape:
        if _holds_bits_of(wanted, dtype):
            return Content(wanted.name, shape, lambda: as_values(load().view(wanted)))
        if dtype.newbyteorder("=") == wanted.newbyteorder("=") or _holds_upcast_of(wanted, dtype):
            return Content(wanted.name, shape, lambda: as_values(load()))
    raise Unreadable(
        english(
            "{source} says {name} {shape}, the file holds {name2} {shape2}",
            source=declared.source,
            name=wanted.name,
            shape=list(declared.shape),
            name2=dtype.name,
            shape2=list(shape),
        ),
        fix=english("correct {source}, or write the file again", source=declared.source),
        dtype=dtype.name,
        shape=shape,
    )


def _is_raw(dtype: DType) -> bool:
    # Not by its kind: bfloat16 and its kin have the same one.
    return dtype.type is np.void


def _holds_bits_of(wanted: DType, stored: DType) -> bool:
    raw = _is_raw(stored) or (stored.kind == "u" and is_extended(wanted))
    return raw and stored.itemsize == wanted.itemsize


def _holds_upcast_of(wanted: DType, stored: DType) -> bool:
    return is_extended(wanted) and stored.name == "float32"


_ONLY = ""


class MappingSource:
    """Arrays by name; they stand in the order of the mapping, which need not be that of execution.

    Args:
        arrays: The arrays.
        label: Where they come from, for messages.

    Raises:
        BadInput: There are none, or one is no array of numbers.
    """

    def __init__(self, arrays: Mapping[str, Any], *, label: str = "arrays") -> None:
        if not arrays:
            raise BadInput(
                english("{label} is an empty dictionary.", label=label),
                fix=english("give at least one array, by its name"),
            )
        self._arrays: dict[str, Array] = {}
        for name, given in arrays.items():
            try:
                array = np.asarray(given)
            except (TypeError, ValueError, RuntimeError) as error:
                text = " ".join(str(error).split())
                what = english("{label}: {name!r} is no array: {text}.", label=label, name=name, text=text)
                raise BadInput(what, fix=english("give numpy arrays of numbers")) from error
            if not isinstance(name, str) or array.dtype.kind not in "biufc":
                what = english(
                    "{label}: {name!r} is of type {name2} ({name3}).",
                    label=label,
                    name=name,
                    name2=type(given).__name__,
                    name3=array.dtype.name,
                )
                raise BadInput(what, fix=english("give numpy arrays of numbers, by their names"))
            self._arrays[name] = array
        self.label = label
        self.samples: tuple[str, ...] = (_ONLY,)
        self.ordered = False
        self.tensors = tuple(TensorInfo(name, each.dtype.name, each.shape) for name, each in self._arrays.items())

    def read(self, name: str, sample: str) -> Array:
        """The values of one of them."""
        if name not in self._arrays:
            raise BadInput(
                english("{label} has no tensor {name!r}.", label=self.label, name=name),
                fix=nearest(name, self._arrays),
            )
        return self._arrays[name]


@dataclass(frozen=True, slots=True, eq=False)
class SomeTensors:
    """Some tensors of a source; a `TensorSource`.

    Attributes:
        source: The source.
        names: Those wanted.
    """

    source: TensorSource
    names: frozenset[str]

    @property
    def label(self) -> str:
        """That of the source."""
        return self.source.label

    @property
    def samples(self) -> tuple[str, ...]:
        """Those of the source."""
        return self.source.samples

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Those wanted, in the source's order."""
        return tuple(info for info in self.source.tensors if info.name in self.names)

    @property
    def ordered(self) -> bool:
        """Whether the source is."""
        return self.source.ordered

    def read(self, name: str, sample: str) -> Array:
        """The values of one of them."""
        return self.source.read(name, sample)


# Several samples in one tensor.

# So many of the tensors must hold one slice for each sample, for the first axis to be a batch.
_MOSTLY_BATCHED = 0.5


def split_batch(source: TensorSource, tensors: Sequence[TensorInfo], samples: Sequence[str]) -> TensorSource:
    """View a dump of all samples in one as one slice of each tensor for each sample, where sizes say that it is.

    Args:
        source: The dump.
        tensors: The tensors of the network for one sample.
        samples: What the network was fed.

    Returns:
        The view; the dump itself where it has samples of its own, or its sizes are not those of a batch.
    """
    count = len(samples)
    if count < 2 or len(source.samples) != 1:
        return source
    of_one = [info for info in tensors if info.dtype]
    known = [info for info in source.tensors if info.dtype and not info.problem and info.shape]
    slices = {info.name: (info.shape[0] // count, *info.shape[1:]) for info in known if info.shape[0] % count == 0}
    lengths, sizes = {_lengths(info.shape) for info in of_one}, {info.size for info in of_one}
    whole = {info.name for info in known if _lengths(info.shape) in lengths}
    sliced = {name for name, shape in slices.items() if _lengths(shape) in lengths}
    # Lengths of axes say more than sizes: four samples of 16 x 16 x 16 are as large as one of 16 x 32 x 32.
    sliced |= {
        info.name
        for info in known
        if info.name in slices and info.size // count in sizes and info.size not in sizes
    }
    told = sliced - whole
    # Where all have as many rows as there are samples, blocked channels or flat values change nothing of it.
    everywhere = all(info.shape[0] == count for info in known) and len(whole) < len(known)
    if not everywhere and (len(told) <= len(whole - sliced) or len(sliced) < _MOSTLY_BATCHED * len(known)):
        return source
    batched = sliced | {info.name for info in known if info.shape[0] == count and info.name not in whole}
    return BatchSource(source, samples, frozenset(batched))


def _lengths(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes in any order, without those of length one."""
    return tuple(sorted(length for length in shape if length > 1))


class BatchSource:
    """A `TensorSource` of one slice along the first axis for each sample.

    Attributes:
        split: How many tensors are sliced; the others are the same in every sample.
    """

    def __init__(self, source: TensorSource, samples: Sequence[str], batched: frozenset[str]) -> None:
        self._source, self._batched = source, batched
        self._only = source.samples[0]
        self.label, self.ordered, self.runs = source.label, source.ordered, runs_of(source)
        self.samples = tuple(samples)
        self.split = len(batched)
        # Samples of one row each that were stacked have an axis more than samples have.
        shapes = [info.shape for info in source.tensors if info.name in batched]
        self._stacked = all(len(shape) > 1 and shape[:2] == (len(samples), 1) for shape in shapes)
        self.tensors = tuple(map(self._info, source.tensors))

    def _info(self, info: TensorInfo) -> TensorInfo:
        if info.name not in self._batched:
            return info
        rows = () if self._stacked else (info.shape[0] // len(self.samples),)
        return replace(info, shape=(*rows, *info.shape[1:]))

    def read(self, name: str, sample: str) -> Array:
        """The values of one tensor in one sample."""
        values = self._source.read(name, self._only)
        if name not in self._batched:
            return values
        rows = values.shape[0] // len(self.samples)
        first = self.samples.index(sample) * rows
        return values[first] if self._stacked else values[first : first + rows]
