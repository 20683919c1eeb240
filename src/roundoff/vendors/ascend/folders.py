"""Folders of dumps or golden data as the vendor looks things up in them: by operator, the newest file last."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, map_npy, read_header
from roundoff.core.tensors import Array, as_values, why_refused
from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.element_types import element_type
from roundoff.tensors.ascend_dump.header import ELEMENT_TYPES, Dump, DumpTensor, read_dump
from roundoff.tensors.ascend_dump.layouts import LayoutUndo, inverse_layout, restore
from roundoff.tensors.ascend_dump.names import DumpName, logical_op, parse_dump_name
from roundoff.tensors.ascend_dump.source import Slice, device_shape, expected_slices, map_tensor, merge
from roundoff.tensors.ascend_npy import MAPPING_NAME, read_mapping
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused, why_unread
from roundoff.vendors.ascend.rules import Warn, names_quantization

_GOLDEN = re.compile(r"(?P<op>.+\.[0-9]+)\.(?P<time>[0-9]{1,255})\.(?P<kind>npy|pb|quant)", re.DOTALL)
_NOT_DATA = (MAPPING_NAME, "convert_failed_file_list.txt", "tensors.json")
_TIME_DIGITS = 16
_BLANK = re.compile(r"[ \\]")


class Kind(Enum):
    """What a folder holds."""

    NPU = "Offline"
    FLOAT = "Standard"
    FAKE_QUANT = "Quant"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of an operator.

    Attributes:
        path: The file.
        time: When it was written, as far as its name tells in the vendor's way; else 0.
        name: The fields of its name, for a dump.
        file_name: Its name, or the over-long one that it stands for.
    """

    path: Path
    time: int
    name: DumpName | None
    file_name: str


@dataclass(slots=True)
class Folder:
    """The files of a folder by operator.

    Attributes:
        path: The folder.
        kind: What it holds.
        quantized: Whether names of quantizers occur in it.
        files: By operator; for golden data by ``operator.output``.
        has_npy: Whether there are .npy files: then no column shows addresses.
        strict: Look names up exactly as the vendor does, who does not replace blanks as the device does.
    """

    path: Path
    kind: Kind
    quantized: bool = False
    files: dict[str, list[FoundFile]] = field(default_factory=dict)
    has_npy: bool = False
    strict: bool = False

    def find(self, op: str, output: int | None = None) -> list[FoundFile]:
        """The files of an operator, or of one of its outputs, in the order in which they count.

        Raises:
            NotCompared: There are none.
        """
        name = escaped(op) if self.strict else _BLANK.sub("_", escaped(op))
        # Files of sub-graphs are listed without the name of their graph, which the model may have.
        keys = (name, logical_op(name)) if output is None else (f"{name}.{output}",)
        found = next((self.files[key] for key in keys if key in self.files), None)
        if not found:
            raise NotCompared("", code=Code.NO_DUMP)
        return found

    def has(self, op: str) -> bool:
        """Whether there is a first output of an operator."""
        try:
            return bool(self.find(op, None if self.kind is Kind.NPU else 0))
        except NotCompared:
            return False

    @property
    def described(self) -> str:
        """What the folder holds, in the vendor's words."""
        quantized = self.quantized if self.kind is Kind.NPU else self.kind is Kind.FAKE_QUANT
        model = "model executed on the AI processor" if self.kind is Kind.NPU else "original model"
        return f"side is dump data of the {'quantized' if quantized else 'unquantized'} {model}"


def escaped(op: str) -> str:
    """An operator's name as file names spell it."""
    return op.replace("/", "_").replace(".", "_")


