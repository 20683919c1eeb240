"""Which files hold which input: the layouts that samples are kept in."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from roundoff.core.files import read_small, reading
from roundoff.core.names import FileNames, natural_key, shown
from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.samples.arrays import input_error
from roundoff.samples.files import IMAGE_SUFFIXES, Kind, Listing, is_metadata, kind_of, list_folder
from roundoff.samples.options import SampleFormat
from roundoff.samples.stored import find_named

# The layout with one folder per input, named like the input.


@dataclass(frozen=True, slots=True)
class InputFolders:
    """The folder of each input, and what lies beside the folders and is left alone."""

    of: dict[str, Path]
    skipped: tuple[str, ...]


def input_folders(source: Path, inputs: Sequence[InputSpec]) -> InputFolders | None:
    """Find the folders named like inputs; None when there is not one.

    Raises:
        BadInput: Some inputs have a folder and others not, or there is something that belongs to no input.
    """
    with reading(source, what=english("The folder")), os.scandir(source) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    owners = find_named([spec.name for spec in inputs], folders)
    if not any(owners.values()):
        return None
    of: dict[str, Path] = {}
    for spec in inputs:
        folder = owners[spec.name]
        if folder is None:
            wanted = FileNames().stem(spec.name)
            raise input_error(
                spec,
                "{source} has no folder for the input {name!r}: expected {wanted}/ with {describe}, "
                "found {shown}.",
                fix=english("name its folder {wanted}, or give every input with --data NAME=PATH", wanted=wanted),
                source=shown(source),
                wanted=wanted,
                shown=", ".join(map(shown, folders)),
            )
        of[spec.name] = source / folder
    with reading(source, what=english("The folder")):
        others = sorted(set(source.iterdir()) - set(of.values()))
    skipped = [other for other in others if other.name.startswith(".") or _is_note(other)]
    _check_rest(source, [other for other in others if other not in skipped], of)
    return InputFolders(of, tuple(shown(other) for other in skipped))


def _check_rest(source: Path, others: Sequence[Path], of: dict[str, Path]) -> None:
    named = " ".join(f"--data {name}=PATH" for name in of)
    expected = ", ".join(map(repr, of))
    if len(set(of.values())) < len(of):
        raise BadInput(
            "Inputs share a folder in {source}, because their names differ only in odd characters: {expected}.",
            fix=english("say which is which: {named}", named=named),
            source=shown(source),
            expected=expected,
        )
    if others:
        raise BadInput(
            english(
                "{others} belongs to none of the inputs ({expected}).", others=shown(others[0]), expected=expected
            ),
            fix=english("remove it, or use {named}", named=named),
        )


def _is_note(path: Path) -> bool:
    return path.is_file() and is_metadata(path.name)


# List files: one sample per line, by path.

_SUFFIXES = (".txt", ".lst", ".list")
_COMMENT = "#"


def is_list_file(path: Path, wanted: SampleFormat) -> bool:
    """Whether a file is to be read as a list."""
    return wanted == "list" or (wanted == "auto" and path.suffix.lower() in _SUFFIXES)


def read_list(path: Path, inputs: Sequence[InputSpec]) -> tuple[tuple[str, ...], ...]:
    """Read the paths of each input, one per line and input.

    A line is ``name:path name:path ...`` or the paths alone in the order of the inputs, separated by blanks.
    With one input the whole line is its path, blanks included. Empty lines and lines that begin with ``#``
    are left out.

    Returns:
        Per input its files, relative to the list file's folder.

    Raises:
        BadInput: A line does not name one existing file per input.
    """
    try:
        text = read_small(path, what=english("The list file")).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(
            "{path} is not a list file: it is not UTF-8 text (byte {start}).",
            fix=english("save the list as UTF-8, one path per line"),
            path=shown(path),
            start=error.start,
        ) from error
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.strip()
        if words and not words.startswith(_COMMENT):
            where = english("{path}, line {number}", path=shown(path), number=number)
            row = _row(words, inputs, where=where)
            _check_exist(path.parent, row, inputs, where=where)
            rows.append(row)
    if not rows:
        raise BadInput(
            english("{path} lists no samples.", path=shown(path)),
            fix=english("write one path per line, relative to the list file"),
        )
    return tuple(zip(*rows, strict=True))


def _row(line: str, inputs: Sequence[InputSpec], *, where: str) -> tuple[str, ...]:
    words = [line] if len(inputs) == 1 else line.split()
    named = [_named(word, inputs) for word in words]
    if len(words) != len(inputs):
        expected = " ".join(f"{spec.name}:PATH" for spec in inputs)
        raise BadInput(
            "{where} names {count} file(s), expected {count2}: {expected}.",
            fix=english("write one path per input, separated by blanks"),
            where=where,
            count=len(words),
            count2=len(inputs),
            expected=expected,
        )
    owners = [owner for owner, _ in named]
    if not any(owners):
        return tuple(words)
    missing = next((spec for spec in inputs if spec.name not in owners), None)
    if missing is not None:
        raise input_error(
            missing,
            "{where} has no file for the input {name!r}: expected {describe}.",
            fix=english("name every file or none: {name}:PATH", name=missing.name),
            where=where,
        )
    files = dict(named)
    return tuple(files[spec.name] for spec in inputs)


def _named(word: str, inputs: Sequence[InputSpec]) -> tuple[str, str]:
    """The input a word names and its path; the longest name wins, since names may contain colons."""
    for name in sorted((spec.name for spec in inputs), key=len, reverse=True):
        if word.startswith(f"{name}:"):
            # Some runtimes' own lists write name:=path.
            return name, word[len(name) + 1 :].removeprefix("=").strip()
    return "", word


def _check_exist(base: Path, files: Sequence[str], inputs: Sequence[InputSpec], *, where: str) -> None:
    for file, spec in zip(files, inputs, strict=True):
        with reading(base / file, what=english("{where}: the file", where=where)):
            found = (base / file).is_file()
        if not found:
            raise input_error(
                spec,
                "{where}: {base} is not a file; the input {name!r} expects {describe}.",
                fix=english("write paths relative to the list file, without labels behind them"),
                where=where,
                base=shown(base / file),
            )


_KNOWN = english(
    ".npy, .npz, .bin, .raw and pictures ({image_suffixes})", image_suffixes=", ".join(IMAGE_SUFFIXES)
)
_FORCED: dict[SampleFormat, Kind] = {"npy": "npy", "npz": "npz", "bin": "bin", "images": "images"}


@dataclass(frozen=True, slots=True)
class SampleColumn:
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
) -> tuple[SampleColumn, ...]:
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
        if wanted in ("auto", "npy") and (own := _input_arrays(listing, inputs)) is not None:
            return tuple(_column(spec, source / own[spec.name], wanted=wanted) for spec in inputs)
        _check_archives_only(listing, inputs, wanted=wanted)
    return tuple(_listed_column(spec, listing, wanted=wanted) for spec in inputs)


def _input_arrays(listing: Listing, inputs: Sequence[InputSpec]) -> dict[str, str] | None:
    """The one array of each input, which is named like it; None where they are not all that is there."""
    arrays = [file.removesuffix(".npy") for file in listing.files if file.endswith(".npy")]
    owners = find_named([spec.name for spec in inputs], arrays)
    found = {name: f"{owner}.npy" for name, owner in owners.items() if owner is not None}
    return found if len(set(found.values())) == len(inputs) == len(listing.files) else None


def _check_names(source: Mapping[str, Path], inputs: Sequence[InputSpec]) -> None:
    names = [spec.name for spec in inputs]
    for name in source:
        if name not in names:
            raise BadInput(english("The model has no input {name!r}.", name=name), fix=nearest(name, names))
    for spec in inputs:
        if spec.name not in source:
            raise input_error(
                spec,
                "There are no samples for the input {name!r}: expected {describe}.",
                fix=english("add --data {name}=PATH", name=spec.name),
            )


def _is_folder(path: Path) -> bool:
    with reading(path, what=english("The sample path")):
        path.stat()
    if not path.is_dir() and not path.is_file():
        raise BadInput(
            english("{path} is neither a file nor a folder.", path=shown(path)),
            fix=english("give a file or a folder of samples"),
        )
    return path.is_dir()


def _columns_of_file(path: Path, inputs: Sequence[InputSpec], *, wanted: SampleFormat) -> tuple[SampleColumn, ...]:
    if is_list_file(path, wanted):
        lists = read_list(path, inputs)
        return tuple(_list_column(spec, path, files) for spec, files in zip(inputs, lists, strict=True))
    kind = _kind(path.name, wanted=wanted, where=shown(path))
    if len(inputs) > 1 and kind != "npz":
        names = ", ".join(repr(spec.name) for spec in inputs)
        named = " ".join(f"--data {spec.name}=PATH" for spec in inputs)
        raise BadInput(
            "{path} holds one array per sample, but the model has {count} inputs: {names}.",
            fix=english("give each input its own: {named}, or store all in one .npz", named=named),
            path=shown(path),
            count=len(inputs),
            names=names,
        )
    return tuple(SampleColumn(spec, path.parent, (path.name,), (kind,), lone=True) for spec in inputs)


def _column(spec: InputSpec, path: Path, *, wanted: SampleFormat) -> SampleColumn:
    if _is_folder(path):
        return _listed_column(spec, list_folder(path), wanted=wanted)
    if is_list_file(path, wanted):
        return _list_column(spec, path, read_list(path, (spec,))[0])
    kind = _kind(path.name, wanted=wanted, where=shown(path))
    return SampleColumn(spec, path.parent, (path.name,), (kind,), lone=True)


def _list_column(spec: InputSpec, path: Path, files: tuple[str, ...]) -> SampleColumn:
    kinds = tuple(
        _kind(file, wanted="auto", where=english("{path} lists {file}, which", path=shown(path), file=shown(file)))
        for file in files
    )
    return SampleColumn(spec, path.parent, files, kinds if len(set(kinds)) > 1 else kinds[:1])


def _listed_column(spec: InputSpec, listing: Listing, *, wanted: SampleFormat) -> SampleColumn:
    if not listing.files:
        beside = english(" beside {skipped} and the like", skipped=listing.skipped[0]) if listing.skipped else ""
        raise input_error(
            spec,
            "{folder} holds no sample files{beside}, but the input {name!r} needs some: expected {describe}.",
            fix=english("put samples there: {known}", known=_KNOWN),
            folder=shown(listing.folder),
            beside=beside,
        )
    if wanted == "list":
        raise BadInput(
            english("{folder} is a folder, not a list file.", folder=shown(listing.folder)),
            fix=english("give the list file, or leave --data-format out"),
        )
    where = shown(listing.folder)
    kinds = {_kind(file, wanted=wanted, where=f"{where}/{shown(file)}"): file for file in listing.files}
    if len(kinds) > 1:
        found = ", ".join(f"{kind} ({shown(file)})" for kind, file in sorted(kinds.items()))
        raise BadInput(
            english("{where} mixes kinds of samples: {found}.", where=where, found=found),
            fix=english("keep one kind per folder, or name the files to use in a list file"),
        )
    return SampleColumn(spec, listing.folder, listing.files, tuple(kinds), keyed=True, skipped=listing.skipped)


def _kind(file: str, *, wanted: SampleFormat, where: str) -> Kind:
    known = kind_of(file)
    forced = _FORCED.get(wanted)
    if forced is not None and known not in (None, forced):
        raise BadInput(
            english("{where} is {known}, but {forced} was asked for.", where=where, known=known, forced=forced),
            fix=english("use --data-format {known}, or leave it out", known=known),
        )
    kind = forced or known
    if kind is None:
        suffix = PurePosixPath(file).suffix
        raise BadInput(
            "{where} is of no known kind (suffix {suffix}); tried {known}.",
            fix=english("remove it, or name its kind with --data-format (bin for bare values)"),
            where=where,
            suffix=shown(suffix) or english("missing"),
            known=_KNOWN,
        )
    return kind


def _check_archives_only(listing: Listing, inputs: Sequence[InputSpec], *, wanted: SampleFormat) -> None:
    kinds = Counter(PurePosixPath(file).suffix.lower() or "no suffix" for file in listing.files)
    if wanted == "npz" or (set(kinds) == {".npz"} and wanted == "auto"):
        return
    found = ", ".join(f"{count} x {suffix}" for suffix, count in sorted(kinds.items())) or english("no files")
    names = FileNames()
    folders = ", ".join(f"{names.stem(spec.name)}/" for spec in inputs)
    raise BadInput(
        "{folder} is in no known layout for {count} inputs. Tried one folder or one .npy per "
        "input ({folders}): they are not there; one .npz per sample: found {found}.",
        fix=" ".join(f"--data {spec.name}=PATH" for spec in inputs),
        folder=shown(listing.folder),
        count=len(inputs),
        folders=folders,
        found=found,
    )


# Which files of several inputs belong to the same sample, and what that sample is called.


@dataclass(frozen=True, slots=True)
class Paired:
    """Columns of equal length whose files of one index belong together, and the name of each such group."""

    columns: tuple[SampleColumn, ...]
    names: tuple[str, ...]


def pair(columns: Sequence[SampleColumn]) -> Paired:
    """Bring the files of all inputs together: by name without suffix in folders, by order in lists.

    Raises:
        BadInput: A file has no partner.
    """
    if all(column.keyed for column in columns):
        return _paired_by_name(columns)
    if any(column.keyed for column in columns):
        said = ", ".join(f"{c.spec.name!r} is {'a folder' if c.keyed else 'a file'}" for c in columns)
        raise BadInput(
            "Samples in a folder pair by file name, samples in a file by order; they do not mix: {said}.",
            fix=english("give every input as a folder with the same file names, or every input as a file"),
            said=said,
        )
    return _paired_by_order(columns)


def unique_names(short: Sequence[str], long: Sequence[str]) -> tuple[str, ...]:
    """Distinct printable names: the short ones, the long ones where those clash, numbered where all clash."""
    clashes = {name for name, count in Counter(short).items() if count > 1}
    names: list[str] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for brief, full in zip(short, long, strict=True):
        base = name = shown(full if brief in clashes else brief)
        while name in taken:
            # What was found taken before still is: a file may be listed 100,000 times.
            numbers[base] = numbers.get(base, 1) + 1
            name = f"{base}#{numbers[base]}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _paired_by_name(columns: Sequence[SampleColumn]) -> Paired:
    first = columns[0]
    if all(column.base == first.base and column.files == first.files for column in columns):
        return Paired(tuple(columns), unique_names([_key(file) for file in first.files], first.files))
    tables = [_by_key(column) for column in columns]
    keys = sorted(set().union(*tables), key=natural_key)
    _check_partners(columns, tables, keys)
    aligned = tuple(
        replace(column, files=tuple(table[key] for key in keys))
        for column, table in zip(columns, tables, strict=True)
    )
    return Paired(aligned, unique_names(keys, keys))


def _paired_by_order(columns: Sequence[SampleColumn]) -> Paired:
    first = columns[0]
    for column in columns:
        if len(column.files) != len(first.files):
            raise BadInput(
                "The input {name!r} has {count} file(s), but {name2!r} has {count2}.",
                fix=english("list the same number of files, in the same order, for every input"),
                name=first.spec.name,
                count=len(first.files),
                name2=column.spec.name,
                count2=len(column.files),
            )
    return Paired(tuple(columns), unique_names([PurePosixPath(file).stem for file in first.files], first.files))


def _key(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))


def _by_key(column: SampleColumn) -> dict[str, str]:
    table: dict[str, str] = {}
    for file in column.files:
        other = table.setdefault(_key(file), file)
        if other != file:
            raise BadInput(
                "{base} and {base2} both stand for the sample {key!r} of the input {name!r}.",
                fix=english("keep one of them"),
                base=shown(column.base / other),
                base2=shown(column.base / file),
                key=shown(_key(file)),
                name=column.spec.name,
            )
    return table


def _check_partners(
    columns: Sequence[SampleColumn], tables: Sequence[dict[str, str]], keys: Sequence[str]
) -> None:
    lonely = [key for key in keys if any(key not in table for table in tables)]
    if not lonely:
        return
    key = lonely[0]
    owner, table = next((c, t) for c, t in zip(columns, tables, strict=True) if key in t)
    lacking = next(c for c, t in zip(columns, tables, strict=True) if key not in t)
    suffix = PurePosixPath(lacking.files[0]).suffix
    more = english(" ({number} more like it)", number=len(lonely) - 1) if len(lonely) > 1 else ""
    raise BadInput(
        "{base} of the input {name!r} has no partner for the input {name2!r}: expected "
        "{base2}{suffix} with {describe}, found nothing{more}.",
        fix=english("add the missing file, or remove the one without partner"),
        base=shown(owner.base / table[key]),
        name=owner.spec.name,
        name2=lacking.spec.name,
        base2=shown(lacking.base / key),
        suffix=suffix,
        describe=lacking.spec.describe(),
        more=more,
    )
