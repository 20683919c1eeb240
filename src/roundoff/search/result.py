"""A search for the cheapest quantization that meets an accuracy goal, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.coverage import Coverage, Doubt
from roundoff.core.plan import Recipe
from roundoff.messages.message import NOTHING, Message

TuningVerdict = Literal["met", "unproven", "best_effort", "nothing_to_do"]
"""What came of a search: ``unproven`` is a goal that is met on the samples that were searched on, and not on
others, or where others are too few to show it, or there were none."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One recipe, and what was measured of it.

    Attributes:
        recipe: The recipe.
        change: What it does otherwise than the plain recipe, in words.
        met: Whether it meets the goal.
        score: The metric; where not all samples were run, what those suggest for all.
        loss: How much worse than float that is; negative when it is better.
        cost: What the model costs to run, where the plain recipe is 1.
        samples: Samples that decided it.
        whole: Whether these are all.
        number: Its place among all trials, from 1 in the order they were begun; 0 while that is open.
        seconds: Building and measuring it; not the same in another run.
    """

    recipe: Recipe
    change: Message
    met: bool
    score: float
    loss: float
    cost: float
    samples: int
    whole: bool
    number: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Remaining:
    """How much of a network is still computed in integers.

    Attributes:
        nodes: Nodes with integer inputs.
        all_nodes: Those and the ones in float.
        wide_nodes: Of the first, how many have an operand of more than 8 bits.
        products: Products of activations and weights computed in integers.
        all_products: Those and the ones in float.
        weight_bytes: What the weights take.
        float_bytes: What they would take in float.
    """

    nodes: int
    all_nodes: int
    wide_nodes: int
    products: int
    all_products: int
    weight_bytes: int
    float_bytes: int


@dataclass(frozen=True, slots=True)
class ForcedNode:
    """A node that changed its precision although nobody named it.

    Attributes:
        node: The node.
        precision: What it has now.
        reason: Why.
    """

    node: str
    precision: str
    reason: Message


@dataclass(frozen=True, slots=True)
class HoldOut:
    """The metric on samples that the search did not use.

    Attributes:
        samples: How many.
        float_score: In float.
        score: Of the answer.
        interval: Where the loss lies for many more samples like these, with a confidence of 95 %; None when
            the evaluator gives no value for each sample.
        met: Whether the goal is met on these, too; None where that was not asked.
        shown: Whether the interval shows it for other samples; None where there is none, or that was not asked.
    """

    samples: int
    float_score: float
    score: float
    interval: tuple[float, float] | None = None
    met: bool | None = None
    shown: bool | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a search found. All of it but the seconds is the same whenever the same search is run.

    Attributes:
        reference: The float model.
        target: For which chip.
        strategy: How was searched.
        metric: What was measured.
        higher_is_better: Which way it is better.
        float_score: Of the float model.
        goal: What was to be reached, in words.
        goal_value: The same as a value of the metric; None where the evaluator decides.
        verdict: What came of it.
        answer: Number of the trial that is delivered.
        trials: All of them.
        samples: Samples of a whole evaluation; 0 when only the evaluator knows.
        interval: Where the loss of the answer lies for many more samples like these, with a confidence of 95 %;
            None when the evaluator gives no value for each sample.
        minimal: Whether every recipe without one thing that costs something was tried and misses the goal; None
            when the answer has no such thing.
        remaining: How much of the network is still quantized.
        dragged: Nodes that others brought along.
        ranking: The nodes by what they do to the outputs, the worst first; empty when none was needed.
        front: Numbers of the trials that none beats in metric and cost, cheapest first; empty unless asked for.
        evaluations: Evaluations of the whole set, that of the float model among them.
        sample_runs: Samples run for all evaluations.
        ranking_runs: Samples run for rankings, as whole runs of the network.
        holdout: The metric on other samples.
        stopped: Why the search ended early; empty when it did not.
        notes: What the reader should know.
        added: What the answer has that the plain quantized model has not; None where that is nothing.
        doubts: What speaks against a good verdict: samples, labels, evaluator, time or the float network itself.
        coverage: What it rests on; None in documents of older versions.
    """

    reference: str
    target: str
    strategy: str
    metric: str
    higher_is_better: bool
    float_score: float
    goal: Message
    goal_value: float | None
    verdict: TuningVerdict
    answer: int
    trials: tuple[Trial, ...]
    samples: int
    interval: tuple[float, float] | None
    minimal: bool | None
    remaining: Remaining
    dragged: tuple[ForcedNode, ...] = ()
    ranking: tuple[str, ...] = ()
    front: tuple[int, ...] = ()
    evaluations: int = 0
    sample_runs: int = 0
    ranking_runs: int = 0
    holdout: HoldOut | None = None
    stopped: Message = NOTHING
    notes: tuple[Message, ...] = ()
    added: Message | None = None
    doubts: tuple[Doubt, ...] = ()
    coverage: Coverage | None = None

    @property
    def good(self) -> bool:
        """Whether the goal was met, and nothing speaks against the evidence."""
        return self.verdict not in ("best_effort", "unproven") and not self.doubts

    @property
    def best(self) -> Trial:
        """The trial that is delivered."""
        return self.trials[self.answer - 1]
