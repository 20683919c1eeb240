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
from roundoff.graph.tap import Taps
from roundoff.runtime.blocks.chunks import rows_of
from roundoff.runtime.session import Session, open_session

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
        wanted = [
            Probe(name, itself)
            for name, probes in zip(plan.outputs, self.probes, strict=True)
            for itself in (*[False] * probes.count, *[True] * probes.direction)
        ]
        self.graph: ProbeGraph = probe_graph(
            facts, plan.values, variants=plan.variants, probes=wanted, samples=samples
        )
        self._session = self._open()
        count = len(plan.variants)
        # One more column, for what has none, is zero.
        self._columns = np.full((count, len(wanted)), -1)
        for (variant, number), column in self.graph.columns.items():
            self._columns[variant, number] = column

    def _open(self) -> Session:
        graph = self.graph
        if graph.model.proto.ByteSize() > LARGEST_MESSAGE_BYTES:
            raise CannotProbe("with quantized copies of its weights the model is too large for one graph")
        names = [graph.outputs[name] for name in self._outputs]
        if graph.products:
            names.append(graph.products)
        taps = Taps(graph.model.proto.SerializeToString(), tuple(names))
        try:
            return open_session(graph.model, outputs=taps, fused=True, threads=1, keep_memory="shared")
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
        vectors = [np.stack([probes.draw(generator) for generator in generators]) for probes in self.probes]
        products, outputs = self._run(feed, vectors, label)
        kept = len(generators)
        seen: list[Array] = []
        along: list[Array | None] = []
        start = 0
        for probes in self.probes:
            end = start + probes.count
            seen.append(products[:kept, self._columns[:, start:end]])
            along.append(products[:kept, self._columns[:, end]] if probes.direction else None)
            start = end + probes.direction
        errors, sizes = (products[:kept, list(columns)] for columns in (self.graph.errors, self.graph.sizes))
        with np.errstate(divide="ignore", invalid="ignore"):
            local = np.where(errors == 0, 0.0, errors / sizes)
        shown = [
            values[: kept * len(values) // self.samples] if kept < self.samples else values for values in outputs
        ]
        return Probed(shown, vectors, seen, along, local)

    def keeps_apart(self, feed: Mapping[str, Array], generators: Sequence[np.random.Generator]) -> bool:
        """Whether samples in another order give the same in that order; only asked where that is not certain."""
        if not self.graph.guessed:
            return True
        vectors = [np.stack([probes.draw(generator) for generator in generators]) for probes in self.probes]
        turned = {
            name: np.roll(rows_of(array, self.samples), 1, axis=0).reshape(array.shape)
            for name, array in feed.items()
        }
        products, _ = self._run(feed, vectors, "")
        again, _ = self._run(turned, [np.roll(each, 1, axis=0) for each in vectors], "")
        expected = np.roll(products, 1, axis=0)
        largest = np.abs(products).max(axis=0, initial=0.0)
        return bool((np.abs(again - expected) <= _SAME * largest).all())

    def stop(self) -> None:
        """End the runs that are under way."""
        self._session.stop()

    def _run(self, feed: Mapping[str, Array], vectors: Sequence[Array], label: str) -> tuple[Array, list[Array]]:
        """All products, a row for each sample and a last column of zeros; and the outputs."""
        seeds = iter(self.graph.seeds)
        fed = dict(feed)
        for probes, shape, dtype, drawn in zip(self.probes, self._shapes, self._types, vectors, strict=True):
            for number in range(probes.count):
                whole = np.zeros((self.samples, probes.size), dtype)
                whole[: len(drawn)] = drawn[:, number]
                fed[next(seeds)] = whole.reshape(shape)
            if probes.direction:
                next(seeds)
        *outputs, products = self._session.run(fed, sample=label) + ([] if self.graph.products else [np.zeros(0)])
        table = products.reshape(self.samples, -1).astype(np.float64)
        return np.concatenate([table, np.zeros((self.samples, 1))], axis=1), outputs
