"""Measuring tensors over the samples, several samples at a time, within a memory budget."""

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.subgraph import tap
from roundoff.measure.light_pairs import CodedValues, LightMeter
from roundoff.messages.numbers import format_size
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples
from roundoff.run.plan import PROGRAM_BYTES, split_passes
from roundoff.run.resources import memory_limit
from roundoff.run.session import available_threads, open_session
from roundoff.run.variants import Copies, Tap
from roundoff.studies.layers.tally import Candidate, Tally, measure_sample

__all__ = [
    "Arrays",
    "Budget",
    "CopiesPass",
    "Feed",
    "Footprint",
    "Network",
    "Pass",
    "PassFactory",
    "SampleRange",
    "candidate_of",
    "in_order",
    "measure",
]


Feed = Mapping[str, Array]
Arrays = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may take.

    Attributes:
        memory_bytes: Memory of the process.
        threads: Threads for everything together.
    """

    memory_bytes: int
    threads: int

    @classmethod
    def of(cls, max_memory: int | None, threads: int | None) -> "Budget":
        """What the user allows; by default most of the free memory and all cores."""
        return cls(memory_limit(max_memory), threads or available_threads())


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a pass takes.

    Attributes:
        fixed_bytes: Memory that does not depend on the tensors it measures.
        variant_size: How many times the memory of the float tensor a variant takes at most.
        workers: Samples that may run at a time, beside the one that is measured. Measuring takes about as long as
            running, so more than two would only wait.
    """

    fixed_bytes: int
    variant_size: int = 1
    workers: int = 2


@dataclass(frozen=True, slots=True)
class SampleRange:
    """Some of the samples, for a model.

    Attributes:
        model: What they are fed to.
        samples: All of them.
        indices: Which ones.
    """

    model: Model
    samples: Samples
    indices: Sequence[int]

    def feeds(self) -> Iterator[tuple[str, Feed]]:
        """Name and inputs of each, read when it is its turn."""
        for index in self.indices:
            yield self.samples.names[index], read_feed(self.model, self.samples, index)


class Network(Protocol):
    """Computes some tensors of one sample."""

    def run(self, sample: str, feed: Feed) -> Arrays:
        """Compute them, by names of its own; may be called from several threads at a time."""
        ...

    def stop(self) -> None:
        """End the runs that are under way."""
        ...


class Pass(Network, Protocol):
    """Computes some tensors of one sample, and measures them."""

    def take(self, sample: str, arrays: Arrays) -> None:
        """Measure them, and take that in; called for one sample after the other."""
        ...


PassFactory = Callable[[Mapping[str, Tally], int], Pass]
"""Makes a pass for some tensors that uses so many threads per sample."""


