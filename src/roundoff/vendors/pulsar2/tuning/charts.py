"""The two flow charts for models whose output is not close enough, and what is left to try behind them.

Chart A tries the calibration methods one after the other and looks at the output end to end. Where none is enough,
chart B looks at every layer by itself, calibrated on the very sample it is judged on, and gives 16 bits to those
that fall short, until none does; then the methods are tried once more. There the manual ends, with a ticket.
Behind it, marked +, come settings that it describes elsewhere: smoothing, rounding of weights, weights in float.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from roundoff.messages.numbers import counted

__all__ = [
    "GOOD_LAYER",
    "GOOD_OUTPUT",
    "Chart",
    "Decision",
    "Followed",
    "Goal",
    "Layer",
    "Settings",
    "Trials",
    "follow_charts",
]

GOOD_OUTPUT, GOOD_LAYER = 0.98, 0.999
"""What the manual asks for: the output's cosine end to end, and every layer's by itself."""

Chart = Literal["A", "B", "+"]
_Change = Callable[["Settings"], "Settings"]

_LISTED = 4
# A setting that gains less than this is not worth keeping.
_LEAST_GAIN = 1e-4


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
class Settings:
    """What is changed of the configuration.

    Attributes:
        method: The calibration method.
        raised: Layers with another type, each with that.
        switches: Settings that are switched on.
        float_weights: Layers whose weights stay in float.
    """

    method: str
    raised: Mapping[str, str] = field(default_factory=dict)
    switches: tuple[str, ...] = ()
    float_weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer by itself.

    Attributes:
        name: The layer.
        cosine: How what it writes agrees with the float model, all it reads being exact.
        remedy: The layers to give 16 bits so that it may improve, each with its new type: itself, or where it has
            16 bits already, those that read what it writes in 8; empty when nothing is left to try.
        float_weight: Whether its weight could stay in float.
    """

    name: str
    cosine: float
    remedy: Mapping[str, str]
    float_weight: bool = False


class Trials(Protocol):
    """Compiles and measures."""

    def end_to_end(self, settings: Settings) -> float | None:
        """The cosine of the worst output; None where no output can be judged."""
        ...

    def per_layer(self, settings: Settings) -> Sequence[Layer]:
        """All layers, each by itself, calibrated on the one sample they are judged on."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """One look at one model, and what follows from it.

    Attributes:
        chart: Of which chart it is a step; + behind both.
        analysis: PerLayer or EndToEnd.
        method: The calibration method.
        raised: How many layers have 16 bits in it.
        cosine: The worst output end to end, or the worst layer by itself; None where there is none.
        verdict: Whether that is enough, and what is done next.
    """

    chart: Chart
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
        settings: The answer.
        cosine: Of its worst output, end to end.
        met: Whether that is enough.
        stuck: Layers that fall short although nothing is left to try.
    """

    decisions: tuple[Decision, ...]
    settings: Settings
    cosine: float | None
    met: bool
    stuck: tuple[str, ...] = ()


def follow_charts(
    trials: Trials,
    methods: Sequence[str],
    goal: Goal | None = None,
    *,
    switches: Sequence[str] = (),
    told: Callable[[Decision], None] = lambda _: None,
) -> Followed:
    """Follow chart A, chart B where that is not enough, and what is left behind both.

    Args:
        trials: Compiles and measures.
        methods: Calibration methods, in the order they are tried; the first is taken for single layers.
        goal: When a model is close enough.
        switches: Settings to switch on one after the other behind the charts.
        told: Told of every step.
    """
    return _Charts(trials, tuple(methods), goal or Goal(), told).follow(switches)


