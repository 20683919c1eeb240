"""A simulated chip that runs a network tensor by tensor, so that any of them can go wrong and flow on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from benchmarks.planted.subject import Subject, computed, run
from roundoff.core.quantizers import Quantizer, fake_quantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.integer.machine import IntegerRunner
from roundoff.samples.sample_set import ArraySamples

DUMPED_SAMPLES = 6
"""Samples that a user copies from a board."""

Tensors = dict[str, Array]
Patch = Callable[[Array, int, Mapping[str, Array]], Array]
"""What becomes of a tensor: of its values, the number of the sample, and what was computed before it."""

_EXACT = Arithmetic(accumulator_bits=32)


def few_samples(subject: Subject) -> dict[str, Array]:
    return {name: values[:DUMPED_SAMPLES] for name, values in subject.built.samples.items()}


@dataclass(frozen=True, eq=False)
class Device:
    """One chip with one network on it.

    Attributes:
        subject: The network.
        quantized: Its quantizers; None for a chip that computes in float.
        arithmetic: How its integers are rounded.
        half: Whether a chip that computes in float has 16 bits for it.
        kernels: For tensors that are computed by a kernel of their own: the float model and arithmetic of that.
        patches: What becomes of tensors after they are computed; what reads them reads that.
        flush: Whether half-precision numbers too small for all their digits become zero.
    """

    subject: Subject
    quantized: QuantizedModel | None = None
    arithmetic: Arithmetic = _EXACT
    half: bool = False
    kernels: Mapping[str, tuple[Model, Arithmetic]] = field(default_factory=dict)
    patches: Mapping[str, Patch] = field(default_factory=dict)
    flush: bool = False

    @cached_property
    def dumped(self) -> list[str]:
        """Tensors that exist on the chip, in execution order."""
        names = computed(self._model)
        if self.quantized is None:
            return names
        kept = {q.tensor for q in self.quantized.quantizers} | set(outputs(self._model))
        return [name for name in names if name in kept]

    @cached_property
    def _model(self) -> Model:
        return self.subject.model if self.quantized is None else self.quantized.float_model

    @cached_property
    def _coded(self) -> dict[str, Quantizer]:
        """The quantizer through which each tensor is stored."""
        found: dict[str, Quantizer] = {}
        for each in () if self.quantized is None else self.quantized.quantizers:
            if each.kind == "activation" and not each.after:
                found.setdefault(each.tensor, each)
        return found

    def run(self, samples: Mapping[str, Array]) -> list[Tensors]:
        """Every tensor that exists on the chip, sample by sample, the inputs first."""
        runners: dict[str, IntegerRunner] = {}
        usual = self._runner(self._model, self.arithmetic)
        found = []
        for index in range(len(next(iter(samples.values())))):
            feed = {name: np.asarray(values) for name, values in ArraySamples(samples).feed(index).items()}
            held: Tensors = {name: self._stored(name, values) for name, values in feed.items()}
            for name in self.dumped:
                runner = usual
                if name in self.kernels:
                    runner = runners.setdefault(name, self._runner(*self.kernels[name]))
                made = runner.run_local(held, [name]).values[name]
                if name in self.patches:
                    made = self.patches[name](made, index, held)
                held[name] = self._stored(name, made)
            found.append(held)
        return found

    def _runner(self, model: Model, arithmetic: Arithmetic) -> IntegerRunner:
        quantizers = () if self.quantized is None else self.quantized.quantizers
        return IntegerRunner(model, quantizers, arithmetic, threads=1)

    def _stored(self, name: str, values: Array) -> Array:
        """A tensor as the chip's memory holds it."""
        if name in self._coded:
            quantizer = self._coded[name]
            return fake_quantize(values.astype(np.float32), quantizer.params, quantizer.spec)
        if not self.half or values.dtype.kind != "f":
            return values
        with np.errstate(over="ignore"):
            short = np.clip(values, -65504, 65504).astype(np.float16)
        if self.flush:
            short = np.where(np.abs(short) < np.finfo(np.float16).tiny, np.float16(0), short)
        return short.astype(np.float32)


def simulator_dump(subject: Subject, quantized: QuantizedModel) -> list[Tensors]:
    """What a vendor's simulator writes: fake quantization, run as a whole by a runtime."""
    coded = Device(subject, quantized)._coded
    model = switch_on(quantized.float_model, quantized.quantizers)
    names = Device(subject, quantized).dumped
    present = {name for node in model.proto.graph.node for name in node.output}
    raw = {name: name if f"{name}_float" not in present else f"{name}_float" for name in names}
    samples = few_samples(subject)
    made = {**samples, **dict(zip(names, run(model, samples, list(raw.values())).values(), strict=True))}
    stored = {
        name: fake_quantize(values, coded[name].params, coded[name].spec) if name in coded else values
        for name, values in made.items()
    }
    return [{name: values[i : i + 1] for name, values in stored.items()} for i in range(DUMPED_SAMPLES)]
