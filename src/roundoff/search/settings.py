"""What to search for, on what, and where what is found is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.plan import Recipe
from roundoff.core.target import Costs, Target
from roundoff.core.tensors import Array
from roundoff.quantize.recipes import Built
from roundoff.quantize.steps import INSTALLED, Workshop
from roundoff.run.capture import Samples
from roundoff.search.judge_options import JudgeOptions
from roundoff.search.ranking import SENSITIVITIES
from roundoff.search.result import Trial
from roundoff.search.strategies import STRATEGIES
from roundoff.search.strategies.strategy import Strategy
from roundoff.studies.sensitivity.functions import UserSensitivity

__all__ = ["IN_MEMORY", "JOURNAL_NAME", "MODEL_FACT", "TestSet", "TuneData", "TuneSettings", "TuneStore"]

JOURNAL_NAME = "journal.sqlite"
"""The file of a search's folder that remembers what was measured."""

MODEL_FACT = "the model"
"""Under this name the hash of the model is among what results depend on."""

_PLAIN = Recipe()
_AGREEMENT = JudgeOptions()


@dataclass(frozen=True, slots=True)
class TestSet:
    """Samples that the search does not use.

    Attributes:
        samples: The samples.
        labels: The right class of each row of the outputs; None when nobody knows.
    """

    samples: Samples
    labels: Array | None = None


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """What to search for, and how.

    Attributes:
        target: For which chip.
        base: The plain recipe: what the user wants in any case.
        options: Options of calibration methods.
        strategy: How to search.
        judge: What candidates are measured by.
        max_drop: What may be lost: ``1%`` of the float score, or a difference.
        min_metric: The metric to reach, instead.
        max_cost: What a model may cost, where the plain one is 1; None for no limit.
        costs: What work costs; as the target says when None.
        max_trials: Most recipes to try; None for no limit.
        time_s: Seconds after which no new trial is begun; None for no limit.
        holdout: Share of the evaluation samples that the search does not use.
        sensitivity: What nodes are ranked by.
        local: Rank nodes by what they hand on themselves, instead of by the outputs of the network.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.
        workshop: Applies transforms and corrections.
    """

    target: Target
    base: Recipe = _PLAIN
    options: Mapping[str, float] = field(default_factory=dict)
    strategy: Strategy = STRATEGIES["greedy"]
    judge: JudgeOptions = _AGREEMENT
    max_drop: str = ""
    min_metric: float | None = None
    max_cost: float | None = None
    costs: Costs | None = None
    max_trials: int | None = None
    time_s: float | None = None
    holdout: float = 0.0
    sensitivity: str | UserSensitivity = SENSITIVITIES[0]
    local: bool = False
    threads: int | None = None
    max_memory: int | None = None
    workshop: Workshop = INSTALLED


@dataclass(frozen=True, slots=True)
class TuneData:
    """Samples of a search.

    Attributes:
        calibration: What activations are observed on, and nodes ranked.
        evaluation: What candidates are measured on.
        test: What the answer is measured on at the end; None when there is nothing more.
    """

    calibration: Samples
    evaluation: Samples
    test: TestSet | None = None


@dataclass(frozen=True, slots=True)
class TuneStore:
    """Where what is found is kept.

    Attributes:
        folder: Where the journal and statistics go, so that a later run goes on from there; nowhere when None.
        problem: Everything the results depend on, by name; a journal of another problem is refused.
        on_best: Told of each model that is the best so far.
        on_trial: Told of each trial when it is over, of the best so far, and what the metric is called.
    """

    folder: Path | None = None
    problem: Mapping[str, str] = field(default_factory=dict)
    on_best: Callable[[Built, Trial], None] | None = None
    on_trial: Callable[[Trial, Trial, str], None] | None = None


IN_MEMORY = TuneStore()
"""Keeps everything in memory, as long as the search takes."""
