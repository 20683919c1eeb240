"""Sums that do not fit their register: one node in exact integers, with that register and with a wide one."""

from roundoff.core.findings import Finding
from roundoff.diagnosis.case import Case
from roundoff.diagnosis.integers import accumulators
from roundoff.diagnosis.reproducer.case import Reproducer, ReproducerSample
from roundoff.diagnosis.reproducer.feeding import GoldenFeeds, fixed_shapes, run_part
from roundoff.diagnosis.reproducer.placing import placed
from roundoff.diagnosis.reproducer.quantized import NotLocal
from roundoff.diagnosis.reproducer.spots import Spot, sqnr_at
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.subgraph import Parts
from roundoff.runtime.integer import IntegerRunner

__all__ = ["is_accumulator", "reproduce_accumulator"]

_MOST_SAMPLES = 4
_SMALLEST_DB = 3.0


def is_accumulator(finding: Finding) -> bool:
    """Whether a finding is about sums of products, which fake quantization does not show."""
    return finding.cause == "overflow" and "worst_ratio" in finding.evidence


def reproduce_accumulator(case: Case, finding: Finding, *, most_samples: int = _MOST_SAMPLES) -> Reproducer:
    """The node whose sums overflow most, alone, fed with what the float network computes.

    Args:
        case: The network.
        finding: What to show.
        most_samples: Samples that come along.

    Raises:
        NotLocal: Alone, the sums of no node overflow so that it matters.
        BadInput: A quantizer has no integer version.
        ModelFailed: The network cannot be run.
    """
    arithmetic, wide = accumulators(case.facts.arithmetic)
    model, quantizers = case.lab.model, case.quantizers()
    runners = [IntegerRunner(model, quantizers, each) for each in (wide, arithmetic)]
    golden = GoldenFeeds(case, case.lab.few()[:most_samples])
    parts = Parts(model, case.facts.everything)
    for name in finding.nodes:
        part = parts.part([name])
        tensor = case.facts.nodes[name].output[0]
        feeds = golden.of(part.reads)
        expected, observed = ([run.run_local(feed, [tensor]).values for feed in feeds] for run in runners)
        spot = Spot(tensor)
        cut = parts.model(part, fixed_shapes([*feeds, *expected]))
        coded = insert_quantizers(cut, placed(quantizers, part))
        rounded = run_part(coded, feeds)
        faulty, mended = sqnr_at(spot, rounded, observed), sqnr_at(spot, rounded, expected)
        if mended - faulty < _SMALLEST_DB:
            continue
        bits = f"sums of {arithmetic.accumulator_bits} bits that {arithmetic.overflow}"
        return Reproducer(
            nodes=((name, case.facts.nodes[name].op_type),),
            float_model=cut,
            quantized_model=coded,
            samples=tuple(
                ReproducerSample(sample, feed, {tensor: right[tensor]}, {tensor: wrong[tensor]})
                for sample, feed, right, wrong in zip(golden.names, feeds, expected, observed, strict=True)
            ),
            stored=True,
            spot=spot,
            faulty_db=faulty,
            mended_db=mended,
            threshold_db=(faulty + mended) / 2,
            mending="with sums of 64 bits",
            complement=next(iter(finding.measures), None),
            alone=None,
            passes=bool(finding.measures) and finding.measures[0].improved,
            fed="what the float network computes",
            observer=f"the same in exact integers, with {bits}",
            right="in integers with sums of 64 bits",
        )
    raise NotLocal(
        f"No node of finding {finding.number} (overflow) shows it by itself, fed with what the float network "
        "computes.",
        fix="send the whole case with roundoff bundle",
    )