def open_folder(path: Path, *, warn: Warn, separate_slices: bool = False, strict: bool = False) -> Folder:
    """List what a folder holds.

    Args:
        path: The folder.
        warn: Told of files that are passed over.
        separate_slices: Keep every slice of an operator as one of its own.
        strict: Look names up exactly as the vendor does.

    Raises:
        Refused: It is no folder, holds no such files, or several kinds of them.
    """
    if not path.is_dir():
        raise Refused(
            english('The path "{path}" is not a folder.', path=path),
            code=Code.PATH,
            fix=english("give the folder of one inference"),
        )
    mapping = read_mapping(path)
    kinds: dict[str, str] = {}
    folder = Folder(path, Kind.NPU, strict=strict)
    root = os.path.realpath(path)
    for entry in sorted(path.iterdir()):
        folder.has_npy |= entry.name.endswith(".npy")
        if entry.name in _NOT_DATA or entry.name.startswith(".") or not entry.is_file():
            continue
        if not Path(os.path.realpath(entry)).is_relative_to(root):
            warn(f'The file "{entry.name}" in the path "{path}" is a link that leads out of it and is not read.')
            continue
        number = entry.name.removesuffix(".npy")
        name = mapping.get(f"{number}.npy", "") if number.isdigit() else entry.name
        if not name:
            where, listed = path / MAPPING_NAME, (path / MAPPING_NAME).exists()
            what = f'in the file "{where}"' if listed else f'corresponding mapping file "{where}"'
            warn(f'The file name "{entry.name}" {what} is not exist.')
            continue
        found = _classified(entry, name, separate_slices=separate_slices, strict=strict)
        if found is None:
            warn(f'The file name "{name}" in the path "{path}" is not that of a dump; it is passed over.')
            continue
        kind, key, file = found
        if file.name is not None and file.name.overflow and not strict:
            warn(f'The file "{name}" is a record of an overflow, which "roundoff ascend overflow" reads.')
            continue
        kinds.setdefault(kind, name)
        folder.quantized |= names_quantization(key)
        folder.files.setdefault(key, []).append(file)
    _settle(folder, kinds)
    for files in folder.files.values():
        files.sort(key=_order)
    return folder


def _classified(
    path: Path, name: str, *, separate_slices: bool, strict: bool
) -> tuple[str, str, FoundFile] | None:
    """The kind of a file, the operator it belongs to, and the file; None when it is none of these."""
    golden = _GOLDEN.fullmatch(name)
    if golden is not None:
        op, _, output = golden["op"].rpartition(".")
        key = golden["op"] if strict else f"{escaped(op)}.{output}"
        return golden["kind"], key, FoundFile(path, _time(golden["time"]), None, name)
    dump = parse_dump_name(name)
    if dump is None or dump.statistics:
        return None
    key = dump.op if separate_slices else logical_op(dump.op)
    return "dump", key, FoundFile(path, _time(str(dump.time)), dump, name)


def _settle(folder: Folder, kinds: dict[str, str]) -> None:
    if not kinds:
        inner = next((entry for entry in sorted(folder.path.iterdir()) if entry.is_dir()), None)
        hint = english(", such as one below {inner}", inner=inner) if inner else ""
        what = english('No valid dump files in the path "{path}".', path=folder.path)
        raise Refused(
            what,
            code=Code.DUMP,
            fix=english("give the folder that holds the files of one inference{hint}", hint=hint),
        )
    if len(kinds) > 1:
        example = list(kinds.values())[1]
        what = english(
            'Not all files in the path "{path}" are of the same type, such as "{example}".',
            path=folder.path,
            example=example,
        )
        raise Refused(what, code=Code.DUMP, fix=english("keep dumps and golden data in folders of their own"))
    (kind,) = kinds
    if kind != "dump":
        quantized = kind == "quant" or (kind == "npy" and folder.quantized)
        folder.kind = Kind.FAKE_QUANT if quantized else Kind.FLOAT


def _time(digits: str) -> int:
    return int(digits) if len(digits) == _TIME_DIGITS else 0


def _order(found: FoundFile) -> tuple[int, int, int]:
    if found.name is not None and found.name.sliced:
        return (found.name.piece, found.name.thread, found.time)
    return (0, 0, found.time)


# Tensors of one operator out of its dump files, or out of a golden file, with what rows say of them.

_UNREAD = frozenset(ELEMENT_TYPES) - {
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64",
    "BOOL", "DOUBLE", "COMPLEX64", "COMPLEX128", "RESOURCE", "BF16", "UINT1",
}  # fmt: skip
"""Element types that the vendor's tool cannot read."""


class Tensor:
    """An input or output of an operator; its values are read when asked for.

    Args:
        about: What the header says of it.
        path: The file it lies in.
        slices: All slices of the operator, when there are several.
    """

    def __init__(self, about: DumpTensor, path: Path, *, slices: Sequence[Slice] = ()) -> None:
        self.about = about
        self.path = path
        self._slices = slices

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Its shape on the device, of all slices together."""
        if self._slices:
            return merge(self._slices, self.about.role, index=self.about.index, complete=False).shape
        return device_shape(self.about)

    @cached_property
    def values(self) -> Array:
        """Its values as the device laid them out."""
        if self._slices:
            return merge(self._slices, self.about.role, index=self.about.index, complete=False).load()
        return map_tensor(self.path, self.about)

    @property
    def sliced(self) -> bool:
        """Whether it was put together from slices."""
        return bool(self._slices)

    @property
    def address(self) -> str:
        """Its address as the rows show it."""
        return str(self.about.address) if self.about.address else "NaN"

    @property
    def dtype(self) -> str:
        """Its element type as the rows show it."""
        try:
            return element_type(self.about.element_type).name
        except Unreadable:
            return "NaN"


def way_back(tensor: Tensor) -> LayoutUndo:
    """How the device's format of a tensor is undone."""
    about = tensor.about
    return inverse_layout(about.format, tensor.shape, original=about.original_shape, groups=about.groups)


