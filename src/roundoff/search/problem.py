"""What a strategy may ask: which options there are, which nodes matter, what a recipe would cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from roundoff.core.plan import FLOAT, Precision, Recipe, Rule, Step, inputs_text
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, reason
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.transformers import TransformerParts, find_parts
from roundoff.measure.metrics import mean_of, require
from roundoff.measure.rows import ROW_FIELDS, RowMeter, merged_rows
from roundoff.messages.message import Message
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.run.bench import Bench, spread
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import Subset
from roundoff.search.cost import CostModel, FreeOption, free_options, with_option
from roundoff.search.judges import SignalJudge
from roundoff.search.store import TrialJournal, describe, recipe_key
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from roundoff.studies.sensitivity.ranking import SensitivitySettings, UserSensitivity, scores_of_nodes, worst_names
from roundoff.studies.sensitivity.study import analyze_sensitivity

SENSITIVITIES = ("sqnr_db", "cosine", "mse")
"""Metrics by which nodes are ranked; each knows which way it is better."""

# All nodes on a few samples, those that lead on more: rankings need no more, and trials correct them.
_FIRST_SAMPLES, _SAMPLES, _LEADING = 8, 16, 10
_FEWEST_STEPS = 2


@dataclass(frozen=True, slots=True)
class Ranked:
    """Nodes in order.

    Attributes:
        nodes: Their names, the one first that hurts most.
        outstanding: How many of the first stand out from the rest.
        runs: How often a sample was run for it, at most: most runs are of a part of the network.
    """

    nodes: tuple[str, ...]
    outstanding: int
    runs: int


def count_outliers(harm: Sequence[float]) -> int:
    """How many values at the start of a falling sequence stand out: those in front of its largest step.

    Args:
        harm: What each node does, in decibels.

    Returns:
        From 1 to half of them; 1 where no step is larger than twice the next largest, so that none stands out.
    """
    first = [value for value in harm if math.isfinite(value)]
    steps = [left - right for left, right in pairwise(first)][: max(1, len(first) // 2)]
    if len(steps) < _FEWEST_STEPS:
        return 1
    largest = max(range(len(steps)), key=steps.__getitem__)
    others = max(step for at, step in enumerate(steps) if at != largest)
    return largest + 1 if steps[largest] > 2 * max(others, 0.0) else 1


@dataclass(frozen=True, slots=True)
class Ranker:
    """Ranks nodes.

    Attributes:
        samples: What networks are run on.
        sensitivity: One of `SENSITIVITIES`, or a function of the user's.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        progress: Told how far it is.
        local: Look at what a node itself hands on, as vendors' tools do, instead of at the outputs of the network.
    """

    samples: Samples
    sensitivity: str | UserSensitivity = SENSITIVITIES[0]
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    local: bool = False

    @property
    def words(self) -> str:
        """What it ranks by."""
        name = self.sensitivity if isinstance(self.sensitivity, str) else str(self.sensitivity.path)
        return f"local {name}" if self.local else name

    def rank(self, quantized: QuantizedModel) -> Ranked:
        """The nodes, the one first that hurts most.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The model cannot be run.
        """
        if isinstance(self.sensitivity, UserSensitivity):
            return self._one_by_one(quantized, self.sensitivity)
        if self.local:
            return self._one_by_one(quantized, _by_metric(self.sensitivity))
        # As trials are judged: by means over samples.
        metrics = tuple(dict.fromkeys(map(mean_of, (self.sensitivity, *SENSITIVITIES))))
        settings = SensitivitySettings(
            kinds=("node",),
            metrics=metrics,
            parts=True,
            samples=_SAMPLES,
            first_samples=_FIRST_SAMPLES,
            top=_LEADING,
            threads=self.threads,
            max_memory=self.max_memory,
        )
        found = analyze_sensitivity(quantized, self.samples, settings, progress=self.progress)
        rows = found.rankings.get("node", ())
        runs = sum(len(row.score.samples) for row in rows) + min(_SAMPLES, len(self.samples.names))
        harm = [-row.score.mean[mean_of("sqnr_db")] for row in rows]
        return Ranked(tuple(row.score.subject.name for row in rows), count_outliers(harm), runs)

    def _one_by_one(self, quantized: QuantizedModel, user: UserSensitivity) -> Ranked:
        """Rank by running the network once for each node, with that alone quantized."""
        chosen = spread(len(self.samples.names), _FIRST_SAMPLES)
        feeds = [read_feed(quantized.float_model, self.samples, index) for index in chosen]
        scores = scores_of_nodes(
            quantized, feeds, user, local=self.local, threads=self.threads, progress=self.progress
        )
        names = worst_names(scores, higher_is_better=user.higher_is_better)
        return Ranked(names, 1, 2 * len(scores) * len(feeds))


def _by_metric(name: str) -> UserSensitivity:
    """A metric as a function of two arrays."""
    (metric,) = require([name], command="tune", offers=ROW_FIELDS)

    def compare(reference: Array, candidate: Array) -> float:
        sums = merged_rows(RowMeter([metric]).measure([reference], [candidate], 1)[:, 0])
        return math.nan if sums is None else metric.value(sums)

    return UserSensitivity(Path(name), compare, metric.direction == "higher")


# A proxy for the metric before anything is measured: SQNR of the outputs on a few calibration samples.

_PROXY_SAMPLES = 16


class ProxyScore:
    """Compares outputs of quantized networks with those of the float network, on calibration samples.

    Unlike a metric that counts right answers it tells two networks apart that have all of them wrong; and as the
    samples of the evaluation stay unseen, what is chosen by it is not chosen to suit just these.

    Args:
        model: The float network.
        samples: Calibration samples; some of them are run.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.

    Attributes:
        runs: Samples run for one network, and for that in float.
    """

    def __init__(
        self, model: Model, samples: Samples, *, threads: int | None = None, max_memory: int | None = None
    ) -> None:
        self._chosen = spread(len(samples.names), _PROXY_SAMPLES)
        self._model, self._samples, self._threads, self._max_memory = model, samples, threads, max_memory
        self._judge: SignalJudge | None = None
        self.runs = len(self._chosen)

    def decibels(self, quantized: QuantizedModel) -> float | None:
        """Signal to noise of the outputs; None where they are no numbers to compare.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if self._judge is None:
            some = Subset(self._samples, self._chosen)
            try:
                bench = Bench(self._model, some, threads=self._threads, max_memory=self._max_memory)
                self._judge = SignalJudge(bench)
            except BadInput:
                return None
        model = switch_on(quantized.float_model, quantized.quantizers)
        return float(self._judge.measure(model, range(self._judge.total)).mean())


