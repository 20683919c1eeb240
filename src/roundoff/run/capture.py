"""A model and samples as a source of tensors: everything the model computes, one sample at a time."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol

from roundoff.core.names import shown
from roundoff.core.progress import NO_DEADLINE, Deadline, Progress
from roundoff.core.tensors import Array, InputSpec, TensorInfo
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import hidden_tensors, inputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import by_session_name
from roundoff.graph.shapes import Kind, Value, values
from roundoff.graph.subgraph import tap, tap_shapes
from roundoff.messages.message import english
from roundoff.run.budget import CapturePlan, Planner, memory_limit
from roundoff.run.session import Session, open_session
from roundoff.samples.arrays import matches


class Samples(Protocol):
    """Samples of a model's inputs, read one at a time."""

    @property
    def label(self) -> str:
        """Where they come from, as the user would name it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Sample names, unique, at least one."""
        ...

    def feed(self, index: int) -> Mapping[str, Array]:
        """The value of every input in one sample."""
        ...


class _NoInputs:
    label = "no inputs"
    names = ("",)

    def feed(self, index: int) -> Mapping[str, Array]:
        return {}


NO_INPUTS: Samples = _NoInputs()
"""The one sample of a model that takes none."""


def check_feed(feed: Mapping[str, Array], specs: Sequence[InputSpec], *, sample: str) -> None:
    """Refuse a sample that the model cannot take.

    Raises:
        BadInput: Naming the sample, the input, what is expected and what was given.
    """
    known = [spec.name for spec in specs]
    for name in feed:
        if name not in known:
            what = english(
                "Sample {sample!r} has a value for {name!r}, which is not an input of the model.",
                sample=sample,
                name=name,
            )
            raise BadInput(what, fix=english("the model's inputs are: {known}", known=", ".join(map(repr, known))))
    for spec in specs:
        if spec.name not in feed:
            what = english(
                "Sample {sample!r} has no value for input {name!r} ({describe}).",
                sample=sample,
                name=spec.name,
                describe=spec.describe(),
            )
            raise BadInput(what, fix=english("add data for {name!r}", name=spec.name))
        array = feed[spec.name]
        if array.dtype.name != spec.dtype or (spec.shape is not None and not matches(array.shape, spec.shape)):
            got = f"{array.dtype.name} [{', '.join(map(str, array.shape))}]"
            raise BadInput(
                english(
                    "Sample {sample!r}: input {name!r} must be {describe}, got {got}.",
                    sample=sample,
                    name=spec.name,
                    describe=spec.describe(),
                    got=got,
                ),
                fix=english("give data of that type and shape"),
            )


# Finding out types and shapes that only a run can tell, without keeping any of the tensors.

# How onnxruntime writes the kinds of values, as in "seq(tensor(float))".
_KINDS: Mapping[str, Kind] = {
    "tensor": "tensor",
    "seq": "sequence",
    "optional": "optional",
    "map": "map",
    "sparse_tensor": "sparse_tensor",
}


def complete_values(
    model: Model, values: Sequence[Value], feed: Mapping[str, Array], *, threads: int | None = None
) -> tuple[Value, ...]:
    """Fill in what shape inference left open: types from a session, shapes from one run on `feed`.

    Raises:
        ModelFailed: The model cannot be opened or run.
    """
    found = {value.name: value for value in values}
    untyped = [value for value in values if value.kind == "tensor" and value.element is None]
    if untyped:
        session = open_session(model, outputs=tap(model, [value.name for value in untyped]), threads=threads)
        found |= {value.name: _typed(value, text) for value, text in zip(untyped, session.types, strict=True)}
    unshaped = [value for value in found.values() if not value.obstacle() and value.shape is None]
    if unshaped:
        taps = tap_shapes(model, [value.name for value in unshaped])
        shapes = open_session(model, outputs=taps, threads=threads).run(feed)
        found |= {
            value.name: replace(value, shape=tuple(map(int, shape)))
            for value, shape in zip(unshaped, shapes, strict=True)
        }
    return tuple(found.values())