def plain_values(tensor: Tensor) -> Array:
    """A tensor with the device's format undone."""
    return restore(tensor.values, way_back(tensor)).array


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tensors of an operator.

    Attributes:
        path: The file they come from; of slices, the first with a star for what differs.
        inputs: Its inputs.
        outputs: Its outputs.
        op_name: Its name in the model's spelling, when the dump says so.
        sliced: Whether it ran in slices.
        complete: Whether all slices are there.
        damage: What is wrong with the file as a whole; empty when nothing is.
    """

    path: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    op_name: str = ""
    sliced: bool = False
    complete: bool = True
    damage: str = ""


def load_operator(files: Sequence[FoundFile], *, strict: bool) -> Loaded:
    """Read the headers of an operator's files: of the newest, or of all slices.

    Args:
        files: In the order in which they count.
        strict: Take a file of another length than its header says for an empty one, as the vendor does.

    Raises:
        NotCompared: The file cannot be read.
    """
    last = files[-1]
    if last.name is None:
        return _golden(last)
    if last.name.sliced:
        return _of_slices(files, strict=strict)
    dump = _read(last.path)
    damage = ""
    if dump.missing or dump.extra:
        damage = (
            f"{dump.missing} bytes are missing at its end"
            if dump.missing
            else f"{dump.extra} bytes too many at its end"
        )
        if strict:
            return Loaded(str(last.path), (), (), dump.op_name)
    if strict and any(tensor.element_type in _UNREAD for tensor in dump.tensors):
        raise NotCompared("", code=Code.ELEMENT_TYPE)
    return Loaded(
        str(last.path),
        tuple(Tensor(tensor, last.path) for tensor in dump.inputs),
        tuple(Tensor(tensor, last.path) for tensor in dump.outputs),
        dump.op_name,
        damage=damage,
    )


def load_golden(found: FoundFile) -> Tensor:
    """One golden tensor."""
    return _golden(found).outputs[0]


def _of_slices(files: Sequence[FoundFile], *, strict: bool) -> Loaded:
    slices = [Slice(found.path, _read(found.path)) for found in files]
    first = slices[0].dump
    several = slices if len(slices) > 1 else ()
    expected = expected_slices(first)
    stem = ".".join(str(files[0].path).split(".")[:4])
    return Loaded(
        f"{stem}.*" if several else str(files[0].path),
        # The vendor joins outputs only.
        tuple(Tensor(tensor, files[0].path, slices=() if strict else several) for tensor in first.inputs),
        tuple(Tensor(tensor, files[0].path, slices=several) for tensor in first.outputs),
        first.op_name,
        sliced=True,
        complete=expected in (None, len(slices)),
    )


def _read(path: Path) -> Dump:
    try:
        return read_dump(path)
    except (Unreadable, OSError) as error:
        raise NotCompared(
            english("{name} cannot be read: {reason}.", name=path.name, reason=why_unread(error)), code=Code.DATA
        ) from error


class _GoldenFile(Tensor):
    """A golden tensor: a .npy file."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.about.shape

    @cached_property
    def values(self) -> Array:
        return as_values(map_npy(self.path))

    @property
    def dtype(self) -> str:
        return self.about.element_type


def _golden(found: FoundFile) -> Loaded:
    if found.path.suffix != ".npy":
        return _legacy(found)
    try:
        header = read_header(found.path)
    except (Unreadable, OSError) as error:
        raise NotCompared(
            english("{name} cannot be read: {reason}.", name=found.path.name, reason=why_unread(error)),
            code=Code.DATA,
        ) from error
    if refused := why_refused(header.dtype):
        raise NotCompared(
            english("{name} cannot be read: it {refused}.", name=found.path.name, refused=refused),
            code=Code.ELEMENT_TYPE,
        )
    dtype = "float32" if header.dtype.kind == "V" else np.dtype(header.dtype).name
    about = DumpTensor("output", 0, dtype, "RESERVED", header.shape, (), 0, 0, 0, 0)
    return Loaded(str(found.path), (), (_GoldenFile(about, found.path),))


def _legacy(found: FoundFile) -> Loaded:
    """Golden data of old tools, in the layout of a dump."""
    dump = _read(found.path)
    if not dump.outputs:
        raise NotCompared(english("{name} holds no tensor.", name=found.path.name), code=Code.DATA)
    return Loaded(str(found.path), (), tuple(Tensor(tensor, found.path) for tensor in dump.outputs))
