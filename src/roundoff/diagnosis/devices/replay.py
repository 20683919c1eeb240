"""A device played again part by part: its tensors, what they should be, and what may differ."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import (
    UNLIMITED,
    Coarseness,
    DeviceNumbers,
    Expected,
    Golden,
    NumberKind,
    Span,
    cancelling_input,
    coarsest_step,
    expect_coded,
    expect_uncoded,
    grid_step,
    has_weights,
    ideal_quantizers,
    infer_arithmetic,
    infer_noise_floor,
    infer_operands,
    infer_weight_precision,
    possible_values,
    storage_noise,
    with_digits_of,
)
from roundoff.diagnosis.devices.readout import DeviceView, Readout
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.messages.message import Message, english, message
from roundoff.run.bench import spread
from roundoff.run.capture import Samples
from roundoff.tensors.ranges import on_grid, ranges_of_steps
from roundoff.tensors.stored import ToolScale, scales_of

# Values from which the grid of a tensor is told.
_ENOUGH_VALUES = 1 << 14
# A scale that leaves so much of a tensor's spread is none; hidden gains of what is read leave less.
_NO_LINE = 0.7
# What stands in for a wrong dump is not rounded as the device's own values were.
_NOT_ROUNDED = 0.02
# Noise of a tensor with that of what it reads.
_PASSED_ON = 2.0
# Codes of 8 bits, and by how much wider than its values in a few samples the range of a tensor may well be.
_CODES, _WIDER_CODES = 255, 4.0
# So many samples show how far inputs reach.
_MOST_FED, _PICTURE_RANK = 64, 4


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One tensor in one sample.

    Attributes:
        found: What the device wrote.
        exact: What it should have computed from its own inputs.
        expected: What may differ.
        unlimited: The same as `exact`, but not cut off where the device's values end; None when it is not.
    """

    found: Array
    exact: Array
    expected: Expected
    unlimited: Array | None = None

    @property
    def free(self) -> Array:
        """What it should have computed, wherever its codes end."""
        return self.exact if self.unlimited is None else self.unlimited

    @property
    def off(self) -> Array:
        """Where it is off by more than it may be, or what the operation cannot give."""
        low, high = self.expected.limits
        far = np.abs(self.found - self.exact) > self.expected.tolerance
        return np.asarray(far | (self.found < low) | (self.found > high))


