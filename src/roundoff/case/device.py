"""The part of a network that a device computes wrongly, between tensors that it wrote."""

from collections.abc import Sequence
from statistics import median

from roundoff.case.parts import placed
from roundoff.case.reproducer import (
    BEST_DB,
    Reproducer,
    ReproducerSample,
    Spot,
    as_good_as,
    clearly_better,
    sqnr_at,
)
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.local_errors import OutputLoss
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import loss_measures
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.shapes import Value
from roundoff.graph.subgraph import Parts

__all__ = ["reproduce_device"]

_MOST_SAMPLES = 4
# Other tensors, whose agreement says what a right one has.
_MOST_OTHERS = 12
_SMALLEST_DB = 3.0


def reproduce_device(
    replay: DeviceReplay, finding: Finding, *, values: Sequence[Value], most_samples: int = _MOST_SAMPLES
) -> Reproducer:
    """What a device computed of one tensor, next to what follows from its own inputs.

    Args:
        replay: The device's tensors and the network.
        finding: What to show.
        values: All tensors of the float network, with their types.
        most_samples: Samples that come along.

    Raises:
        BadInput: The finding is about no tensor that the device computed, or the fault is not there.
        ModelFailed: The network cannot be run.
    """
    tensor = next((name for name in finding.tensors if name in replay.spans), "")
    if not tensor:
        raise BadInput(
            f"Finding {finding.number} ({finding.cause}) is about no tensor that the device computed by itself.",
            fix="for what the device was fed, see roundoff check-io; else choose another finding with --finding",
        )
    chosen = replay.indices[:most_samples]
    pairs = [replay.pair(tensor, sample) for sample in chosen]
    spot = Spot(tensor)
    exact, found = (
        [{tensor: array} for array in side] for side in zip(*((p.exact, p.found) for p in pairs), strict=True)
    )
    # What is wrong everywhere is not less so because other tensors are no better.
    everywhere = len(finding.tensors) > 1
    faulty, healthy = sqnr_at(spot, exact, found), BEST_DB if everywhere else _healthy_db(replay, tensor)
    if healthy - faulty < _SMALLEST_DB:
        what = (
            f"On the device {tensor!r} follows from what it reads to {faulty:.1f} dB, as other tensors do "
            f"({healthy:.1f} dB)."
        )
        raise BadInput(what, fix="choose another finding with --finding")
    span = replay.spans[tensor]
    parts = Parts(replay.model, values)
    part = parts.part(span.nodes)
    feeds = [_feed(replay, sample, part.reads) for sample in chosen]
    shapes = {name: array.shape for name, array in {**feeds[0], **exact[0]}.items()}
    same = all({name: array.shape for name, array in feed.items()}.items() <= shapes.items() for feed in feeds)
    model = parts.model(part, shapes if same else None)
    quantizers = placed(replay.quantizers, part)
    kinds = {node.name: node.op_type for node in replay.model.proto.graph.node}
    before, after, passes, unnoticed = None, None, True, False
    outputs = OutputLoss(replay)
    if outputs.can_tell:
        before, after = outputs.of_device(), outputs.with_right(tensor)
        better = clearly_better(before, after)
        # With nothing wrong at the outputs, nothing can get better.
        passes = better or as_good_as(after, outputs.of_arithmetic())
        unnoticed = passes and not better
    return Reproducer(
        nodes=tuple((name, kinds[name]) for name in part.nodes),
        float_model=model,
        quantized_model=insert_quantizers(model, quantizers) if quantizers else None,
        samples=tuple(
            ReproducerSample(replay.readout.samples[sample][0], feed, right, wrong)
            for sample, feed, right, wrong in zip(chosen, feeds, exact, found, strict=True)
        ),
        stored=True,
        spot=spot,
        faulty_db=faulty,
        mended_db=healthy,
        threshold_db=(faulty + healthy) / 2,
        mending="where results are rounded" if everywhere else "in its other tensors",
        complement=None if before is None or after is None else loss_measures(before, after)[0],
        alone=None,
        passes=passes,
        unnoticed=unnoticed,
    )


def _feed(replay: DeviceReplay, sample: int, names: tuple[str, ...]) -> dict[str, Array]:
    """What the device itself had of these tensors."""
    view = replay.view(sample)
    return {name: view[name] for name in names}


def _healthy_db(replay: DeviceReplay, tensor: str) -> float:
    """How well the device's other tensors follow from what they read."""
    others = [name for name in replay.tensors if name != tensor]
    every = max(1, len(others) // _MOST_OTHERS)
    found = []
    for name in others[::every][:_MOST_OTHERS]:
        pair = replay.pair(name, replay.indices[0])
        found.append(sqnr_at(Spot(name), [{name: pair.exact}], [{name: pair.found}]))
    return median(found) if found else BEST_DB