class _Charts:
    def __init__(
        self, trials: Trials, methods: tuple[str, ...], goal: Goal, told: Callable[[Decision], None]
    ) -> None:
        self._trials, self._methods, self._goal, self._told = trials, methods, goal, told
        self._decisions: list[Decision] = []
        self._best = Settings(methods[0])
        self._cosine: float | None = None
        self._low: tuple[Layer, ...] = ()

    def follow(self, switches: Sequence[str]) -> Followed:
        raised: dict[str, str] = {}
        met = self._try_methods("A", raised)
        if not met:
            raised = self._raise_layers()
            met = bool(raised) and self._try_methods("B", raised)
        if not met:
            met = self._try_rest(switches)
        stuck = tuple(each.name for each in self._low)
        return Followed(tuple(self._decisions), self._best, self._cosine, met, stuck)

    def _good(self, settings: Settings) -> tuple[float | None, bool]:
        """Measure a model end to end; the best is kept."""
        cosine = self._trials.end_to_end(settings)
        if cosine is not None and (self._cosine is None or cosine > self._cosine):
            self._cosine, self._best = cosine, settings
        return cosine, cosine is not None and cosine > self._goal.output

    def _try_methods(self, chart: Chart, raised: Mapping[str, str]) -> bool:
        """Whether a method is enough."""
        for place, method in enumerate(self._methods):
            settings = Settings(method, dict(raised))
            cosine, good = self._good(settings)
            after = (*self._methods[place + 1 :], "chart B" if chart == "A" else "a ticket, says the manual")[0]
            self._decide(chart, "EndToEnd", settings, cosine, self._verdict(good=good, after=after))
            if good:
                return True
        return False

    def _verdict(self, *, good: bool, after: str) -> str:
        limit = f"above {self._goal.output}"
        return f"{limit}: good enough" if good else f"not {limit}; next: {after}"

    def _raise_layers(self) -> dict[str, str]:
        """Give 16 bits to what falls short until nothing does, or nothing helps."""
        raised: dict[str, str] = {}
        while True:
            settings = Settings(self._methods[0], dict(raised))
            layers = self._trials.per_layer(settings)
            low = sorted(
                (each for each in layers if each.cosine <= self._goal.layer), key=lambda each: each.cosine
            )
            self._low = tuple(low)
            more = {
                name: dtype for each in low for name, dtype in each.remedy.items() if raised.get(name) != dtype
            }
            worst = min((each.cosine for each in layers), default=None)
            self._decide("B", "PerLayer", settings, worst, self._layer_verdict(tuple(more), bool(raised)))
            if not more:
                return raised
            raised |= more

    def _layer_verdict(self, more: Sequence[str], raised: bool) -> str:
        names, limit = _named([each.name for each in self._low]), f"above {self._goal.layer}"
        if not self._low:
            alike = "none to raise: it adds up over layers, and EndToEnd is as in chart A"
            return f"all layers {limit}; {'next: EndToEnd' if raised else alike}"
        if more:
            return f"{names} not {limit}; 16 bits for {_named(more)}"
        return f"{names} not {limit} with 16 bits: a ticket, says the manual; next: EndToEnd all the same"

    def _try_rest(self, switches: Sequence[str]) -> bool:
        """Switch on, on top of the best so far, whatever makes it better."""
        steps = list(self._rest(switches))
        for place, (words, change) in enumerate(steps):
            before, best = self._cosine, self._best
            settings = change(best)
            cosine, good = self._good(settings)
            if not good and self._best is not best and (self._cosine or 0) - (before or 0) < _LEAST_GAIN:
                self._cosine, self._best = before, best
            after = (*(each for each, _ in steps[place + 1 :]), "a ticket")[0]
            verdict = f"{words}: {self._verdict(good=good, after=after)}"
            self._decide("+", "EndToEnd", settings, cosine, verdict)
            if good:
                return True
        return False

    def _rest(self, switches: Sequence[str]) -> Iterator[tuple[str, _Change]]:
        for switch in switches:
            yield switch, partial(_switched, switch)
        weights = tuple(dict.fromkeys(each.name for each in self._low if each.float_weight))
        if weights:
            yield f"weights of {_named(weights)} in FP32", partial(_with_float_weights, weights)

    def _decide(
        self,
        chart: Chart,
        analysis: Literal["EndToEnd", "PerLayer"],
        settings: Settings,
        cosine: float | None,
        verdict: str,
    ) -> None:
        self._decisions.append(Decision(chart, analysis, settings.method, len(settings.raised), cosine, verdict))
        self._told(self._decisions[-1])


def _switched(switch: str, settings: Settings) -> Settings:
    return replace(settings, switches=(*settings.switches, switch))


def _with_float_weights(layers: tuple[str, ...], settings: Settings) -> Settings:
    return replace(settings, float_weights=layers)


def _named(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    if len(unique) > _LISTED:
        return f"{counted(len(unique), 'layer')} ({', '.join(unique[:_LISTED])} ...)"
    return ", ".join(unique)
