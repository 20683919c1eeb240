"""Parts of a network, fed with what the float network computes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from roundoff.core.tensors import Array
from roundoff.diagnosis.case import Case
from roundoff.graph.load import Model
from roundoff.graph.tap import tap
from roundoff.runtime.session import open_session

__all__ = ["Feeds", "GoldenFeeds", "fixed_shapes", "run_part"]

Feeds = list[dict[str, Array]]


@dataclass(slots=True)
class GoldenFeeds:
    """What the float network computes in some samples.

    Attributes:
        case: The network.
        places: The samples.
    """

    case: Case
    places: tuple[int, ...]
    _known: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the samples."""
        return [self.case.lab.feeds()[place][0] for place in self.places]

    def of(self, tensors: Sequence[str]) -> Feeds:
        """These tensors, by sample."""
        self._compute([name for name in tensors if name not in self._known])
        return [{name: self._known[name][at] for name in tensors} for at in range(len(self.places))]

    def _compute(self, names: Collection[str]) -> None:
        feeds = [self.case.lab.feeds()[place] for place in self.places]
        given = [name for name in names if name in feeds[0][1]]
        computed = [name for name in names if name not in feeds[0][1]]
        for name in given:
            self._known[name] = [feed[name] for _, feed in feeds]
        if computed:
            model = self.case.lab.model
            session = open_session(model, outputs=tap(model, computed))
            found = [session.run(feed, sample=sample) for sample, feed in feeds]
            for at, name in enumerate(computed):
                self._known[name] = [arrays[at] for arrays in found]


def run_part(model: Model, feeds: Feeds) -> Feeds:
    """The outputs of a model, by sample."""
    session = open_session(model)
    names = [value.name for value in model.proto.graph.output]
    return [dict(zip(names, session.run(feed), strict=True)) for feed in feeds]


def fixed_shapes(arrays: Sequence[Mapping[str, Array]]) -> dict[str, tuple[int, ...]]:
    """Shapes of tensors that have the same one in every sample."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for each in arrays:
        for name, array in each.items():
            found.setdefault(name, set()).add(array.shape)
    return {name: next(iter(shapes)) for name, shapes in found.items() if len(shapes) == 1}
