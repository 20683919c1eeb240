"""The two flow charts for models whose output is not close enough.

Chart A tries the calibration methods one after the other and looks at the output end to end. Where none is enough,
chart B looks at every layer by itself, calibrated on the very sample it is judged on, and gives 16 bits to those
that fall short, until none does; then the methods are tried once more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from roundoff.core.wording import counted

__all__ = ["GOOD_LAYER", "GOOD_OUTPUT", "Decision", "Followed", "Goal", "Layer", "Trials", "follow_charts"]

GOOD_OUTPUT, GOOD_LAYER = 0.98, 0.999
"""What the manual asks for: the output's cosine end to end, and every layer's by itself."""

_LISTED = 4


@dataclass(frozen=True, slots=True)
class Goal:
    """When a model is close enough.

    Attributes:
        output: The cosine that the worst output must exceed, end to end.
        layer: The cosine that every layer must exceed by itself.
    """

    output: float = GOOD_OUTPUT
    layer: float = GOOD_LAYER


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer by itself.

    Attributes:
        name: The layer.
        cosine: How what it writes agrees with the float model, all it reads being exact.
        remedy: The layers to give 16 bits so that it may improve, each with its new type: itself, or where it has
            16 bits already, those that read what it writes in 8; empty when nothing is left to try.
    """

    name: str
    cosine: float
    remedy: Mapping[str, str]


class Trials(Protocol):
    """Compiles and measures."""

    def end_to_end(self, method: str, raised: Mapping[str, str]) -> float | None:
        """The cosine of the worst output; None where no output can be judged.

        Args:
            method: The calibration method.
            raised: Layers with other types.
        """
        ...

    def per_layer(self, raised: Mapping[str, str]) -> Sequence[Layer]:
        """All layers, each by itself, calibrated with MinMax on the one sample they are judged on."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """One look at one model, and what follows from it.

    Attributes:
        chart: Of which chart it is a step.
        analysis: PerLayer or EndToEnd.
        method: The calibration method.
        raised: How many layers have 16 bits in it.
        cosine: The worst output end to end, or the worst layer by itself; None where there is none.
        verdict: Whether that is enough, and what is done next.
    """

    chart: Literal["A", "B"]
    analysis: Literal["EndToEnd", "PerLayer"]
    method: str
    raised: int
    cosine: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Followed:
    """Where the charts led.

    Attributes:
        decisions: All steps.
        method: The calibration method of the answer.
        raised: Layers of the answer that have other types.
        cosine: Of its worst output, end to end.
        met: Whether that is enough.
        stuck: Layers that fall short although nothing is left to try.
    """

    decisions: tuple[Decision, ...]
    method: str
    raised: Mapping[str, str]
    cosine: float | None
    met: bool
    stuck: tuple[str, ...] = ()


def follow_charts(
    trials: Trials,
    methods: Sequence[str],
    goal: Goal | None = None,
    *,
    told: Callable[[Decision], None] = lambda _: None,
) -> Followed:
    """Follow chart A, and chart B where that is not enough.

    Args:
        trials: Compiles and measures.
        methods: Calibration methods, in the order they are tried; the first is taken for single layers.
        goal: When a model is close enough.
        told: Told of every step.
    """
    return _Charts(trials, tuple(methods), goal or Goal(), told).follow()


class _Charts:
    def __init__(
        self, trials: Trials, methods: tuple[str, ...], goal: Goal, told: Callable[[Decision], None]
    ) -> None:
        self._trials, self._methods, self._goal, self._told = trials, methods, goal, told
        self._decisions: list[Decision] = []
        self._best: tuple[float, str, Mapping[str, str]] = (float("-inf"), methods[0], {})

    def follow(self) -> Followed:
        if self._try_methods("A", {}):
            return self._result(met=True)
        raised, stuck = self._raise_layers()
        met = bool(raised) and self._try_methods("B", raised)
        if not raised:
            self._note(
                "B", "EndToEnd", self._methods[0], {}, None, "no layer could be raised: nothing new to measure"
            )
        return self._result(met=met, stuck=stuck)

    def _try_methods(self, chart: Literal["A", "B"], raised: Mapping[str, str]) -> bool:
        """Whether a method is enough; the best is kept."""
        for place, method in enumerate(self._methods):
            cosine = self._trials.end_to_end(method, raised)
            if cosine is not None and cosine > self._best[0]:
                self._best = cosine, method, dict(raised)
            good = cosine is not None and cosine > self._goal.output
            last = place + 1 == len(self._methods)
            after = "chart B" if chart == "A" else "all methods are tried: a ticket"
            following = f"next: {after if last else self._methods[place + 1]}"
            above = f"above {self._goal.output}: good enough"
            self._note(
                chart,
                "EndToEnd",
                method,
                raised,
                cosine,
                above if good else f"not above {self._goal.output}; {following}",
            )
            if good:
                return True
        return False

    def _raise_layers(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Give 16 bits to what falls short until nothing does, or nothing helps."""
        raised: dict[str, str] = {}
        while True:
            layers = self._trials.per_layer(raised)
            low = sorted(
                (each for each in layers if each.cosine <= self._goal.layer), key=lambda each: each.cosine
            )
            worst = min((each.cosine for each in layers), default=None)
            more = {
                name: dtype for each in low for name, dtype in each.remedy.items() if raised.get(name) != dtype
            }
            stuck = tuple(each.name for each in low)
            if not low:
                verdict = f"all layers above {self._goal.layer}; next: EndToEnd"
            elif more:
                verdict = f"{_named(stuck)} not above {self._goal.layer}; 16 bits for {_named(list(more))}"
            else:
                verdict = (
                    f"{_named(stuck)} not above {self._goal.layer} with 16 bits: a ticket; EndToEnd all the same"
                )
            self._note("B", "PerLayer", self._methods[0], raised, worst, verdict)
            if not more:
                return raised, stuck
            raised |= more

    def _note(
        self,
        chart: Literal["A", "B"],
        analysis: Literal["EndToEnd", "PerLayer"],
        method: str,
        raised: Mapping[str, str],
        cosine: float | None,
        verdict: str,
    ) -> None:
        self._decisions.append(Decision(chart, analysis, method, len(raised), cosine, verdict))
        self._told(self._decisions[-1])

    def _result(self, *, met: bool, stuck: tuple[str, ...] = ()) -> Followed:
        cosine, method, raised = self._best
        known = cosine if cosine > float("-inf") else None
        return Followed(tuple(self._decisions), method, raised, known, met, stuck)


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    if rest > 0:
        return f"{counted(len(names), 'layer')} ({', '.join(names[:_LISTED])} ...)"
    return ", ".join(names)
