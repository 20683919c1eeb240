"""Running a quantized model over samples piece by piece, so that what was just corrected is seen by what follows.

Each node runs once per sample, however many corrections there are: between two pieces the tensors that are still
needed are kept, in memory as far as that is allowed and in files beyond.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer
from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, Reading
from roundoff.graph.cutting import ModelBlock
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants
from roundoff.graph.wiring import reads
from roundoff.quantize.steps import StepContext
from roundoff.run.bench import spread
from roundoff.run.blocks.chain import TensorStore
from roundoff.run.budget import memory_limit
from roundoff.run.capture import complete_values, read_feed
from roundoff.run.session import open_session

__all__ = ["SteppedRun"]


class SteppedRun:
    """A model on its way through its nodes, on all samples at once.

    Attributes:
        samples: Numbers of the samples it runs on.

    Args:
        model: The model.
        context: Where the samples are, and how much may be taken.
        stops: Tensors that will be looked at.
        most: Samples at most; of more, evenly spaced ones are taken.

    Raises:
        BadInput: The first sample does not fit the model.
    """

    samples: tuple[int, ...]

    def __init__(self, model: Model, context: StepContext, *, stops: Sequence[str], most: int) -> None:
        self._model, self._context = model, context
        self.samples = spread(len(context.samples.names), most)
        feed = read_feed(model, context.samples, 0)
        known = values(model, {name: array.shape for name, array in feed.items()})
        graph = model.proto.graph
        constant = derived_constants(graph)
        self._nodes = [node for node in graph.node if not (set(filter(None, node.output)) <= constant)]
        self._blocks = BlockModels(model, complete_values(model, known, feed, threads=context.threads))
        self._constants = constant | {tensor.name for tensor in graph.initializer}
        self._place = {name: at for at, node in enumerate(self._nodes) for name in node.output if name}
        self._last_use = {name: at for at, node in enumerate(self._nodes) for name in reads(node)}
        self._pending = list(stops)
        self._position = 0
        self._limit = memory_limit(context.max_memory, share=0.5)
        self._store = TensorStore(self._limit)
        self._held: set[str] = set()
        self._shifts: dict[str, Array] = {}
        for index in self.samples:
            for name, array in read_feed(model, context.samples, index).items():
                self._held.add(name)
                self._store.put(index, name, array)

    def advance(self, stop: str, readings: Mapping[Consumer, Reading] | None = None) -> None:
        """Run all samples up to where a tensor is computed.

        Args:
            stop: The tensor; stops are to be asked for in execution order.
            readings: What node inputs read instead of what the model says.

        Raises:
            ModelFailed: The model cannot be run.
        """
        end = max(self._place.get(stop, -1) + 1, self._position)
        piece = self._nodes[self._position : end]
        if piece:
            self._run(piece, end, readings or {})
        self._pending = [name for name in self._pending if name != stop]
        self._position = end

    def read(self, index: int, tensor: str) -> Array:
        """Values of a tensor in a sample; one that was computed last, or that is still needed."""
        held = self._store.get(index, tensor)
        shift = self._shifts.get(tensor)
        return held if shift is None else np.asarray(held + shift).astype(held.dtype)

    def shift(self, tensor: str, change: Array) -> None:
        """Add something to a tensor in all samples."""
        self._shifts[tensor] = change

    def __enter__(self) -> "SteppedRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()

    def _run(self, piece: Sequence[Any], end: int, readings: Mapping[Consumer, Reading]) -> None:
        made = {name for node in piece for name in node.output if name}
        read = {name for node in piece for name in reads(node)} - self._constants - made
        needed = {name for name in (*made, *self._held) if self._last_use.get(name, -1) >= end}
        needed |= (made | self._held) & set(self._pending)
        block = ModelBlock(
            tuple(node.name for node in piece), tuple(sorted(read)), tuple(sorted(made & needed)), 0.0
        )
        session = open_session(self._blocks.make(block, readings), threads=self._context.threads)
        kept = TensorStore(self._limit)
        for index in self.samples:
            feed = {name: self.read(index, name) for name in block.reads}
            computed = session.run(feed, sample=self._context.samples.names[index])
            for name, array in zip(block.writes, computed, strict=True):
                kept.put(index, name, array)
            for name in sorted(needed & self._held):
                kept.put(index, name, self.read(index, name))
        self._store.close()
        self._store, self._held = kept, needed
        self._shifts = {}
