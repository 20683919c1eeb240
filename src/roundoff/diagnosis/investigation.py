"""What a diagnosis is asked, how long it may take, and what it has looked at so far."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from roundoff.core.plan import QuantPlan
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.diagnosis.result import Check
from roundoff.diagnosis.task_metric import TaskMetric
from roundoff.graph.load import Model
from roundoff.messages.message import Message, message

__all__ = ["DiagnoseSettings", "Investigation"]


def _tell_nobody(check: Check) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class DiagnoseSettings:
    """How to diagnose.

    Attributes:
        arithmetic: How the hardware computes with integers.
        metric: How good the network is at its task, by the user's measure; None without one.
        deadline: When it has to be done.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        tell: Told of every check as soon as it is done.
        subject: What is diagnosed; None where its name is all that is known.
        given: The file of the quantized model, as it was given; None where it is made here.
        plan: What was asked for each node, and what it got; None where that is not known.
        opened_s: Seconds it took to read or make the quantized model.
    """

    arithmetic: Arithmetic = WIDEST
    metric: TaskMetric | None = None
    deadline: Deadline = NO_DEADLINE
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    tell: Callable[[Check], None] = _tell_nobody
    subject: Message | None = None
    given: Model | None = None
    plan: QuantPlan | None = None
    opened_s: float = 0.0


@dataclass(slots=True)
class Investigation:
    """The notebook of a diagnosis.

    Attributes:
        settings: What was asked.
        checks: What was looked at.
        skipped: What was not, with the reason.
        notes: What the reader should know.
        reserve: Seconds that the end of it takes, once that is known.
    """

    settings: DiagnoseSettings
    checks: list[Check] = field(default_factory=list)
    skipped: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    reserve: float = 0.0

    def out_of_time(self, seconds: float = 0.0) -> bool:
        """Whether nothing more may be begun, or nothing that takes so long."""
        return not self.settings.deadline.allows(self.reserve + seconds)

    def skip(self, what: Message) -> None:
        """Note that there was no time for something."""
        given = self.settings.deadline.given
        self.skipped.append(message("diagnosis.no_time_for", what=what, given=given))

    @contextmanager
    def check(self, name: Message) -> "Iterator[CheckOutcome]":
        """Look at something; what came of it is told at the end."""
        clock = self.settings.deadline.clock
        outcome, began = CheckOutcome(), clock()
        yield outcome
        if outcome.result is not None:
            found = Check(name, outcome.result, clock() - began, outcome.ok)
            self.checks.append(found)
            self.settings.tell(found)


@dataclass(slots=True)
class CheckOutcome:
    """What came of a check, to be filled in.

    Attributes:
        result: In a sentence without its full stop; None when it is not worth telling.
        ok: Whether nothing is wrong.
    """

    result: Message | None = None
    ok: bool = True
