"""Measuring all tensors of a network in some variants, in fake quantization or with integers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.feeds import Samples
from roundoff.run.integer.runner import IntegerRunner
from roundoff.run.layer_tensors import FUSED, LayerTensor
from roundoff.run.variants import Copies, Variant, build_copies
from roundoff.studies.layers.integer import IntegerPass
from roundoff.studies.layers.passes import Budget, CopiesPass, Footprint, Pass, PassFactory, SampleRange, measure
from roundoff.studies.layers.tally import Tally

__all__ = ["Measuring"]


@dataclass(slots=True)
class Measuring:
    """What is measured, on what, and with what.

    Attributes:
        quantized: The network.
        tensors: Its tensors.
        samples: What it is fed.
        budget: What may be used.
        progress: Told of every sample.
        passes: How often the network ran per sample in the last measurement, to stay within the memory.
    """

    quantized: QuantizedModel
    tensors: Sequence[LayerTensor]
    samples: Samples
    budget: Budget
    progress: Progress
    passes: int = 0
    _constants: dict[str, Array] = field(default_factory=dict)

    def copies(self, network: QuantizedModel, variants: Sequence[Variant]) -> Copies:
        """Copies of this network, or of the same with fewer quantizers; weights are quantized once for all."""
        return build_copies(network, variants, known=self._constants)

    def reference(
        self, variants: Sequence[Variant], indices: Sequence[int], *, fused: bool = True
    ) -> dict[str, Tally]:
        """Measure some variants in fake quantization, over some samples; tensors inside units too if `fused`."""
        copies = self.copies(self.quantized, variants)
        tallies = {
            tensor.name: Tally(tensor, [variant for variant in variants if variant in copies.taps[tensor.name]])
            for tensor in self._readable(copies)
            if fused or tensor.quantized != FUSED
        }

        def open_pass(tallies: Mapping[str, Tally], threads: int) -> Pass:
            return CopiesPass(copies, tallies, model=self.quantized.float_model, threads=threads)

        self._measure(tallies, open_pass, copies, indices)
        return tallies

    def integer(
        self, variants: Sequence[Variant], indices: Sequence[int], runner: IntegerRunner
    ) -> dict[str, Tally]:
        """Measure the local and the accumulated error with integers, over some samples.

        Beside the local error that of fake quantization is measured, as the variant ``reference``.
        """
        compared: tuple[Variant, ...] = ("local",) if "local" in variants else ()
        beside: tuple[Variant, ...] = ("reference",) if compared else ()
        copies = self.copies(self.quantized, compared)
        tallies = {tensor.name: Tally(tensor, (*variants, *beside)) for tensor in self._readable(copies)}

        def open_pass(tallies: Mapping[str, Tally], threads: int) -> Pass:
            return IntegerPass(copies, tallies, quantized=self.quantized, runner=runner, threads=threads)

        self._measure(tallies, open_pass, copies, indices, integers=True)
        return tallies

    def _readable(self, copies: Copies) -> list[LayerTensor]:
        return [tensor for tensor in self.tensors if tensor.name in copies.taps and not tensor.value.obstacle()]

    def _measure(
        self,
        tallies: Mapping[str, Tally],
        open_pass: PassFactory,
        copies: Copies,
        indices: Sequence[int],
        *,
        integers: bool = False,
    ) -> None:
        model = self.quantized.float_model
        # The model as loaded, the constants as kept for the session, and the session's own copy of all of them.
        fixed = copies.model.file_bytes + copies.model.weight_bytes + 2 * copies.constant_bytes
        # The integer runner computes one sample at a time, and its sums are float64.
        footprint = Footprint(fixed, variant_size=2, workers=1) if integers else Footprint(fixed)
        self.passes = measure(
            tallies,
            open_pass,
            SampleRange(model, self.samples, indices),
            footprint=footprint,
            budget=self.budget,
            progress=self.progress,
        )