def measure(
    tallies: Mapping[str, Tally],
    open_pass: PassFactory,
    samples: SampleRange,
    *,
    footprint: Footprint,
    budget: Budget,
    progress: Progress,
) -> int:
    """Measure tensors over samples, in as many passes over the samples as the memory takes.

    Args:
        tallies: What is measured, by tensor; filled here.
        open_pass: Makes the passes.
        samples: What is fed.
        footprint: What a pass takes.
        budget: What may be used.
        progress: Told of every sample of every pass.

    Returns:
        How many passes it took.

    Raises:
        BadInput: One of the tensors alone exceeds the budget.
    """
    sizes = {
        name: tally.tensor.value.size_bytes * (1 + footprint.variant_size * len(tally.variants))
        for name, tally in tallies.items()
    }
    # What the largest nodes read and write is alive while they run, captured or not.
    fixed = PROGRAM_BYTES + footprint.fixed_bytes + 2 * max(sizes.values(), default=0)
    room = budget.memory_bytes - fixed
    _check_room(sizes, fixed, budget)
    groups = split_passes(sizes, room)
    progress.start("measuring layers", len(groups) * len(samples.indices))
    try:
        for group in groups:
            largest = max(1, sum(sizes[name] for name in group))
            # Beside those that run, one is measured; without room for two, each waits for the one before.
            at_once = min(budget.threads, footprint.workers, len(samples.indices), room // largest - 1)
            one_pass = open_pass({name: tallies[name] for name in group}, budget.threads // max(1, at_once))
            with contextlib.closing(in_order(samples.feeds(), one_pass, at_once)) as computed:
                for sample, arrays in computed:
                    one_pass.take(sample, arrays)
                    arrays.clear()
                    progress.advance()
    finally:
        progress.finish()
    return len(groups)


def _check_room(sizes: Mapping[str, int], fixed: int, budget: Budget) -> None:
    name = max(sizes, key=lambda tensor: sizes[tensor], default="")
    needed = fixed + sizes.get(name, 0)
    if needed > budget.memory_bytes:
        need = format_size(int(needed * 1.01))  # rounding for display must not end below what is needed
        have = format_size(budget.memory_bytes)
        raise BadInput(
            f"Measuring tensor {name!r} takes about {need} of memory; the budget is {have}.",
            fix=f"give --max-memory '{need}' or more, or use a smaller batch",
        )


def in_order(
    feeds: Iterable[tuple[str, Feed]], network: Network, workers: int
) -> Generator[tuple[str, Arrays], None, None]:
    """Run samples in other threads; gives them in their order, so that sums do not depend on which was faster.

    They are measured in the thread that asks for them: two threads that both call numpy for a few microseconds at
    a time would only wait for each other, while a run disturbs nobody.
    """
    if workers < 1:
        yield from ((sample, network.run(sample, feed)) for sample, feed in feeds)
        return
    waiting: deque[tuple[str, Future[Arrays]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="layers") as pool:
        try:
            for sample, feed in feeds:
                waiting.append((sample, pool.submit(network.run, sample, feed)))
                if len(waiting) > workers:
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        except BaseException:
            for _, future in waiting:
                future.cancel()
            network.stop()
            raise


def _first(waiting: deque[tuple[str, Future[Arrays]]]) -> tuple[str, Arrays]:
    sample, future = waiting.popleft()
    return sample, future.result()


class CopiesPass:
    """Runs a graph of copies and measures some of its tensors.

    Args:
        copies: The graph.
        tallies: What is measured, by tensor.
        model: The float model, for messages and the place of its weights.
        threads: Threads per node.
        also: Tensors to run although they are not measured.
    """

    def __init__(
        self,
        copies: Copies,
        tallies: Mapping[str, Tally],
        *,
        model: Model,
        threads: int,
        also: Collection[str] = (),
    ) -> None:
        self._tallies = tallies
        self._taps = {name: copies.taps[name] for name in tallies}
        wanted: dict[str, str] = dict.fromkeys(sorted(also), "")
        for name, variants in self._taps.items():
            kind = tallies[name].tensor.value.element
            widened = kind.widened if kind is not None and kind.widened != kind.dtype else ""
            wanted |= {name: widened} | {each.name: "" if each.coded else widened for each in variants.values()}
        widen = {name: dtype for name, dtype in wanted.items() if dtype}
        self._names = tuple(wanted)
        taps = replace(tap(copies.model, self._names, widen=widen), constants=copies.constants)
        self._session = open_session(model, outputs=taps, threads=threads)
        self._meter = LightMeter()

    def run(self, sample: str, feed: Feed) -> Arrays:
        """The tensors of one sample, by their names in the graph of copies."""
        return dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))

    def take(self, sample: str, arrays: Arrays) -> None:
        """Measure what was run."""
        tensors = (
            (
                tally,
                arrays[name],
                {
                    variant: candidate_of(tally, each, arrays[each.name])
                    for variant, each in self._taps[name].items()
                },
            )
            for name, tally in self._tallies.items()
        )
        measure_sample(self._meter, sample, tensors)

    def stop(self) -> None:
        """End the runs that are under way."""
        self._session.stop()


def candidate_of(tally: Tally, tapped: Tap, array: Array) -> Candidate:
    """What was read at a tap, with what its codes mean."""
    return CodedValues(array, *tally.code_meaning) if tapped.coded else array
