"""The file that says which tensor lies in which file: roundoff's own `tensors.json`, and manifests people write.

A dump folder holds one `tensors.json`::

    {"format": "roundoff-tensors", "version": 1, "ordered": true, "samples": [""],
     "tensors": [{"name": "/conv1:0", "file": "_conv1_0.npy", "dtype": "float32", "shape": [1, 8]}]}

By hand, a JSON list of such entries, a JSON object from name to entry, or a CSV file is enough.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from roundoff.core.files import read_small
from roundoff.core.tensors import parse_dtype
from roundoff.core.untrusted import numbered_rows, parse_json
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

# Manifests written as a table: ``name,dtype,shape`` and optionally ``file,sample`` in a CSV file.

_DELIMITERS = (",", ";", "\t")


def parse_csv(content: bytes, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read the rows as raw manifest entries, with a label for each to be used in messages.

    Args:
        content: The file's bytes; UTF-8, with or without byte order mark.
        path: The file, for messages.
    """
    try:
        text = content.decode("utf-8-sig")
        delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    except UnicodeDecodeError as error:
        raise BadInput(
            english("{path} is not a readable CSV file: {error}.", path=path, error=error),
            fix=english("save it as UTF-8 CSV"),
        ) from error
    table = numbered_rows(text, path, separator=delimiter, strict=True, fix=english("save it as UTF-8 CSV"))
    header = [column.strip().lower() for column in (table[0][1] if table else [])]
    rows = [(line, row) for line, row in table[1:] if any(cell.strip() for cell in row)]
    if "name" not in header:
        what = english(
            "{path} has no header: its first line is {header!r:.80}.", path=path, header=",".join(header)
        )
        raise BadInput(what, fix=english("begin the file with the line: name,dtype,shape"))
    entries = [
        _entry(header, row, where=english("{path} line {line}", path=path, line=line)) for line, row in rows
    ]
    return {"tensors": entries}, [f"line {line}" for line, _ in rows]


def _entry(header: list[str], row: list[str], *, where: str) -> dict[str, str]:
    if header[-1] == "shape":  # then a shape with commas needs no quotes
        row = [*row[: len(header) - 1], ",".join(row[len(header) - 1 :])]
    if len(row) != len(header):
        what = english(
            "{where} has {count} values for {count2} columns.", where=where, count=len(row), count2=len(header)
        )
        raise BadInput(what, fix=english('put a shape with commas in quotes ("1,3,8,8"), or write it as 1x3x8x8'))
    # A name may begin or end with spaces on purpose; nothing else may.
    return {column: cell if column == "name" else cell.strip() for column, cell in zip(header, row, strict=True)}


MAP_NAME = "tensors.json"
MANIFEST_NAMES = (MAP_NAME, "manifest.json", "manifest.csv", "tensors.csv")

_MAX_AXIS = 2**63 - 1
_SHOWN_ERRORS = 20
# An absolute path or a drive, on any system, or a step upwards.
_OUTSIDE = re.compile(r"^[/\\]|^[A-Za-z]:|(?:^|[/\\])\.\.(?:[/\\]|$)")
_PLAINER = {
    "model_type": "Input should be an object with name, dtype and shape",
    "tuple_type": "Input should be a list of sizes",
}
# Sizes with one separator between them, as in 1x3x8x8 or 1, 3, 8; commas may follow, as in (8,) and in tables
# whose rows were padded to one length.
_SHAPE = re.compile(r"(?:[0-9]{1,19}(?:(?:\s*[,;xX*\u00d7]\s*|\s+)[0-9]{1,19})*[\s,]*)?")
_SIZE = re.compile(r"[0-9]+")


def _check_dtype(text: str) -> str:
    parse_dtype(text)
    return text


def _parse_shape(value: Any) -> Any:
    """Accept a shape as people write it: a list, or text like ``1x3x8x8``; empty text is a scalar."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, str):
        return value
    text = value.strip(" ()[]\t")
    if not _SHAPE.fullmatch(text):
        raise ValueError(f"{value!r} is not a shape; write it like 1x3x8x8, with every size known")
    return tuple(map(int, _SIZE.findall(text)))


def _stay_inside(file: str) -> str:
    if _OUTSIDE.search(file):
        raise ValueError(f"{file!r} leaves the folder of the manifest; only files below it are read")
    if "\0" in file:
        raise ValueError(f"{file!r} is not a file name")
    return file


class TensorEntry(BaseModel):
    """One tensor of one sample; `file` lies below the manifest and may go on into an archive: ``a.npz/b.npy``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    dtype: Annotated[str, AfterValidator(_check_dtype)]
    shape: Annotated[tuple[Annotated[int, Field(ge=0, le=_MAX_AXIS)], ...], BeforeValidator(_parse_shape)]
    file: Annotated[str, AfterValidator(_stay_inside)] = ""
    sample: str = ""
    node: str = ""
    op_type: str = ""


