"""A quantized model cut into blocks, ready to run with any of its quantizers switched."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.blocks import (
    BlockPartition,
    BlockVariants,
    Demand,
    ModelBlock,
    Switched,
    Tail,
    cut_model,
)
from roundoff.graph.insertion import Edges
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import FakeConstants, QuantizedModel, after_quantizers, chain_of
from roundoff.graph.shapes import Value, values
from roundoff.graph.units import derived_constants
from roundoff.messages.message import Message, english
from roundoff.run.block_chain import (
    FUSED_AGREEMENT_DB,
    BlockSession,
    Chunk,
    Outputs,
    TensorStore,
    even_chunks,
    open_chain,
    open_copy,
    plain_outputs,
    read_chunks,
    takes_batches,
)
from roundoff.run.budget import RunBudget, memory_limit, over_budget
from roundoff.run.capture import Samples, complete_values
from roundoff.run.session import available_threads

# Samples are run together as long as what one node reads and writes of all of them takes no more than this.
_TOGETHER_BYTES = 24 << 20
_MOST_TOGETHER = 32
# Of what is allowed; the rest is for gaps between what comes and goes.
_USABLE = 0.75
# What a run holds at a time, in units of what its largest node reads and writes.
_RUN_FACTOR = 4


BlockArithmetic = Literal["fast", "precise", "plain"]
"""plain: node by node, as the graph says. fast: with onnxruntime's fused kernels, which differ in the last bits,
so that a quantizer may round a few values to the other side. precise: plain up to where a change comes out of its
blocks, so that quantizers round what they round in the plain graph; fused below, where nothing is rounded."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How to cut and run a model.

    Attributes:
        wanted: The tensors to compare.
        base: What activations are kept of: the float model, or the fully quantized one.
        changes: How many changes act on each node; see `Demand`.
        samples: How many samples each change will be run on.
        arithmetic: How it is run; see `BlockArithmetic`. From a quantized base it is run plain: below a
            change everything is rounded again, and the last bits decide where to.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        blocks: How many blocks; by default what is best.
    """

    wanted: tuple[str, ...]
    base: Literal["float", "quantized"] = "float"
    changes: Mapping[str, float] | None = None
    samples: int = 1
    arithmetic: BlockArithmetic = "fast"
    threads: int | None = None
    max_memory: int | None = None
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What may be used at a time.

    Attributes:
        together: Samples that are run together.
        workers: Runs side by side, each on one core.
        store_bytes: Memory for activations.
    """

    together: int
    workers: int
    store_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class BlockChange:
    """Which quantizers are on, and where that differs from the base.

    Attributes:
        switched: All quantizers that are on.
        blocks: Blocks that are not what they are in the base, in order.
        tail: What must be run of the first of them; None for all of it.
        rounds: Whether quantizers round anything in them when they run; constants are rounded before.
        cascades: Whether what is rounded depends on the change itself, not only on the base.
    """

    switched: Switched
    blocks: tuple[int, ...]
    tail: Tail | None
    rounds: bool
    cascades: bool


@dataclass(frozen=True, slots=True, eq=False)
class OpenedChange:
    """A change that is ready to run.

    Attributes:
        change: The change.
        blocks: What to run instead of the base's blocks.
        live: What must be there before the first of them.
        plain: Whether no kernels are fused, also in the blocks below.
    """

    change: BlockChange
    blocks: Mapping[int, BlockSession]
    live: tuple[str, ...]
    plain: bool

    def stop(self) -> None:
        """End the runs of its blocks that are under way."""
        for block in self.blocks.values():
            block.session.stop()