@dataclass(eq=False)
class DeviceReplay:
    """A device under test.

    Attributes:
        model: The float model, as the quantizers know it.
        quantizers: How the device is to code tensors; empty where that is not known.
        samples: Inputs of the network.
        readout: What the device wrote.
        arithmetic: How its integers should be rounded, as far as it is known.
        believed: Tensors whose dump is wrong while the device went on with the right values.
        indices: Samples that are used, by their place in the readout.
        scaled: Whether the quantizers are what the tool's own scales say.
        threads: Threads of matrix products.
        trials: Wrong kernels that were tried on tensors, by the tensor.
    """

    model: Model
    quantizers: Sequence[Quantizer]
    samples: Samples
    readout: Readout
    arithmetic: Arithmetic = WIDEST
    indices: tuple[int, ...] = (0,)
    threads: int | None = None
    scaled: bool = False
    believed: set[str] = field(default_factory=set)
    trials: dict[str, Any] = field(default_factory=dict)
    _ends: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _coarse: dict[str, float] = field(default_factory=dict, init=False)

    @cached_property
    def golden(self) -> Golden:
        """The reference."""
        return Golden(self.model, self.quantizers, self.arithmetic, threads=self.threads)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs of the network that the device wrote."""
        computed = self._computed
        return tuple(name for name in self.readout.pairs if name not in computed)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Computed tensors that the device wrote, in execution order.

        A quantized model says nothing of what leads to no output: those who read it drop such branches.
        """
        computed = self._computed if not self.quantizers else self._computed & self.needed
        return tuple(name for name in self.readout.pairs if name in computed)

    @cached_property
    def _computed(self) -> frozenset[str]:
        return frozenset(name for node in self.model.proto.graph.node for name in node.output)

    @cached_property
    def needed(self) -> frozenset[str]:
        """What the outputs are computed from, and these."""
        graph = self.model.proto.graph
        found = {value.name for value in graph.output}
        for node in reversed(graph.node):
            if not found.isdisjoint(node.output):
                found.update(node.input)
        return frozenset(found)

    @cached_property
    def spans(self) -> dict[str, Span]:
        """What computes each tensor from others that the device wrote."""
        return {name: self.golden.span(name, self.readout.pairs.keys()) for name in self.tensors}

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """Tensors that are computed from each."""
        found: dict[str, list[str]] = {}
        for name, span in self.spans.items():
            for read in span.reads:
                found.setdefault(read, []).append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def numbers(self) -> DeviceNumbers:
        """What the device computes with."""
        values = {name: self._some_values(name) for name in self.tensors}
        numbers = infer_arithmetic(values)
        self._ends = {name: (float(values[name].min()), float(values[name].max())) for name in numbers.steps}
        return replace(numbers, limits={**self._held_ends(numbers.steps), **numbers.limits})

    @cached_property
    def scales(self) -> Mapping[str, ToolScale]:
        """How tensors are coded: as the tool's files say, or as the steps of codes show that nobody tells of."""
        if told := scales_of(self.readout.device):
            pairs = self.readout.pairs.items()
            return {name: told[pair.candidate] for name, pair in pairs if pair.candidate in told}
        if self.quantizers or self.numbers.kind != "integer":
            return {}
        return ranges_of_steps(self.numbers.steps, self._ends)

    def _held_ends(self, steps: Mapping[str, float]) -> dict[str, tuple[float, float]]:
        """Where codes end that hold all that the float model computes: beyond that only a fault in front goes."""
        ends = dict.fromkeys(steps, (np.inf, -np.inf))
        for sample in self.indices:
            for name, (low, high) in ends.items():
                exact = self.readout.exact(name, sample)
                ends[name] = min(low, float(exact.min(initial=low))), max(high, float(exact.max(initial=high)))
        found = {}
        for name, (low, high) in ends.items():
            first, last = self._ends[name]
            held = first <= low + steps[name], last >= high - steps[name]
            if any(held):
                found[name] = first if held[0] else -np.inf, last if held[1] else np.inf
        return found

    def _some_values(self, name: str) -> Array:
        """Values of a tensor from several samples: enough to see its grid, and where it ends."""
        found = []
        for sample in self.indices:
            flat = self.readout.read(name, sample).ravel()
            every = flat.size // _ENOUGH_VALUES + 1
            ends = [flat[np.isfinite(flat)].min(initial=0.0), flat[np.isfinite(flat)].max(initial=0.0)]
            found.append(np.concatenate([flat[::every], np.asarray(ends, flat.dtype)]))
        return np.concatenate(found)

    def feed(self, sample: int) -> Mapping[str, Array]:
        """The user's inputs of a sample."""
        name = self.readout.samples[sample][0]
        return self.samples.feed(self.samples.names.index(name))

    def view(self, sample: int) -> DeviceView:
        """Tensors of the device, with what is believed in place of wrong dumps."""
        view = self.readout.view(sample, self.feed(sample))
        for name in self.tensors:
            if name in self.believed:
                view = view.but({name: self.golden.compute(name, view)})
        return view

    def pair(self, tensor: str, sample: int, view: DeviceView | None = None) -> Pair:
        """A tensor next to what it should be."""
        given = self.view(sample) if view is None else view
        found = self.readout.read(tensor, sample)
        exact = (self._uncast if tensor in self._cast else self.golden).compute(tensor, given)
        if found.shape != exact.shape:
            what = english(
                "{tensor} has the shape {shape} on the device and {shape2} in the model.",
                tensor=tensor,
                shape=found.shape,
                shape2=exact.shape,
            )
            raise BadInput(what, fix=english("leave it out of the dump"))
        if not self.is_guessed(tensor):
            return Pair(found, exact, self._expect_coded(tensor, exact, given))
        return self._uncoded(tensor, exact, found, given)

    @cached_property
    def _cast(self) -> frozenset[str]:
        """Tensors that a tool wrote in float, which only those who read them get as codes."""
        coded = self.golden.coded if self.scaled else {}
        return frozenset(
            name
            for name in self.tensors
            if name in coded
            and name not in self.scales
            and not on_grid(self._some_values(name), float(coded[name].params.scale))
        )

    @cached_property
    def _uncast(self) -> Golden:
        """The reference without the codes of these: what it computes, as it was written."""
        return self.golden.with_quantizers([each for each in self.quantizers if each.tensor not in self._cast])

    def is_guessed(self, tensor: str) -> bool:
        """Whether it is a guess what may differ in a tensor: nobody says how it is coded, or computed."""
        return not self.quantizers or tensor in self._rewritten

    @cached_property
    def _rewritten(self) -> frozenset[str]:
        """Tensors in front of which the tool computes something with codes that the network does not have.

        It splits a layer or computes it in another way there, and rounds in between.
        """
        device, known = self.readout.device, scales_of(self.readout.device)
        if not self.scaled or not device.ordered:
            return frozenset()
        names = {pair.candidate: name for name, pair in self.readout.pairs.items()}
        found: set[str] = set()
        strange = False
        for info in device.tensors:
            if info.name in names:
                name = names[info.name]
                # What is fused behind it is computed with it.
                span = self.spans.get(name)
                if strange or (span is not None and len(span.nodes) == 1 and found.issuperset(span.reads)):
                    found.add(name)
                strange = False
            elif info.name in known and not info.copy_of and info.name not in self.readout.copies:
                strange = True
        return frozenset(found)

    def _expect_coded(self, tensor: str, exact: Array, given: DeviceView) -> Expected:
        span = self.spans[tensor]
        hidden = self._hidden_quantizers(span)
        without = self._loose.compute(tensor, given) if hidden else None
        loose = self.golden.in_float(span.nodes)
        return expect_coded(exact, self.golden.coded.get(tensor), loose=loose, without_hidden=without)

    def _hidden_quantizers(self, span: Span) -> bool:
        return any(name in self.golden.coded for name in span.hidden)

    @cached_property
    def _loose(self) -> Golden:
        """The reference with all tensors in float that the device did not write."""
        known = self.readout.pairs
        kept = [each for each in self.quantizers if each.kind != "activation" or each.tensor in known]
        return self.golden.with_quantizers(kept)

    def _uncoded(self, tensor: str, exact: Array, found: Array, given: DeviceView) -> Pair:
        numbers = self.numbers
        simulated = self._simulation.compute(tensor, given) if numbers.kind == "integer" else None
        largest = cancelling_input(self.golden, self.spans[tensor], given)
        free = exact
        if tensor in numbers.limits:
            exact = np.clip(exact, *numbers.limits[tensor])
            simulated = None if simulated is None else np.clip(simulated, *numbers.limits[tensor])
        expected = expect_uncoded(
            tensor,
            exact,
            found,
            numbers=numbers,
            simulated=simulated,
            largest_input=largest,
            coarsest=self._coarsest(tensor),
        )
        expected = expected.wider(
            self._fit_error(tensor) * float(exact.std()) + self._hidden_gain(tensor, found, exact)
        )
        if numbers.kind != "integer":
            expected = self._coarsened(expected, tensor, exact, given)
        return Pair(found, exact, expected, free)

    def _coarsest(self, tensor: str) -> float:
        """The coarsest step that 8 bits may have in a tensor of few values; 0 where there is no need to ask."""
        if self.numbers.kind != "integer" or tensor in self.numbers.steps:
            return 0.0
        if tensor not in self._coarse:
            step = coarsest_step(self._some_values(tensor))
            self._coarse[tensor] = 0.0 if step is None else min(step, self._coarsest_usual(tensor))
        return self._coarse[tensor]

    def _coarsest_usual(self, tensor: str) -> float:
        """The coarsest step that fits what a tensor would reach if what it reads used all of its codes."""
        # An activation that was taken in one with its layer may leave nothing of what that reaches.
        names = (tensor, *(name for name in self.spans[tensor].hidden if name in self._floats))
        values = [_finite([self.readout.exact(name, at) for at in self.indices]) for name in names]
        reach, used = max(float(np.ptp(each)) for each in values), self.used_by(tensor)
        if used > 0 and reach > 0:
            return _WIDER_CODES * reach / (_CODES * used)
        # Half of that step, and all is rounded to zero.
        return 2 * float(np.abs(values[0]).max())

    @cached_property
    def _floats(self) -> frozenset[str]:
        known = self.readout.reference.tensors
        return frozenset(info.name for info in known if not info.problem and info.dtype.startswith("float"))

    def used_by(self, tensor: str) -> float:
        """The share of its codes that what a tensor reads uses in these samples; 1 where nobody knows."""
        shares = []
        for name in self.spans[tensor].reads:
            if name not in self.tensors:
                low, high = self._input_range(name)
                values = _finite([self.feed(at)[name] for at in self.indices])
                shares.append(float(np.ptp(values)) / (high - low) if high > low else 1.0)
                continue
            values = _finite([self.readout.read(name, at) for at in self.indices])
            step = self.numbers.steps.get(name) or coarsest_step(values)
            shares.append(min(1.0, float(np.ptp(values)) / (_CODES * step)) if step else 1.0)
        return max(shares, default=1.0)

    def _input_range(self, name: str) -> tuple[float, float]:
        """What an input is coded for: what all samples hold, and for pictures all between 0 and 1."""
        values = [np.asarray(self.samples.feed(at)[name]) for at in spread(len(self.samples.names), _MOST_FED)]
        low, high = float(min(0.0, *map(np.min, values))), float(max(0.0, *map(np.max, values)))
        if values[0].dtype.kind != "f" or values[0].ndim != _PICTURE_RANK or max(-low, high) > 1:
            return low, high
        return -1.0 if low < 0 else 0.0, 1.0

    @cached_property
    def _coded_inputs(self) -> frozenset[str]:
        """Inputs that the device wrote as it coded them."""
        names = (name for name in self.inputs if self.readout.read(name, self.indices[0]).dtype.kind == "f")
        return frozenset(name for name in names if grid_step(self._some_values(name)) is not None)

    def _coarsened(self, expected: Expected, tensor: str, exact: Array, given: DeviceView) -> Expected:
        """What may differ where the whole device is coarser than its numbers."""
        coarse = self.coarseness
        if self._shortened is not None:
            expected = expected.with_error(self._as_short(self._shortened, tensor, given) - exact)
        if coarse.weights and tensor in self._layers:
            expected = expected.with_error(coarse.weights * (self._rough.compute(tensor, given) - exact))
        noise = _PASSED_ON * coarse.relative * float(exact.std())
        limits = possible_values(self.golden.limits.get(tensor, UNLIMITED), exact, self.numbers.kind, noise)
        return replace(expected.wider(noise), limits=limits)

    @cached_property
    def coarseness(self) -> Coarseness:
        """How much coarser than its numbers a float device is in all of its layers, or in all of its tensors."""
        if self.quantizers or self.numbers.kind == "integer":
            return Coarseness()
        view, kind = self.view(self.indices[0]), self.numbers.kind
        # Of each tensor: its error beyond storage, its spread, and what 8-bit weights would do to it.
        seen: list[tuple[float, float, float]] = []
        for name in self.tensors:
            exact, found = self.golden.compute(name, view), self.readout.read(name, self.indices[0])
            if self._shortened is not None:
                exact = self._as_short(self._shortened, name, view)
            spread = float(exact.std()) if exact.dtype.kind == "f" and exact.size else 0.0
            if exact.shape != found.shape or not 0 < spread < np.inf:
                continue
            error = float(np.square(found.astype(np.float64) - exact).mean()) - storage_noise(exact, kind)
            rough = 0.0
            if name in self._layers:
                rough = float(np.square(self._rough.compute(name, view).astype(np.float64) - exact).mean())
            if np.isfinite(error):
                seen.append((max(0.0, error), spread, rough))
        # Noise is what tensors without weights have, too; only what layers have beyond that can be their weights'.
        plain = [float(np.sqrt(error)) / spread for error, spread, rough in seen if not rough]
        relative = infer_noise_floor(plain or [float(np.sqrt(error)) / spread for error, spread, _ in seen])
        beyond = [
            float(np.sqrt(max(0.0, error - (_PASSED_ON * relative * spread) ** 2) / rough))
            for error, spread, rough in seen
            if rough
        ]
        return Coarseness(infer_weight_precision(beyond), relative)

    @cached_property
    def operands(self) -> NumberKind:
        """What all its layers multiply: of a kind shorter than what it stores where most of them show that."""
        kind = self.numbers.kind
        if kind != "float32" or self.quantizers:
            return kind
        first = self.indices[0]
        view = self.view(first)
        shorter: tuple[NumberKind, ...] = ("bfloat16", "float16")
        for short in shorter:
            golden = self.golden.with_short_constants(short, stored=False)
            errors = []
            for name in sorted(self._layers):
                found = self.readout.read(name, first).astype(np.float64)
                made = self.golden.compute(name, view), self._as_short((golden, short), name, view)
                if made[0].shape == found.shape and np.isfinite(found).all():
                    plain, rough = (float(np.square(found - each).mean()) for each in made)
                    errors.append((plain, rough))
            if infer_operands(errors):
                return short
        return kind

    @cached_property
    def _shortened(self) -> tuple[Golden, NumberKind] | None:
        """The reference with constants as short as the device's, and their kind; None for float32 and codes."""
        kind = self.operands
        if kind not in ("float16", "bfloat16") or self.quantizers:
            return None
        return self.golden.with_short_constants(kind, stored=kind == self.numbers.kind), kind

    def _as_short(self, shortened: tuple[Golden, NumberKind], tensor: str, given: DeviceView) -> Array:
        """A tensor by short constants, of what it reads in as few digits."""
        golden, kind = shortened
        reads = {name: given[name] for name in self.spans[tensor].reads if name in given}
        short = {name: with_digits_of(values, kind) for name, values in reads.items() if values.dtype.kind == "f"}
        return golden.compute(tensor, given.but(short if tensor in self._layers else {}))

    @cached_property
    def _layers(self) -> frozenset[str]:
        return frozenset(name for name in self.tensors if has_weights(self.golden, self.spans[name]))

    @cached_property
    def _rough(self) -> Golden:
        """The float model with weights in plain 8 bits, one scale for each."""
        return self.golden.with_quantizers(ideal_quantizers(self.model, {}, ()))

    def _hidden_gain(self, tensor: str, found: Array, exact: Array) -> float:
        """How far values may be off by a gain that codes of unknown scale hide in what a tensor reads."""
        fits, energy = self.readout.fits, float(np.square(exact, dtype=np.float64).sum())
        if tensor in fits or not energy or not any(name in fits for name in self.spans[tensor].reads):
            return 0.0
        gain = float((exact.astype(np.float64) * found).sum()) / energy
        return abs(1 - gain) * float(np.abs(exact).max()) if np.isfinite(gain) else 0.0

    def _fit_error(self, tensor: str) -> float:
        """How uncertain values are, relative to their spread, by fitted scales and stand-ins for wrong dumps."""
        fits, reads = self.readout.fits, self.spans[tensor].reads
        errors = [fits[name].rest for name in reads if name in fits]
        # Codes that no line brings near what their own inputs give are wrong, not uncertain, where these inputs
        # are those of the float model: behind a fault their scales hide gains.
        own = fits[tensor].rest if tensor in fits else 0.0
        known = all(name not in fits or fits[name].known for name in reads)
        errors.append(0.0 if own > _NO_LINE and known else own)
        return max([*errors, _NOT_ROUNDED * any(name in self.believed for name in reads)])

    @cached_property
    def _simulation(self) -> Golden:
        """The float model with weights, and what the device did not round, in plain 8 bits."""
        return self._in_eight_bits(self.numbers.steps.keys() | self._coded_inputs, self.indices[:1])

    @cached_property
    def eight_bits(self) -> Golden:
        """The float model with weights and activations in plain 8 bits, with ranges of all samples."""
        return self._in_eight_bits((), self.indices)

    def _in_eight_bits(self, rounded: Collection[str], samples: Sequence[int]) -> Golden:
        ranges = {}
        for name in self._floats:
            values = [self.readout.exact(name, at) for at in samples]
            if values[0].size and all(np.isfinite(each).all() for each in values):
                ranges[name] = min(float(each.min()) for each in values), max(float(each.max()) for each in values)
        # What is dumped finer than it is read is coded for brighter samples, too.
        ranges |= {each: self._input_range(each) for each in self.feed(self.indices[0]).keys() & ranges.keys()}
        return self.golden.with_quantizers(ideal_quantizers(self.model, ranges, rounded))


