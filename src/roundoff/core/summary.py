"""Statistics of every tensor of a source, over all its samples, without keeping any of them."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from roundoff.core.progress import SILENT, Progress
from roundoff.core.statistics import TensorStats
from roundoff.core.tensors import Array, TensorInfo, TensorSource

__all__ = ["TensorSummary", "summarize_tensors"]

# Elements handed to a thread at a time: enough that handing over costs little.
_BATCH = 1 << 20

_Batch = list[tuple[str, Array]]
_Waiting = deque[Future[list[tuple[str, TensorStats]]]]


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
        threads: How many are summed up at a time, next to reading. Results do not depend on it.
        progress: Told of every sample.
    """
    readable = [info for info in source.tensors if not info.problem]
    totals = {info.name: TensorStats() for info in readable}
    progress.start("summing up", len(source.samples))
    try:
        with ThreadPoolExecutor(threads) as pool:
            for sample in source.samples:
                _add_sample(totals, source, sample, pool=pool, threads=threads)
                progress.advance()
    finally:
        progress.finish()
    return tuple(TensorSummary(info, len(source.samples), totals[info.name]) for info in readable)


def _add_sample(
    totals: dict[str, TensorStats], source: TensorSource, sample: str, *, pool: ThreadPoolExecutor, threads: int
) -> None:
    waiting: _Waiting = deque()
    batch: _Batch = []
    for name in totals:
        array = source.read(name, sample)
        batch.append((name, array))
        if sum(array.size for _, array in batch) >= _BATCH:
            waiting.append(pool.submit(_stats_of, batch))
            batch = []
        # Only so many may wait, because each keeps its arrays in memory.
        if len(waiting) > threads:
            _collect(waiting.popleft(), totals)
    waiting.append(pool.submit(_stats_of, batch))
    for future in waiting:
        _collect(future, totals)


def _stats_of(batch: Sequence[tuple[str, Array]]) -> list[tuple[str, TensorStats]]:
    return [(name, TensorStats.of(array)) for name, array in batch]


def _collect(future: Future[list[tuple[str, TensorStats]]], totals: dict[str, TensorStats]) -> None:
    for name, stats in future.result():
        totals[name] = totals[name].merge(stats)