class BlockNetwork:
    """The blocks of a quantized model, with open sessions of the base.

    Args:
        quantized: The model.
        feeds: A few samples of equal shapes; the model is tried out on them.
        settings: How to cut and run it.

    Attributes:
        cutting: The blocks.
        arithmetic: How it is run.
        recorder: The sessions of the base that activations are kept of.
        runner: The sessions of the base that are run below changed blocks; the same unless precise.
        references: The sessions of the float model whose outputs are compared with; the recorder if that is float.
        room: How much is run at a time.
        constant: Wanted tensors that are the same in every run, and are not compared.

    Raises:
        BadInput: The quantizers do not fit the model, no wanted tensor can be compared, or memory is too small.
        ModelFailed: The model cannot be run.
    """

    def __init__(
        self, quantized: QuantizedModel, feeds: Sequence[Mapping[str, Array]], settings: NetworkSettings
    ) -> None:
        model, quantizers = quantized.float_model, quantized.quantizers
        Edges(model, quantizers)
        shapes = {name: array.shape for name, array in feeds[0].items()}
        everything = complete_values(model, values(model, shapes), feeds[0], threads=settings.threads)
        known = derived_constants(model.proto.graph)
        self.constant = tuple(name for name in settings.wanted if name in known)
        wanted = tuple(name for name in settings.wanted if name not in known)
        _check_comparable(model, everything, wanted)
        self._quantizers, self._everything = quantizers, everything
        self._constants = FakeConstants(model)
        self._cut(model, feeds, replace(settings, wanted=wanted))
        if not self.recorder.fused and self.recorder.agreement_db < math.inf and len(self.cutting.blocks) > 1:
            # Such as float16 models, of which onnxruntime computes some parts in float32: uncut it is the same.
            self._cut(model, feeds, replace(settings, wanted=wanted, blocks=1))
        chains = (self.recorder, self.runner, self.references)
        possible = all(chain.together for chain in chains) and takes_batches(model)
        possible = possible and not _splits_samples(quantizers, everything, known)
        copies = len({id(chain) for chain in chains})
        self.room = _plan_room(model, everything, settings, possible=possible, copies=copies)

    def _cut(self, model: Model, feeds: Sequence[Mapping[str, Array]], settings: NetworkSettings) -> None:
        self.cutting: BlockPartition = cut_model(
            model,
            self._everything,
            wanted=settings.wanted,
            demand=Demand(
                changes=settings.changes,
                samples=settings.samples,
                tail_bytes=_spare_bytes(model, settings) // 2 // settings.samples,
            ),
            blocks=settings.blocks,
        )
        self._variants = BlockVariants(model, self.cutting, self._everything, constants=self._constants)
        self._in_blocks = frozenset(node for block in self.cutting.blocks for node in block.nodes)
        self._position = {node.name: at for at, node in enumerate(model.proto.graph.node)}
        self._made = {name: at for at, node in enumerate(model.proto.graph.node) for name in node.output}
        self._signatures: dict[int, Mapping[Consumer, tuple[str, ...]]] = {}
        self.base = self._variants.switch(self._quantizers if settings.base == "quantized" else ())
        self._open_chains(model, feeds, settings)

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the user should know of how the model is run."""
        return tuple(dict.fromkeys((*self.runner.notes, *self.recorder.notes, *self.references.notes)))

    def reaches(self, quantizers: Iterable[Quantizer]) -> bool:
        """Whether a wanted tensor depends on any of these quantizers."""
        switched = self._variants.switch(quantizers)
        return bool(switched.inside or switched.leaving)

    def change(self, quantizers: Iterable[Quantizer]) -> BlockChange:
        """What it changes to have these quantizers on and no others."""
        switched = self._variants.switch(quantizers)
        # A block differs from the base where a node input reads through other quantizers. Those that leave their
        # constant as it is do not count: weights of a model that was read quantized may be on their grid already.
        places = sorted({*switched.inside, *self.base.inside})
        changed = tuple(
            index for index in places if self._signature(switched, index) != self._base_signature(index)
        )
        # Of the first block only what comes from its first differing node on has to run, if all that is live there
        # was kept. Later blocks run whole: what comes in is no longer what was kept.
        nodes = self._differing(switched, changed[0]) if changed else frozenset()
        first = min(nodes, key=self._position.__getitem__, default="")
        begin = self._position.get(first, 0)
        # Fused kernels differ in the last bits, and a quantizer turns that into a whole step. What it rounds is
        # that of the plain graph where plain kernels recorded it; it cascades where it depends on the change.
        rounded = self._variants.rounded(switched, changed)
        return BlockChange(
            switched,
            changed,
            tail=self.cutting.tails.get(first) if nodes <= self._in_blocks else None,
            rounds=bool(rounded),
            cascades=any(self._made.get(tensor, -1) >= begin for tensor in rounded),
        )

    def open(self, change: BlockChange, *, tail: bool = False, plain: bool = False) -> OpenedChange:
        """Get a change ready to run.

        Args:
            change: The change.
            tail: Run of its first block only what must be run; what is live there must have been kept.
            plain: Without fused kernels, whatever the arithmetic; not if that is fast.

        Raises:
            BadInput: ONNX has no operators for one of its quantizers.
            ModelFailed: onnxruntime does not accept one of the blocks.
        """
        part = change.tail if tail else None
        # What is rounded must come from plain kernels; from a tail on it does, unless it depends on the change.
        exact = plain or (change.cascades if part is not None else change.rounds)
        chain = (self.recorder if exact else self.runner).chain
        # Blocks between two changed ones run as in the base, but by the same kind of kernels as these.
        between = range(change.blocks[0], change.blocks[-1]) if change.blocks else ()
        blocks = {index: chain.block(index) for index in between}
        for index in change.blocks:
            own = part.block if part is not None and index == part.index else None
            blocks[index] = chain.open(self._variants.model(index, change.switched, part=own))
        live = () if not change.blocks else self.cutting.live[change.blocks[0]] if part is None else part.live
        return OpenedChange(change, blocks, live, plain)

    def stop(self) -> None:
        """End all runs that are under way."""
        for chain in (self.recorder, self.runner, self.references):
            chain.chain.stop()

    def _signature(self, switched: Switched, index: int) -> Mapping[Consumer, tuple[str, ...]]:
        """Which quantizers act on each node input of a block, without those that change nothing."""
        found = {}
        for consumer, quantizer in switched.inside.get(index, {}).items():
            chain = chain_of(quantizer, switched.by_name)
            if len(chain) > 1 or not self._variants.changes_nothing(quantizer):
                found[consumer] = tuple(each.name for each in chain)
        return found

    def _differing(self, switched: Switched, index: int) -> frozenset[str]:
        """Nodes of a block that read something else than in the base."""
        own, base = self._signature(switched, index), self._base_signature(index)
        return frozenset(consumer.node for consumer in {**own, **base} if own.get(consumer) != base.get(consumer))

    def _base_signature(self, index: int) -> Mapping[Consumer, tuple[str, ...]]:
        if index not in self._signatures:
            self._signatures[index] = self._signature(self.base, index)
        return self._signatures[index]

    def _open_chains(self, model: Model, feeds: Sequence[Mapping[str, Array]], settings: NetworkSettings) -> None:
        # The whole model runs beside the opening of its blocks.
        with ThreadPoolExecutor(1, thread_name_prefix="whole") as beside:
            expected = beside.submit(self._plain, model, feeds).result
            blocks = [self._variants.model(index) for index in range(len(self.cutting.blocks))]
            may_fuse = settings.arithmetic != "plain" and settings.base == "float"
            limit = FUSED_AGREEMENT_DB if may_fuse else None
            self.runner = open_chain(blocks, self.cutting, feeds, expected, fuse_above_db=limit)
            self.arithmetic: BlockArithmetic = settings.arithmetic if self.runner.fused else "plain"
            self.references = self.recorder = self.runner
            if settings.base == "quantized":
                uncut = cut_model(model, self._everything, wanted=self.cutting.wanted, blocks=1)
                whole = BlockVariants(model, uncut, self._everything, constants=self._constants)
                quantized = whole.model(0, whole.switch(self._quantizers))
                expected = beside.submit(self._plain, quantized, feeds).result
                blocks = [self._variants.model(index, self.base) for index in range(len(self.cutting.blocks))]
                self.recorder = self.runner = open_chain(blocks, self.cutting, feeds, expected, fuse_above_db=None)
            if self.arithmetic == "precise" or self.cutting.tails:
                parts = [self._tapped(index) for index in range(len(blocks))]
                tapped = [self._variants.model(index, self.base, part=part) for index, part in enumerate(parts)]
                if self.arithmetic == "precise":
                    self.recorder = open_chain(tapped, self.cutting, feeds, expected, fuse_above_db=None)
                else:
                    self.recorder = open_copy(tapped, self.cutting, self.runner)
                if settings.base == "float":
                    self.references = self.recorder

    def _tapped(self, index: int) -> ModelBlock:
        """A block that also gives what is live before the nodes that changes begin with."""
        block = self.cutting.blocks[index]
        before = frozenset(self.cutting.live[index])
        more = dict.fromkeys(
            name for tail in self.cutting.tails.values() if tail.index == index for name in tail.live
        )
        return replace(
            block, writes=(*block.writes, *(name for name in more if name not in before | {*block.writes}))
        )

    def _plain(self, model: Model, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs]:
        computed = {name for block in self.cutting.blocks for name in block.writes}
        names = [name for name in self.cutting.wanted if name in computed]
        return plain_outputs(model, names, feeds)


def _check_comparable(model: Model, everything: Sequence[Value], wanted: Sequence[str]) -> None:
    if not wanted:
        what = english(
            "Every output of {path} that is to be compared is the same whatever the model is fed.", path=model.path
        )
        raise BadInput(what, fix=english("name other tensors with --output-node"))
    kinds = {value.name: value for value in everything}
    for name in wanted:
        value = kinds[name]
        element = value.element
        if value.obstacle() or (element is not None and element.widened != element.dtype):
            reason = value.obstacle() or english(
                "its values are {dtype}", dtype=element.dtype if element else english("unknown")
            )
            raise BadInput(
                english("{name!r} cannot be compared: {reason}.", name=name, reason=reason),
                fix=english("name other tensors with --output-node"),
            )


def _splits_samples(quantizers: Sequence[Quantizer], everything: Sequence[Value], known: frozenset[str]) -> bool:
    """Whether a quantizer has one scale per slice of the axis along which samples are put together."""
    ranks = {value.name: len(value.shape) for value in everything if value.shape is not None}
    return any(
        each.params.scale.ndim > 0
        and each.spec.axis is not None
        and each.tensor not in known
        and each.spec.axis in (0, -ranks.get(each.tensor, 0))
        for each in quantizers
    )


def _spare_bytes(model: Model, settings: NetworkSettings, *, copies: int = 3) -> int:
    """Memory for tensors: what is left beside the program and so many copies of the weights."""
    budget = RunBudget(settings.threads, settings.max_memory).settled()
    # Those of blocks that are opened for a change come and go.
    return int(budget.room(3 * model.file_bytes + (copies + 2) * model.weight_bytes) * _USABLE)


def _plan_room(
    model: Model, everything: Sequence[Value], settings: NetworkSettings, *, possible: bool, copies: int
) -> Room:
    """How many samples are run together and side by side within the memory there is.

    Args:
        model: The whole model.
        everything: Its tensors.
        settings: How much memory and how many threads there are.
        possible: Whether samples may be run together.
        copies: How many sessions hold each weight.
    """
    sizes = {value.name: value.size_bytes for value in everything}
    largest = max(
        (sum(sizes.get(name, 0) for name in {*node.input, *node.output}) for node in model.proto.graph.node),
        default=0,
    )
    left = _spare_bytes(model, settings, copies=copies)
    run_bytes = max(1, _RUN_FACTOR * largest)
    if left < run_bytes:
        limit = memory_limit(settings.max_memory)
        raise over_budget(
            english("Running {path}", path=model.path), limit + (run_bytes - left) / _USABLE, limit=limit
        )
    threads = settings.threads or available_threads()
    workers = min(threads, max(1, left // 2 // run_bytes))
    together = min(_MOST_TOGETHER, max(1, _TOGETHER_BYTES // max(1, largest))) if possible else 1
    together = min(together, max(1, left // 2 // (workers * run_bytes)))
    return Room(together, workers, max(0, left - workers * together * run_bytes))


# What the base computes of the samples, kept at the cuts.


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
            after_quantizers(
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
