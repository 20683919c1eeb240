"""What a run may take: memory, the passes that stay within it, and threads beside it."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from roundoff.errors import BadInput
from roundoff.graph.load import MAPPED_BYTES, Model
from roundoff.graph.shapes import Value, values
from roundoff.messages.message import english
from roundoff.messages.numbers import format_size
from roundoff.run.session import available_threads

# Share of the free memory a run may take; the rest is for everything else on the machine.
_SHARE = 0.8
_FALLBACK_BYTES = 4 * 2**30

PROGRAM_BYTES = 128 * 2**20
"""Resident memory of the program itself: interpreter, numpy, onnx, onnxruntime (measured, rounded up)."""


def available_memory() -> int:
    """Bytes a run may take: most of what is free on this machine or in this container."""
    free = [value for value in (_free_on_machine(), _free_in_container()) if value is not None]
    return int(_SHARE * min(free)) if free else _FALLBACK_BYTES


def memory_limit(max_memory: int | None, *, share: float = 1.0) -> int:
    """Bytes a run may take: what the user says, else most of what is free.

    Args:
        max_memory: What the user says; None where nothing was said.
        share: The part of it that one of several stores may take.
    """
    return int((available_memory() if max_memory is None else max_memory) * share)


# What would be computed or read again is kept up to so many bytes, and up to this share of what a run may take.
_MOST_KEPT_BYTES, _KEPT_SHARE = 1 << 28, 0.1


def keepable_bytes(max_memory: int | None) -> int:
    """Bytes of inputs or of outputs that are kept because they are asked for again.

    Args:
        max_memory: What the user says; None where nothing was said.
    """
    return min(_MOST_KEPT_BYTES, memory_limit(max_memory, share=_KEPT_SHARE))


# Nodes that read and write less than this, on average, spend more on handing out work than a second core gives: on
# two cores a MobileNetV2 at 96 x 96 takes as long with one thread as with two, and a quarter less CPU time.
_THREADS_FROM_BYTES = 1 << 18


def useful_threads(model: Model, everything: Sequence[Value]) -> int:
    """Threads per node where the user names none.

    Args:
        model: The model.
        everything: Its tensors with their shapes; where some are not known, all cores are used.
    """
    computed = [value for value in everything if value.node]
    known = bool(computed) and all(value.shape is not None for value in computed)
    size = model.weight_bytes + sum(value.size_bytes for value in computed)
    return 1 if known and size < _THREADS_FROM_BYTES * len(computed) else available_threads()


@dataclass(frozen=True, slots=True)
class RunBudget:
    """What a run may take; whoever runs samples asks here how many of them, and of what, fit at a time.

    Attributes:
        threads: Threads for everything together; all cores when None.
        max_memory: Bytes the process may take; most of the free memory when None.
    """

    threads: int | None = None
    max_memory: int | None = None

    @property
    def memory_bytes(self) -> int:
        """Memory of the process."""
        return memory_limit(self.max_memory)

    @property
    def cores(self) -> int:
        """Threads to use."""
        return self.threads or available_threads()

    def settled(self) -> "RunBudget":
        """The same with numbers for what was left open: what is free changes as soon as something runs."""
        return RunBudget(self.cores, self.memory_bytes)

    def room(self, held: int) -> int:
        """Bytes left for tensors beside the program and what is held all the time, such as weights."""
        return self.memory_bytes - PROGRAM_BYTES - held

    def check_room(self, sizes: Mapping[str, int], held: int, *, copies: int = 1, doing: str) -> None:
        """Refuse tensors of which the largest one alone does not fit.

        Args:
            sizes: Bytes of each tensor.
            held: Bytes beside the program that are held all the time.
            copies: How often a tensor is in memory.
            doing: What takes the memory, for the message: ``Measuring``.

        Raises:
            BadInput: It does not fit.
        """
        largest = max(sizes, key=lambda tensor: sizes[tensor], default="")
        needed = PROGRAM_BYTES + held + copies * sizes.get(largest, 0)
        if needed > self.memory_bytes:
            raise over_budget(
                english("{doing} tensor {largest!r}", doing=doing, largest=largest),
                needed,
                limit=self.memory_bytes,
            )

    def check_weights(self, model: Model, *, doing: str, times: float) -> None:
        """Refuse a large model whose weights alone, as often as they are held, do not fit; before anything is run.

        Args:
            model: The model.
            doing: What takes the memory, for the message: ``Quantizing``.
            times: How often its weights are held at the peak, `WEIGHTS_HELD`.

        Raises:
            BadInput: They do not fit.
        """
        if model.weight_bytes < MAPPED_BYTES:
            return  # a few copies of these are within what tensors are planned with
        needed, limit = PROGRAM_BYTES + times * model.weight_bytes, self.memory_bytes
        if needed > limit:
            raise over_budget(english("{doing} {path}", doing=doing, path=model.path), needed, limit=limit)


WEIGHTS_HELD = {"quantize": 2.0, "study": 3.4, "diagnose": 3.7}
"""How often the weights of a large model are in memory at the peak of a command, mapped ones counted; measured by
``python -m benchmarks memory`` (1.8, 3.2 and 3.6 times), rounded up."""

UNLIMITED = RunBudget()


def over_budget(what: str, needed: float, *, limit: int, otherwise: str = "") -> BadInput:
    """The error for what does not fit the budget.

    Args:
        what: What takes the memory, as the beginning of a sentence.
        needed: Bytes it takes.
        limit: The budget.
        otherwise: What helps beside more memory and smaller batches.
    """
    need = format_size(int(needed * 1.01))  # rounding for display must not end below what is needed
    ways = [f"give --max-memory '{need}' or more", "use a smaller batch", *([otherwise] if otherwise else [])]
    return BadInput(
        english(
            "{what} takes about {need} of memory; the budget is {format_size}.",
            what=what,
            need=need,
            format_size=format_size(limit),
        ),
        fix=english("{ways}, or {ways2}", ways=", ".join(ways[:-1]), ways2=ways[-1]),
    )


def _free_on_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        # Systems without /proc do not say what is free; half of what is built in is a safe guess.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (OSError, ValueError, AttributeError):
        return None


def _free_in_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None
    return max(0, limit - used)


# How many threads numpy's matrix products use.
#
# They wait for one another by spinning. Where other work shares the cores (onnxruntime, another sample) a
# product on all cores takes many times as long as one on a single core, so whoever computes many of them chooses.


@dataclass(slots=True)
class _Users:
    """How many are using the setting, and what sets back what was before the first came."""

    count: int = 0
    limit: Any = None


_LOCK = threading.Lock()
_USERS = _Users()


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let matrix products use so many threads; where no BLAS is known, nothing changes.

    Of several that overlap the first one counts, and the last one to end sets back what was. threadpoolctl's own
    limits each set back what they found, which is wrong once two passes on two threads end in another order.
    """
    with _LOCK:
        if _USERS.count == 0:
            _USERS.limit = _libraries().limit(limits=count)
        _USERS.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS.count -= 1
            if _USERS.count == 0:
                _USERS.limit.restore_original_limits()


@cache  # finding what is loaded takes a millisecond, setting it a few microseconds; numpy's is loaded by now
def _libraries() -> Any:
    """The BLAS libraries of this process, whoever brought them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


# How a capture is split into passes that stay within the budget.

Shapes = Mapping[str, tuple[int, ...]]


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
                otherwise = f"leave it out with {self._option}" if self._option else ""
                what = english("Capturing tensor {name!r}", name=name)
                raise over_budget(what, fixed + size, limit=self._limit, otherwise=otherwise)
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
