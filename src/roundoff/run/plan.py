"""What a capture takes in memory, and how it is split into passes that stay within a budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value, values
from roundoff.messages.numbers import format_size

__all__ = ["CapturePlan", "Planner", "Shapes", "split_passes"]

Shapes = Mapping[str, tuple[int, ...]]

# Resident memory of the program itself: interpreter, numpy, onnx, onnxruntime (measured, rounded up).
PROGRAM_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """How the tensors of one sample are captured.

    Attributes:
        passes: The tensors that each run of the model captures.
        memory_bytes: Largest memory of the process.
        sessions: How many sessions may stay open at a time.
        ahead: Whether there is room to capture the next sample while this one is read.
    """

    passes: tuple[tuple[str, ...], ...]
    memory_bytes: int
    sessions: int
    ahead: bool


class Planner:
    """Plans the capture of some tensors of a model within a memory budget.

    Args:
        model: The model.
        everything: All its values in the first sample, with complete shapes.
        captured: Names of the tensors to capture, in execution order.
        shapes: The input shapes of the first sample.
        limit: Bytes the process may take.
        option: The option by which tensors can be left out, where there is one.
    """

    def __init__(
        self,
        model: Model,
        everything: Sequence[Value],
        *,
        captured: Sequence[str],
        shapes: Shapes,
        limit: int,
        option: str = "",
    ) -> None:
        self._option = option
        self._model, self._captured, self._shapes, self._limit = model, captured, shapes, limit
        self._sizes = {value.name: value.size_bytes for value in everything}
        self._session_bytes = model.weight_bytes
        # While a session opens, what is in the model's file is in memory as loaded, as serialized for the
        # session, and as read by it, next to the session's own copy.
        self._fixed = PROGRAM_BYTES + 3 * model.file_bytes + self._session_bytes
        self._plans: dict[tuple[tuple[str, tuple[int, ...]], ...], CapturePlan] = {}

    def plan(self, shapes: Shapes) -> CapturePlan:
        """Plan the capture of a sample whose inputs have these shapes.

        Raises:
            BadInput: One of the tensors alone exceeds the budget.
        """
        key = tuple(shapes.items())
        if key not in self._plans:
            self._plans[key] = self._make_plan(shapes)
        return self._plans[key]

    def _make_plan(self, shapes: Shapes) -> CapturePlan:
        sizes = self._sizes if shapes == self._shapes else self._resized(shapes)
        # What a node reads and writes is alive while it runs, captured or not.
        fixed = self._fixed + 2 * max(sizes.values(), default=0)
        wanted = {name: sizes[name] for name in self._captured}
        for name, size in wanted.items():
            if fixed + size > self._limit:
                raise self._too_small(name, fixed + size)
        passes = split_passes(wanted, self._limit - fixed)
        largest = max((sum(wanted[name] for name in names) for names in passes), default=0)
        ahead = len(passes) == 1 and fixed + 2 * largest <= self._limit
        peak = fixed + largest * (2 if ahead else 1)
        spare = (self._limit - peak) // max(1, self._session_bytes)
        return CapturePlan(passes, peak, sessions=1 + spare, ahead=ahead)

    def _resized(self, shapes: Shapes) -> dict[str, int]:
        """Sizes in a sample of other shapes; where inference cannot tell, in proportion to the inputs."""
        known = (value for value in values(self._model, shapes) if value.shape is not None)
        inferred = {value.name: value.size_bytes for value in known}
        growth = _elements(shapes) / max(1, _elements(self._shapes))
        return {name: inferred.get(name, int(size * growth)) for name, size in self._sizes.items()}

    def _too_small(self, name: str, needed: int) -> BadInput:
        need = format_size(int(needed * 1.01))  # rounding for display must not end below what is needed
        ways = [f"give --max-memory '{need}' or more", "use a smaller batch"]
        ways += [f"leave it out with {self._option}"] if self._option else []
        return BadInput(
            f"Capturing tensor {name!r} takes about {need} of memory; the budget is {format_size(self._limit)}.",
            fix=f"{', '.join(ways[:-1])}, or {ways[-1]}",
        )


def split_passes(sizes: Mapping[str, int], room: int) -> tuple[tuple[str, ...], ...]:
    """Cut tensors, in their order, into the fewest groups of at most `room` bytes; a larger one stands alone."""
    passes: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not passes or filled + size > room:
            passes.append([])
            filled = 0
        passes[-1].append(name)
        filled += size
    return tuple(map(tuple, passes))


def _elements(shapes: Shapes) -> int:
    return sum(prod(shape) for shape in shapes.values())
