"""Outputs of networks on samples, several samples at a time where that gives the same."""

from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.run.blocks.chain import Chunk, read_chunks, stack_feeds
from roundoff.run.blocks.opening import FUSED_AGREEMENT_DB, agreement_db, takes_batches
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples
from roundoff.run.resources import run_ahead
from roundoff.run.session import Session, open_session

__all__ = ["OutputRunner"]

# Samples are run together as long as the largest tensor of all of them takes no more than this.
_TOGETHER_BYTES, _MOST_TOGETHER = 8 << 20, 32
_TRIED_SAMPLES = 2
# What the kernels for one sample and for several may differ by, of the largest value.
_TOLERANCE = 1e-4
# The float network, and the one that is measured: both are asked for again after each look at its values.
_SESSIONS = 2


class OutputRunner:
    """Runs networks with the same inputs and outputs on samples.

    Nodes are fused where that changes only the last bits of what the float network computes: up to three times as
    fast. Quantizers are computed as they are.

    Args:
        model: The float network.
        samples: The samples.
        threads: Threads to use; all cores by default.
    """

    def __init__(self, model: Model, samples: Samples, *, threads: int | None = None) -> None:
        self.model, self.samples = model, samples
        self._threads = threads
        self._opened: list[tuple[Model, Session]] = []
        self._fused = self._fuses()
        self._together = self._room()

    def run(self, model: Model, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        """Outputs of a network: for some samples at a time, their indices and each output of all of them.

        Raises:
            ModelFailed: The network cannot be run.
        """
        session = self._session(model)
        chunks = read_chunks(self.model, self.samples, indices, most=self._together)

        def run(chunk: Chunk) -> list[Array]:
            return session.run(chunk.feed, sample=chunk.label)

        for chunk, found in run_ahead(run, chunks, stop=session.stop):
            yield chunk.samples, found

    def _session(self, model: Model) -> Session:
        """A network ready to run; the last ones still are."""
        found = next((session for known, session in self._opened if known is model), None)
        if found is None:
            found = open_session(model, threads=self._threads, optimize=True, fused=self._fused)
        others = [each for each in self._opened if each[0] is not model]
        self._opened = [*others, (model, found)][-_SESSIONS:]
        return found

    def _fuses(self) -> bool:
        """Whether the first sample gives the same with nodes fused, up to rounding."""
        if not self.samples.names:
            return False
        feed = read_feed(self.model, self.samples, 0)
        try:
            found = [
                open_session(self.model, threads=self._threads, optimize=True, fused=fused).run(feed)
                for fused in (False, True)
            ]
        except ModelFailed:
            return False
        return all(
            isinstance(plain, np.ndarray) and agreement_db(plain, fused) >= FUSED_AGREEMENT_DB
            for plain, fused in zip(*found, strict=True)
        )

    def _room(self) -> int:
        """How many samples may run together: none where the first two together differ from each alone."""
        if not takes_batches(self.model) or len(self.samples.names) < _TRIED_SAMPLES:
            return 1
        feeds = [read_feed(self.model, self.samples, index) for index in range(_TRIED_SAMPLES)]
        if any(array.ndim == 0 or array.shape != feeds[1][name].shape for name, array in feeds[0].items()):
            return 1
        shapes = {name: array.shape for name, array in feeds[0].items()}
        largest = max((value.size_bytes for value in values(self.model, shapes)), default=0) or 1
        session = self._session(self.model)
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
