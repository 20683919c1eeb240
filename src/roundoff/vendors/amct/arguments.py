"""Arguments of the functions, checked for what they are."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.messages.message import english
from roundoff.run.capture import check_feed
from roundoff.run.session import open_session
from roundoff.vendors.amct.observation import as_batch, observer_of, stage_of
from roundoff.vendors.facade import WrongType, WrongValue


def a_path(name: str, given: Any) -> Path:
    """An argument that is a path.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, str | os.PathLike):
        raise WrongType(
            english("{name} is {given!r}, not the path of a file.", name=name, given=given),
            fix=english("write {name}='...'", name=name),
        )
    return Path(given)


def a_flag(name: str, given: Any) -> bool:
    """An argument that is True or False.

    Raises:
        WrongType: It is something else.
    """
    if not isinstance(given, bool):
        raise WrongType(
            english("{name} is {given!r}, neither True nor False.", name=name, given=given),
            fix=english("write {name}=True or {name}=False", name=name),
        )
    return given


def a_positive(name: str, given: Any) -> int:
    """An argument that is a whole number above zero.

    Raises:
        WrongType: It is something else.
        WrongValue: It is not above zero.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise WrongType(
            english("{name} is {given!r}, not a whole number.", name=name, given=given),
            fix=english("write {name}=1 or more", name=name),
        )
    if given < 1:
        raise WrongValue(
            english("{name} is {given}.", name=name, given=given), fix=english("write {name}=1 or more", name=name)
        )
    return given


def layer_names(name: str, given: Any) -> tuple[str, ...]:
    """An argument that is a list of names; None stands for none.

    Raises:
        WrongType: It is something else.
    """
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(n, str) for n in given):
        raise WrongType(
            english("{name} is {given!r}, not a list of names.", name=name, given=given),
            fix=english("write {name}=['conv1', ...]", name=name),
        )
    return tuple(given)


def keep_apart(written: Iterable[Path], read: Iterable[Path] = ()) -> None:
    """Refuse to write to a file that is read, or two things to one file.

    Args:
        written: The files that are going to be written.
        read: Those of the user's that are read.

    Raises:
        WrongValue: Two of them are the same file, whatever links lead to it.
    """
    files = list(written)
    for at, path in enumerate(files):
        if any(_same(path, other) for other in read):
            raise WrongValue(
                english("{path} is read, and would be replaced.", path=path),
                fix=english("choose another path for what is written"),
            )
        if any(_same(path, other) for other in files[:at]):
            raise WrongValue(
                english("Two things would be written to {path}.", path=path),
                fix=english("choose another path for one of them"),
            )


def _same(left: Path, right: Path) -> bool:
    if os.path.realpath(left) == os.path.realpath(right):
        return True
    try:
        return left.samefile(right)
    except OSError:
        return False


# Running a model of any flavour on batches.


def run_batches(model: Model, feeds: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
    """Outputs of a model in every batch; runs of a modified model calibrate.

    Raises:
        WrongType: A batch is no mapping.
        BadInput: A batch does not fit the inputs of the model.
        ModelFailed: The model cannot be run.
    """
    modified = stage_of({each.key: each.value for each in model.proto.metadata_props}) is not None
    observer = observer_of(model) if modified else None
    session = None
    specs, names = inputs(model), outputs(model)
    for index, feed in enumerate(feeds):
        batch = as_batch(feed)
        check_feed(batch, specs, sample=f"batch {index}")
        if observer is not None and not observer.complete:
            yield observer.run(batch)
            continue
        if session is None:
            session = open_session(model, fused=True)
        yield dict(zip(names, session.run(batch), strict=True))