_NARROW = 8
# Less is chance.
_LEAST_GAIN_DB = 0.05


class TuneProblem(Protocol):
    """A network that is to be quantized. All it says is the same whenever it is asked."""

    @property
    def base(self) -> Recipe:
        """The plain recipe: the target's defaults, and what the user asked for."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """What nodes can be raised to, the cheaper one first; ``float`` last where the target allows it."""
        ...

    @property
    def nodes(self) -> Sequence[str]:
        """All nodes of the network by name."""
        ...

    def free_options(self) -> tuple[FreeOption, ...]:
        """Options that cost nothing on the chip, in the order they should be tried."""
        ...

    def with_option(self, recipe: Recipe, option: FreeOption) -> Recipe:
        """A recipe with a free option taken; the same recipe when that changes nothing."""
        ...

    def with_wide_stream(self, recipe: Recipe) -> Recipe | None:
        """A recipe with the residual stream of a transformer in more bits; None where there is none."""
        ...

    def with_smooth_norms(self, recipe: Recipe) -> Recipe | None:
        """A recipe with layers that read norms smoothed; None where there are none."""
        ...

    def proxy_db(self, recipe: Recipe) -> float | None:
        """Signal to noise of the outputs in decibels, on a few samples; None where that is not known."""
        ...

    def worth_trying(self, recipe: Recipe, other: Recipe) -> bool:
        """Whether a recipe is worth a trial when another one is known: not if its outputs are clearly noisier."""
        ...

    def ranking(self, recipe: Recipe) -> tuple[str, ...]:
        """The nodes, the one first that hurts most."""
        ...

    def outstanding(self, recipe: Recipe) -> int:
        """How many of the first nodes of the ranking stand out from the rest; at least 1."""
        ...

    def weak(self, recipe: Recipe, cosine: float) -> tuple[str, ...]:
        """Nodes whose own results do not exceed a cosine on one sample, all they read being exact; worst first."""
        ...

    def raised(self, recipe: Recipe, nodes: Sequence[str], precision: str) -> Recipe:
        """A recipe with some nodes in another precision, whatever they had before."""
        ...

    def raised_nodes(self, recipe: Recipe) -> dict[str, str]:
        """The nodes that a recipe raises, each with its precision, in the order they were raised."""
        ...

    def with_nodes(self, recipe: Recipe, nodes: Mapping[str, str]) -> Recipe:
        """A recipe that raises just these nodes, each to its precision."""
        ...

    def cost(self, recipe: Recipe) -> float:
        """What the model costs to run, where the plain recipe is 1; infinitely much where there is none."""
        ...

    def affordable(self, recipe: Recipe) -> bool:
        """Whether that is within what the user allows."""
        ...


class ModelProblem:
    """The problem of a real network.

    Args:
        builder: Makes models of recipes.
        base: The plain recipe.
        costs: Weighs plans.
        ranker: Finds which nodes matter, on samples that serve for proxies, too.
        journal: Remembers rankings and costs.
        max_cost: What a model may cost; None for no limit.

    Attributes:
        nodes: All nodes of the network by name.
        last_ranking: The ranking that was asked for last; empty when none was.
        unpromising: Changes that would have made outputs noisier, as messages.
        failed: Options of which not even a recipe could be made, and why.
    """

    def __init__(
        self,
        builder: RecipeBuilder,
        base: Recipe,
        *,
        costs: CostModel,
        ranker: Ranker,
        journal: TrialJournal,
        max_cost: float | None = None,
    ) -> None:
        self.base = base
        self._builder, self._costs, self._ranker, self._journal = builder, costs, ranker, journal
        self._max_cost = max_cost
        self._proxy = ProxyScore(
            builder.prepared.model, ranker.samples, threads=ranker.threads, max_memory=ranker.max_memory
        )
        self.last_ranking: tuple[str, ...] = ()
        self.unpromising: dict[Message, None] = {}
        self.failed: dict[str, str] = {}
        self._known: dict[Recipe, float] = {}
        self._whole = costs.cost(builder.plan(base))
        graph = builder.prepared.model.proto.graph
        leaving = set(outputs(builder.prepared.model))
        self.nodes = tuple(node.name for node in graph.node)
        self._last = frozenset(node.name for node in graph.node if leaving & set(node.output))

    @property
    def precisions(self) -> tuple[str, ...]:
        """More bits for activations, of the default's sign if possible, then for weights too, then float."""
        target = self._builder.target
        wide = [dtype for dtype in target.activations if int(dtype[1:]) > _NARROW]
        wide.sort(key=lambda dtype: dtype[0] != target.activation[0])
        weights = [dtype for dtype in target.weights if int(dtype[1:]) > _NARROW]
        both = [f"{wide[0]},weight={weights[0]}"] if wide and weights else []
        return (*wide[:1], *both, *((FLOAT,) if target.float_allowed else ()))

    def free_options(self) -> tuple[FreeOption, ...]:
        """Those of the network, the target and the installation."""
        return free_options(self._builder)

    def with_option(self, recipe: Recipe, option: FreeOption) -> Recipe:
        """A recipe with a free option taken; the same recipe, and a note, where finding what to change fails."""
        try:
            return with_option(recipe, option, self._builder)
        except Exception as error:  # noqa: BLE001 - other options do not depend on it
            self.failed[f"{option.kind} {option.name}".strip().replace("_", " ")] = reason(error)
            return recipe

    @cached_property
    def _parts(self) -> TransformerParts:
        return find_parts(self._builder.prepared.model)

    def with_wide_stream(self, recipe: Recipe) -> Recipe | None:
        """Additions, norms and sums of embeddings, as one: each alone gains nothing while others are narrow."""
        wide = [precision for precision in self.precisions if precision != FLOAT and "weight" not in precision]
        if not self._parts.stream or not wide:
            return None
        return self.raised(recipe, self._stream(), wide[0])

    def _stream(self) -> list[str]:
        """Nodes of the stream; of a norm that the target computes as one only those that read what it norms."""
        target, nodes = self._builder.target, self._builder.prepared.model.proto.graph.node
        reading = {node.name: set(node.input) for node in nodes}
        inside = {
            name
            for norm in self._parts.norms
            if (norm.name,) in target.fusions
            for name in norm.nodes
            if norm.entry not in reading[name] and name not in self._last
        }
        return [name for name in self._parts.stream if name not in inside]

    def with_smooth_norms(self, recipe: Recipe) -> Recipe | None:
        """Smoothing of layers that read norms; a Mul that is inserted for it reads as many bits as the stream."""
        layers = self._parts.norm_readers
        if not layers or "smooth" not in self._builder.library.transforms():
            return None
        step = Step("smooth", (("insert", True), ("threshold", 1.0)), layers)
        smoothed = replace(recipe, transforms=(*recipe.transforms, step), tensor_methods=())
        try:
            graph = self._builder.float_model(smoothed).proto.graph
        except Exception as error:  # noqa: BLE001 - other recipes do not depend on it
            self.failed["smooth norms"] = reason(error)
            return None
        known = {node.name for node in self._builder.prepared.model.proto.graph.node}
        added = [node.name for node in graph.node if node.op_type == "Mul" and node.name not in known]
        had = dict.fromkeys(self.raised_nodes(recipe).values())
        return self.raised(smoothed, added, next(iter(had))) if added and had else smoothed

    def worth_trying(self, recipe: Recipe, other: Recipe) -> bool:
        """Whether the outputs have more signal to noise, on a few calibration samples, or it is not known."""
        ours, theirs = self.proxy_db(recipe), self.proxy_db(other)
        if ours is None or theirs is None or ours > theirs + _LEAST_GAIN_DB:
            return True
        self.unpromising[describe(recipe, other)] = None
        return False

    def proxy_db(self, recipe: Recipe) -> float | None:
        """Signal to noise of the outputs, on a few calibration samples."""
        key = f"promise {recipe_key(recipe)}"
        known = self._journal.fact(key)
        if known is None:
            progress = self._ranker.progress
            progress.start(f"a few samples: {describe(recipe, self.base)}", 1)
            try:
                found = self._proxy.decibels(self._builder.build(recipe).quantized)
            except Exception:
                # Without the plain recipe there is nothing to search from; of others a trial says why.
                if recipe == self.base:
                    raise
                found = None
            finally:
                progress.finish()
            known = {"decibels": found, "runs": self._proxy.runs if found is not None else 0}
            self._journal.add_fact(key, known)
        return None if known["decibels"] is None else float(known["decibels"])

    def ranking(self, recipe: Recipe) -> tuple[str, ...]:
        """The nodes by what they do to the outputs when they alone are quantized."""
        self.last_ranking = tuple(self._ranked(recipe)["nodes"])
        return self.last_ranking

    def outstanding(self, recipe: Recipe) -> int:
        """How many nodes stand out from the rest."""
        return int(self._ranked(recipe)["outstanding"])

    def _ranked(self, recipe: Recipe) -> dict[str, Any]:
        key = f"ranking {self._ranker.words} {recipe_key(recipe)}"
        known = self._journal.fact(key)
        if known is None:
            known = asdict(self._ranker.rank(self._builder.build(recipe).quantized))
            self._journal.add_fact(key, known)
        return dict(known)

    def weak(self, recipe: Recipe, cosine: float) -> tuple[str, ...]:
        """Nodes whose own results do not exceed a cosine, each named by the first that is computed with it."""
        key = f"weak {cosine} {recipe_key(recipe)}"
        known = self._journal.fact(key)
        if known is None:
            known = {"nodes": list(self._find_weak(recipe, cosine)), "runs": 1}
            self._journal.add_fact(key, known)
        return tuple(known["nodes"])

    def _find_weak(self, recipe: Recipe, cosine: float) -> dict[str, float]:
        ranker, built = self._ranker, self._builder.build(recipe)
        settings = LayerSettings("local", samples=1, max_memory=ranker.max_memory, threads=ranker.threads)
        report = analyze_layers(built.quantized, ranker.samples, settings, progress=ranker.progress)
        graph = built.quantized.float_model.proto.graph
        nodes = [node.name for node in graph.node if node.op_type != "Constant"]
        units = {name: planned.unit for name, planned in zip(nodes, built.plan.nodes, strict=True)}
        found: dict[str, float] = {}
        for row in report.rows:
            score = None if row.local is None or row.levels is None else row.local.cosine
            if score is not None and score <= cosine:
                unit = units[row.node]
                found[unit] = min(score, found.get(unit, score))
        return dict(sorted(found.items(), key=lambda each: each[1]))

    def ranking_runs(self) -> int:
        """Samples run for all rankings, proxies and looks at single nodes so far."""
        proxies = self._journal.facts("promise ")
        facts = [*self._journal.facts("ranking "), *proxies, *self._journal.facts("weak ")]
        # What all proxies are compared with is run once.
        in_float = self._proxy.runs if any(fact["runs"] for fact in proxies) else 0
        return in_float + sum(int(fact["runs"]) for fact in facts)

    def raised(self, recipe: Recipe, nodes: Sequence[str], precision: str) -> Recipe:
        """A recipe with some nodes in another precision."""
        before = {node: had for node, had in self.raised_nodes(recipe).items() if node not in nodes}
        return self.with_nodes(recipe, {**before, **dict.fromkeys(nodes, precision)})

    def raised_nodes(self, recipe: Recipe) -> dict[str, str]:
        """The nodes that a recipe raises."""
        own = [rule for rule in recipe.rules if rule.kind == "node" and rule not in self.base.rules]
        return {rule.selector[0]: inputs_text(rule.precision) for rule in own}

    def with_nodes(self, recipe: Recipe, nodes: Mapping[str, str]) -> Recipe:
        """A recipe that raises just these nodes."""
        rules = [Rule("node", (name,), self._precision(name, text)) for name, text in nodes.items()]
        return replace(recipe, rules=(*self.base.rules, *rules))

    def _precision(self, name: str, text: str) -> Precision:
        activation, _, weight = text.partition(",weight=")
        weight = FLOAT if activation == FLOAT else weight
        # What a node hands on is what the next one reads; behind the last one there is none.
        return Precision(activation, weight, activation if name in self._last else "")

    def cost(self, recipe: Recipe) -> float:
        """Relative to the plain recipe."""
        if recipe not in self._known:
            try:
                costs = self._costs.of(self._builder.float_model(recipe)) if recipe.transforms else self._costs
                self._known[recipe] = costs.cost(self._builder.plan(recipe)) / (self._whole or 1.0)
            except Exception:
                if recipe == self.base:
                    raise
                self._known[recipe] = math.inf
        return self._known[recipe]

    def affordable(self, recipe: Recipe) -> bool:
        """Whether it is within the limit; where there is no model, a trial says why."""
        return self._max_cost is None or self.cost(recipe) <= self._max_cost or math.isinf(self.cost(recipe))

    # What these were called before; strategies of users may still say so.
    levers, pulled, promise, promises = free_options, with_option, proxy_db, worth_trying
