"""Statistics of every tensor of a source, over all its samples, without keeping any of them."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from roundoff.core.progress import SILENT, Progress
from roundoff.core.statistics import TensorStats
from roundoff.core.tensors import Array, TensorInfo, TensorSource

__all__ = ["TensorSummary", "summarize_tensors"]

# Elements handed to a thread at a time: enough that handing over costs little.
_BATCH = 1 << 20

_Batch = list[tuple[str, Array]]
_Stats = list[tuple[str, TensorStats]]


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor over all samples."""

    info: TensorInfo
    samples: int
    stats: TensorStats


def summarize_tensors(
    source: TensorSource, *, threads: int = 1, progress: Progress = SILENT
) -> tuple[TensorSummary, ...]:
    """Statistics of every tensor of a source over all samples, in the source's order.

    Tensors with a problem are left out; the source lists them.

    Args:
        source: The tensors; read sample by sample.
        threads: How many tensors are summed up at a time. Results do not depend on it.
        progress: Told of every sample.
    """
    readable = [info for info in source.tensors if not info.problem]
    totals = {info.name: TensorStats() for info in readable}
    progress.start("summing up", len(source.samples))
    try:
        with ThreadPoolExecutor(threads) as pool:
            for sample in source.samples:
                batches = _batches(source, [info.name for info in readable], sample)
                for name, stats in _computed(batches, pool, threads):
                    totals[name] = totals[name].merge(stats)
                progress.advance()
    finally:
        progress.finish()
    return tuple(TensorSummary(info, len(source.samples), totals[info.name]) for info in readable)


def _batches(source: TensorSource, names: list[str], sample: str) -> Iterator[_Batch]:
    batch: _Batch = []
    for name in names:
        batch.append((name, source.read(name, sample)))
        if sum(array.size for _, array in batch) >= _BATCH:
            yield batch
            batch = []
    yield batch


def _computed(
    batches: Iterator[_Batch], pool: ThreadPoolExecutor, threads: int
) -> Iterator[tuple[str, TensorStats]]:
    """Statistics in the order of the batches; only so many wait, because each keeps its arrays in memory."""
    waiting: deque[Future[_Stats]] = deque()
    for batch in batches:
        if threads == 1:
            yield from _stats_of(batch)  # handing it over would gain nothing
            continue
        waiting.append(pool.submit(_stats_of, batch))
        if len(waiting) > threads:
            yield from waiting.popleft().result()
    for future in waiting:
        yield from future.result()


def _stats_of(batch: _Batch) -> _Stats:
    return [(name, TensorStats.of(array)) for name, array in batch]
