"""Running candidates and reading the same tensors of all of them."""

from collections.abc import Mapping, Sequence

from roundoff.analysis.accumulation.candidates import Candidates
from roundoff.core.tensors import Array
from roundoff.graph.shapes import Value
from roundoff.graph.tap import tap
from roundoff.runtime.session import open_session

__all__ = ["CandidateSession"]


class CandidateSession:
    """A graph of candidates, ready to run.

    Args:
        candidates: The graph.
        tensors: What to read of the float network and of each candidate.
        threads: Threads per node; all cores by default.

    Raises:
        ModelFailed: onnxruntime does not accept the graph.
    """

    def __init__(self, candidates: Candidates, tensors: Sequence[Value], *, threads: int | None = None) -> None:
        self._places = {
            value.name: [candidates.place(number, value.name) for number in range(len(candidates.places))]
            for value in tensors
        }
        self._names = tuple(
            dict.fromkeys(name for tensor in self._places for name in (tensor, *self._places[tensor]))
        )
        # Types that numpy does not have are read as ones that it has.
        widen = {
            name: value.element.widened
            for value in tensors
            if value.element is not None and value.element.widened != value.element.dtype
            for name in (value.name, *self._places[value.name])
        }
        taps = tap(candidates.model, self._names, widen=widen)
        self._session = open_session(candidates.model, outputs=taps, threads=threads)

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> dict[str, tuple[Array, list[Array]]]:
        """Each tensor in float, and of every candidate; where they are the same they are the same array.

        Args:
            feed: A value for each input.
            sample: What the user calls this feed; for messages.

        Raises:
            ModelFailed: onnxruntime could not compute them.
        """
        arrays = dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))
        return {
            tensor: (arrays[tensor], [arrays[name] for name in places]) for tensor, places in self._places.items()
        }

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        self._session.stop()
