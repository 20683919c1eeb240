"""Tables of steps: transforms and corrections are registered, listed and found in the same way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from roundoff.core.recipe import Step
from roundoff.errors import BadInput, RoundoffError, StepFailed, nearest, reason
from roundoff.quantize.step_options import StepOption

__all__ = ["StepKind", "StepTable"]

Work = TypeVar("Work", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class StepKind(Generic[Work]):
    """One transform, or one correction.

    Attributes:
        name: As users write it.
        summary: What it does, in one sentence.
        options: What can be chosen.
        work: Does it.
    """

    name: str
    summary: str
    options: Mapping[str, StepOption]
    work: Work


class StepTable(Generic[Work]):
    """All steps of one sort.

    Args:
        sort: What they are called.

    Attributes:
        kinds: The steps by name.
    """

    kinds: dict[str, StepKind[Work]]

    def __init__(self, sort: str) -> None:
        self._sort = sort
        self.kinds = {}

    def register(self, name: str, **options: StepOption) -> Callable[[Work], Work]:
        """Register a function as a step; its docstring's first line is the summary."""

        def registered(work: Work) -> Work:
            if name in self.kinds:
                raise ValueError(f"{self._sort} {name!r} is registered twice")
            self.kinds[name] = StepKind(name, (work.__doc__ or "").strip().splitlines()[0], options, work)
            return work

        return registered

    def all(self) -> Iterator[StepKind[Work]]:
        """Every step."""
        yield from self.kinds.values()

    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(self.kinds)

    def find(self, step: Step) -> StepKind[Work]:
        """What a recipe names.

        Raises:
            BadInput: There is no such step.
        """
        if step.name not in self.kinds:
            raise BadInput(f"There is no {self._sort} {step.name!r}.", fix=nearest(step.name, self.kinds))
        return self.kinds[step.name]

    def carry_out(self, step: Step, job: Any) -> Any:
        """Do what a recipe names.

        Raises:
            StepFailed: It does not get along with this model.
        """
        chosen = self.find(step)
        try:
            return chosen.work(job)
        except (RoundoffError, MemoryError):
            raise
        except Exception as error:
            raise StepFailed(step.name, reason(error)) from error