class TensorMap(BaseModel):
    """All tensors of a folder, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal["roundoff-tensors"] = "roundoff-tensors"
    version: Literal[1] = 1
    ordered: bool = False
    samples: list[str] = Field(default_factory=list)
    tensors: list[TensorEntry]


def find_manifest(folder: Path) -> Path | None:
    """Find the manifest of a folder, if there is one; more than one is an error."""
    found = [folder / name for name in MANIFEST_NAMES if (folder / name).is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise BadInput(
            english("{folder} holds more than one manifest: {names}.", folder=folder, names=names),
            fix=english("give the one to use: {found}", found=found[0]),
        )
    return found[0] if found else None


def read_manifest(path: Path) -> TensorMap:
    """Read a manifest of any accepted kind; all its errors are reported at once."""
    content = read_small(path, what=english("The manifest"))
    raw, labels = parse_csv(content, path) if path.suffix.lower() == ".csv" else _parse_json(content, path)
    try:
        manifest = TensorMap.model_validate(raw)
    except ValidationError as error:
        raise _complain(path, [_explain(item, labels) for item in error.errors()]) from error
    _check_whole(path, manifest, labels)
    samples = manifest.samples or list(dict.fromkeys(entry.sample for entry in manifest.tensors))
    return manifest.model_copy(update={"samples": samples})


def _parse_json(content: bytes, path: Path) -> tuple[Any, list[str]]:
    raw = parse_json(content, path, fix=english("correct it, or write it again"), twice=BadInput, surrogates=True)
    if isinstance(raw, list):
        return {"tensors": raw}, [f"entry {place}" for place in range(1, len(raw) + 1)]
    if isinstance(raw, dict) and raw and all(isinstance(value, dict) for value in raw.values()):
        return {"tensors": [{"name": name, **entry} for name, entry in raw.items()]}, [repr(name) for name in raw]
    if not isinstance(raw, dict):
        raise BadInput(
            english("{path} is no manifest.", path=path),
            fix=english("write a list of objects with name, dtype and shape"),
        )
    tensors = raw.get("tensors")
    return raw, [f"tensors[{place}]" for place in range(len(tensors) if isinstance(tensors, list) else 0)]


@dataclass(frozen=True, slots=True)
class _ManifestPlace:
    """Where in the manifest an error is, in its reader's words."""

    text: str
    keys: tuple[str, ...]


def _place(location: tuple[int | str, ...], labels: list[str]) -> _ManifestPlace:
    match location:
        case ("tensors", int(index), *rest):
            return _ManifestPlace(" ".join([labels[index], *map(str, rest[:1])]), tuple(TensorEntry.model_fields))
        case _:
            return _ManifestPlace(".".join(map(str, location)) or "the file", tuple(TensorMap.model_fields))


def _explain(error: Any, labels: list[str]) -> str:
    place = _place(error["loc"], labels)
    if error["type"] == "extra_forbidden":
        return f"{place.text}: unknown key; {nearest(str(error['loc'][-1]), place.keys)}"
    if error["type"] == "missing":
        return f"{place.text}: missing"
    message = _PLAINER.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return f"{place.text}: {message}" + ("" if error["type"] == "value_error" else f", got {error['input']!r:.60}")


def _check_whole(path: Path, manifest: TensorMap, labels: list[str]) -> None:
    """Check what no entry can tell by itself."""
    if not manifest.tensors:
        raise BadInput(
            english("{path} lists no tensors.", path=path),
            fix=english("add an entry with name, dtype and shape per tensor"),
        )
    problems: list[str] = []
    first: dict[tuple[str, str], str] = {}
    known = set(manifest.samples)
    for label, entry in zip(labels, manifest.tensors, strict=True):
        earlier = first.setdefault((entry.name, entry.sample), label)
        if earlier is not label:
            problems.append(f"{label}: the tensor {entry.name!r} is already listed at {earlier}")
        if known and entry.sample not in known:
            problems.append(f"{label}: unknown sample {entry.sample!r}; {nearest(entry.sample, manifest.samples)}")
    if len(known) < len(manifest.samples):
        problems.append("samples: a sample is listed twice")
    if problems:
        raise _complain(path, problems)


def _complain(path: Path, problems: Iterable[str]) -> BadInput:
    lines = list(problems)
    shown = [f"  {line}" for line in lines[:_SHOWN_ERRORS]]
    if len(lines) > _SHOWN_ERRORS:
        shown.append(f"  and {len(lines) - _SHOWN_ERRORS} more")
    count = "an error" if len(lines) == 1 else f"{len(lines)} errors"
    fix = english("correct it, or rename it if it does not describe these tensors")
    return BadInput("\n".join([f"The manifest {path} has {count}:", *shown]), fix=fix)
