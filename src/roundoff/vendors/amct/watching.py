"""Learning from the runs of onnxruntime sessions that users open on modified models.

AMCT's modified models compute what calibration needs by operators of their own. Those cannot be written in Python
for a stock onnxruntime, so that here the session is watched instead: one that is opened on a modified model, known
by its metadata, has its `run` led through `roundoff.vendors.amct.gathering`. All other sessions are left alone.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roundoff.errors import ModelFailed
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.run.session_watch import listen, unlisten
from roundoff.vendors.amct.gathering import Gathering, gathering_of
from roundoff.vendors.amct.listening import LOGGER
from roundoff.vendors.amct.modified import stage_of

__all__ = ["unwatch", "watch"]

_NAME = "amct"
_IN_MEMORY = Path("model_in_memory.onnx")


def watch() -> None:
    """Watch sessions that are opened from now on; a second call changes nothing."""
    listen(_NAME, _opened)


def unwatch() -> None:
    """Leave sessions alone that are opened from now on."""
    unlisten(_NAME)


def _opened(session: Any, source: Any) -> None:
    if stage_of(session.get_modelmeta().custom_metadata_map) is not None:
        gathering = gathering_of(_model(source))
        session.run = _watched(session.run, gathering)


def _model(source: Any) -> Model:
    if isinstance(source, str | os.PathLike):
        return load_model(Path(source))
    from onnx import ModelProto

    return model_from_proto(ModelProto.FromString(bytes(source)), path=_IN_MEMORY)


def _watched(original: Callable[..., list[Any]], gathering: Gathering) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def run(
        output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        known = all(name in gathering.outputs for name in output_names or ())
        if gathering.complete or not known:
            return original(output_names, input_feed, run_options)
        try:
            found = gathering.run(input_feed)
        except ModelFailed as error:
            # Most likely the original fails too, and says it in onnxruntime's own words.
            values = original(output_names, input_feed, run_options)
            LOGGER.warning("a run could not be observed and does not count: %s", error.what)
            return values
        return [found[name] for name in (output_names or gathering.outputs)]

    return run
