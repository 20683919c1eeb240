"""Making the map of a model: two walks, the second of which knows where the first ended."""

from roundoff.graph.draft import Draft
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.quantize.transforms import rules
from roundoff.quantize.transforms.scaling_map import ScalingMap
from roundoff.quantize.transforms.walk import Walk
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples, complete_values

__all__ = ["map_scaling"]

# Importing them registers them.
_RULES = rules.__all__


def map_scaling(model: Model, samples: Samples, *, through_limits: bool = False) -> ScalingMap:
    """Find out where factors per channel can travel in a model.

    Args:
        model: A prepared float model.
        samples: The first of them settles shapes that the model leaves open.
        through_limits: Follow channels through Clip, too, and say what its limits are.

    Raises:
        BadInput: The sample does not fit the model.
        ModelFailed: The model cannot be run.
    """
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    known = complete_values(model, inferred, feed)
    fixed: frozenset[str] = frozenset()
    # Of the two factors of a product one must stay as it is; which one is only known at the end.
    for _ in range(2):
        found = Walk(Draft(model), known, fixed=fixed, through_limits=through_limits).run()
        fixed = frozenset(name for name, channels in found.channels.items() if found.ids.is_fixed(channels))
    return found
