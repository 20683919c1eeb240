"""Tensor files in and out, whatever wrote them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from roundoff.core.files import reading, regular_file
from roundoff.core.names import shown
from roundoff.core.table import Table
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors import (
    ascend_dump,
    ascend_npy,
    msprobe,
    npy,
    polygraphy,
    qnn,
    raw,
    rknn,
    safetensors,
    tidl,
    torch_file,
    tpu_mlir,
)
from roundoff.tensors.folders import CERTAIN, list_files
from roundoff.tensors.manifest import read_manifest
from roundoff.tensors.sources import ANY_RUN, RunSelection

__all__ = ["FORMATS", "Format", "open_source"]


class Format(Protocol):
    """What a module must offer to be a format; `FORMATS` holds those that are known."""

    def sniff(self, path: Path) -> int:
        """Score from 0 (not mine) to 100 (certainly mine), by the names of files and by the manifest."""
        ...

    def open(
        self, path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
    ) -> TensorSource:
        """List the tensors; their values are read when asked for."""
        ...


FORMATS: Table[Format] = Table(
    "format",
    (
        # Tools' own folders first: their files have the suffixes of plain ones.
        ("rknn", rknn),
        ("qnn", qnn),
        ("tpu-mlir", tpu_mlir),
        ("msprobe", msprobe),
        ("tidl", tidl),
        ("polygraphy", polygraphy),
        ("torch", torch_file),
        ("npy", npy),
        ("npz", npy.NpzFormat()),
        ("bin", raw),
        ("safetensors", safetensors),
        ("ascend-npy", ascend_npy),
        ("ascend-dump", ascend_dump),
    ),
)

_KNOWN = english(
    "a folder of .npy, .npz, .safetensors or raw files with a manifest, of dumps of Ascend, RKNN, QNN, TPU-MLIR, "
    "msprobe or TIDL, results of Polygraphy, or one such file"
)


def open_source(
    path: Path | str,
    *,
    format: str | None = None,  # noqa: A002 - what users call it
    shapes: Sequence[TensorInfo] | None = None,
    run: str | None = None,
    golden: bool = False,
    every_run: bool = False,
) -> TensorSource:
    """Open a file or folder of tensors, in the format named or in the one it looks like.

    Args:
        path: A folder, a file, or the manifest of a folder.
        format: A name in `FORMATS`; found out when None.
        shapes: The tensors of a model in execution order, for raw files without a manifest.
        run: Of several runs in a folder, the one of this name.
        golden: Of several runs, where none is named: take the golden copy, not the one that is to be judged by it.
        every_run: Take the tensors of all of them.

    Raises:
        BadInput: There is nothing that can be read, or the format is unknown or could be more than one.
    """
    path = Path(path)
    with reading(path, what=english("The path")):
        is_folder = path.is_dir()
    if not is_folder:
        regular_file(path, what=english("The path"))
    name = _find_format(path) if format is None else format
    return FORMATS.find(name).open(path, shapes, RunSelection(run, golden, every_run))


def _find_format(path: Path) -> str:
    scores: dict[str, int] = {}
    for name, candidate in FORMATS.items():
        scores[name] = candidate.sniff(path)
        if scores[name] >= CERTAIN:
            return name
    best = max(scores.values())
    leaders = [name for name, score in scores.items() if score == best]
    if best == 0:
        from roundoff.core.files import foreign_file

        if (foreign := foreign_file(path)) is not None:
            raise BadInput(english("{path} is {what}, no tensors.", path=path, what=foreign[0]), fix=foreign[1])
        raise BadInput(english("{found}.", found=_found(path)), fix=english("give {known}", known=_KNOWN))
    if len(leaders) > 1:
        _check_manifest(path)
        what = english("{path} could be read as {leaders}.", path=path, leaders=" or as ".join(leaders))
        raise BadInput(what, fix=english("say which is meant: --format {leaders}", leaders=leaders[0]))
    return leaders[0]


def _check_manifest(path: Path) -> None:
    """Refuse a file that stands for its folder, and says nothing of what is there."""
    if not path.is_file():
        return
    try:
        read_manifest(path)
    except BadInput as error:
        what = english("{found}, and no manifest of them: {why}", found=_found(path), why=error.what)
        raise BadInput(what, fix=english("give {known}", known=_KNOWN)) from error


def _found(path: Path) -> str:
    if path.is_file():
        return english("{path} is not a file of tensors that roundoff can read", path=path)
    files = [shown(file) for file in list_files(path)]
    if not files:
        return english("The folder {path} is empty", path=path)
    more = english(" and {number} more", number=len(files) - 3) if len(files) > 3 else ""
    return english(
        "The folder {path} holds no tensors that roundoff can read, only {files}{more}",
        path=path,
        files=", ".join(files[:3]),
        more=more,
    )
