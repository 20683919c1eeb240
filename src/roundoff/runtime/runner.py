"""Running a model on samples, pass by pass, with the sessions that takes."""

from collections.abc import Mapping
from dataclasses import dataclass

from roundoff.core.tensors import Array
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.tap import tap
from roundoff.runtime.feeds import Samples, check_feed
from roundoff.runtime.plan import CapturePlan, Planner
from roundoff.runtime.session import Session, open_session

__all__ = ["Captured", "Runner", "read_feed"]


def read_feed(model: Model, samples: Samples, index: int) -> Mapping[str, Array]:
    """The inputs of one sample, checked against what the model expects.

    Raises:
        BadInput: They cannot be read, or do not fit.
    """
    feed = samples.feed(index)
    check_feed(feed, inputs(model), sample=samples.names[index])
    return feed


@dataclass(slots=True)
class Captured:
    """What is in memory of one sample.

    Attributes:
        index: Which sample.
        feed: Its inputs.
        plan: How the rest is captured.
        arrays: Its inputs, and the tensors of the pass that ran last.
    """

    index: int
    feed: Mapping[str, Array]
    plan: CapturePlan
    arrays: dict[str, Array]


class Runner:
    """Captures tensors of a model, one pass at a time.

    Args:
        model: The model.
        samples: What to feed it.
        planner: Says which tensors are captured together.
        widen: Tensors numpy cannot hold, with the dtype to read them as.
        threads: Threads per node; all cores by default.
    """

    def __init__(
        self, model: Model, samples: Samples, *, planner: Planner, widen: Mapping[str, str], threads: int | None
    ) -> None:
        self._model, self._samples, self._planner = model, samples, planner
        self._widen, self._threads = widen, threads
        self._sessions: dict[tuple[str, ...], Session] = {}

    def load(self, index: int) -> Captured:
        """Read the inputs of a sample and plan its capture; nothing runs yet."""
        feed = read_feed(self._model, self._samples, index)
        plan = self._planner.plan({name: array.shape for name, array in feed.items()})
        return Captured(index, feed, plan, dict(feed))

    def run(self, captured: Captured, name: str) -> None:
        """Run the pass that captures a tensor; what an earlier pass captured is dropped first."""
        names = next(group for group in captured.plan.passes if name in group)
        captured.arrays = dict(captured.feed)
        session = self._session(names, captured.plan)
        sample = self._samples.names[captured.index]
        captured.arrays |= zip(names, session.run(captured.feed, sample=sample), strict=True)

    def run_ahead(self, index: int) -> Captured:
        """Load a sample and run it, if there is room for it beside another."""
        captured = self.load(index)
        if captured.plan.ahead:
            self.run(captured, captured.plan.passes[0][0])
        return captured

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        for session in list(self._sessions.values()):
            session.stop()

    def _session(self, names: tuple[str, ...], plan: CapturePlan) -> Session:
        session = self._sessions.pop(names, None)
        if session is None:
            while len(self._sessions) >= plan.sessions:
                del self._sessions[next(iter(self._sessions))]
            widen = {name: self._widen[name] for name in names if name in self._widen}
            session = open_session(
                self._model,
                outputs=tap(self._model, names, widen=widen),
                threads=self._threads,
                keep_memory=len(plan.passes) == 1,
            )
        self._sessions[names] = session  # at the end: it was used last
        return session
