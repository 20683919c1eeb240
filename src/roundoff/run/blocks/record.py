"""The base run on some samples, kept at the cuts, so that changes can be run from where they act."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.blocks import leave
from roundoff.graph.cutting import Tail
from roundoff.graph.load import Model
from roundoff.run.blocks.chain import Chunk, TensorStore, even_chunks, read_chunks
from roundoff.run.blocks.network import BlockNetwork, OpenedChange
from roundoff.run.capture import Samples

__all__ = [
    "Recorded",
    "Recording",
]

_FLOAT = "float:"
_LOOK_UP_S = 0.1
# Values compared before all of them: what differs at all mostly differs here.
_PREFIX = 256


@dataclass(frozen=True, slots=True)
class Recorded:
    """A chunk of samples without its values.

    Attributes:
        samples: Their indices.
        label: The samples in words.
        digest: A hash of the values of each.
    """

    samples: tuple[int, ...]
    label: str
    digest: tuple[str, ...]


class Recording:
    """Activations of the base at the cuts, and what the float model gives.

    Args:
        network: The blocks.
        starts: Blocks that changes will start from. Activations before later ones are kept if there is memory, so
            that a change that has vanished on the way is noticed.
        tails: Parts of blocks that changes may start from instead, if what is live there fits in memory.
        folder: Where activations go that exceed the memory; the system's place for temporary files by default.

    Attributes:
        chunks: The samples.
        store: What is kept.
    """

    chunks: list[Recorded]
    store: TensorStore

    def __init__(
        self,
        network: BlockNetwork,
        starts: Collection[int],
        *,
        tails: Collection[Tail] = (),
        folder: Path | None = None,
    ) -> None:
        self._network = network
        self._starts = frozenset(starts)
        self._tails: dict[int, set[str]] = {}
        for tail in tails:
            self._tails.setdefault(tail.index, set()).update(tail.live)
        self.chunks = []
        self.store = TensorStore(network.room.store_bytes, folder)

    def record(
        self,
        model: Model,
        samples: Samples,
        indices: Sequence[int],
        *,
        on_chunk: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Run the base on samples.

        Args:
            model: The float model.
            samples: The samples.
            indices: Which of them.
            on_chunk: Called after each chunk with the number of its samples.

        Raises:
            BadInput: A sample cannot be read or does not fit, or there is no room for what is kept.
            ModelFailed: The model failed on a sample.
        """
        room = self._network.room
        most = even_chunks(len(indices), most=room.together, workers=room.workers)
        waiting: set[Future[int]] = set()
        with ThreadPoolExecutor(room.workers, thread_name_prefix="record") as pool:
            try:
                for chunk in read_chunks(model, samples, indices, most=most):
                    waiting.add(pool.submit(self._record, len(self.chunks), chunk))
                    self.chunks.append(Recorded(chunk.samples, chunk.label, chunk.digest))
                    while len(waiting) > room.workers:
                        waiting = _drained(waiting, on_chunk)
                while waiting:
                    waiting = _drained(waiting, on_chunk)
            except BaseException:
                self._network.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def references(self, number: int) -> list[Array]:
        """The wanted tensors of a chunk as the float model computes them."""
        prefix = "" if self._network.references is self._network.recorder else _FLOAT
        return [self.store.get(number, prefix + name) for name in self._network.cutting.wanted]

    def nonfinite_outputs(self) -> dict[str, None]:
        """The wanted tensors, as keys, that hold NaN or infinite values as the float model computes them."""
        wanted = self._network.cutting.wanted
        named = [
            each
            for number in range(len(self.chunks))
            for each in zip(wanted, self.references(number), strict=True)
        ]
        return dict.fromkeys(name for name, array in named if not np.isfinite(array).all())

    def holds(self, tail: Tail | None) -> bool:
        """Whether changes can start from a tail in all chunks."""
        numbers = range(len(self.chunks))
        return tail is not None and all((number, name) in self.store for number in numbers for name in tail.live)

    def outputs(self, number: int, opened: OpenedChange) -> list[Array]:
        """The wanted tensors of a chunk with a change, from `BlockNetwork.open`.

        Raises:
            ModelFailed: A block failed.
        """
        found: Mapping[str, Array] = {}
        change = opened.change
        if change.blocks:
            chain = self._network.recorder if opened.plain else self._network.runner
            found = chain.chain.run(
                {name: self.store.get(number, name) for name in opened.live},
                first=change.blocks[0],
                changed=opened.blocks,
                at_cut=lambda index, there: index > change.blocks[-1] and self._is_base(number, index, there),
                sample=self.chunks[number].label,
            )
        return [
            leave(
                found[name] if name in found else self.store.get(number, name),
                change.switched.leaving.get(name, ()),
            )
            for name in self._network.cutting.wanted
        ]

    def close(self) -> None:
        """Forget everything."""
        self.store.close()

    def _is_base(self, number: int, index: int, there: Mapping[str, Array]) -> bool:
        """Whether all that is live before a block is as in the base, bit for bit, so that the rest will be too."""
        live = self._network.cutting.live
        return index < len(live) and all(
            (number, name) in self.store and _same(there[name], self.store.get(number, name))
            for name in live[index]
        )

    def _record(self, number: int, chunk: Chunk) -> int:
        network, live = self._network, self._network.cutting.live

        # What is live before a block that changes start from must be kept, on disk if need be. Before others it
        # only tells that a change has vanished on the way, and is kept while there is memory to spare.
        def keep(index: int, tensors: Mapping[str, Array]) -> bool:
            if index < len(live) and index >= min(self._starts, default=index + 1):
                for name in live[index]:
                    self.store.put(number, name, tensors[name], needed=index in self._starts)
            for name in self._tails.get(index - 1, ()):
                self.store.put(number, name, tensors[name], needed=False)
            return False

        keep(0, chunk.feed)
        found = network.recorder.chain.run(chunk.feed, at_cut=keep, sample=chunk.label)
        self._keep_outputs(number, "", {**chunk.feed, **found})
        if network.references is not network.recorder:
            found = network.references.chain.run(chunk.feed, sample=chunk.label)
            self._keep_outputs(number, _FLOAT, {**chunk.feed, **found})
        return len(chunk.samples)

    def _keep_outputs(self, number: int, prefix: str, tensors: Mapping[str, Array]) -> None:
        for name in self._network.cutting.wanted:
            self.store.put(number, prefix + name, tensors[name])


def _same(left: Array, right: Array) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    left, right = left.reshape(-1), right.reshape(-1)
    return np.array_equal(left[:_PREFIX], right[:_PREFIX]) and np.array_equal(left, right)


def _drained(waiting: set[Future[int]], on_chunk: Callable[[int], None]) -> set[Future[int]]:
    """Those that are still running after a while; what the others raise is raised."""
    done, left = wait(waiting, timeout=_LOOK_UP_S, return_when=FIRST_COMPLETED)
    for future in done:
        on_chunk(future.result())
    return left
