"""Statistics of every tensor of a source, over all its samples, without keeping any of them."""

from dataclasses import dataclass

from roundoff.core.progress import SILENT, Progress
from roundoff.core.statistics import TensorStats
from roundoff.core.tensors import TensorInfo, TensorSource

__all__ = ["TensorSummary", "summarize_tensors"]


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor over all samples."""

    info: TensorInfo
    samples: int
    stats: TensorStats


def summarize_tensors(source: TensorSource, *, progress: Progress = SILENT) -> tuple[TensorSummary, ...]:
    """Statistics of every tensor of a source over all samples, in the source's order.

    Tensors with a problem are left out; the source lists them. Not spread over threads: the calls into numpy are
    so short that threads spend their time waiting for each other. A live source computes the next sample meanwhile.

    Args:
        source: The tensors; read sample by sample.
        progress: Told of every sample.
    """
    readable = [info for info in source.tensors if not info.problem]
    totals = {info.name: TensorStats() for info in readable}
    progress.start("summing up", len(source.samples))
    try:
        for sample in source.samples:
            for name, total in totals.items():
                totals[name] = total.merge(TensorStats.of(source.read(name, sample)))
            progress.advance()
    finally:
        progress.finish()
    return tuple(TensorSummary(info, len(source.samples), totals[info.name]) for info in readable)
