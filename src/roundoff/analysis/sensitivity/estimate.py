"""The estimate engine: all subjects at once, from gradients of random combinations of the outputs.

To first order, what a subject changes in an output's product with a vector is the sum over the nodes it touches of
the change of the node's result times the gradient by it. The cost does not depend on how many subjects there are.
"""

import math
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np

from roundoff.analysis.sensitivity.estimate_scores import ChunkEstimate, EstimateScorer, unpacked
from roundoff.analysis.sensitivity.journal import Journal
from roundoff.analysis.sensitivity.prober import CannotProbe, Prober, ProbingPlan
from roundoff.analysis.sensitivity.settings import SensitivitySettings
from roundoff.analysis.sensitivity.terms import Terms, find_terms
from roundoff.core.sensitivity import Subject
from roundoff.errors import ModelFailed
from roundoff.graph.backward.probing import NotApart, ProbeGraph
from roundoff.graph.identity import combined_hash, model_hash, quantizer_hash
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.metrics.registry import Metric, get_metric
from roundoff.runtime.blocks.chunks import Chunk, read_chunks
from roundoff.runtime.blocks.network import BlockNetwork
from roundoff.runtime.feeds import Samples

__all__ = ["Estimator"]

_LOOK_UP_S = 0.1
# What a run holds of one sample: results of nodes, their gradients, and what is between the two.
_HELD = 3


