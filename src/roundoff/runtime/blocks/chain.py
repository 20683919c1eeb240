"""A model as a row of sessions, one for each block; any of them can be replaced for a run."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from roundoff.core.tensors import Array
from roundoff.graph.cutting import Cutting
from roundoff.graph.load import Model
from roundoff.graph.tap import detached
from roundoff.runtime.session import Session, available_threads, open_session

__all__ = ["BlockChain", "BlockSession"]


@dataclass(frozen=True, slots=True)
class BlockSession:
    """A block that is ready to run.

    Attributes:
        session: What runs it.
        reads: Tensors it takes.
        writes: Tensors it gives, in the order of the session.
    """

    session: Session
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class BlockChain:
    """The sessions of a model's blocks. Several threads may run it at a time.

    Args:
        models: The model of each block; it may give more than what later blocks read.
        cutting: How the whole model is cut.
        fused: Let onnxruntime fuse nodes; see `open_session`.
        threads: Threads per node.

    Raises:
        ModelFailed: onnxruntime does not accept a block.
    """

    def __init__(self, models: Sequence[Model], cutting: Cutting, *, fused: bool, threads: int) -> None:
        self._cutting = cutting
        self._fused, self._threads = fused, threads
        with ThreadPoolExecutor(available_threads(), thread_name_prefix="open") as pool:
            self._blocks = list(pool.map(self.open, models))

    def open(self, model: Model) -> BlockSession:
        """A block of the same kind, opened for a while.

        Raises:
            ModelFailed: onnxruntime does not accept it.
        """
        taps = detached(model)
        session = open_session(model, outputs=taps, fused=self._fused, threads=self._threads, keep_memory="shared")
        return BlockSession(session, tuple(value.name for value in model.proto.graph.input), taps.outputs)

    def block(self, index: int) -> BlockSession:
        """One of its blocks."""
        return self._blocks[index]

    def run(
        self,
        tensors: Mapping[str, Array],
        *,
        first: int = 0,
        changed: Mapping[int, BlockSession] | None = None,
        at_cut: Callable[[int, Mapping[str, Array]], bool] | None = None,
        sample: str = "",
    ) -> dict[str, Array]:
        """Run from a block to the end.

        Args:
            tensors: What is live before that block.
            first: The block to begin with.
            changed: What to run instead of some blocks.
            at_cut: Given the number of the next block, also after the last one, and all tensors that are there;
                true to stop there.
            sample: What the user calls the samples; for messages.

        Returns:
            The wanted tensors that were computed.

        Raises:
            ModelFailed: onnxruntime could not compute a block.
        """
        cutting, other = self._cutting, changed or {}
        there, wanted = dict(tensors), set(cutting.wanted)
        found: dict[str, Array] = {}
        for index in range(first, len(cutting.blocks)):
            block = other.get(index, self._blocks[index])
            results = block.session.run({name: there[name] for name in block.reads}, sample=sample)
            given = dict(zip(block.writes, results, strict=True))
            found |= {name: values for name, values in given.items() if name in wanted}
            there |= given
            if at_cut is not None and at_cut(index + 1, there):
                break
            if index + 1 < len(cutting.blocks):
                there = {name: there[name] for name in cutting.live[index + 1]}
        return found

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        for block in self._blocks:
            block.session.stop()
