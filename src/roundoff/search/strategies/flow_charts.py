"""The way of Pulsar2's manual: two flow charts for models whose output is not close enough, and what is left then.

Chart A tries the calibration methods one after the other and looks at the output end to end. Where none is enough,
chart B looks at every layer by itself, calibrated on the very sample it is judged on, and gives 16 bits to those
that fall short, until none does; then the methods are tried once more. There the manual ends, with a ticket.
Behind it, marked +, come settings that it describes elsewhere: smoothing, rounding of weights, weights in float.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol

from roundoff.core.plan import Recipe
from roundoff.messages.message import english
from roundoff.search.problem import TuneProblem
from roundoff.search.result import Trial
from roundoff.search.strategies.strategy import Search, run_trials

GOOD_OUTPUT, GOOD_LAYER = 0.98, 0.999
"""What the manual asks for: the output's cosine end to end, and every layer's by itself."""

Chart = Literal["A", "B", "+"]
Analysis = Literal["EndToEnd", "PerLayer"]
_Change = Callable[["ChartSettings"], "ChartSettings"]

_LISTED = 4
# A setting that gains less than this is not worth keeping.
_LEAST_GAIN = 1e-4


@dataclass(frozen=True, slots=True)
class ChartGoal:
    """When a model is close enough.

    Attributes:
        output: The cosine that the worst output must exceed, end to end.
        layer: The cosine that every layer must exceed by itself.
    """

    output: float = GOOD_OUTPUT
    layer: float = GOOD_LAYER


@dataclass(frozen=True, slots=True)
class ChartSettings:
    """What is changed of the configuration.

    Attributes:
        method: The calibration method.
        raised: Layers with another type, each with that.
        switches: ChartSettings that are switched on.
        float_weights: Layers whose weights stay in float.
    """

    method: str
    raised: Mapping[str, str] = field(default_factory=dict)
    switches: tuple[str, ...] = ()
    float_weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChartLayer:
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


class ChartTrials(Protocol):
    """Compiles and measures."""

    def end_to_end(self, settings: ChartSettings) -> float | None:
        """The cosine of the worst output; None where no output can be judged."""
        ...

    def per_layer(self, settings: ChartSettings) -> Sequence[ChartLayer]:
        """All layers, each by itself, calibrated on the one sample they are judged on."""
        ...


@dataclass(frozen=True, slots=True)
class ChartLook:
    """What to look at next.

    Attributes:
        settings: The model.
        analysis: At its output end to end, or at its layers one by one.
    """

    settings: ChartSettings
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class ChartSeen:
    """What was seen.

    Attributes:
        cosine: Of the worst output, or of the worst layer by itself; None where there is none.
        good: Whether the output is close enough.
        low: The layers that fall short, worst first.
    """

    cosine: float | None
    good: bool = False
    low: tuple[ChartLayer, ...] = ()


@dataclass(frozen=True, slots=True)
class ChartDecision:
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
    analysis: Analysis
    method: str
    raised: int
    cosine: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class ChartsFollowed:
    """Where the charts led.

    Attributes:
        decisions: All steps.
        settings: The answer.
        cosine: Of its worst output, end to end.
        met: Whether that is enough.
        stuck: Layers that fall short although nothing is left to try.
    """

    decisions: tuple[ChartDecision, ...]
    settings: ChartSettings
    cosine: float | None
    met: bool
    stuck: tuple[str, ...] = ()


_Looks = Generator[ChartLook, ChartSeen, "ChartsFollowed"]


def flow_charts(
    methods: Sequence[str],
    goal: ChartGoal | None = None,
    *,
    switches: Sequence[str] = (),
    told: Callable[[ChartDecision], None] = lambda _: None,
) -> _Looks:
    """Chart A, chart B where that is not enough, and what is left behind both, as a strategy.

    Args:
        methods: Calibration methods, in the order they are tried; the first is taken for single layers.
        goal: When a model is close enough, in words.
        switches: Settings to switch on one after the other behind the charts.
        told: Told of every step.
    """
    return _FlowCharts(tuple(methods), goal or ChartGoal(), told).follow(switches)


def follow_charts(
    trials: ChartTrials,
    methods: Sequence[str],
    goal: ChartGoal | None = None,
    *,
    switches: Sequence[str] = (),
    told: Callable[[ChartDecision], None] = lambda _: None,
) -> ChartsFollowed:
    """Follow the charts to their end with models that are compiled and measured by cosine.

    Args:
        trials: Compiles and measures.
        methods: Calibration methods, in the order they are tried; the first is taken for single layers.
        goal: When a model is close enough.
        switches: Settings to switch on one after the other behind the charts.
        told: Told of every step.
    """
    limits = goal or ChartGoal()

    def look(wanted: ChartLook) -> ChartSeen:
        if wanted.analysis == "EndToEnd":
            cosine = trials.end_to_end(wanted.settings)
            return ChartSeen(cosine, cosine is not None and cosine > limits.output)
        layers = trials.per_layer(wanted.settings)
        low = sorted((each for each in layers if each.cosine <= limits.layer), key=lambda each: each.cosine)
        return ChartSeen(min((each.cosine for each in layers), default=None), low=tuple(low))

    followed, _ = run_trials(flow_charts(methods, limits, switches=switches, told=told), look)
    if followed is None:
        raise RuntimeError("charts that led nowhere")
    return followed


_Found = Generator[ChartLook, ChartSeen, bool]

# What the manual tries first, in the names of calibration methods.
_METHODS = ("minmax", "mse", "percentile")


def charts(problem: TuneProblem) -> Search:
    """Follow the charts with recipes: try the calibration methods; where none is enough, raise layers, and again.

    It needs few trials and no ranking, looks at layers alone and gives nothing back: what it finds costs more than
    what ``greedy`` finds. The user's goal decides in place of the manual's cosine of the output.
    """
    looks = flow_charts(tuple(dict.fromkeys((problem.base.method, *_METHODS))))
    seen: ChartSeen | None = None
    try:
        while True:
            # A generator is first sent nothing.
            wanted = looks.send(seen)  # type: ignore[arg-type]
            recipe = replace(_raised(problem, wanted.settings.raised), method=wanted.settings.method)
            if wanted.analysis == "PerLayer":
                low = [node for node in problem.weak(recipe, GOOD_LAYER) if node not in wanted.settings.raised]
                seen = ChartSeen(None, low=tuple(_layer(node, problem.precisions) for node in low))
            elif problem.affordable(recipe):
                trial: Trial = yield recipe
                seen = ChartSeen(None, trial.met)
            else:
                seen = ChartSeen(None)
    except StopIteration:
        return


def _raised(problem: TuneProblem, raised: Mapping[str, str]) -> Recipe:
    return problem.raised(problem.base, list(raised), next(iter(raised.values()))) if raised else problem.base


def _layer(node: str, precisions: Sequence[str]) -> ChartLayer:
    return ChartLayer(node, 0.0, {node: precisions[0]} if precisions else {})


class _FlowCharts:
    def __init__(self, methods: tuple[str, ...], goal: ChartGoal, told: Callable[[ChartDecision], None]) -> None:
        self._methods, self._goal, self._told = methods, goal, told
        self._decisions: list[ChartDecision] = []
        self._best = ChartSettings(methods[0])
        self._cosine: float | None = None
        self._low: tuple[ChartLayer, ...] = ()

    def follow(self, switches: Sequence[str]) -> _Looks:
        raised: dict[str, str] = {}
        met = yield from self._try_methods("A", raised)
        if not met:
            raised = yield from self._raise_layers()
            met = bool(raised) and (yield from self._try_methods("B", raised))
        if not met:
            met = yield from self._try_rest(switches)
        stuck = tuple(each.name for each in self._low)
        return ChartsFollowed(tuple(self._decisions), self._best, self._cosine, met, stuck)

    def _output(self, settings: ChartSettings) -> Generator[ChartLook, ChartSeen, ChartSeen]:
        """Look at a model end to end; the best is kept."""
        seen = yield ChartLook(settings, "EndToEnd")
        if seen.cosine is not None and (self._cosine is None or seen.cosine > self._cosine):
            self._cosine, self._best = seen.cosine, settings
        return seen

    def _try_methods(self, chart: Chart, raised: Mapping[str, str]) -> _Found:
        """Whether a method is enough."""
        for place, method in enumerate(self._methods):
            settings = ChartSettings(method, dict(raised))
            seen = yield from self._output(settings)
            last = english("chart B") if chart == "A" else english("a ticket, says the manual")
            after = (*self._methods[place + 1 :], last)[0]
            self._decide(chart, "EndToEnd", settings, seen.cosine, self._verdict(good=seen.good, after=after))
            if seen.good:
                return True
        return False

    def _verdict(self, *, good: bool, after: str) -> str:
        limit = self._goal.output
        if good:
            return english("above {limit}: good enough", limit=limit)
        return english("not above {limit}; next: {after}", limit=limit, after=after)

    def _raise_layers(self) -> Generator[ChartLook, ChartSeen, dict[str, str]]:
        """Give 16 bits to what falls short until nothing does, or nothing helps."""
        raised: dict[str, str] = {}
        while True:
            settings = ChartSettings(self._methods[0], dict(raised))
            seen = yield ChartLook(settings, "PerLayer")
            self._low = seen.low
            more = {
                name: dtype
                for each in seen.low
                for name, dtype in each.remedy.items()
                if raised.get(name) != dtype
            }
            self._decide("B", "PerLayer", settings, seen.cosine, self._layer_verdict(tuple(more), bool(raised)))
            if not more:
                return raised
            raised |= more

    def _layer_verdict(self, more: Sequence[str], raised: bool) -> str:
        names, limit = _named([each.name for each in self._low]), self._goal.layer
        if not self._low and raised:
            return english("all layers above {limit}; next: EndToEnd", limit=limit)
        if not self._low:
            return english(
                "all layers above {limit}; none to raise: it adds up over layers, and EndToEnd is as in chart A",
                limit=limit,
            )
        if more:
            return english(
                "{names} not above {limit}; 16 bits for {more}", names=names, limit=limit, more=_named(more)
            )
        return english(
            "{names} not above {limit} with 16 bits: a ticket, says the manual; next: EndToEnd all the same",
            names=names,
            limit=limit,
        )

    def _try_rest(self, switches: Sequence[str]) -> _Found:
        """Switch on, on top of the best so far, whatever makes it better."""
        steps = list(self._rest(switches))
        for place, (words, change) in enumerate(steps):
            before, best = self._cosine, self._best
            settings = change(best)
            seen = yield from self._output(settings)
            if not seen.good and self._best is not best and (self._cosine or 0) - (before or 0) < _LEAST_GAIN:
                self._cosine, self._best = before, best
            after = (*(each for each, _ in steps[place + 1 :]), english("a ticket"))[0]
            verdict = english("{where}: {what}", where=words, what=self._verdict(good=seen.good, after=after))
            self._decide("+", "EndToEnd", settings, seen.cosine, verdict)
            if seen.good:
                return True
        return False

    def _rest(self, switches: Sequence[str]) -> Iterator[tuple[str, _Change]]:
        for switch in switches:
            yield switch, partial(_switched, switch)
        weights = tuple(dict.fromkeys(each.name for each in self._low if each.float_weight))
        if weights:
            yield (
                english("weights of {names} in FP32", names=_named(weights)),
                partial(_with_float_weights, weights),
            )

    def _decide(
        self,
        chart: Chart,
        analysis: Analysis,
        settings: ChartSettings,
        cosine: float | None,
        verdict: str,
    ) -> None:
        self._decisions.append(
            ChartDecision(chart, analysis, settings.method, len(settings.raised), cosine, verdict)
        )
        self._told(self._decisions[-1])


def _switched(switch: str, settings: ChartSettings) -> ChartSettings:
    return replace(settings, switches=(*settings.switches, switch))


def _with_float_weights(layers: tuple[str, ...], settings: ChartSettings) -> ChartSettings:
    return replace(settings, float_weights=layers)


def _named(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    if len(unique) > _LISTED:
        return english("{count} layers ({names} ...)", count=len(unique), names=", ".join(unique[:_LISTED]))
    return ", ".join(unique)
