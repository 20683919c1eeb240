"""Which files hold which input: the layouts that samples are kept in."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from roundoff.core.files import reading
from roundoff.core.names import FileNames, shown
from roundoff.core.tensors import InputSpec
from roundoff.data.files import IMAGE_SUFFIXES, Kind, Listing, kind_of, list_folder
from roundoff.data.folders import input_folders
from roundoff.data.lists import is_list_file, read_list
from roundoff.data.options import SampleFormat
from roundoff.errors import BadInput, nearest

__all__ = ["Column", "find_columns"]

_KNOWN = f".npy, .npz, .bin, .raw and pictures ({', '.join(IMAGE_SUFFIXES)})"
_FORCED: dict[SampleFormat, Kind] = {"npy": "npy", "npz": "npz", "bin": "bin", "images": "images"}


@dataclass(frozen=True, slots=True)
class Column:
    """The files that hold one input, one after the other.

    Attributes:
        spec: The input.
        base: Folder that `files` are relative to.
        files: Paths as strings; there may be very many.
        kinds: What the files are: one entry for all of them, or one per file.
        keyed: Whether file names say what belongs together; otherwise the order does.
        lone: Whether a single file was given to hold all samples.
        skipped: Files beside them that are left alone.
    """

    spec: InputSpec
    base: Path
    files: tuple[str, ...]
    kinds: tuple[Kind, ...]
    keyed: bool = False
    lone: bool = False
    skipped: tuple[str, ...] = ()

    def path(self, index: int) -> Path:
        """Where a file is."""
        return self.base / self.files[index]

    def kind(self, index: int) -> Kind:
        """What a file is."""
        return self.kinds[0] if len(self.kinds) == 1 else self.kinds[index]


def find_columns(
    source: Path | Mapping[str, Path], inputs: Sequence[InputSpec], *, wanted: SampleFormat
) -> tuple[Column, ...]:
    """Find the files of every input.

    Raises:
        BadInput: Nothing fits; the message says what was tried.
    """
    if isinstance(source, Mapping):
        _check_names(source, inputs)
        return tuple(_column(spec, source[spec.name], wanted=wanted) for spec in inputs)
    if not _is_folder(source):
        return _columns_of_file(source, inputs, wanted=wanted)
    folders = input_folders(source, inputs)
    if folders is not None:
        columns = [_column(spec, folders.of[spec.name], wanted=wanted) for spec in inputs]
        columns[0] = replace(columns[0], skipped=(*folders.skipped, *columns[0].skipped))
        return tuple(columns)
    listing = list_folder(source)
    if len(inputs) > 1:
        _check_archives_only(listing, inputs, wanted=wanted)
    return tuple(_listed_column(spec, listing, wanted=wanted) for spec in inputs)


def _check_names(source: Mapping[str, Path], inputs: Sequence[InputSpec]) -> None:
    names = [spec.name for spec in inputs]
    for name in source:
        if name not in names:
            raise BadInput(f"The model has no input {name!r}.", fix=nearest(name, names))
    for spec in inputs:
        if spec.name not in source:
            raise BadInput(
                f"There are no samples for the input {spec.name!r}: expected {spec.describe()}.",
                fix=f"add --data {spec.name}=PATH",
            )


def _is_folder(path: Path) -> bool:
    with reading(path, what="The sample path"):
        path.stat()
    if not path.is_dir() and not path.is_file():
        raise BadInput(f"{shown(path)} is neither a file nor a folder.", fix="give a file or a folder of samples")
    return path.is_dir()


def _columns_of_file(path: Path, inputs: Sequence[InputSpec], *, wanted: SampleFormat) -> tuple[Column, ...]:
    if is_list_file(path, wanted):
        lists = read_list(path, inputs)
        return tuple(_list_column(spec, path, files) for spec, files in zip(inputs, lists, strict=True))
    kind = _kind(path.name, wanted=wanted, where=shown(path))
    if len(inputs) > 1 and kind != "npz":
        names = ", ".join(repr(spec.name) for spec in inputs)
        named = " ".join(f"--data {spec.name}=PATH" for spec in inputs)
        raise BadInput(
            f"{shown(path)} holds one array per sample, but the model has {len(inputs)} inputs: {names}.",
            fix=f"give each input its own: {named}, or store all in one .npz",
        )
    return tuple(Column(spec, path.parent, (path.name,), (kind,), lone=True) for spec in inputs)


def _column(spec: InputSpec, path: Path, *, wanted: SampleFormat) -> Column:
    if _is_folder(path):
        return _listed_column(spec, list_folder(path), wanted=wanted)
    if is_list_file(path, wanted):
        return _list_column(spec, path, read_list(path, (spec,))[0])
    kind = _kind(path.name, wanted=wanted, where=shown(path))
    return Column(spec, path.parent, (path.name,), (kind,), lone=True)


def _list_column(spec: InputSpec, path: Path, files: tuple[str, ...]) -> Column:
    kinds = tuple(_kind(file, wanted="auto", where=f"{shown(path)} lists {shown(file)}, which") for file in files)
    return Column(spec, path.parent, files, kinds if len(set(kinds)) > 1 else kinds[:1])


def _listed_column(spec: InputSpec, listing: Listing, *, wanted: SampleFormat) -> Column:
    if not listing.files:
        beside = f" beside {listing.skipped[0]} and the like" if listing.skipped else ""
        raise BadInput(
            f"{shown(listing.folder)} holds no sample files{beside}, but the input {spec.name!r} needs some: "
            f"expected {spec.describe()}.",
            fix=f"put samples there: {_KNOWN}",
        )
    if wanted == "list":
        raise BadInput(
            f"{shown(listing.folder)} is a folder, not a list file.",
            fix="give the list file, or leave --data-format out",
        )
    where = shown(listing.folder)
    kinds = {_kind(file, wanted=wanted, where=f"{where}/{shown(file)}"): file for file in listing.files}
    if len(kinds) > 1:
        found = ", ".join(f"{kind} ({shown(file)})" for kind, file in sorted(kinds.items()))
        raise BadInput(
            f"{where} mixes kinds of samples: {found}.",
            fix="keep one kind per folder, or name the files to use in a list file",
        )
    return Column(spec, listing.folder, listing.files, tuple(kinds), keyed=True, skipped=listing.skipped)


def _kind(file: str, *, wanted: SampleFormat, where: str) -> Kind:
    known = kind_of(file)
    forced = _FORCED.get(wanted)
    if forced is not None and known not in (None, forced):
        raise BadInput(
            f"{where} is {known}, but {forced} was asked for.",
            fix=f"use --data-format {known}, or leave it out",
        )
    kind = forced or known
    if kind is None:
        suffix = PurePosixPath(file).suffix
        raise BadInput(
            f"{where} is of no known kind (suffix {shown(suffix) or 'missing'}); tried {_KNOWN}.",
            fix="remove it, or name its kind with --data-format (bin for bare values)",
        )
    return kind


def _check_archives_only(listing: Listing, inputs: Sequence[InputSpec], *, wanted: SampleFormat) -> None:
    kinds = Counter(PurePosixPath(file).suffix.lower() or "no suffix" for file in listing.files)
    if wanted == "npz" or (set(kinds) == {".npz"} and wanted == "auto"):
        return
    found = ", ".join(f"{count} x {suffix}" for suffix, count in sorted(kinds.items())) or "no files"
    names = FileNames()
    folders = ", ".join(f"{names.stem(spec.name)}/" for spec in inputs)
    raise BadInput(
        f"{shown(listing.folder)} is in no known layout for {len(inputs)} inputs. Tried one folder per input "
        f"({folders}): there is none; one .npz per sample: found {found}.",
        fix=" ".join(f"--data {spec.name}=PATH" for spec in inputs),
    )
