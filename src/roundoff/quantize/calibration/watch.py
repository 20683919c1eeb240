"""Running a model over samples while several observers look at its tensors."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.quantize.calibration.observer import ChannelMismatch
from roundoff.run.capture import LiveSource, Samples

__all__ = ["UNLIMITED", "RunLimits", "Watcher", "watch"]


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may take.

    Attributes:
        threads: Threads to use; all cores when None.
        max_memory: Bytes the process may take; most of the free memory when None.
    """

    threads: int | None = None
    max_memory: int | None = None


UNLIMITED = RunLimits()


class Watcher(Protocol):
    """Looks at one or more tensors, sample by sample."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """What it looks at in the model."""
        ...

    @property
    def others(self) -> tuple[str, ...]:
        """What it looks at in the other model, where there is one."""
        ...

    def take(self, arrays: Sequence[Array]) -> None:
        """See these tensors of one sample, those of the other model behind.

        Raises:
            ChannelMismatch: Their channels are not those of the samples before.
        """
        ...


def watch(
    model: Model,
    samples: Samples,
    watchers: Sequence[Watcher],
    *,
    other: Model | None = None,
    limits: RunLimits,
    progress: Progress,
) -> tuple[str, ...]:
    """Show every sample to every watcher; memory does not depend on the number of samples.

    Args:
        model: What runs.
        samples: What it is fed.
        watchers: Who looks.
        other: Runs too, on the same samples.
        limits: What it may take.
        progress: Told of every sample.

    Returns:
        Names of the samples; none when there is nothing to look at.

    Raises:
        BadInput: There is no such tensor, it holds no numbers, its channels change from sample to sample, or the
            samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if not watchers:
        return ()
    with contextlib.ExitStack() as stack:
        opened = [
            _open(each, samples, names, limits, stack)
            for each, names in (
                (model, [name for watcher in watchers for name in watcher.tensors]),
                (other, [name for watcher in watchers for name in watcher.others]),
            )
            if each is not None and names
        ]
        progress.start("looking at tensors", len(samples.names))
        stack.callback(progress.finish)
        for sample in samples.names:
            for watcher in watchers:
                _show(watcher, opened, sample)
            progress.advance()
    return samples.names


def _open(
    model: Model, samples: Samples, names: Sequence[str], limits: RunLimits, stack: contextlib.ExitStack
) -> LiveSource:
    unique = list(dict.fromkeys(names))
    source = LiveSource(model, samples, tensors=unique, max_memory=limits.max_memory, threads=limits.threads)
    stack.callback(source.close)
    return source


def _show(watcher: Watcher, sources: Sequence[LiveSource], sample: str) -> None:
    named = zip(sources, (watcher.tensors, watcher.others), strict=False)
    try:
        watcher.take([source.read(name, sample) for source, names in named for name in names])
    except ChannelMismatch as error:
        raise BadInput(
            f"The channels of tensor {watcher.tensors[0]!r} cannot be told apart: {error} (sample {sample!r}).",
            fix="choose another --axis, or leave this tensor out",
        ) from error
