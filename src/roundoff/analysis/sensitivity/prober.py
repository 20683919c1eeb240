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
        fused: Whether onnxruntime may fuse nodes.
    """

    model: Model
    values: tuple[Value, ...]
    variants: tuple[Variant, ...]
    outputs: tuple[str, ...]
    vectors: int
    direction: bool
    fused: bool


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
        self._session = self._open(fused=plan.fused)

    def _open(self, *, fused: bool) -> SplitSession:
        if (
            sum(len(tensor.raw_data) for tensor in self.graph.model.proto.graph.initializer)
            > LARGEST_MESSAGE_BYTES
        ):
            raise CannotProbe("with quantized copies of its weights the model is too large for one graph")
        try:
            return SplitSession(self.graph.model, [seed for seed in self.graph.seeds if seed], fused=fused)
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
        there = self._session.begin(feed, sample=label)
        changes = self._changes(there)
        seen = [np.zeros((kept, len(changes), probes.count)) for probes in self.probes]
        for number in range(max(probes.count for probes in self.probes)):
            # An output with fewer vectors than others is fed its last one again.
            drawn = [every[:, min(number, every.shape[1] - 1)] for every in vectors]
            found = self._session.go_on(there, self._late(drawn), sample=label)
            for place, probes in enumerate(self.probes):
                if number < probes.count:
                    seen[place][:, :, number] = self._products(changes, place, found)[:kept]
        along = [
            self._products(changes, self._along[place], there)[:kept] if place in self._along else None
            for place in range(len(self.probes))
        ]
        outputs = [there[name] for name in self._outputs]
        if kept < self.samples:
            outputs = [values[: len(values) * kept // self.samples] for values in outputs]
        return Probed(outputs, vectors, seen, along, self._sizes(changes, there)[:kept])

    def keeps_apart(self, feed: Mapping[str, Array], generators: Sequence[np.random.Generator]) -> bool:
        """Whether samples in another order give the same in that order; only asked where that is not certain."""
        if not self.graph.guessed:
            return True
        vectors = [np.stack([probes.draw(each)[0] for each in generators]) for probes in self.probes]
        turned = {
            name: np.roll(rows_of(array, self.samples), 1, axis=0).reshape(array.shape)
            for name, array in feed.items()
        }
        for place in range(len(self.probes)):
            products, again = (
                self._products(self._changes(there), place, self._session.go_on(there, self._late(drawn)))
                for there, drawn in (
                    (self._session.begin(feed), vectors),
                    (self._session.begin(turned), [np.roll(each, 1, axis=0) for each in vectors]),
                )
            )
            largest = np.abs(products).max(axis=0, initial=0.0)
            if not (np.abs(again - np.roll(products, 1, axis=0)) <= _SAME * largest).all():
                return False
        return True

    def stop(self) -> None:
        """End the runs that are under way."""
        self._session.stop()

    def _directed(self) -> list[int]:
        return [place for place, probes in enumerate(self.probes) if probes.direction]

    def _late(self, vectors: Sequence[Array]) -> dict[str, Array]:
        """Seeds from one vector for each output."""
        late = {}
        for place, (shape, dtype, drawn) in enumerate(zip(self._shapes, self._types, vectors, strict=True)):
            whole = np.zeros((self.samples, drawn.shape[1]), dtype)
            whole[: len(drawn)] = drawn
            late[self.graph.seeds[place]] = whole.reshape(shape)
        return late

    def _changes(self, there: Mapping[str, Array]) -> list[dict[str, Array]]:
        """For each variant what it changes of each result, a row for each sample."""
        with np.errstate(over="ignore", invalid="ignore"):
            return [
                {
                    name: self._rows(there[other], name) - self._rows(there[name], name)
                    for name, other in each.items()
                }
                for each in self.graph.changed
            ]

    def _products(self, changes: Sequence[Mapping[str, Array]], probe: int, found: Mapping[str, Array]) -> Array:
        """The product of each change with the gradient of a probe, of shape (samples, variants)."""
        gradients = self.graph.gradients[probe]
        rows = {name: self._rows(found[tensor], name) for name, tensor in gradients.items()}
        products = np.zeros((self.samples, len(changes)))
        with np.errstate(over="ignore", invalid="ignore"):
            for place, each in enumerate(changes):
                for name, change in each.items():
                    if name in rows:
                        products[:, place] += np.vecdot(change, rows[name])
        return products

    def _sizes(self, changes: Sequence[Mapping[str, Array]], there: Mapping[str, Array]) -> Array:
        """Energy of each change over that of what is changed, of shape (samples, variants)."""
        whole = {name: self._rows(there[name], name) for each in changes for name in each}
        energies = {name: np.vecdot(rows, rows) for name, rows in whole.items()}
        sizes = np.zeros((self.samples, len(changes)))
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            for place, each in enumerate(changes):
                error = np.zeros(self.samples) + sum(np.vecdot(change, change) for change in each.values())
                sizes[:, place] = np.where(error == 0, 0.0, error / sum(energies[name] for name in each))
        return sizes

    def _rows(self, values: Array, result: str) -> Array:
        """Values of a result, a row of float32 for each sample."""
        axis = self.graph.axes[result]
        turned = np.moveaxis(values, axis, 0) if axis else values
        return turned.reshape(self.samples, values.size // self.samples).astype(np.float32, copy=False)
