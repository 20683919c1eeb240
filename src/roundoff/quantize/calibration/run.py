"""Running a model over samples while its tensors are observed: one pass over the data serves all methods."""

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.messages.message import english
from roundoff.quantize.calibration.calibration import Calibration, Follower, find_followers
from roundoff.quantize.calibration.methods import Detail
from roundoff.quantize.calibration.observer import ChannelMismatch, Observation, Observer
from roundoff.run.budget import RunBudget
from roundoff.run.capture import LiveSource, Samples
from roundoff.run.session import available_threads

__all__ = [
    "Watcher",
    "calibrate",
    "watch",
]


def calibrate(  # noqa: PLR0913 - what to run, what to observe, and how much it may take
    model: Model,
    samples: Samples,
    tensors: Mapping[str, int | None],
    *,
    detail: Detail,
    threads: int | None = None,
    max_memory: int | None = None,
    progress: Progress = SILENT,
) -> Calibration:
    """Observe tensors of a model.

    Memory does not depend on the number of samples. The result does not depend on their order.

    Args:
        model: The model; inputs and what nodes compute can be observed, constants cannot.
        samples: What to feed it.
        tensors: What to observe, each with the axis along which channels are told apart, or None.
        detail: Whether ranges are enough, or distributions are needed.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told of every sample.

    Raises:
        BadInput: There is no such tensor, it holds no numbers, its channels change from sample to sample, or the
            samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if not tensors:
        return Calibration({}, len(samples.names), detail)
    observers = {name: Observer(axis, ranges_only=detail == "range") for name, axis in tensors.items()}
    source = LiveSource(
        model, samples, tensors=list(tensors), max_memory=max_memory, threads=_running_threads(threads, detail)
    )
    names = [info.name for info in source.tensors]
    followers = find_followers(model, tensors)
    progress.start("calibrating", len(source.samples))
    try:
        for index, sample in enumerate(source.samples):
            for name in names:
                if name not in followers:
                    _observe(observers[name], source, name, sample)
                elif observers[followers[name].source].damaged:
                    lost = ~np.isfinite(source.read(followers[name].source, sample)).reshape(-1)
                    observers[name].add(source.read(name, sample).reshape(-1)[lost])
            if index == 0:
                _give_back_memory()
            progress.advance()
    finally:
        progress.finish()
        source.close()
    # The model is not needed any more, and what is known takes memory too.
    del source
    return Calibration(_observations(observers, followers, names), len(samples.names), detail)


def _observations(
    observers: dict[str, Observer], followers: Mapping[str, Follower], names: Sequence[str]
) -> dict[str, Observation]:
    """What is known of each tensor."""
    found = {}
    for name in names:
        if name in followers:
            continue
        # Each observer goes as soon as it has told what it knows.
        observer = observers.pop(name)
        found[name] = observer.observation()
        for other, follower in followers.items():
            if follower.source == name:
                known, own = observer.limited(follower.low, follower.high), observers.pop(other).observation()
                found[other] = known.merge(own) if own.count else known
    return {name: found[name] for name in names}


def _running_threads(total: int | None, detail: Detail) -> int:
    """Threads for the model: counting keeps one busy next to it, looking for the range does not."""
    cores = total or available_threads()
    return max(1, cores - (detail == "histogram"))


def _give_back_memory() -> None:
    """Return to the system what opening the model took and no longer needs: several times the size of its file."""
    with contextlib.suppress(OSError, TypeError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)


def _observe(observer: Observer, source: LiveSource, name: str, sample: str) -> None:
    try:
        observer.add(source.read(name, sample))
    except ChannelMismatch as error:
        raise BadInput(
            english(
                "Tensor {name!r} cannot have a scale for each channel: {error} (sample {sample!r}).",
                name=name,
                error=error,
                sample=sample,
            ),
            fix=english("quantize it with one scale for the whole tensor"),
        ) from error


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
    limits: RunBudget,
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
    model: Model, samples: Samples, names: Sequence[str], limits: RunBudget, stack: contextlib.ExitStack
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
            english(
                "The channels of tensor {tensors!r} cannot be told apart: {error} (sample {sample!r}).",
                tensors=watcher.tensors[0],
                error=error,
                sample=sample,
            ),
            fix=english("choose another --axis, or leave this tensor out"),
        ) from error