def _finite(arrays: Sequence[Array]) -> Array:
    """All finite values of some arrays; zero, which has a code, is always one."""
    flat = np.concatenate([np.zeros(1), *(np.ravel(each) for each in arrays)])
    return np.asarray(flat[np.isfinite(flat)])


_NAMED = 3


@dataclass(frozen=True, slots=True)
class NotFinite:
    """Tensors of a device that are not all numbers.

    Attributes:
        tensors: Those with NaN or infinite values, in execution order.
        as_float: Those of them that are so in the float model, too.
        readers: Tensors that are computed from some of them, about which nothing can be told.
    """

    tensors: tuple[str, ...] = ()
    as_float: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()

    def without_wrong_dumps(self, dumps: Collection[str], replay: DeviceReplay) -> "NotFinite":
        """The same, given that the device itself had numbers in these tensors."""
        wrong = frozenset(self.tensors).difference(dumps)
        return replace(self, readers=_readers(replay, wrong))

    @property
    def text(self) -> Message:
        """Where they come up first."""
        first = self.tensors[0]
        if first in self.as_float:
            return message("diagnosis.not_finite_first_both", tensor=first)
        return message("diagnosis.not_finite_first", tensor=first)

    @property
    def notes(self) -> tuple[Message, ...]:
        """What was not judged because of them."""
        if not self.readers:
            return ()
        return (message("diagnosis.note_read_not_finite", count=len(self.readers)),)


def find_not_finite(replay: DeviceReplay) -> NotFinite:
    """Look for NaN and infinite values in what the device wrote."""
    names = (*replay.inputs, *replay.tensors)
    tensors = [name for name in names if _any(replay, name, float_model=False)]
    as_float = frozenset(name for name in tensors if _any(replay, name, float_model=True))
    return NotFinite(tuple(tensors), as_float, _readers(replay, frozenset(tensors)))


def _readers(replay: DeviceReplay, wrong: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in replay.tensors if wrong.intersection(replay.spans[name].reads))


def _any(replay: DeviceReplay, name: str, *, float_model: bool) -> bool:
    read = replay.readout.exact if float_model else replay.readout.read
    return any(not np.isfinite(read(name, sample)).all() for sample in replay.indices)