class Estimator:
    """Estimates what subjects do when they alone are quantized.

    Args:
        quantized: The model.
        samples: The samples.
        settings: What to estimate.
        network: The blocks of the model, which know its tensors, and how much may be run at a time.
        subjects: The subjects.
        samples_used: How many samples will be looked at; the fewer, the more vectors in each.

    Attributes:
        subjects: The subjects, in the order of the estimates.
        unknown: Those that cannot be estimated, and why; complete when `estimate` is through.
        estimated: Names of the metrics that are estimated.
    """

    subjects: tuple[Subject, ...]
    unknown: dict[Subject, str]
    estimated: frozenset[str]

    def __init__(
        self,
        quantized: QuantizedModel,
        samples: Samples,
        settings: SensitivitySettings,
        *,
        network: BlockNetwork,
        subjects: Sequence[Subject],
        samples_used: int,
    ) -> None:
        self._quantized, self._samples, self._settings = quantized, samples, settings
        self._network = network
        self._metrics: tuple[Metric, ...] = tuple(get_metric(name) for name in dict.fromkeys(settings.metrics))
        self._terms: Terms = find_terms(quantized, network.whole(), subjects)
        self.unknown = dict(self._terms.unknown)
        self.subjects = tuple(self._terms.parts)
        outputs = network.cutting.wanted
        self._plan = ProbingPlan(
            quantized.float_model,
            network.values,
            self._terms.variants,
            outputs,
            vectors=max(1, settings.probes * math.ceil(settings.first_samples / samples_used) // len(outputs)),
            direction=self._metrics[0].name == "cosine",
            fused=settings.arithmetic != "plain",
        )
        self._shapes = {value.name: value.shape for value in network.values if value.shape is not None}
        self._scores = EstimateScorer(self._terms, outputs, self._metrics, cosine=self._plan.direction)
        self.estimated = self._scores.estimated
        self._probers: dict[object, Prober] = {}
        self._key: str | None = None

    def estimate(
        self, indices: Sequence[int], journal: Journal, *, deadline: float | None = None
    ) -> Generator[ChunkEstimate, None, None]:
        """Estimate all subjects on samples, some at a time; by the deadline at least on the first ones.

        Raises:
            BadInput: A sample cannot be read or does not fit.
        """
        if not self.subjects:
            return
        try:
            batch = self._batch(len(indices))
            if batch > 1 and not self._keeps_apart(indices, batch):
                self._probers.clear()
                batch = 1
            yield from self._estimate(batch, indices, journal, deadline)
        except (CannotProbe, ModelFailed) as error:
            reason = error.what if isinstance(error, ModelFailed) else str(error)
            self.unknown |= dict.fromkeys(self.subjects, reason)

    def _estimate(
        self, batch: int, indices: Sequence[int], journal: Journal, deadline: float | None
    ) -> Generator[ChunkEstimate, None, None]:
        running: dict[Future[ChunkEstimate], str] = {}
        workers, begun = self._network.room.workers, False
        with ThreadPoolExecutor(workers, thread_name_prefix="probe") as pool:
            try:
                for chunk in self._chunks(indices, batch):
                    if begun and deadline is not None and time.monotonic() > deadline:
                        break
                    begun = True
                    prober = self._prober(chunk, batch)
                    key = self._chunk_key(chunk) if journal.used else ""
                    known = journal.find(key)
                    if known is not None:
                        yield unpacked(chunk.samples, known)
                        continue
                    running[pool.submit(self._run, prober, chunk)] = key
                    while len(running) > workers:
                        yield from _finished(running, journal)
                while running:
                    yield from _finished(running, journal)
            finally:
                # After an error, Ctrl-C, or when nobody wants more of it; otherwise nothing is left to end.
                for future in running:
                    future.cancel()
                if running:
                    for prober in self._probers.values():
                        prober.stop()

    def _batch(self, count: int) -> int:
        """How many samples to run together: what memory has room for, and what keeps all workers busy."""
        room, nodes = self._network.room, self._quantized.float_model.proto.graph.node
        sizes = {value.name: value.size_bytes for value in self._network.values}
        results = sum(sizes.get(name, 0) for node in nodes for name in node.output)
        outputs = sum(sizes.get(name, 0) for name in self._plan.outputs)
        held = results * (_HELD + len(self._terms.variants) / max(1, len(nodes)))
        held += outputs * 2 * (self._plan.vectors + self._plan.direction)
        fits = int(room.store_bytes / 2 / room.workers / max(1, held))
        if not fits:
            raise CannotProbe("there is not enough memory for what gradients are computed from")
        return min(room.together, math.ceil(count / room.workers), fits)

    def _keeps_apart(self, indices: Sequence[int], batch: int) -> bool:
        """Whether several samples can be probed at a time."""
        chunk = next(self._chunks(indices, batch))
        if len(chunk.samples) < batch:
            return False
        try:
            return self._prober(chunk, batch).keeps_apart(chunk.feed, self._generators(chunk))
        except NotApart:
            return False

    def _chunks(self, indices: Sequence[int], batch: int) -> Iterator[Chunk]:
        """Samples to run together; those that are not of the shape of the first are run alone."""
        model = self._quantized.float_model
        for chunk in read_chunks(model, self._samples, indices, most=batch):
            alike = all(array.shape[1:] == self._shapes.get(name, ())[1:] for name, array in chunk.feed.items())
            if len(chunk.samples) == 1 or alike:
                yield chunk
            else:
                yield from read_chunks(model, self._samples, chunk.samples, most=1)

    def _prober(self, chunk: Chunk, batch: int) -> Prober:
        """What probes samples like these; only the last one made is kept."""
        count = len(chunk.samples)
        shapes = {
            name: (len(array) // count, *array.shape[1:]) if count > 1 else array.shape
            for name, array in chunk.feed.items()
        }
        together = batch if shapes == {name: self._shapes.get(name) for name in shapes} else 1
        key = together, tuple(sorted(shapes.items()))
        if key not in self._probers:
            self._probers = {key: Prober(self._plan, shapes, together)}
            self._note_unknown(self._probers[key].graph)
        return self._probers[key]

    def _note_unknown(self, graph: ProbeGraph) -> None:
        for subject, parts in self._terms.parts.items():
            reasons = [graph.unknown[part] for part in parts if part in graph.unknown]
            if reasons:
                self.unknown.setdefault(subject, reasons[0])

    def _generators(self, chunk: Chunk) -> list[np.random.Generator]:
        """What the vectors of each sample are drawn from, whatever else is in the chunk."""
        return [np.random.default_rng((self._settings.seed, index)) for index in chunk.samples]

    def _run(self, prober: Prober, chunk: Chunk) -> ChunkEstimate:
        missing = prober.samples - len(chunk.samples)
        feed = chunk.feed
        if missing:
            feed = {
                name: np.concatenate([array, *[array[-(len(array) // len(chunk.samples)) :]] * missing])
                for name, array in feed.items()
            }
        probed = prober.run(feed, self._generators(chunk), label=chunk.label)
        return self._scores.score(chunk.samples, probed, prober.probes)

    def _chunk_key(self, chunk: Chunk) -> str:
        """A hash of all that estimates on these samples depend on."""
        if self._key is None:
            self._key = combined_hash(
                [
                    "estimate",
                    model_hash(self._quantized.float_model),
                    quantizer_hash(self._quantized.quantizers),
                    *((subject.name, subject.quantizers) for subject in self.subjects),
                    tuple(metric.name for metric in self._metrics),
                    (self._plan.outputs, self._plan.vectors, self._settings.seed),
                ]
            )
        return combined_hash([self._key, chunk.samples, chunk.digest])


def _finished(running: dict[Future[ChunkEstimate], str], journal: Journal) -> Generator[ChunkEstimate, None, None]:
    """What is done after a while; what it raises is raised."""
    done, _ = wait(running, timeout=_LOOK_UP_S, return_when=FIRST_COMPLETED)
    for future in done:
        key = running.pop(future)
        found = future.result()
        if journal.used:
            journal.add(key, found.packed())
        yield found
