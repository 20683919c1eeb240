"""What outputs lose sample by sample, by which two diagnoses can be told apart."""

from collections.abc import Sequence

from roundoff.core.quantizer import Quantizer
from roundoff.diagnosis.lab import Lab, can_fuse
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.runtime.session import open_session

__all__ = ["sample_losses"]


def sample_losses(lab: Lab, quantizers: Sequence[Quantizer]) -> list[Loss]:
    """What the outputs lose in each sample.

    Args:
        lab: Knows the network and its samples.
        quantizers: All that are on.

    Raises:
        ModelFailed: The model cannot be run.
    """
    model = switch_on(lab.model, quantizers)
    session = open_session(model, threads=lab.threads, fused=can_fuse(quantizers))
    names, losses = outputs(model), []
    for (sample, feed), exact in zip(lab.feeds(), lab.float_outputs(), strict=True):
        meter = LossMeter(lab.parts)
        meter.add(exact, dict(zip(names, session.run(feed, sample=sample), strict=True)))
        losses.append(meter.loss())
    return losses
