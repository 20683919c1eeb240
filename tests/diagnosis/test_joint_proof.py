"""A finding of many places is measured at exactly the places it names."""

import pytest

from roundoff.diagnosis.ideal import ideals
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import Case, Fixes, open_case
from roundoff.graph.quantized_model import QuantizedModel
from tests.diagnosis.planting import changed, demo, scaled


def spoilt(strongly: float, slightly: float) -> QuantizedModel:
    """All weights with wrong scales, every other one only a bit: those are like the others, and cost less."""
    quantized, _ = demo()
    weights = dict.fromkeys(each.tensor for each in quantized.quantizers if each.kind == "weight")
    for place, name in enumerate(weights):
        quantized = changed(quantized, name, scaled(slightly if place % 2 else strongly))
    return quantized


def put_right(case: Case, finding: Finding) -> Fixes:
    """The best weights of the same bits, at the places that a finding names and nowhere else."""
    fixes: Fixes = {}
    for each in ideals(case):
        best = each.best(settings=True)
        if each.suspect.kind == "weight" and each.suspect.tensor in finding.tensors and best is not None:
            fixes = {**fixes, **best.fixes}
    return fixes


@pytest.mark.parametrize("factors", [(0.25, 0.25), (0.25, 0.8), (6.0, 2.0)])
def test_decibels_and_share_are_those_of_the_named_places(factors: tuple[float, float]) -> None:
    quantized = spoilt(*factors)
    found = diagnose_quantization(quantized, demo()[1])
    joint = found.accused[0]
    assert joint.places == len(joint.accused_nodes) == len(joint.tensors) > 4
    assert all(len(each.tensors) == each.places == 1 for each in found.accused[1:])

    case = open_case(quantized, demo()[1])
    fixes = [put_right(case, each) for each in found.accused]
    assert [len(each) for each in fixes] == [each.places for each in found.accused]
    others = case.mend({name: each for part in fixes[1:] for name, each in part.items()})
    # What was found beside the joint finding may have been put right before it was measured, or after.
    proofs = [each.measures(fixes[0]) for each in (case, others)]
    assert joint.measures[0].after in [pytest.approx(proof[0].after, abs=1e-9) for proof in proofs]
    assert joint.measures[0].before in [pytest.approx(proof[0].before, abs=1e-9) for proof in proofs]

    alone = case.loss().value - case.mend(fixes[0]).loss().value
    everything = {name: each for part in fixes for name, each in part.items()}
    together = case.loss().value - case.mend(everything).loss().value
    assert joint.share == pytest.approx(alone / together, abs=5e-3)
    assert sum(each.share for each in found.accused) == pytest.approx(1.0)
