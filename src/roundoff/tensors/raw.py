"""Folders of raw values (.bin, .raw, .dat): a manifest, or a model, says what the bytes mean."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, check_shape, map_array, size_bytes, stat_file
from roundoff.core.names import names_by_stem, shown
from roundoff.core.tensors import Array, DType, TensorInfo, TensorSource, as_values, parse_dtype
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.folders import (
    POSSIBLE,
    Arranged,
    TensorPlace,
    arrange_files,
    files_with,
    is_tensor_file,
    sniff_files,
    without_suffix,
)
from roundoff.tensors.sources import ANY_RUN, RunSelection, as_source, open_folder
from roundoff.tensors.stored import Content, Declared, TensorFile

SUFFIXES = (".bin", ".raw", ".dat")
_KIND = english("raw files (.bin, .raw, .dat)")
_HOW_TO_DESCRIBE = english("add manifest.csv beside them with the line name,dtype,shape and one line per tensor")


def sniff(path: Path) -> int:
    """Score how well a path fits: raw files, surer with a manifest."""
    return sniff_files(path, suffixes=SUFFIXES, bare=POSSIBLE)


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a folder of raw files, its manifest, or one raw file.

    Args:
        path: What to open.
        shapes: The tensors of a model in execution order; needed without a manifest.
        run: Which of several runs in the folder is wanted.
    """
    arrange = functools.partial(_arrange, shapes=shapes or (), label=shown(path))
    if is_tensor_file(path):
        run.found((), path)
        return as_source(arrange([_unit(path.parent, path.name)]), label=shown(path), kind=_KIND)
    return open_folder(path, list_units=_list_units, arrange=arrange, kind=_KIND, run=run)


def _list_units(folder: Path) -> list[TensorPlace]:
    return [_unit(folder, file) for file in files_with(folder, SUFFIXES)]


def _unit(folder: Path, file: str) -> TensorPlace:
    path = folder / file
    return TensorPlace(file, shown(without_suffix(file)), path, functools.partial(_probe, path))


def _arrange(units: Sequence[TensorPlace], *, shapes: Sequence[TensorInfo], label: str) -> Arranged:
    """Describe raw files by the tensors of a model; files that fit none are listed with that as their problem."""
    if not units:
        return Arranged(())
    if not shapes:
        what = english("{label} holds raw values without a word on their type and shape.", label=label)
        raise BadInput(
            what,
            fix=english("{how_to_describe}, or give the model with --model", how_to_describe=_HOW_TO_DESCRIBE),
        )
    known = _by_file_name(shapes)
    place = {info.name: index for index, info in enumerate(shapes)}
    arranged = arrange_files(units)
    # arrange_files keeps the order of its units.
    pairs = [(stored, unit, known.get(stored.name)) for stored, unit in zip(arranged.stored, units, strict=True)]
    if not any(info for _, _, info in pairs):
        what = english(
            "{label}: none of its {count} raw files is named like a tensor of the model.",
            label=label,
            count=len(units),
        )
        raise BadInput(what, fix=_HOW_TO_DESCRIBE)
    pairs.sort(key=lambda pair: place[pair[2].name] if pair[2] else len(place))
    return replace(arranged, stored=[_described(*pair) for pair in pairs], ordered=True)


def _by_file_name(shapes: Sequence[TensorInfo]) -> dict[str, TensorInfo]:
    infos = {info.name: info for info in shapes}
    return {stem: infos[name] for stem, name in names_by_stem(infos).items()}


def _described(stored: TensorFile, unit: TensorPlace, info: TensorInfo | None) -> TensorFile:
    if info is None:
        return stored
    declared = Declared(info.dtype, info.shape, "the model")
    described = unit.stored(info.name, stored.sample, declared=declared)
    return replace(described, node=info.node, op_type=info.op_type)


def _probe(path: Path, declared: Declared | None) -> Content:
    if declared is None:
        raise Unreadable(
            english("its type and shape are not known"),
            fix=english("add it to the manifest: name, dtype and shape"),
        )
    try:
        dtype = parse_dtype(declared.dtype)
    except ValueError as error:  # a manifest is checked when it is read; a model may hold strings
        raise Unreadable(english("{source} says {error}", source=declared.source, error=error)) from error
    check_shape(dtype, declared.shape)
    there, wanted = stat_file(path), size_bytes(dtype, declared.shape)
    if there != wanted:
        raise Unreadable(
            english(
                "has {there} bytes, but {name} {shape} by {source} takes {wanted}",
                there=there,
                name=dtype.name,
                shape=list(declared.shape),
                source=declared.source,
                wanted=wanted,
            ),
            fix=english("correct {source}, or write the file again", source=declared.source),
            dtype=dtype.name,
            shape=declared.shape,
        )
    return Content(dtype.name, declared.shape, functools.partial(_load, path, dtype, declared.shape))


def _load(path: Path, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype == np.bool_:  # a C program may write any non-zero byte for true
        return map_array(path, offset=0, dtype=np.dtype(np.uint8), shape=shape).astype(np.bool_)
    return as_values(map_array(path, offset=0, dtype=dtype, shape=shape))