def _typed(value: Value, session_type: str) -> Value:
    kind, _, element = session_type.partition("(")
    return replace(value, kind=_KINDS.get(kind, "opaque"), element=by_session_name(element.rstrip(")")))


# Running a model on samples, pass by pass, with the sessions that takes.


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


# Choosing tensors by name patterns, so that no pattern goes unanswered.


@dataclass(frozen=True, slots=True)
class TensorSelection:
    """Chosen tensors.

    Attributes:
        names: The tensors, in execution order.
        matches: How many tensors each pattern matched, in the order given; empty when all were taken.
    """

    names: tuple[str, ...]
    matches: tuple[tuple[str, int], ...] = ()


def select_tensors(
    values: Sequence[Value], patterns: Sequence[str], *, hidden: Mapping[str, str] | None = None
) -> TensorSelection:
    """Take the tensors whose names match any pattern; all of them when there is none.

    A pattern that is exactly a tensor's name means that tensor, whatever special characters it holds;
    otherwise ``*`` stands for any characters (``/`` too), ``?`` for one, ``[ab]`` for a or b.

    Raises:
        BadInput: A pattern matches nothing.
    """
    if not patterns:
        return TensorSelection(tuple(value.name for value in values))
    names = [value.name for value in values]
    chosen: set[str] = set()
    matches = []
    for pattern in patterns:
        found = {pattern} if pattern in names else {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            raise BadInput(
                english(
                    "--tensors {pattern!r} matches none of the {count} tensors.", pattern=pattern, count=len(names)
                ),
                fix=_advice(pattern, values, hidden or {}),
            )
        chosen |= found
        matches.append((pattern, len(found)))
    return TensorSelection(tuple(name for name in names if name in chosen), tuple(matches))


def _advice(pattern: str, values: Sequence[Value], hidden: Mapping[str, str]) -> str:
    for name, holder in hidden.items():
        if fnmatchcase(name, pattern):
            return english(
                "{name!r} is computed inside node {holder!r} and cannot be seen; take that node's outputs",
                name=name,
                holder=holder,
            )
    for value in values:
        if fnmatchcase(value.node, pattern):
            return english(
                "node {node!r} computes tensor {name!r}; give tensor names, not node names",
                node=value.node,
                name=value.name,
            )
    return nearest(pattern.strip("*?"), (value.name for value in values))


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
    one sample, or of a part of it when they exceed `max_memory`: then the model runs once for each part. When
    samples are read one after the other and there is room for two, the next one is computed meanwhile.
    Types that numpy does not have are widened (bfloat16 and float8 to float32, int4 to int8).

    Attributes:
        selection: What each pattern of `tensors` matched.
        estimate: What reading everything takes.

    Args:
        model: The model.
        samples: What to feed it.
        tensors: Patterns of the tensors to offer (see `select_tensors`); all when empty.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads per node; by default as many as nodes of this size gain from.
        option: The option by which the user chooses tensors, for messages.

    Raises:
        BadInput: The first sample does not fit the model, a pattern matches nothing, or the budget is too small.
        ModelFailed: The model cannot be run.
    """

    selection: TensorSelection
    estimate: Estimate

    def __init__(
        self,
        model: Model,
        samples: Samples,
        *,
        tensors: Sequence[str] = (),
        max_memory: int | None = None,
        threads: int | None = None,
        option: str = "",
    ) -> None:
        self._label = shown(f"{model.path} on {samples.label}")
        self._positions = {name: index for index, name in enumerate(samples.names)}
        feed = read_feed(model, samples, 0)
        shapes = {name: array.shape for name, array in feed.items()}
        inferred = values(model, shapes)
        everything = complete_values(model, inferred, feed, threads=threads)
        self.selection = select_tensors(everything, tensors, hidden=hidden_tensors(model))
        chosen = frozenset(self.selection.names)
        self._values = {value.name: value for value in everything if value.name in chosen}
        planner = Planner(
            model,
            everything,
            captured=[name for name, value in self._values.items() if value.node and not value.obstacle()],
            shapes=shapes,
            limit=memory_limit(max_memory),
            option=option,
        )
        fixed = inferred == everything and all(_is_fixed(spec) for spec in inputs(model))
        self.estimate = self._estimate(planner.plan(shapes), exact=fixed)
        kinds = {name: value.element for name, value in self._values.items()}
        widen = {name: kind.widened for name, kind in kinds.items() if kind and kind.widened != kind.dtype}
        self._runner = Runner(model, samples, planner=planner, widen=widen, threads=threads)
        self._now: Captured | None = None
        self._in_sequence = False
        self._background = ThreadPoolExecutor(1, thread_name_prefix="capture")
        self._next: tuple[int, Future[Captured]] | None = None

    @property
    def label(self) -> str:
        """The model and the samples."""
        return self._label

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples."""
        return tuple(self._positions)

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
        try:
            return self._read(name, self._positions[sample])
        except KeyboardInterrupt:
            self.close()
            raise

    def close(self) -> None:
        """End the run ahead of the next sample, if there is one; without that the process would wait for it."""
        self._runner.stop()
        self._background.shutdown(cancel_futures=True)

    def _read(self, name: str, index: int) -> Array:
        now = self._now if self._now is not None and self._now.index == index else self._move_to(index)
        if name not in now.arrays:
            self._runner.run(now, name)
        self._look_ahead(now)
        return now.arrays[name]

    def _check_readable(self, name: str, sample: str) -> None:
        value = self._values.get(name)
        if value is None:
            raise BadInput(
                english("{label} has no tensor {name!r}.", label=self.label, name=name),
                fix=nearest(name, self._values),
            )
        if value.obstacle():
            raise BadInput(
                english("Tensor {name!r} cannot be read: {obstacle}.", name=name, obstacle=value.obstacle()),
                fix=english("leave it out"),
            )
        if sample not in self._positions:
            raise BadInput(
                english("{label} has no sample {sample!r}.", label=self.label, sample=sample),
                fix=nearest(sample, self._positions),
            )

    def _move_to(self, index: int) -> Captured:
        """Make a sample the current one; the one before goes first."""
        self._in_sequence = self._now is not None and self._now.index + 1 == index
        self._now = None
        prepared, self._next = self._next, None
        if prepared is not None and prepared[0] == index:
            self._now = prepared[1].result()
        else:
            if prepared is not None:
                wait([prepared[1]])
            self._now = self._runner.load(index)
        return self._now

    def _look_ahead(self, now: Captured) -> None:
        """Start computing the next sample, once it is clear that samples are read one after the other."""
        index = now.index + 1
        if self._in_sequence and self._next is None and now.plan.ahead and index < len(self._positions):
            self._next = index, self._background.submit(self._runner.run_ahead, index)

    def _estimate(self, plan: CapturePlan, *, exact: bool) -> Estimate:
        readable = [value for value in self._values.values() if not value.obstacle()]
        return Estimate(
            tensors=len(readable),
            samples=len(self._positions),
            sample_bytes=sum(value.size_bytes for value in readable),
            memory_bytes=plan.memory_bytes,
            passes=len(plan.passes),
            exact=exact,
        )


def _is_fixed(spec: InputSpec) -> bool:
    return spec.shape is not None and all(isinstance(size, int) for size in spec.shape)


def each_sample(
    sources: Sequence[LiveSource], doing: str, *, progress: Progress, deadline: Deadline = NO_DEADLINE
) -> Iterator[str]:
    """The samples of sources one after the other, to read any of their tensors; at the end all are closed.

    Args:
        sources: Networks with the same samples.
        doing: What that is for, as users read it.
        progress: Told of every sample.
        deadline: After it no other sample is begun; the first one always is.
    """
    progress.start(doing, len(sources[0].samples))
    try:
        for place, sample in enumerate(sources[0].samples):
            if place and not deadline.allows(0):
                break
            yield sample
            progress.advance()
    finally:
        progress.finish()
        for source in sources:
            source.close()
