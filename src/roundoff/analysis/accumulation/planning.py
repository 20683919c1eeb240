"""How many curves, tensors and samples are worked on at a time, so that memory suffices."""

from collections.abc import Mapping
from dataclasses import dataclass

from roundoff.core.sizes import format_size
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.runtime.memory import available_memory
from roundoff.runtime.plan import PROGRAM_BYTES, split_passes
from roundoff.runtime.session import available_threads

__all__ = ["Layout", "plan_layout"]

_MOST_WORKERS = 2
# While a session opens, weights are in memory as built, as serialized, as read, and as the session's own.
_WEIGHT_COPIES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """What is done at a time.

    Attributes:
        together: Curves that share a run of the float model.
        passes: The tensors of each run.
        workers: Samples that run at a time.
        threads: Threads per sample.
    """

    together: int
    passes: tuple[tuple[str, ...], ...]
    workers: int
    threads: int


def plan_layout(
    model: Model, sizes: Mapping[str, int], curves: int, *, max_memory: int | None, threads: int | None
) -> Layout:
    """Fit a measurement into memory: first fewer samples at a time, then fewer curves, then fewer tensors.

    Args:
        model: The float model.
        sizes: Bytes of each tensor to be compared.
        curves: How many models it is to be compared with.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.

    Raises:
        BadInput: One tensor alone is too large.
    """
    limit = available_memory() if max_memory is None else max_memory
    cores = threads or available_threads()
    largest = max(sizes.values(), default=0)
    # Quantized weights lie beside the float ones.
    fixed = PROGRAM_BYTES + 2 * _WEIGHT_COPIES * model.weight_bytes + 2 * largest
    room, whole = limit - fixed, max(1, sum(sizes.values()))
    if fixed + 4 * largest > limit:
        need = format_size(int((fixed + 4 * largest) * 1.01))
        name = max(sizes, key=lambda tensor: sizes[tensor], default="")
        raise BadInput(
            f"Comparing tensor {name!r} takes about {need} of memory; the budget is {format_size(limit)}.",
            fix=f"give --max-memory '{need}' or more, or use a smaller batch",
        )
    for workers in range(min(_MOST_WORKERS, cores), 0, -1):
        # One sample more than there are workers is in memory.
        if (workers + 1) * whole * (1 + curves) <= room:
            return Layout(curves, (tuple(sizes),), workers, max(1, cores // workers))
    together = max(1, room // (2 * whole) - 1)
    passes = split_passes(sizes, room // (2 * (1 + together)))
    return Layout(min(curves, together), passes, 1, cores)
