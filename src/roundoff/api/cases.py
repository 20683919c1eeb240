"""A fault handed to someone else, as functions: reproduce and bundle."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from roundoff.api.call import Call, Limits, public
from roundoff.api.inputs import PathLike, as_path
from roundoff.api.outcome import Outcome, PageOutcome
from roundoff.api.runs import RunLike
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED

if TYPE_CHECKING:
    from roundoff.case.bundle import Bundle
    from roundoff.case.reproduce import Reproduction

T = TypeVar("T")


@public
def reproduce(
    run: RunLike,
    *,
    output: PathLike,
    finding: int = 1,
    keep_samples: int = 4,
    anonymous: bool = False,
    force: bool = False,
    **options: Unpack[Limits],
) -> "PageOutcome[Reproduction]":
    """Cut the smallest case that shows a fault out of the network of a run, write it, and run its script.

    Args:
        run: What diagnose, layers or compare found, or the folder it was written to.
        output: The folder to be written.
        finding: Which fault, counted from 1.
        keep_samples: Samples that come along.
        anonymous: Replace the names of nodes and tensors by numbers.
        force: Replace an earlier reproducer.
        options: What it may take, and who is told of its progress.

    Raises:
        NotLocal: No part of the network shows the fault by itself.
        BadInput: The run cannot be used, or the folder would replace something.
        ModelFailed: A model cannot be run.
    """
    from roundoff.case.page import reproduction_page
    from roundoff.case.reproduce import reproduce as cut_out

    call = Call("reproduce", options, Limits)
    cut = partial(
        cut_out, finding=finding, keep_samples=keep_samples, anonymous=anonymous, force=force, limits=call.limits
    )
    made = _written(cut, run, output, call)
    return PageOutcome(made, call.document(()), _code(good=made.good), shown=reproduction_page(made))


@public
def bundle(
    run: RunLike,
    *,
    output: PathLike,
    confidential: bool = False,
    keep_data: bool = False,
    seed: int = 0,
    force: bool = False,
    **options: Unpack[Limits],
) -> "PageOutcome[Bundle]":
    """Pack what a run found into an archive that someone else can reproduce.

    Args:
        run: What a command found, or the folder it was written to; or the folder of a vendor's build.
        output: The archive to be written. What was called how goes beside it, where names are replaced.
        confidential: Replace weights, names and samples, and verify that the fault is still there.
        keep_data: Keep the samples as they are all the same.
        seed: Of what is chosen at random.
        force: Replace an earlier bundle.
        options: What it may take, and who is told of its progress.

    Raises:
        BadInput: The run cannot be used, or the archive would replace something or give something away.
        ModelFailed: A model cannot be run.
    """
    from roundoff.case.bundle import bundle as pack
    from roundoff.case.page import bundle_page

    call = Call("bundle", options, Limits)
    packing = partial(
        pack, confidential=confidential, keep_data=keep_data, seed=seed, force=force, limits=call.limits
    )
    packed = _written(packing, run, output, call)
    return PageOutcome(packed, call.document(()), _code(good=packed.shown), shown=bundle_page(packed))


def _written(work: Callable[..., T], run: RunLike, output: PathLike, call: Call) -> T:
    path = as_path(output, option="--output")
    with _folder(run) as source:
        return work(source, path, progress=call.progress)


def _code(*, good: bool) -> int:
    return EXIT_OK if good else EXIT_THRESHOLD_MISSED


@contextlib.contextmanager
def _folder(run: RunLike) -> Iterator[Path]:
    """The folder of a run; what was not written yet is, for as long as it is needed."""
    if not isinstance(run, Outcome):
        yield as_path(run, option="The run")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run.save(folder)
        yield folder
