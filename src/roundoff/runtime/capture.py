"""A model and samples as a source of tensors: everything the model computes, one sample at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.graph.interface import hidden_tensors, inputs
from roundoff.graph.load import Model
from roundoff.graph.naming import closest
from roundoff.graph.shapes import values
from roundoff.graph.tap import tap
from roundoff.runtime.feeds import Samples, check_feed
from roundoff.runtime.measure import complete_values
from roundoff.runtime.memory import available_memory
from roundoff.runtime.plan import Planner
from roundoff.runtime.selection import Selection, select_tensors
from roundoff.runtime.session import Session, open_session

__all__ = ["Estimate", "LiveSource"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a capture takes, judged by its first sample.

    Attributes:
        tensors: Tensors that can be read in each sample.
        samples: Number of samples.
        sample_bytes: Bytes of all these tensors in one sample.
        memory_bytes: Largest memory of the process.
        passes: How often the model runs per sample, to stay within the memory budget.
        exact: Whether every sample is known to be of this size.
    """

    tensors: int
    samples: int
    sample_bytes: int
    memory_bytes: int
    passes: int
    exact: bool


class LiveSource:
    """Tensors of a model, computed when they are read; a `roundoff.core.tensors.TensorSource`.

    It offers the model's inputs, then what each node computes; constants are left out. It holds the tensors of
    one sample, or of a part of it when they exceed `max_memory`: then the model runs once for each part.
    Types that numpy does not have are widened (bfloat16 and float8 to float32, int4 to int8).

    Attributes:
        selection: What each pattern of `tensors` matched.
        estimate: What reading everything takes.

    Args:
        model: The model.
        samples: What to feed it.
        tensors: Patterns of the tensors to offer (see `select_tensors`); all when empty.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads per node; all cores by default.

    Raises:
        BadInput: The first sample does not fit the model, a pattern matches nothing, or the budget is too small.
        ModelFailed: The model cannot be run.
    """

    selection: Selection
    estimate: Estimate

    def __init__(
        self,
        model: Model,
        samples: Samples,
        *,
        tensors: Sequence[str] = (),
        max_memory: int | None = None,
        threads: int | None = None,
    ) -> None:
        self._model, self._samples, self._threads = model, samples, threads
        self._inputs = inputs(model)
        self._positions = {name: index for index, name in enumerate(samples.names)}
        self._sample = -1
        self._feed: Mapping[str, Array] = {}
        self._held: dict[str, Array] = {}
        self._sessions: dict[tuple[str, ...], Session] = {}

        feed = self._read_feed(0)
        shapes = _shapes(feed)
        inferred = values(model, shapes)
        everything = complete_values(model, inferred, feed, threads=threads)
        self.selection = select_tensors(everything, tensors, hidden=hidden_tensors(model))
        chosen = frozenset(self.selection.names)
        self._values = {value.name: value for value in everything if value.name in chosen}
        self._planner = Planner(
            model,
            everything,
            captured=[name for name, value in self._values.items() if value.node and not value.obstacle()],
            shapes=shapes,
            limit=available_memory() if max_memory is None else max_memory,
        )
        self._plan = self._planner.plan(shapes)
        self.estimate = self._estimate(exact=inferred == everything)

    @property
    def label(self) -> str:
        """The model and the samples."""
        return f"{self._model.path} on {self._samples.label}"

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples."""
        return self._samples.names

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """The tensors offered, in execution order; what cannot be read as numbers has a problem."""
        return tuple(value.info() for value in self._values.values())

    @property
    def ordered(self) -> bool:
        """A model always knows its execution order."""
        return True

    def output_index(self, name: str) -> int:
        """Which output of its node a tensor is; 0 for inputs of the model."""
        return self._values[name].output_index

    def read(self, name: str, sample: str) -> Array:
        """Values of one tensor in one sample; runs the model unless they are held.

        Raises:
            BadInput: There is no such tensor or sample, it holds no numbers, or the sample does not fit.
            ModelFailed: The model failed on this sample.
        """
        self._check_readable(name, sample)
        self._go_to(self._positions[sample])
        if name not in self._held:
            self._run_pass(name, sample)
        return self._held[name]

    def _check_readable(self, name: str, sample: str) -> None:
        value = self._values.get(name)
        if value is None:
            raise BadInput(f"{self.label} has no tensor {name!r}.", fix=closest(name, self._values))
        if value.obstacle():
            raise BadInput(f"Tensor {name!r} cannot be read: {value.obstacle()}.", fix="leave it out")
        if sample not in self._positions:
            raise BadInput(f"{self.label} has no sample {sample!r}.", fix=closest(sample, self.samples))

    def _go_to(self, index: int) -> None:
        """Make a sample the current one: its inputs are held, and the passes planned for its shapes."""
        if index == self._sample:
            return
        self._held = {}
        self._sample = -1
        feed = self._read_feed(index)
        self._plan = self._planner.plan(_shapes(feed))
        self._feed = feed
        self._held = dict(feed)
        self._sample = index

    def _run_pass(self, name: str, sample: str) -> None:
        """Run the model so that the pass that holds a tensor is captured."""
        names = next(group for group in self._plan.passes if name in group)
        # What an earlier pass captured goes first, or two passes would be in memory.
        self._held = dict(self._feed)
        session = self._session(names)
        self._held |= zip(names, session.run(self._feed, sample=sample), strict=True)

    def _session(self, names: tuple[str, ...]) -> Session:
        session = self._sessions.pop(names, None)
        if session is None:
            while len(self._sessions) >= self._plan.sessions:
                del self._sessions[next(iter(self._sessions))]
            elements = {name: self._values[name].element for name in names}
            widen = {name: kind.widened for name, kind in elements.items() if kind and kind.widened != kind.dtype}
            session = open_session(
                self._model,
                outputs=tap(self._model, names, widen=widen),
                threads=self._threads,
                keep_memory=len(self._plan.passes) == 1,
            )
        self._sessions[names] = session  # last: it was used last
        return session

    def _read_feed(self, index: int) -> Mapping[str, Array]:
        feed = self._samples.feed(index)
        check_feed(feed, self._inputs, sample=self._samples.names[index])
        return feed

    def _estimate(self, *, exact: bool) -> Estimate:
        readable = [value for value in self._values.values() if not value.obstacle()]
        shapes = [spec.shape for spec in self._inputs]
        fixed = all(shape is not None and all(isinstance(size, int) for size in shape) for shape in shapes)
        return Estimate(
            tensors=len(readable),
            samples=len(self._positions),
            sample_bytes=sum(value.size_bytes for value in readable),
            memory_bytes=self._plan.memory_bytes,
            passes=len(self._plan.passes),
            exact=exact and fixed,
        )


def _shapes(feed: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feed.items()}
