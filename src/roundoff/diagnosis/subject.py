"""A quantized network under diagnosis: with some of its faults mended, to see what is left."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.diagnosis.evidence import Facts, observe
from roundoff.diagnosis.interventions import InterventionRunner
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.result import Measure
from roundoff.diagnosis.suspects import Suspect
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import channel_axes, values
from roundoff.graph.units import derived_constants
from roundoff.messages.message import message
from roundoff.run.bench import MORE_SAMPLES
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples, complete_values

__all__ = ["Case", "Fixes", "loss_measures", "open_case"]

Fixes = Mapping[str, Quantizer | None]
"""Quantizers by name that others take the place of; None for float."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A quantized network, with some of its faults mended.

    Attributes:
        facts: What is known of it.
        runner: Runs it.
        mended: What is put right already.
    """

    facts: Facts
    runner: InterventionRunner
    mended: Fixes = field(default_factory=dict)

    def mend(self, fixes: Fixes) -> "Case":
        """The case with more put right."""
        return replace(self, mended={**self.mended, **fixes})

    def quantizers(self, fixes: Fixes | None = None) -> list[Quantizer]:
        """The quantizers that are on, with what is mended and some more in place."""
        changed = {**self.mended, **(fixes or {})}
        found = (changed.get(each.name, each) for each in self.facts.quantized.quantizers)
        return [each for each in found if each is not None]

    def loss(self, fixes: Fixes | None = None, *, more: bool = False) -> Loss:
        """What the outputs lose then."""
        return self.runner.loss(self.quantizers(fixes), more=more)

    def in_float(self, suspect: Suspect) -> Fixes:
        """A suspect in float."""
        return dict.fromkeys(suspect.quantizers)

    def recovered(self, suspect: Suspect, fixes: Fixes) -> float:
        """Part of what a suspect in float takes away of the loss that fixes take away, 0 to 1."""
        before, best, after = self.loss(), self.loss(self.in_float(suspect)), self.loss(fixes)
        possible = before.value - best.value
        return min(1.0, max(0.0, (before.value - after.value) / possible)) if possible > 0 else 0.0

    def measures(self, fixes: Fixes) -> tuple[Measure, ...]:
        """What fixes change, on all samples that are used."""
        return loss_measures(self.loss(more=True), self.loss(fixes, more=True))


def loss_measures(before: Loss, after: Loss) -> tuple[Measure, ...]:
    """Signal to noise and cosine at the part of the outputs that is worst off, and whether classes agree."""
    name = before.parts[before.worst] if before.parts else ""
    ours, theirs = before.of_part(before.worst), after.of_part(before.worst)
    found = [
        Measure(
            message("diagnosis.measure_sqnr", name=name),
            "dB",
            ours.sqnr_db,
            theirs.sqnr_db,
            samples=before.samples,
        ),
        Measure(
            message("diagnosis.measure_cosine", name=name), "", ours.cosine, theirs.cosine, samples=before.samples
        ),
    ]
    if before.top1 is not None and after.top1 is not None:
        what = message("diagnosis.measure_top")
        found.append(Measure(what, "", before.top1, after.top1, samples=before.samples))
    return tuple(found)


def open_case(  # noqa: PLR0913 - what to look at, what is known of it, and how much it may take
    quantized: QuantizedModel,
    samples: Samples,
    *,
    arithmetic: Arithmetic = WIDEST,
    asked: Mapping[str, int] | None = None,
    threads: int | None = None,
    max_memory: int | None = None,
    progress: Progress = SILENT,
    deadline: Deadline = NO_DEADLINE,
    most: int = MORE_SAMPLES,
) -> Case:
    """Run the float network and look at its tensors.

    Args:
        quantized: The network.
        samples: What it is fed.
        arithmetic: How its hardware computes.
        asked: Quantizers that were to be wider, with the bits that were asked for.
        threads: Threads to use.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        deadline: When all has to be done.
        most: Use so many samples at most.

    Raises:
        BadInput: The samples do not fit, or no output can be compared.
        ModelFailed: The model cannot be run.
    """
    model = quantized.float_model
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    everything = complete_values(model, inferred, feed, threads=threads)
    runner = InterventionRunner(
        model, samples, everything=everything, threads=threads, progress=progress, deadline=deadline, most=most
    )
    runner.focus(quantized.quantizers)
    constant = derived_constants(model.proto.graph)
    known = {each.name for each in everything}
    live = [each for each in quantized.quantizers if each.tensor not in constant and each.tensor in known]
    observed = observe(
        model,
        runner.chosen,
        live,
        axes=channel_axes(model, everything),
        threads=threads,
        max_memory=max_memory,
        progress=progress,
    )
    partly = len(runner.indices) < len(samples.names)
    facts = Facts(
        quantized, everything, observed=observed, arithmetic=arithmetic, asked=asked or {}, partly=partly
    )
    return Case(facts, runner)
