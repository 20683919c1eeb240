"""An open probe graph: samples in, products of vectors and errors out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.sensitivity.probes import OutputProbes, probes_of
from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.backward.probing import Probe, ProbeGraph, Variant, probe_graph, sample_facts
from roundoff.graph.deferred import LARGEST_MESSAGE_BYTES
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value
from roundoff.runtime.blocks.chunks import rows_of
from roundoff.runtime.split_session import SplitSession

__all__ = ["CannotProbe", "Probed", "Prober", "ProbingPlan"]

# Products of the same rows in another order of samples; rounding leaves far less.
_SAME = 1e-3


class CannotProbe(Exception):
    """A model has no probe graph that can be run; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbingPlan:
    """What to probe.

    Attributes:
        model: The float model.
        values: Its tensors, with types and their shapes in one sample.
        variants: The changes.
        outputs: The outputs.
        vectors: About how many vectors for each of them.
        direction: Whether the part of the error along the output is asked for.
    """

    model: Model
    values: tuple[Value, ...]
    variants: tuple[Variant, ...]
    outputs: tuple[str, ...]
    vectors: int
    direction: bool


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """What was seen of some samples.

    Attributes:
        outputs: Each output, all samples one after the other.
        vectors: For each output its vectors, of shape (samples, vectors, elements).
        seen: For each output what each variant changes in the product with each vector, of shape (samples,
            variants, vectors).
        along: For each output what each variant changes in its product with itself, of shape (samples, variants);
            None where that was not asked for.
        local: Energy of each change where it begins, over that of what is changed; of shape (samples, variants).
    """

    outputs: list[Array]
    vectors: list[Array]
    seen: list[Array]
    along: list[Array | None]
    local: Array


class Prober:
    """Probes samples of one shape, so many at a time.

    Args:
        plan: What to probe.
        shapes: Shapes of the inputs in one sample.
        samples: How many samples are run together.

    Attributes:
        samples: How many.
        probes: How each output is probed.
        graph: What is run.

    Raises:
        NotApart: Several samples cannot be kept apart.
        CannotProbe: There is no graph that could be run.
    """

    def __init__(self, plan: ProbingPlan, shapes: Mapping[str, tuple[int, ...]], samples: int) -> None:
        self.samples = samples
        feed = {name: (samples * shape[0], *shape[1:]) if samples > 1 else shape for name, shape in shapes.items()}
        facts = sample_facts(plan.model, plan.values, feed, samples=samples)
        self._outputs = plan.outputs
        self._shapes: list[tuple[int, ...]] = []
        for name in plan.outputs:
            shape = facts.shape(name)
            if shape is None or 0 in shape or not facts.is_float(name):
                raise CannotProbe(f"the output {name!r} has no floats, or not as many as can be told beforehand")
            self._shapes.append(shape)
        self._types = [facts.dtype(name) for name in plan.outputs]
        sizes = (math.prod(shape) // samples for shape in self._shapes)
        self.probes: list[OutputProbes] = [
            probes_of(size, plan.vectors, direction=plan.direction) for size in sizes
        ]
        # Vectors are fed one after the other: a graph for several at a time takes longer to open than it saves.
        wanted = [Probe(name) for name in plan.outputs]
        self._along = {place: len(wanted) + at for at, place in enumerate(self._directed())}
        wanted += [Probe(plan.outputs[place], itself=True) for place in self._along]
        self.graph: ProbeGraph = probe_graph(
            facts, plan.values, variants=plan.variants, probes=wanted, samples=samples
        )
        self._session = self._open()
        count = len(plan.variants)
        # One more column, for what has none, is zero.
        self._columns = np.full((count, len(wanted)), -1)
        for (variant, number), column in self.graph.columns.items():
            self._columns[variant, number] = column

    def _open(self) -> SplitSession:
        if self.graph.model.proto.ByteSize() > LARGEST_MESSAGE_BYTES:
            raise CannotProbe("with quantized copies of its weights the model is too large for one graph")
        try:
            return SplitSession(self.graph.model, [seed for seed in self.graph.seeds if seed])
        except ModelFailed as error:
            raise CannotProbe(error.what) from error

    def run(self, feed: Mapping[str, Array], generators: Sequence[np.random.Generator], *, label: str) -> Probed:
        """Probe samples.

        Args:
            feed: All samples together; the last ones may be copies to make up the number.
            generators: For each sample that counts what its vectors are drawn from.
            label: The samples in words.

        Raises:
            ModelFailed: The graph could not be run.
        """
        vectors = [np.stack([probes.draw(each) for each in generators]) for probes in self.probes]
        kept = len(generators)
        seen = [np.zeros((kept, len(self._columns), probes.count)) for probes in self.probes]
        there = self._session.begin(feed, sample=label)
        products = np.zeros((self.samples, 1))
        for number in range(max(probes.count for probes in self.probes)):
            # An output with fewer vectors than others is fed its last one again.
            fed = [drawn[:, min(number, drawn.shape[1] - 1)] for drawn in vectors]
            products = self._products(there, fed, label)
            for place, probes in enumerate(self.probes):
                if number < probes.count:
                    seen[place][:, :, number] = products[:kept, self._columns[:, place]]
        along = [
            products[:kept, self._columns[:, self._along[place]]] if place in self._along else None
            for place in range(len(self.probes))
        ]
        errors, sizes = (products[:kept, list(columns)] for columns in (self.graph.errors, self.graph.sizes))
        with np.errstate(divide="ignore", invalid="ignore"):
            local = np.where(errors == 0, 0.0, errors / sizes)
        outputs = [there[self.graph.outputs[name]] for name in self._outputs]
        if kept < self.samples:
            outputs = [values[: len(values) * kept // self.samples] for values in outputs]
        return Probed(outputs, vectors, seen, along, local)

    def _directed(self) -> list[int]:
        return [place for place, probes in enumerate(self.probes) if probes.direction]

    def keeps_apart(self, feed: Mapping[str, Array], generators: Sequence[np.random.Generator]) -> bool:
        """Whether samples in another order give the same in that order; only asked where that is not certain."""
        if not self.graph.guessed:
            return True
        vectors = [np.stack([probes.draw(each)[0] for each in generators]) for probes in self.probes]
        turned = {
            name: np.roll(rows_of(array, self.samples), 1, axis=0).reshape(array.shape)
            for name, array in feed.items()
        }
        products = self._products(self._session.begin(feed), vectors, "")
        again = self._products(self._session.begin(turned), [np.roll(each, 1, axis=0) for each in vectors], "")
        expected = np.roll(products, 1, axis=0)
        largest = np.abs(products).max(axis=0, initial=0.0)
        return bool((np.abs(again - expected) <= _SAME * largest).all())

    def stop(self) -> None:
        """End the runs that are under way."""
        self._session.stop()

    def _products(self, there: Mapping[str, Array], vectors: Sequence[Array], label: str) -> Array:
        """All products with one vector for each output: a row for each sample, and a last column of zeros."""
        late = {}
        for place, (shape, dtype, drawn) in enumerate(zip(self._shapes, self._types, vectors, strict=True)):
            whole = np.zeros((self.samples, drawn.shape[1]), dtype)
            whole[: len(drawn)] = drawn
            late[self.graph.seeds[place]] = whole.reshape(shape)
        found = {**there, **self._session.go_on(there, late, sample=label)}
        columns = (
            found[self.graph.products].reshape(-1, self.samples)
            if self.graph.products
            else np.zeros((0, self.samples))
        )
        return np.concatenate([columns, np.zeros((1, self.samples))]).T.astype(np.float64)
