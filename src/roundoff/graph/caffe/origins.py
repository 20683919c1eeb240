"""Which tensor of a model is which top of a Caffe layer; kept with the model, also in its file."""

import json
from collections.abc import Mapping

from roundoff.graph.load import Model

__all__ = ["layer_tops", "note_tops"]

_KEY = "roundoff.caffe.tops"


def note_tops(model: Model, tops: Mapping[str, tuple[str, int]]) -> None:
    """Write down which tensor is which top; a model fresh from its net only."""
    model.proto.metadata_props.add(key=_KEY, value=json.dumps(tops, ensure_ascii=False))


def layer_tops(model: Model) -> dict[str, tuple[str, int]]:
    """The layer and the number of the top that each tensor is; nothing for models that are not from Caffe."""
    text = next((entry.value for entry in model.proto.metadata_props if entry.key == _KEY), "{}")
    try:
        stored = json.loads(text)
        return {str(tensor): (str(layer), int(index)) for tensor, (layer, index) in stored.items()}
    except (ValueError, TypeError, AttributeError):  # someone else's note under our name
        return {}
