"""The bench: a network, with whichever quantizers, on chosen samples; the one loop of all who ask for outputs.

Blocks (`run.blocks`) and copies beside each other in one graph (`run.variants`) answer the same question faster
where every node is asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.graph.subgraph import tap
from roundoff.run.blocks.chain import (
    FUSED_AGREEMENT_DB,
    Chunk,
    agreement_db,
    read_chunks,
    stack_feeds,
    takes_batches,
)
from roundoff.run.budget import run_ahead
from roundoff.run.capture import Samples, read_feed
from roundoff.run.session import Session, open_session

__all__ = ["FEW_SAMPLES", "MORE_SAMPLES", "Bench", "Opened", "spread", "spread_over"]

FEW_SAMPLES, MORE_SAMPLES = 8, 32
"""On so many samples, evenly spaced, something is tried, and what came of it is confirmed."""


def spread(total: int, most: int) -> tuple[int, ...]:
    """At most so many indices, evenly from the first to the last."""
    if total <= most:
        return tuple(range(total))
    return tuple(int(index) for index in np.linspace(0, total - 1, most).round())


def spread_over(indices: Sequence[int], most: int) -> list[int]:
    """At most so many of the samples, evenly spaced."""
    return [indices[place] for place in spread(len(indices), most)]


# Samples are run together as long as the largest tensor of all of them takes no more than this.
_TOGETHER_BYTES, _MOST_TOGETHER = 8 << 20, 32
_TRIED_SAMPLES = 2
# What the kernels for one sample and for several may differ by, of the largest value.
_TOLERANCE = 1e-4
# The float network, and the one that is measured: both are asked for again after each look at its values.
_SESSIONS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A network on the bench, ready to run.

    Attributes:
        names: What it gives, in this order.
        session: Runs it.
    """

    names: tuple[str, ...]
    session: Session

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> dict[str, Any]:
        """What it computes of one sample, by name.

        Raises:
            ModelFailed: It cannot be run.
        """
        return dict(zip(self.names, self.session.run(feed, sample=sample), strict=True))


class Bench:
    """Runs a network with any quantizers, or others with the same inputs, on samples.

    Args:
        model: The float network.
        samples: What it is fed.
        threads: Threads to use; all cores by default.
        keep: Whether inputs stay in memory once they were read, for whoever runs the same samples many times.
    """

    def __init__(self, model: Model, samples: Samples, *, threads: int | None = None, keep: bool = False) -> None:
        self.model, self.samples, self.threads = model, samples, threads
        self._kept: dict[int, Mapping[str, Array]] | None = {} if keep else None
        self._recent: list[tuple[Model, Opened]] = []

    def open(
        self,
        network: Model | Sequence[Quantizer] = (),
        *,
        tensors: Sequence[str] | None = None,
        fused: bool = False,
        optimize: bool = False,
        keep_memory: bool = True,
    ) -> Opened:
        """Make a network ready to run.

        Args:
            network: The quantizers that are on in the float network, or another network with the same inputs.
            tensors: What to compute; the outputs by default.
            fused: Let onnxruntime fuse nodes.
            optimize: Let it rewrite what gives the same to the last bits.
            keep_memory: Whether it may keep the memory of one run for the next.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if isinstance(network, Model):
            model = network
        else:
            model = switch_on(self.model, network) if network else self.model
        names = outputs(model) if tensors is None else tensors
        taps = None if tensors is None else tap(model, tensors)
        session = open_session(
            model, outputs=taps, threads=self.threads, fused=fused, optimize=optimize, keep_memory=keep_memory
        )
        return Opened(tuple(names), session)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of a sample.

        Raises:
            BadInput: They do not fit the network.
        """
        if self._kept is None:
            return read_feed(self.model, self.samples, index)
        if index not in self._kept:
            self._kept[index] = read_feed(self.model, self.samples, index)
        return self._kept[index]

    def run(self, indices: Sequence[int], *networks: Opened) -> Iterator[list[dict[str, Any]]]:
        """Feed samples to networks side by side: for each sample what each of them computes, by name.

        Raises:
            BadInput: A sample does not fit the network.
            ModelFailed: A network cannot be run.
        """
        for index in indices:
            feed, sample = self.feed(index), self.samples.names[index]
            yield [network.run(feed, sample=sample) for network in networks]

    # Several samples at a time, where that gives the same. Nodes are fused where that changes only the last bits
    # of what the float network computes: up to three times as fast. Quantizers are computed as they are.

    def run_together(self, model: Model, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        """Outputs of a network: for some samples at a time, their indices and each output of all of them.

        Raises:
            ModelFailed: The network cannot be run.
        """
        session = self._reopened(model).session
        chunks = read_chunks(self.model, self.samples, indices, most=self.together)

        def run(chunk: Chunk) -> list[Array]:
            return session.run(chunk.feed, sample=chunk.label)

        for chunk, found in run_ahead(run, chunks, stop=session.stop):
            yield chunk.samples, found

    def _reopened(self, model: Model) -> Opened:
        """A network ready to run; the last ones still are."""
        found = next((opened for known, opened in self._recent if known is model), None)
        if found is None:
            found = self.open(model, optimize=True, fused=self.fuses)
        others = [each for each in self._recent if each[0] is not model]
        self._recent = [*others, (model, found)][-_SESSIONS:]
        return found

    @cached_property
    def fuses(self) -> bool:
        """Whether the first sample gives the same with nodes fused, up to rounding."""
        if not self.samples.names:
            return False
        feed = self.feed(0)
        try:
            found = [self.open(optimize=True, fused=fused).session.run(feed) for fused in (False, True)]
        except ModelFailed:
            return False
        return all(
            isinstance(plain, np.ndarray) and agreement_db(plain, fused) >= FUSED_AGREEMENT_DB
            for plain, fused in zip(*found, strict=True)
        )

    @cached_property
    def together(self) -> int:
        """How many samples may run together: none where the first two together differ from each alone."""
        if not takes_batches(self.model) or len(self.samples.names) < _TRIED_SAMPLES:
            return 1
        feeds = [self.feed(index) for index in range(_TRIED_SAMPLES)]
        if any(array.ndim == 0 or array.shape != feeds[1][name].shape for name, array in feeds[0].items()):
            return 1
        shapes = {name: array.shape for name, array in feeds[0].items()}
        largest = max((value.size_bytes for value in values(self.model, shapes)), default=0) or 1
        session = self._reopened(self.model).session
        alone = [session.run(feed) for feed in feeds]
        try:
            joined = session.run(stack_feeds(feeds))
        except ModelFailed:
            return 1
        same = all(_alike(whole, parts) for whole, *parts in zip(joined, *alone, strict=True))
        return max(1, min(_MOST_TOGETHER, _TOGETHER_BYTES // largest)) if same and outputs(self.model) else 1


def _alike(whole: Array, parts: Sequence[Array]) -> bool:
    if not isinstance(whole, np.ndarray) or whole.ndim == 0 or any(part.ndim != whole.ndim for part in parts):
        return False
    joined = np.concatenate(parts) if all(part.shape[1:] == whole.shape[1:] for part in parts) else None
    if joined is None or joined.shape != whole.shape or whole.dtype.kind not in "fiub":
        return False
    if whole.dtype.kind != "f":
        return bool(np.array_equal(whole, joined))
    scale = float(np.abs(joined[np.isfinite(joined)]).max(initial=0.0))
    return bool(np.allclose(whole, joined, rtol=0, atol=_TOLERANCE * scale, equal_nan=True))
