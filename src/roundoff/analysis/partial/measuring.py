"""Scores of networks between quantized and float: by their outputs, or by a function of the user's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roundoff.analysis.evaluation import EvaluationSamples, Evaluator, make_run
from roundoff.analysis.partial.knee import default_goal, parse_goal, reaches
from roundoff.analysis.partial.settings import ACCURACY, OUTPUT_SCORES, PartialSettings
from roundoff.analysis.partial.trying import Trial, score_candidates
from roundoff.core.partial import Goal
from roundoff.core.progress import Progress
from roundoff.core.quantizer import Quantizer
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples

__all__ = ["Measured", "by_evaluator", "by_outputs"]

# What the float network scores against itself.
_PERFECT = {"cosine": 1.0, "sqnr_db": math.inf, "same_top1": 1.0}

Choices = Sequence[Sequence[Quantizer]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured.

    Attributes:
        name: Of the score.
        higher_is_better: Which way it is better.
        float_score: That of the float network.
        goal: What is to be reached.
        scores: The score of each network, as far as they were measured.
        others: Other scores of each network.
        interrupted: Whether Ctrl-C ended it.
    """

    name: str
    higher_is_better: bool
    float_score: float
    goal: Goal
    scores: tuple[float, ...]
    others: tuple[dict[str, float], ...]
    interrupted: bool = False


def by_outputs(
    model: Model, samples: Samples, choices: Choices, settings: PartialSettings, *, progress: Progress
) -> Measured:
    """Score networks by how their outputs agree with those in float, and with labels where there are any.

    Args:
        model: The float model.
        samples: What to run it on.
        choices: For each network the quantizers that are on.
        settings: What to measure.
        progress: Told of every sample.

    Raises:
        BadInput: No output has such a score, or the goal cannot be read.
        ModelFailed: The model cannot be run.
    """
    name = settings.score or (OUTPUT_SCORES[0] if settings.labels is None else ACCURACY)
    text = settings.goal or default_goal(name)
    indices = range(len(samples.names))[: settings.samples]
    trial = Trial(model, samples, indices, settings.labels, settings.max_memory, settings.threads)
    found, accuracy = score_candidates(trial, choices, progress=progress)
    if any(name not in scores for scores in found):
        able = [each for each in OUTPUT_SCORES if all(each in scores for scores in found)]
        fix = f"choose another score: {', '.join(able)}" if able else "measure it with --evaluator"
        raise BadInput(f"{model.path} has no output for which {name} can be said.", fix=fix)
    whole = _PERFECT.get(name, accuracy or 0.0)
    return Measured(
        name=name,
        higher_is_better=True,
        float_score=whole,
        goal=parse_goal(text, score=name, float_score=whole, higher_is_better=True),
        scores=tuple(scores[name] for scores in found),
        others=tuple({key: value for key, value in scores.items() if key != name} for scores in found),
    )


def by_evaluator(
    model: Model,
    samples: Samples,
    choices: Choices,
    settings: PartialSettings,
    *,
    evaluator: Evaluator,
    progress: Progress,
) -> Measured:
    """Score networks one after the other with a function of the user's. Ctrl-C keeps what is done.

    Args:
        model: The float model.
        samples: What the function is given.
        choices: For each network the quantizers that are on.
        settings: What to reach.
        evaluator: The function.
        progress: Told of every network.

    Raises:
        BadInput: The function failed, or the goal cannot be read.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before any network was measured.
    """
    name, higher = evaluator.name, evaluator.higher_is_better
    seen = EvaluationSamples(model, samples, range(len(samples.names))[: settings.samples])
    scores: list[float] = []
    interrupted = False
    progress.start("evaluating", len(choices) + 1)
    try:
        whole = evaluator(make_run(model, threads=settings.threads), seen)
        goal = parse_goal(
            settings.goal or default_goal(""), score=name, float_score=whole, higher_is_better=higher
        )
        progress.advance()
        for at, quantizers in enumerate(choices):
            if at and _same(quantizers, choices[at - 1]):
                scores.append(scores[-1])
            else:
                scores.append(evaluator(make_run(switch_on(model, quantizers), threads=settings.threads), seen))
            progress.advance()
            if settings.stop_at_goal and reaches(scores[-1], goal, higher_is_better=higher):
                break
    except KeyboardInterrupt:
        if not scores:
            raise
        interrupted = True
    finally:
        progress.finish()
    return Measured(name, higher, whole, goal, tuple(scores), tuple({} for _ in scores), interrupted)


def _same(left: Sequence[Quantizer], right: Sequence[Quantizer]) -> bool:
    return list(map(id, left)) == list(map(id, right))
