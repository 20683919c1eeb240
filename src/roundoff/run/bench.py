"""The bench: a network, with whichever quantizers, on chosen samples; the one loop of all who ask for tensors.

What runs on it is the float network, the same with quantizers on, another one with the same inputs, or a graph of
copies (`run.variants`) that computes many variants at a time. Blocks (`run.block_network`) are the faster back end
where one network is run with hundreds of single quantizers switched: they start from what is kept at the cuts.
"""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from roundoff.core.progress import NO_DEADLINE, Deadline
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed, RoundoffError
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value, values
from roundoff.graph.subgraph import tap
from roundoff.run.block_chain import (
    FUSED_AGREEMENT_DB,
    Chunk,
    SwitchedBlocks,
    agreement_db,
    read_chunks,
    stack_feeds,
    takes_batches,
)
from roundoff.run.budget import keepable_bytes, useful_threads
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.run.session import HEAVY_BYTES, Session, available_threads, open_session
from roundoff.run.tunable import is_tunable, make_tunable, structure, tuned_feed
from roundoff.run.variants import Copies

FEW_SAMPLES, MORE_SAMPLES = 8, 32
"""On so many samples, evenly spaced, something is tried, and what came of it is confirmed."""


def spread(total: int, most: int) -> tuple[int, ...]:
    """At most so many indices, evenly from the first to the last."""
    if total <= most:
        return tuple(range(total))
    return tuple(int(index) for index in np.linspace(0, total - 1, most).round())


def spread_first(total: int) -> tuple[int, ...]:
    """All indices, in an order of which every beginning reaches evenly from the first to the last."""
    finer = (1 + 2**step for step in range(max(1, total).bit_length() + 1))
    return tuple(dict.fromkeys((*(index for most in finer for index in spread(total, most)), *range(total))))


def spread_over(indices: Sequence[int], most: int) -> list[int]:
    """At most so many of the samples, evenly spaced."""
    return [indices[place] for place in spread(len(indices), most)]


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Computed_co = TypeVar("_Computed_co", covariant=True)


