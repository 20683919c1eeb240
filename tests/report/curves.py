"""Results to be shown."""

import math
from dataclasses import replace

from roundoff.messages.message import verbatim
from roundoff.studies.accumulate.result import (
    Accumulation,
    AccumulationVerdict,
    CurveNode,
    Jump,
    MeasuredCurve,
    Split,
    running_means,
)
from roundoff.studies.partial.result import PartialQuantization, PartialStep, ScoreGoal


def curves_of(nodes: int = 4, names: tuple[str, ...] = ("weight", "activation")) -> Accumulation:
    """Curves that fall at the third node; the first after the base line is like it, others stay at the top."""
    places = tuple(
        CurveNode(at, f"block{at}/conv", "Conv", f"tensor{at}", output=at == nodes - 1) for at in range(nodes)
    )
    low = tuple(0.999 if at < 2 else 0.5 for at in range(nodes))
    high = tuple(1.0 for _ in range(nodes))
    curves = []
    for number, name in enumerate(("all", *names)):
        values: tuple[float | None, ...] = low if number < 2 else high
        level = tuple(math.inf if value == 1 else 30.0 if value == 0.999 else 1.2 for value in values)
        samples = ("s1",) * nodes
        curves.append(MeasuredCurve(name, ("q",), values, running_means(values), values, samples, level))
    verdict = AccumulationVerdict(
        dominance="weights",
        exact_weights=False,
        output=places[-1].tensor,
        at_output=Split(1.2, math.inf, 1.2),
        near_output=Split(1.2, math.inf, 1.2),
        near_places=3,
        together=False,
        falls_at=2,
        fall_db=20.0,
        recovers=False,
        jumps=(Jump(2, 30.0, 1.2),),
    )
    return Accumulation("float.onnx", ("s0", "s1"), "cosine", True, False, places, tuple(curves), verdict)


def sweep_of() -> PartialQuantization:
    """The table of the case this analysis is named after."""
    scores = ((0, "", 0.71138), (1, "a/conv", 0.73), (2, "b/conv", 0.78004), (3, "c/conv", 0.779))
    steps = tuple(
        PartialStep(
            count, name, "Conv" if name else "", (name,), score, score / 0.78788, {"cosine": 0.9 + count / 100}
        )
        for count, name, score in scores
    )
    return PartialQuantization(
        reference="float.onnx",
        samples=50,
        score="accuracy",
        higher_is_better=True,
        float_score=0.78788,
        to="float",
        ranking=verbatim("as given"),
        subjects=("a/conv", "b/conv", "c/conv", "d/conv"),
        steps=steps,
        goal=ScoreGoal("99%", 0.78788 * 0.99),
        knee=2,
        levels_off=2,
        drops=(3,),
        complete=True,
    )


def without_goal(found: PartialQuantization) -> PartialQuantization:
    """The same with a goal that is never reached."""
    return replace(found, goal=ScoreGoal("0.9", 0.9), knee=None)
