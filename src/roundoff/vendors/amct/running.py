"""Running a model of any flavour on batches."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.runtime.feeds import check_feed
from roundoff.runtime.session import open_session
from roundoff.vendors.amct.gathering import as_batch, gathering_of
from roundoff.vendors.amct.modified import stage_of

__all__ = ["run_batches"]


def run_batches(model: Model, feeds: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
    """Outputs of a model in every batch; runs of a modified model calibrate.

    Raises:
        WrongType: A batch is no mapping.
        BadInput: A batch does not fit the inputs of the model.
        ModelFailed: The model cannot be run.
    """
    modified = stage_of({each.key: each.value for each in model.proto.metadata_props}) is not None
    gathering = gathering_of(model) if modified else None
    session = None
    specs, names = inputs(model), outputs(model)
    for index, feed in enumerate(feeds):
        batch = as_batch(feed)
        check_feed(batch, specs, sample=f"batch {index}")
        if gathering is not None and not gathering.complete:
            yield gathering.run(batch)
            continue
        if session is None:
            session = open_session(model, fused=True)
        yield dict(zip(names, session.run(batch), strict=True))
