"""Which places cost most when nothing else is quantized: one by one, or group by group where there are many."""

from collections.abc import Callable, Mapping, Sequence

from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.subject import Case
from roundoff.diagnosis.suspects import Suspect
from roundoff.studies.sensitivity.ranking import PlaceCosts, place_costs

__all__ = ["SuspectCosts", "alone_loss", "rank"]

SuspectCosts = PlaceCosts[Suspect]
"""Suspects by what they cost alone."""


def rank(case: Case, suspects: Sequence[Suspect], *, out_of_time: Callable[[], bool]) -> SuspectCosts | None:
    """Order places by what they cost alone.

    Args:
        case: The network.
        suspects: The places, in the order of the network.
        out_of_time: Whether to stop.

    Returns:
        The order; None when the time did not suffice.
    """
    return place_costs(
        suspects,
        lambda group: alone_loss(case, *group).value,
        name=lambda suspect: suspect.name,
        out_of_time=out_of_time,
    )


def alone_loss(case: Case, *suspects: Suspect) -> Loss:
    """What is lost when nothing but some suspects is quantized."""
    everything: Mapping[str, None] = dict.fromkeys(case.facts.quantizers)
    names = [name for suspect in suspects for name in suspect.quantizers]
    mine = {name: case.mended.get(name, case.facts.quantizers[name]) for name in names}
    return case.loss({**everything, **mine})
