"""Looking for what must not be in a confidential bundle, byte by byte, before it is handed out."""

import contextlib
import getpass
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import numpy as np

from roundoff.case import ticket
from roundoff.case.archive import SCRIPT
from roundoff.errors import BadInput
from roundoff.graph.load import Model, weight_tensors
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english

# Shorter names occur by chance in any file.
_SHORTEST = 4
# ... and in numbers even these.
_SHORTEST_IN_NUMBERS, _NUMBERS = 6, (".onnx", ".npy", ".data")
# Names as we give them ourselves, and some exporters.
_LIKE_OURS = re.compile(r"[A-Za-z]+_[0-9]+")
# The same in every bundle for a target and a machine.
_OURS = ("environment.json", "config/target.toml")
# Values in a row by which weights are recognised.
_VALUES = 16


def secrets_of(texts: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """What must not occur: these texts, the parts of these paths, whoever runs this and where.

    Args:
        texts: Names of nodes, tensors and samples, remarks.
        paths: Files and folders.
    """
    found = {text.strip() for text in texts}
    for path in paths:
        found.add(path)
        for part in PurePath(path).parts:
            found |= {part, Path(part).stem}
    found |= {platform.node(), str(Path.home())}
    with contextlib.suppress(OSError, KeyError):  # a process may have no user
        found.add(getpass.getuser())
    return frozenset(text for text in found if len(text) >= _SHORTEST and not text.isdigit())


def find_leaks(
    members: Mapping[str, bytes], secrets: Iterable[str], *, ours: str, models: Iterable[Model]
) -> list[str]:
    """What of the secrets is in a bundle, in words; nothing when all is well.

    Args:
        members: Files of the bundle.
        secrets: Texts that must not occur.
        ours: Text that is the same in every bundle: a name that is part of it tells nothing.
        models: Their weights must not occur.
    """
    telling = sorted(text for text in secrets if text not in ours and not _LIKE_OURS.fullmatch(text))
    found = [f"{text!r} in the name {name}" for name in members for text in telling if text in name]
    for text in telling:
        needle = text.encode("utf-8", "surrogateescape")
        found += [
            f"{text!r} in {name}"
            for name, content in members.items()
            if (len(needle) >= _SHORTEST_IN_NUMBERS or not name.endswith(_NUMBERS)) and needle in content
        ]
    for name, block in _blocks(models):
        found += [f"values of {name!r} in {member}" for member, content in members.items() if block in content]
    return found


def _blocks(models: Iterable[Model]) -> Iterator[tuple[str, bytes]]:
    """A few runs of values of each float constant, as bytes."""
    for model in models:
        for tensor in weight_tensors(model.proto):
            values = np.asarray(constant_value(tensor, model)).reshape(-1)
            if values.dtype.kind != "f" or values.size < _VALUES:
                continue
            last = values.size - _VALUES
            for start in sorted({0, last // 2, last}):
                part = values[start : start + _VALUES]
                # The same value everywhere is in many files.
                if np.unique(part).size > _VALUES // 2:
                    yield tensor.name, np.ascontiguousarray(part).tobytes()


def refuse_leaks(
    members: Mapping[str, bytes],
    texts: Iterable[str],
    *,
    paths: Iterable[str],
    models: Sequence[Model],
    said: Iterable[str],
) -> None:
    """Refuse to hand out anything that tells; that it does would be a fault of ours.

    Args:
        members: The files of the bundle.
        texts: Names that must not be in them.
        paths: Files of the run, whose names must not be in them.
        models: Their weights must not be in them.
        said: Words that stand in the bundle whatever the model is.

    Raises:
        BadInput: Something is in them.
    """
    # Words that are in every bundle tell nothing, whatever else is called so; nor do those of the form itself.
    form = Path(ticket.__file__).read_text(encoding="utf-8")
    known = [*members, *said, SCRIPT, form]
    known += [content.decode() for name, content in members.items() if name in _OURS]
    leaks = find_leaks(members, secrets_of(texts, paths), ours="\n".join(known), models=models)
    if leaks:
        raise BadInput(
            "The bundle was not written, it would give away {leaks}{value}",
            fix=english("rename it in the model, or send the bundle without --confidential"),
            leaks=leaks[0],
            value=english(" and {number} more.", number=len(leaks) - 1) if len(leaks) > 1 else ".",
        )
