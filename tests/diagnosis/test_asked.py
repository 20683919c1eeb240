"""Precision that was asked for and not granted."""

from dataclasses import replace

from roundoff.core.plan import NodePlan, Precision, QuantPlan
from roundoff.diagnosis.culprits import asked_bits
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.study import diagnose_quantization
from tests.diagnosis.planting import changed, demo, narrower

WIDE, NARROW = Precision("u8", "s8", "u16"), Precision("u8", "s8", "u8")


def plan(requested: Precision, effective: Precision) -> QuantPlan:
    return QuantPlan("x", (), (NodePlan("block3/relu", "Relu", "block3/relu", requested, effective),))


def test_what_was_asked_for_and_not_granted_is_found() -> None:
    quantized, _ = demo()
    assert asked_bits(quantized, plan(WIDE, NARROW)) == {"q:block3/relu": 16}
    assert asked_bits(quantized, plan(NARROW, NARROW)) == {}
    assert asked_bits(quantized, plan(WIDE, WIDE)) == {}
    assert asked_bits(quantized, plan(WIDE, Precision())) == {}
    assert asked_bits(quantized, None) == {}
    floats = replace(NARROW, output="float")
    assert asked_bits(quantized, plan(floats, NARROW)) == {"q:block3/relu": 16}


def test_a_loss_that_the_bits_asked_for_would_spare_is_named_so() -> None:
    quantized, samples = demo()
    coarse = changed(quantized, "block3/relu", narrower(2))
    found = diagnose_quantization(coarse, samples, DiagnoseSettings(plan=plan(WIDE, NARROW)))
    (finding,) = found.accused
    assert (finding.cause, finding.nodes[0]) == ("ignored-precision", "block3/relu")
    assert str(finding.summary) == "16 bits were asked for 'block3/relu' (Relu), and it has 2"
    assert next(each for each in found.checks if str(each.name) == "precision asked for").ok is False
