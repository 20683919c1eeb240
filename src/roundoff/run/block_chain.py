"""A model as a row of sessions, one for each block; any of them can be replaced for a run."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from roundoff.core.array_files import map_array
from roundoff.core.claims import ScratchFolder
from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.blocks import MOST_BLOCKS, BlockPartition, BlockVariants, Demand, Switched, cut_model
from roundoff.graph.load import Model
from roundoff.graph.nodes import subgraphs
from roundoff.graph.quantized_model import after_quantizers, chain_of
from roundoff.graph.shapes import Value, declared_types
from roundoff.graph.subgraph import detached, tap
from roundoff.graph.units import derived_constants
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import format_size
from roundoff.run.capture import Samples, read_feed
from roundoff.run.session import Session, available_threads, interruptible, open_session
from roundoff.run.tunable import is_tunable, make_tunable, structure, tuned_feed


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

    def __init__(self, models: Sequence[Model], cutting: BlockPartition, *, fused: bool, threads: int) -> None:
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


# Samples in chunks that are run at a time.


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Samples that are run together, one after the other along the first axis of every input.

    Attributes:
        samples: Their indices.
        names: What the user calls them.
        feed: The inputs.
    """

    samples: tuple[int, ...]
    names: tuple[str, ...]
    feed: Mapping[str, Array]

    @property
    def digest(self) -> tuple[str, ...]:
        """A hash of the values of each sample, the same whatever samples it is put together with."""
        count = len(self.samples)
        if count == 1:
            return (feed_digest(self.feed),)
        parts = {name: np.split(array, count) for name, array in self.feed.items()}
        return tuple(feed_digest({name: split[at] for name, split in parts.items()}) for at in range(count))

    @property
    def label(self) -> str:
        """The samples in words, for messages."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} ... {self.names[-1]}"


def read_chunks(
    model: Model,
    samples: Samples,
    indices: Sequence[int],
    *,
    most: int = 1,
    read: Callable[[int], Mapping[str, Array]] | None = None,
) -> Iterator[Chunk]:
    """Read samples and put neighbours of equal shapes together.

    Args:
        model: What they are for.
        samples: The samples.
        indices: Which of them, in this order.
        most: How many may be put together.
        read: Reads one of them, where somebody keeps them.

    Raises:
        BadInput: One cannot be read, or does not fit the model.
    """
    waiting: list[tuple[int, Mapping[str, Array]]] = []
    for index in indices:
        feed = read_feed(model, samples, index) if read is None else read(index)
        if waiting and (len(waiting) >= most or not _alike(waiting[0][1], feed)):
            yield _chunk(waiting, samples)
            waiting = []
        waiting.append((index, feed))
    if waiting:
        yield _chunk(waiting, samples)


def even_chunks(samples: int, *, most: int, workers: int) -> int:
    """How many samples to put together so that all workers are done at the same time.

    Args:
        samples: How many there are.
        most: How many may be put together.
        workers: How many chunks are run side by side.
    """
    rounds = math.ceil(samples / (most * workers))
    return max(1, math.ceil(samples / max(1, rounds * workers)))


def stack_feeds(feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Feeds of equal shapes as one."""
    if len(feeds) == 1:
        return {name: np.asarray(array, order="C") for name, array in feeds[0].items()}
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def rows_of(array: Array, count: int) -> Array:
    """What belongs to each of so many samples: the same values in the shape (samples, elements of each)."""
    return array.reshape(count, array.size // count)


def _alike(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
    return all(array.ndim > 0 and array.shape == right[name].shape for name, array in left.items())


def _chunk(waiting: Sequence[tuple[int, Mapping[str, Array]]], samples: Samples) -> Chunk:
    indices = tuple(index for index, _ in waiting)
    return Chunk(
        samples=indices,
        names=tuple(samples.names[index] for index in indices),
        feed=stack_feeds([feed for _, feed in waiting]),
    )


def feed_digest(feed: Mapping[str, Array]) -> str:
    """What tells one feed from any other."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(feed):
        array = np.asarray(feed[name], order="C")
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


# Tensors kept for later: in memory as far as that is allowed, the rest in files of a temporary folder.

# Smaller ones are not worth a file.
_SMALL_BYTES = 4096


class TensorStore:
    """Keeps tensors under a number (of a chunk of samples) and a name. Safe to use from threads.

    Args:
        limit: Bytes to keep in memory.
        folder: Where the temporary folder is made; the system's place for such by default.

    Attributes:
        memory_bytes: Bytes in memory.
        disk_bytes: Bytes in files.
    """

    memory_bytes: int
    disk_bytes: int

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        self._limit = limit
        self._parent = folder
        self._folder: ScratchFolder | None = None
        self._held: dict[tuple[int, str], Array] = {}
        self._paths: dict[tuple[int, str], Path] = {}
        self._lock = Lock()
        self._files = 0
        self.memory_bytes = self.disk_bytes = 0

    def put(self, number: int, name: str, values: Array, *, needed: bool = True) -> None:
        """Keep a tensor, unless it is kept already; what is not needed, only while half of the memory is free.

        Raises:
            BadInput: It has to go to a file, and cannot be written.
        """
        key = number, name
        with self._lock:
            if key in self._held:
                return
            limit = self._limit if needed else self._limit // 2
            in_memory = values.nbytes <= _SMALL_BYTES or self.memory_bytes + values.nbytes <= limit
            if in_memory:
                self.memory_bytes += values.nbytes
            elif not needed:
                return
            else:
                path = self._paths[key] = self._next_path()
                self.disk_bytes += values.nbytes
        # A view would keep alive what it is a part of, such as all that a session took for a run.
        kept = np.array(values) if in_memory else self._write(path, values)
        with self._lock:
            self._held[key] = kept

    def get(self, number: int, name: str) -> Array:
        """A tensor that was kept; what is in a file is mapped.

        Raises:
            KeyError: It was not kept.
        """
        return self._held[number, name]

    def drop(self, number: int, name: str) -> None:
        """Forget a tensor, and delete its file if it has one."""
        with self._lock:
            size, path = self._held.pop((number, name)).nbytes, self._paths.pop((number, name), None)
        if path is None:
            self.memory_bytes -= size
        else:
            self.disk_bytes -= size
            path.unlink(missing_ok=True)

    def __contains__(self, key: tuple[int, str]) -> bool:
        return key in self._held

    def close(self) -> None:
        """Forget everything and delete the files."""
        self._held.clear()
        self._paths.clear()
        self.memory_bytes = self.disk_bytes = 0
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def __enter__(self) -> "TensorStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_path(self) -> Path:
        if self._folder is None:
            self._folder = ScratchFolder(self._parent)
        self._files += 1
        return self._folder.path / f"{self._files}.bin"

    def _write(self, path: Path, values: Array) -> Array:
        try:
            np.asarray(values, order="C").tofile(path)
            return map_array(path, offset=0, dtype=values.dtype, shape=values.shape)
        except OSError as error:
            size, place, reason = format_size(self.disk_bytes), path.parent.parent, error.strerror or error
            raise BadInput(
                english(
                    "{size} of tensors that do not fit in memory cannot be written to {place}: {reason}.",
                    size=size,
                    place=place,
                    reason=reason,
                ),
                fix=english(
                    "give more memory with --max-memory, fewer samples with --samples, or set TMPDIR to "
                    "a disk with more room than {size}",
                    size=size,
                ),
            ) from error


FUSED_AGREEMENT_DB = 90.0
"""What fused kernels must agree to with plain ones; rounding alone leaves 105 to 140 dB in deep networks."""

# What they give for one sample depends on the others, or has no place for several.
_NOT_BY_SAMPLE = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})

Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class OpenedChain:
    """Sessions of all blocks, and how they may be used.

    Attributes:
        chain: The sessions.
        together: Whether several samples may be run at a time.
        fused: Whether nodes are fused.
        agreement_db: How the outputs agree with those of the whole model, run as the graph says; +inf when equal.
        notes: What the user should know.
    """

    chain: BlockChain
    together: bool
    fused: bool
    agreement_db: float
    notes: tuple[Message, ...] = ()


def plain_outputs(
    model: Model, wanted: Sequence[str], feeds: Sequence[Mapping[str, Array]], *, threads: int = 1
) -> list[Outputs]:
    """Tensors of a model in each sample, run whole, as the graph says, one sample at a time.

    Args:
        model: The model.
        wanted: The tensors.
        feeds: The samples.
        threads: Threads per node; some convolutions of onnxruntime add up in another order with more of them.

    Raises:
        ModelFailed: The model cannot be run.
    """
    session = open_session(model, outputs=tap(model, wanted), threads=threads)
    return [dict(zip(wanted, session.run(feed), strict=True)) for feed in feeds]


def open_chain(
    blocks: Sequence[Model],
    cutting: BlockPartition,
    feeds: Sequence[Mapping[str, Array]],
    expected: Callable[[], Sequence[Outputs]],
    *,
    fuse_above_db: float | None = FUSED_AGREEMENT_DB,
    threads: int = 1,
) -> OpenedChain:
    """Open the blocks of a model.

    Args:
        blocks: The model of each block.
        cutting: How it is cut.
        feeds: A few samples of equal shapes to try it on.
        expected: What `plain_outputs` gives for them; asked for when the blocks are open.
        fuse_above_db: The agreement that fused kernels need; None for plain ones only.
        threads: Threads per node.

    Raises:
        ModelFailed: The model cannot be run.
    """
    notes: list[Message] = []
    if fuse_above_db is not None:
        try:
            fused = _ChainTrial(blocks, cutting, feeds, fused=True, threads=threads)
        except ModelFailed as error:
            notes.append(message("run.fused_fail", why=error.what))
        else:
            reached = fused.agreement(expected())
            if reached >= fuse_above_db and fused.repeats():
                return OpenedChain(fused.chain, fused.takes_batches(least_db=fuse_above_db), True, reached)
            if reached < fuse_above_db:
                notes.append(message("run.fused_differ", db=reached))
    plain = _ChainTrial(blocks, cutting, feeds, fused=False, threads=threads)
    reached = plain.agreement(expected())
    if not plain.repeats():
        notes.append(message("run.not_repeatable"))
    elif reached < math.inf:
        notes.append(message("run.blocks_differ", db=reached))
    return OpenedChain(plain.chain, plain.takes_batches(least_db=math.inf), False, reached, tuple(notes))


def open_copy(
    blocks: Sequence[Model], cutting: BlockPartition, like: OpenedChain, *, threads: int = 1
) -> OpenedChain:
    """Open blocks that compute the same as others which were tried."""
    return replace(like, chain=BlockChain(blocks, cutting, fused=like.fused, threads=threads))


def takes_batches(model: Model) -> bool:
    """Whether nothing in a model forbids to run several samples at a time."""
    nodes: Sequence[Any] = model.proto.graph.node
    return all(node.op_type not in _NOT_BY_SAMPLE and next(subgraphs(node), None) is None for node in nodes)


def agreement_db(reference: Array, candidate: Array) -> float:
    """Energy of a tensor over that of the difference, in decibels; -inf where shapes or infinities differ."""
    if reference.shape != candidate.shape:
        return -math.inf
    if np.array_equal(reference, candidate):
        return math.inf
    if reference.dtype.kind not in "fc":
        return -math.inf
    x, y = reference.astype(np.complex128).ravel(), candidate.astype(np.complex128).ravel()
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(
        reference.ravel()[~finite], candidate.ravel()[~finite], equal_nan=True
    ):
        return -math.inf
    x, y = x[finite], y[finite]
    signal, noise = (float((np.abs(part) ** 2).sum()) for part in (x, x - y))
    return ratio_db(signal, noise)


class _ChainTrial:
    """One way to run the blocks, tried on some samples."""

    def __init__(
        self,
        blocks: Sequence[Model],
        cutting: BlockPartition,
        feeds: Sequence[Mapping[str, Array]],
        *,
        fused: bool,
        threads: int,
    ) -> None:
        self.chain = BlockChain(blocks, cutting, fused=fused, threads=threads)
        self._feeds = feeds
        self._single = [self.chain.run(feed) for feed in feeds]

    def agreement(self, expected: Sequence[Outputs]) -> float:
        return _worst(
            agreement_db(right[name], left[name])
            for left, right in zip(self._single, expected, strict=True)
            for name in right
        )

    def repeats(self) -> bool:
        """Whether the first sample gives the same once more."""
        again = self.chain.run(self._feeds[0])
        return all(agreement_db(values, again[name]) == math.inf for name, values in self._single[0].items())

    def takes_batches(self, *, least_db: float) -> bool:
        """Whether all samples at once give what each gives alone."""
        count = len(self._feeds)
        if count < 2 or any(array.ndim == 0 for array in self._feeds[0].values()):
            return False
        try:
            joined = self.chain.run(stack_feeds(self._feeds))
        except ModelFailed:
            return False
        for name, values in joined.items():
            alone = [outputs[name] for outputs in self._single]
            if values.ndim == 0 or values.shape != (count * alone[0].shape[0], *alone[0].shape[1:]):
                return False
            rows = rows_of(values, count)
            if _worst(agreement_db(one.reshape(-1), row) for one, row in zip(alone, rows, strict=True)) < least_db:
                return False
        return True


def _worst(values: Iterable[float]) -> float:
    return min(values, default=math.inf)


# One network with many choices of quantizers, block by block: what two choices have in common is run once.

# What is live at cuts is kept up to this many bytes, and may be given up when so many networks did not ask for it.
_LIVE_BYTES, _NETWORKS_AGO = 1 << 26, 8
# As many blocks are open at a time, of all networks.
_MOST_OPEN = 4 * MOST_BLOCKS
# So many run in one go where nothing is changed any more.
_IN_ONE_GO = 4
# Samples that a choice is mostly run on.
_USUAL_SAMPLES = 8


@dataclass(frozen=True, slots=True, eq=False)
class SwitchedNetwork:
    """A network with some quantizers on.

    Attributes:
        switched: The quantizers, by where they act.
        acting: For each block what tells its quantizers from all others.
        states: A number for what is computed before each block, and behind the last: the same for two networks
            that are the same up to there.
        cuts: Blocks before which it may be cut, and the number of blocks. Elsewhere something is handed on in
            float, and onnxruntime may compute what is before and behind in one go.
        steps: What runs between two cuts, as far as it was asked for.
    """

    switched: Switched
    acting: tuple[frozenset[Any], ...]
    states: tuple[int, ...]
    cuts: tuple[int, ...]
    steps: "dict[range, tuple[_TunedBlock, dict[str, Array]]]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _TunedBlock:
    session: Session
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    places: Mapping[str, tuple[str, str]]
    held: tuple[Quantizer, ...]  # so that no other has the identity of one of them


_BlockKey: TypeAlias = tuple[range, frozenset[Any]]
"""Blocks that run as one, and the structure of what acts there."""


class SwitchedBlocks:
    """Runs a network with any quantizers on, from the first block that is not as in a network that was run before.

    Cut only behind quantizers, across which onnxruntime fuses nothing, its outputs are those of the whole network,
    bit for bit; cut anywhere, up to the last bits of what is handed on in float.

    Args:
        model: The float network.
        quantizers: Those that are mostly on.
        everything: All its tensors, with their types and shapes.
        wanted: What it is run for.
        fused: Let onnxruntime fuse nodes.
        anywhere: Cut it wherever that serves, for networks that are in float but for a few places.
        threads: Threads per node.

    Attributes:
        useful: Whether there is more than one block, and together they compute all that the network does: a tensor
            that nobody wants may keep nodes from being fused.
    """

    def __init__(  # noqa: PLR0913 - a network, how it is cut, and how it runs
        self,
        model: Model,
        quantizers: Sequence[Quantizer],
        everything: Sequence[Value],
        *,
        wanted: Sequence[str],
        fused: bool,
        anywhere: bool = False,
        threads: int | None = None,
    ) -> None:
        behind = {place for each in quantizers if is_tunable(each) for place in each.consumers}
        cutting = cut_model(
            model,
            everything,
            wanted=wanted,
            demand=Demand(samples=_USUAL_SAMPLES),
            behind=None if anywhere else behind,
        )
        self._cutting, self._fused, self._threads, self._anywhere = cutting, fused, threads, anywhere
        self._variants = BlockVariants(model, cutting, everything, types=declared_types(model))
        block_of = {node: index for index, block in enumerate(cutting.blocks) for node in block.nodes}
        known = derived_constants(model.proto.graph)
        left = {name for node in model.proto.graph.node if node.name not in block_of for name in node.output}
        made = {name for block in cutting.blocks for name in block.writes}
        self.useful = len(cutting.blocks) > 1 and made.issuperset(wanted) and known.issuperset(left)
        self._readers: list[set[Consumer]] = [set() for _ in cutting.blocks]
        for node in model.proto.graph.node:
            for index in range(1, block_of.get(node.name, 0) + 1):
                live = cutting.live[index]
                self._readers[index] |= {
                    Consumer(node.name, at) for at, name in enumerate(node.input) if name in live
                }
        self._open: dict[_BlockKey, _TunedBlock] = {}
        self._fed: dict[tuple[Any, ...], tuple[_BlockKey, dict[str, Array]]] = {}
        self._tunable: set[int] = set()
        self._states: dict[tuple[int, frozenset[Any]], int] = {}
        self._held: dict[int, Quantizer] = {}
        self._live: dict[tuple[int, int], tuple[int, Mapping[str, Array]]] = {}
        self._networks = self._bytes = 0
        # What few places change is of no use for the next few.
        self._shared = frozenset(self.switch(()).states) if anywhere else None

    def switch(self, quantizers: Iterable[Quantizer]) -> SwitchedNetwork:
        """Choose the quantizers that are on."""
        switched = self._variants.switch(quantizers)
        count, states, acting = len(self._cutting.blocks), [0], list[frozenset[Any]]()
        passed: set[Consumer] = set()
        # As long as they live, no other has the identity of one of them.
        fresh = {id(each): each for each in switched.by_name.values() if id(each) not in self._held}
        self._held |= fresh
        self._tunable |= {number for number, each in fresh.items() if is_tunable(each)}
        for index in range(count):
            inside = switched.inside.get(index, {})
            passed.update(consumer for consumer, each in inside.items() if id(each) in self._tunable)
            own = frozenset(
                (consumer, *(id(other) for other in chain_of(each, switched.by_name)))
                for consumer, each in inside.items()
            )
            key = states[-1], own
            if key not in self._states:
                self._states[key] = len(self._states) + 1
            states.append(self._states[key])
            acting.append(own)
        self._networks += 1
        last = max(switched.inside, default=0) + 1
        cuts = [
            index
            for index in range(1, count)
            # Behind the last of few places several blocks run in one go, the same ones for all.
            if (index <= last or index % _IN_ONE_GO == 0 if self._anywhere else self._readers[index] <= passed)
        ]
        return SwitchedNetwork(switched, tuple(acting), tuple(states), (*cuts, count))

    def run(
        self, number: int, feed: Mapping[str, Array], network: SwitchedNetwork, *, sample: str = ""
    ) -> dict[str, Array]:
        """The outputs in one sample.

        Args:
            number: The number of the sample.
            feed: Its inputs.
            network: The network, from `switch`.
            sample: What the user calls it; for messages.

        Raises:
            ModelFailed: The network cannot be run.
        """
        cutting, states = self._cutting, network.states
        first = next((at for at in reversed(network.cuts) if (states[at], number) in self._live), 0)
        there: Mapping[str, Array] = feed
        if first:
            there = self._live[states[first], number][1]
            self._live[states[first], number] = self._networks, there
        ends = [at for at in network.cuts if at > first]
        steps = [self._step(range(*ends), network) for ends in pairwise((first, *ends))]

        def work() -> Mapping[str, Array]:
            now = there
            for at, (block, also) in zip(ends, steps, strict=True):
                read = {name: now[name] for name in block.reads}
                given = zip(block.writes, block.session.run({**read, **also}, sample=sample), strict=True)
                needed = {*cutting.wanted, *(cutting.live[at] if at < len(cutting.live) else ())}
                now = {name: array for name, array in {**now, **dict(given)}.items() if name in needed}
                if self._shared is None or states[at] in self._shared:
                    self._keep(states[at], number, now)
            return now

        def stop() -> None:
            for block, _ in steps:
                block.session.stop()

        # All blocks in one go: handing each to another thread would take as long as a small one.
        found = interruptible(work, stop=stop) if steps else there
        leaving = network.switched.leaving
        return {name: after_quantizers(found[name], leaving.get(name, ())) for name in cutting.wanted}

    def _keep(self, state: int, number: int, tensors: Mapping[str, Array]) -> None:
        size = sum(array.nbytes for array in tensors.values())
        if self._bytes + size > _LIVE_BYTES:
            old = [key for key, (used, _) in self._live.items() if used < self._networks - _NETWORKS_AGO]
            for key in old:
                self._bytes -= sum(array.nbytes for array in self._live.pop(key)[1].values())
        if self._bytes + size <= _LIVE_BYTES:
            # A view would keep alive what it is a part of.
            self._live[state, number] = self._networks, {name: np.array(array) for name, array in tensors.items()}
            self._bytes += size

    def _step(self, span: range, network: SwitchedNetwork) -> tuple[_TunedBlock, dict[str, Array]]:
        """Blocks that run as one, ready to run, and what they are fed beside tensors."""
        if span not in network.steps:
            # Most blocks are as in a network before.
            known = span, *network.acting[span.start : span.stop]
            if known not in self._fed or self._fed[known][0] not in self._open:
                self._fed[known] = self._opened(span, network.switched)
            key, also = self._fed[known]
            self._open[key] = self._open.pop(key)
            network.steps[span] = self._open[key], also
        return network.steps[span]

    def _opened(self, span: range, switched: Switched) -> tuple[_BlockKey, dict[str, Array]]:
        """Open blocks that run as one: by what they are known, and what they are fed beside tensors."""
        inside = [each for index in span for each in switched.inside.get(index, {}).items()]
        chains = {consumer: chain_of(each, switched.by_name) for consumer, each in inside}
        key = span, frozenset((consumer, *map(structure, chain)) for consumer, chain in chains.items())
        block = self._open.pop(key, None)
        acting = {each.name: each for chain in chains.values() for each in chain}
        if block is None:
            model = self._variants.model(span, switched)
            names = {f"{self._variants.own}{each.name}": each.name for each in acting.values() if is_tunable(each)}
            reads = tuple(value.name for value in model.proto.graph.input)
            places = make_tunable(model, names)
            taps = detached(model)
            session = open_session(
                model, outputs=taps, fused=self._fused, threads=self._threads, keep_memory="shared"
            )
            block = _TunedBlock(session, reads, taps.outputs, places, tuple(acting.values()))
        self._open[key] = block
        while sum(len(each) for each, _ in self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]
        return key, tuned_feed((acting[name] for name in block.places), block.places)