def run_ahead(
    run: Callable[[_Item], _Result], items: Iterable[_Item], *, stop: Callable[[], None], workers: int = 1
) -> Generator[tuple[_Item, _Result], None, None]:
    """Run something on samples, in other threads; gives results in the order of the samples.

    At most as many samples as there are workers are in memory, beside the one that was given out last. Results are
    worked on in the thread that asks for them: sums then do not depend on which sample was faster, and two threads
    that both call numpy for a few microseconds at a time would only wait for each other.

    Args:
        run: What to do with each; is called from several threads at a time.
        items: The samples, each read when it is its turn.
        stop: Makes runs that are under way end early.
        workers: Samples that run at a time; 0 to run each when it is asked for, in this thread.
    """
    if workers < 1:
        yield from ((item, run(item)) for item in items)
        return
    running: deque[tuple[_Item, Future[_Result]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="sample") as pool:
        try:
            for item in items:
                running.append((item, pool.submit(run, item)))
                if len(running) > workers:
                    yield _first(running)
            while running:
                yield _first(running)
        finally:
            # After an error, Ctrl-C, or when nobody wants more of it; otherwise nothing is left to end.
            for _, future in running:
                future.cancel()
            if running:
                stop()


def _first(running: deque[tuple[_Item, Future[_Result]]]) -> tuple[_Item, _Result]:
    item, future = running[0]
    # It counts as running until it is done: whoever interrupts the wait has to end it.
    result = future.result()
    running.popleft()
    return item, result


# Samples are run together as long as the largest tensor of all of them takes no more than this: the next node
# finds it in the cache.
_TOGETHER_BYTES, _MOST_TOGETHER = 8 << 20, 32
_TRIED_SAMPLES = 2
# What the kernels for one sample and for several may differ by, of the largest value.
_TOLERANCE = 1e-4
# Of smaller networks blocks take as long as the whole; they are made when more than so many choices are asked for.
_NODES_IN_BLOCKS, _ASKED_BEFORE = 64, 2
# A network with one in so many of all quantizers on is in float but for a few places.
_FEW_PLACES = 8
# The float network, and the one that is measured: both are asked for again after each look at its values.
_SESSIONS = 2


class Runnable(Protocol[_Computed_co]):
    """Computes something of a sample, or of several that are put together."""

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> _Computed_co:
        """Compute it; may be called from several threads at a time."""
        ...

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A network on the bench, ready to run.

    Attributes:
        names: What it gives, in this order.
        session: Runs it.
        also: What it is fed beside a sample, the same each time.
    """

    names: tuple[str, ...]
    session: Session
    also: Mapping[str, Array] = field(default_factory=dict)

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> dict[str, Any]:
        """What it computes of one sample, by name.

        Raises:
            ModelFailed: It cannot be run.
        """
        return dict(zip(self.names, self.session.run({**feed, **self.also}, sample=sample), strict=True))

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        self.session.stop()


class Bench:
    """Runs a network with any quantizers, or others with the same inputs, on samples.

    Args:
        model: The float network.
        samples: What it is fed.
        threads: Threads to use; by default as many as nodes of this size gain from.
        keep: Whether inputs stay in memory once they were read, for whoever runs the same samples many times.
        max_memory: Bytes the process may take; most of the free memory by default.

    Attributes:
        room: Bytes of inputs that stay, or of outputs that whoever compares with them keeps.
    """

    def __init__(
        self,
        model: Model,
        samples: Samples,
        *,
        threads: int | None = None,
        keep: bool = False,
        max_memory: int | None = None,
    ) -> None:
        self.model, self.samples, self._threads = model, samples, threads
        self.room, self._max_memory = keepable_bytes(max_memory), max_memory
        self._kept_bytes = 0
        self._kept: dict[int, Mapping[str, Array]] | None = {} if keep else None
        self._ahead: dict[int, Mapping[str, Array]] = {}
        self._recent: list[tuple[Model, Opened]] = []
        self._blocks: dict[tuple[bool, bool], SwitchedBlocks | None] = {}
        self._asked: dict[bool, tuple[Sequence[Quantizer], int]] = {}
        self._shared: dict[
            tuple[bool, frozenset[Any]], tuple[Opened, Sequence[Quantizer], dict[str, tuple[str, str]]]
        ] = {}

    @cached_property
    def threads(self) -> int:
        """Threads per node."""
        if self._threads is not None or not self.samples.names:
            return self._threads or available_threads()
        first = self._ahead[0] = self.feed(0)
        shapes = {name: array.shape for name, array in first.items()}
        return useful_threads(self.model, values(self.model, shapes))

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

    def open_tuned(self, quantizers: Sequence[Quantizer], *, fused: bool = False) -> Opened:
        """Like `open`; networks that differ only in scales and zero points of activations share one session.

        Scales that are read when a network runs cost nothing there. To make a session of a small network takes as
        long as to run it on a hundred samples.

        Raises:
            ModelFailed: The network cannot be run.
        """
        key = fused, frozenset(structure(each) for each in quantizers)
        known = self._shared.pop(key, None)
        if known is None:
            model = switch_on(self.model, quantizers) if quantizers else self.model
            places = make_tunable(model, {each.name: each.name for each in quantizers if is_tunable(each)})
            # The quantizers stay alive with their session, so that no other has the id of one of them.
            known = self.open(model, fused=fused), quantizers, places
        self._shared = dict([*self._shared.items(), (key, known)][-_SESSIONS:])
        opened, _, places = known
        also = tuned_feed((each for each in quantizers if each.name in places), places)
        return replace(opened, also=also)

    def run_switched(
        self, indices: Sequence[int], quantizers: Sequence[Quantizer], *, fused: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The outputs of the network with quantizers on, sample by sample, for whoever asks many times.

        A network of many nodes runs in blocks: what it has in common with those before it is not run again. The
        outputs are those of the whole network, bit for bit; of one that is in float but for a few places up to the
        last bits of what these read. Where they are not, it is run whole.

        Args:
            indices: The samples.
            quantizers: Those that are on.
            fused: Let onnxruntime fuse nodes.

        Raises:
            BadInput: A sample does not fit the network.
            ModelFailed: The network cannot be run.
        """
        blocks = self._in_blocks(quantizers, fused=fused)
        switched = None if blocks is None else blocks.switch(quantizers)
        if blocks is None or switched is None or len(switched.cuts) == 1:
            opened = self.open_tuned(quantizers, fused=fused)
            yield from (found for [found] in self.run(indices, opened))
            return
        for index in indices:
            feed = stack_feeds([self.feed(index)])
            yield blocks.run(index, feed, switched, sample=self.samples.names[index])

    def _in_blocks(self, quantizers: Sequence[Quantizer], *, fused: bool) -> SwitchedBlocks | None:
        """The blocks of the network, cut for the quantizers asked for first; None where it runs whole."""
        first, asked = self._asked.get(fused, (quantizers, 0))
        self._asked[fused] = first, asked + 1
        if asked < _ASKED_BEFORE:
            return None
        key = fused, _FEW_PLACES * len(quantizers) <= len(first)
        if key not in self._blocks:
            fits = self._kept is not None and len(self.model.proto.graph.node) >= _NODES_IN_BLOCKS
            self._blocks[key] = self._tried_blocks(first, fused=fused, in_float=key[1]) if fits else None
        return self._blocks[key]

    def _tried_blocks(
        self, quantizers: Sequence[Quantizer], *, fused: bool, in_float: bool
    ) -> SwitchedBlocks | None:
        """The blocks of the network, if they give what it does whole."""
        if self.model.weight_bytes >= HEAVY_BYTES or not self.samples.names:
            return None
        feed, wanted = stack_feeds([self.feed(0)]), outputs(self.model)
        try:
            shapes = {name: array.shape for name, array in feed.items()}
            everything = complete_values(self.model, values(self.model, shapes), feed, threads=self.threads)
            blocks = SwitchedBlocks(
                self.model,
                quantizers,
                everything,
                wanted=wanted,
                fused=fused,
                anywhere=in_float,
                threads=self.threads,
            )
            tried = () if in_float else quantizers
            whole = self.open_tuned(tried, fused=fused).run(feed)
            found = blocks.run(0, feed, blocks.switch(tried)) if blocks.useful else {}
            same = _alike_in_float if in_float else _equal
            if not found or not all(same(whole[name], found[name]) for name in wanted):
                return None
        except RoundoffError:
            return None
        return blocks

    def open_copies(
        self,
        copies: Copies[Any],
        tensors: Sequence[Value],
        *,
        also: Collection[str] = (),
        keep_memory: bool = True,
    ) -> Opened:
        """Make a graph of copies ready to run.

        Args:
            copies: The graph.
            tensors: What to compute, in float and in all copies.
            also: Tensors of the float network to compute beside these.
            keep_memory: Whether it may keep the memory of one run for the next.

        Raises:
            ModelFailed: onnxruntime does not accept the graph.
        """
        wanted: dict[str, str] = dict.fromkeys(sorted(also), "")
        for value in tensors:
            # Types that numpy does not have are read as ones that it has; codes always are of types that it has.
            kind = value.element
            widened = kind.widened if kind is not None and kind.widened != kind.dtype else ""
            taps = copies.taps.get(value.name, {}).values()
            wanted |= {value.name: widened} | {each.name: "" if each.coded else widened for each in taps}
        taps_asked = tap(
            copies.model, tuple(wanted), widen={name: dtype for name, dtype in wanted.items() if dtype}
        )
        session = open_session(copies.model, outputs=taps_asked, threads=self.threads, keep_memory=keep_memory)
        return Opened(tuple(wanted), session)

    def rest(self) -> None:
        """Close what is open of a large network, beside which somebody else is about to run it."""
        if self.model.weight_bytes >= HEAVY_BYTES:
            self._recent.clear()
            self._shared.clear()

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of a sample.

        Raises:
            BadInput: They do not fit the network.
        """
        if self._kept is None:
            known = self._ahead.pop(index, None)
            return read_feed(self.model, self.samples, index) if known is None else known
        if (known := self._kept.get(index)) is not None:
            return known
        found = read_feed(self.model, self.samples, index)
        size = sum(array.nbytes for array in found.values())
        if self._kept_bytes + size <= self.room:
            self._kept[index] = found
            self._kept_bytes += size
        return found

    def stream(
        self, network: Runnable[_Result], indices: Sequence[int], *, workers: int = 1, together: int = 1
    ) -> Generator[tuple[Chunk, _Result], None, None]:
        """Feed samples to a network: for each, or for some that are put together, what it computes.

        Args:
            network: What runs.
            indices: Which samples.
            workers: Runs at a time, beside the one that is worked on; 0 for one after the other.
            together: Samples that may be put together, where their shapes are equal.

        Raises:
            BadInput: A sample does not fit the network.
            ModelFailed: The network cannot be run.
        """
        chunks = read_chunks(self.model, self.samples, indices, most=together, read=self.feed)
        return run_ahead(
            lambda chunk: network.run(chunk.feed, sample=chunk.label), chunks, stop=network.stop, workers=workers
        )

    def run(self, indices: Sequence[int], *networks: Opened) -> Iterator[list[dict[str, Any]]]:
        """Feed samples to networks side by side: for each sample what each of them computes, by name.

        Raises:
            BadInput: A sample does not fit the network.
            ModelFailed: A network cannot be run.
        """
        for chunk in read_chunks(self.model, self.samples, indices, read=self.feed):
            yield [network.run(chunk.feed, sample=chunk.label) for network in networks]

    def beside(
        self, indices: Sequence[int], *networks: Model, deadline: Deadline = NO_DEADLINE
    ) -> Iterator[tuple[Mapping[str, Array], list[dict[str, Any]]]]:
        """Each sample with what networks compute of it, by name; heavy networks run one after the other.

        A session holds all weights: outputs of the first network, which are kept instead, take less. After the
        deadline no other sample is run; one is in any case.

        Raises:
            BadInput: A sample does not fit the network.
            ModelFailed: A network cannot be run.
        """
        heavy, names = self.model.weight_bytes >= HEAVY_BYTES, self.samples.names
        known: list[list[dict[str, Any]]] = [[] for _ in indices]
        for at, network in enumerate(networks[:-1] if heavy else ()):
            opened, until = self.open(network), deadline.share(1 / (len(networks) - at))
            for place, index in enumerate(indices):
                if place and not until.allows(0):
                    indices = indices[:place]
                    break
                known[place].append(opened.run(self.feed(index), sample=names[index]))
            del opened
        beside = [self.open(each) for each in (networks[-1:] if heavy else networks)]
        for place, index in enumerate(indices):
            if place and not deadline.allows(0):
                return
            feed, found = self.feed(index), known[place]
            known[place] = []
            yield feed, [*found, *(each.run(feed, sample=names[index]) for each in beside)]

    # Several samples at a time, where that gives the same. Nodes are fused where that changes only the last bits
    # of what the float network computes: up to three times as fast. Quantizers are computed as they are.

    def run_together(self, model: Model, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        """Outputs of a network: for some samples at a time, their indices and each output of all of them.

        Raises:
            ModelFailed: The network cannot be run.
        """
        for chunk, found in self.stream(self._reopened(model), indices, together=self.together):
            yield chunk.samples, list(found.values())

    def on(self, samples: Samples) -> "Bench":
        """The same network on other samples, run in the same way: fused and put together as here."""
        other = Bench(self.model, samples, threads=self.threads, max_memory=self._max_memory)
        other.fuses, other.together = self.fuses, self.together
        return other

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
        feed = self.feed(0) if self.samples.names else {}
        shapes = {name: array.shape for name, array in feed.items()}
        largest = max((value.size_bytes for value in values(self.model, shapes)), default=0)
        every = range(len(self.samples.names))
        same = outputs(self.model) and self.runs_together(self._reopened(self.model), every, tolerance=_TOLERANCE)
        return samples_together(largest) if same else 1

    def runs_together(self, network: Opened, indices: Sequence[int], *, tolerance: float = 0.0) -> bool:
        """Whether two samples at a time give what each gives alone.

        Args:
            network: What runs.
            indices: The samples; the first two are tried.
            tolerance: The largest difference, against the largest value, that counts as the same.
        """
        if not takes_batches(self.model) or len(indices) < _TRIED_SAMPLES:
            return False
        feeds = [self.feed(index) for index in indices[:_TRIED_SAMPLES]]
        if any(array.ndim == 0 or array.shape != feeds[1][name].shape for name, array in feeds[0].items()):
            return False
        alone = [network.run(feed).values() for feed in feeds]
        try:
            joined = network.run(stack_feeds(feeds)).values()
        except ModelFailed:
            return False
        return all(_alike(whole, parts, tolerance) for whole, *parts in zip(joined, *alone, strict=True))


def _alike_in_float(left: Any, right: Any) -> bool:
    """Whether two outputs are the same but for the last bits."""
    return _equal(left, right) or (
        isinstance(left, np.ndarray) and agreement_db(left, right) >= FUSED_AGREEMENT_DB
    )


def _equal(left: Any, right: Any) -> bool:
    """Whether two outputs are the same bit for bit."""
    if not isinstance(left, np.ndarray) or left.dtype.kind not in "fiub" or left.dtype != right.dtype:
        return False
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))


def samples_together(largest: int) -> int:
    """How many samples to run together, if they may be, when the largest tensor of one has so many bytes."""
    return max(1, min(_MOST_TOGETHER, _TOGETHER_BYTES // max(1, largest)))


def _alike(whole: Array, parts: Sequence[Array], tolerance: float) -> bool:
    if not isinstance(whole, np.ndarray) or whole.ndim == 0 or any(part.ndim != whole.ndim for part in parts):
        return False
    joined = np.concatenate(parts) if all(part.shape[1:] == whole.shape[1:] for part in parts) else None
    if joined is None or joined.shape != whole.shape or whole.dtype.kind not in "fiub":
        return False
    if whole.dtype.kind != "f":
        return bool(np.array_equal(whole, joined))
    scale = float(np.abs(joined[np.isfinite(joined)]).max(initial=0.0))
    return bool(np.allclose(whole, joined, rtol=0, atol=tolerance * scale, equal_nan=True))
