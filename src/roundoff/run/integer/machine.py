"""The machine that carries a pass through a network, node by node."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, aligned, code_dtype, dequantize, quantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import STANDARD_DOMAINS
from roundoff.graph.shapes import Value, values
from roundoff.graph.weights import Weights
from roundoff.messages.message import english
from roundoff.run.budget import blas_threads
from roundoff.run.capture import check_feed
from roundoff.run.integer.call import (
    IntegerKernel,
    KernelCall,
    KernelContext,
    KernelResult,
    NotInteger,
    Operand,
    holds_floats,
    narrowed,
    plain_value,
    widened,
)
from roundoff.run.integer.data_movement import FLOAT_KERNELS, MOVE_KERNELS, REDUCTION_KERNELS, carried
from roundoff.run.integer.elementwise import ELEMENTWISE_KERNELS, LookupTable
from roundoff.run.integer.linear import LINEAR_KERNELS
from roundoff.run.integer.program import Program, ProgramStep, SingleNodes
from roundoff.run.integer.results import AccumulatorOverflow, Coded, IntegerReport, Recorder, Result, Wide

# Functions of one tensor by looking up its codes in a table.

# Functions of each element alone.
_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Atan",
        "Ceil",
        "Celu",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Silu",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    }
)
# Functions that begin with a table of exponentials and go on in a wide register.
_ALONG_AN_AXIS = frozenset({"Softmax", "LogSoftmax"})
_LARGEST_TABLE_BITS = 16


def table_kernel(op_type: str) -> IntegerKernel | None:
    """How a table computes an operation; None when a table cannot."""
    if op_type in _ELEMENTWISE:
        return _looked_up
    return _along_an_axis if op_type in _ALONG_AN_AXIS else None


def _looked_up(call: KernelCall) -> KernelResult:
    values = call.operand(0).whole
    spec = values.spec
    if spec.bits > _LARGEST_TABLE_BITS:
        raise NotInteger(english("a table of {bits}-bit codes would be too large", bits=spec.bits))
    entries = call.keep("table", lambda: _entries(call, values), constant=True)
    return [LookupTable(values.codes.astype(np.int64) - spec.code_min, entries)]


def _entries(call: KernelCall, values: Coded) -> Array:
    codes = np.arange(values.spec.code_min, values.spec.code_max + 1)
    return carried(call, dequantize(codes, values.params))[0]


def _along_an_axis(call: KernelCall) -> KernelResult:
    values = call.operand(0).whole
    return [Wide(carried(call, values.real())[0].astype(np.float64), np.ones(()), integral=False)]


# Constants of a model as integer hardware stores them.


def coded(value: Any, quantizer: Quantizer, arithmetic: Arithmetic) -> Coded:
    """Codes of a value, plain or computed with integers, as a quantizer sees it."""
    params, spec = quantizer.params, quantizer.spec
    if isinstance(value, Result):
        return Coded(value.codes_for(params, spec, arithmetic), params, spec)
    return Coded(quantize(widened(value), params, spec), params, spec)


class IntegerConstants:
    """Values and codes of constants, each computed once.

    Plain values are kept only while codes are made of them, unless a node reads them as they are.

    Args:
        program: The model.
        nodes: Computes constants that are not stored.
        recorder: Learns of biases that do not fit.
        arithmetic: How codes are quantized again.
    """

    def __init__(self, program: Program, nodes: SingleNodes, recorder: Recorder, arithmetic: Arithmetic) -> None:
        self._program, self._nodes = program, nodes
        self._recorder, self._arithmetic = recorder, arithmetic
        self._weights = Weights(program.model)
        self._plain: dict[str, Any] = {}
        self._coded: dict[str, Coded] = {}

    def plain(self, name: str) -> Any:
        """The float values, or whatever else the constant holds."""
        if name not in self._plain:
            self._plain[name] = self._compute(name)
        return self._plain[name]

    def coded(self, quantizer: Quantizer) -> Coded:
        """The codes that a quantizer gives a constant."""
        if quantizer.name not in self._coded:
            self._coded[quantizer.name] = self._quantized(quantizer)
        return self._coded[quantizer.name]

    def _quantized(self, quantizer: Quantizer) -> Coded:
        before = self._program.edges.before(quantizer)
        if before is not None:
            return coded(self.coded(before), quantizer, self._arithmetic)
        values = self._plain.get(quantizer.tensor)
        values = self._compute(quantizer.tensor) if values is None else values
        if quantizer.kind == "bias":
            self._check_bias(values, quantizer)
        if quantizer.codes is None:
            return coded(values, quantizer, self._arithmetic)
        if quantizer.codes.shape != values.shape:
            raise BadInput(
                english(
                    "Quantizer {name!r} has codes of shape {shape}; its tensor {tensor!r} is of shape {shape2}.",
                    name=quantizer.name,
                    shape=list(quantizer.codes.shape),
                    tensor=quantizer.tensor,
                    shape2=list(values.shape),
                ),
                fix=english("give codes of the tensor's shape"),
            )
        codes = quantizer.codes.astype(code_dtype(quantizer.spec), copy=False)
        return Coded(codes, quantizer.params, quantizer.spec)

    def _compute(self, name: str) -> Any:
        step = self._program.constant_steps.get(name)
        if step is None:
            return self._weights.require(name)
        node = step.node
        results = self._nodes.run(node, [self.plain(source) if source else None for source in node.input])
        found = dict(zip((output for output in node.output if output), results, strict=True))
        return found[name]

    def _check_bias(self, values: Array, quantizer: Quantizer) -> None:
        """Record biases that have no code: their true value in steps lies outside of the register."""
        spec = quantizer.spec
        scale = aligned(quantizer.params.scale, values.ndim, spec.axis).astype(np.float64)
        steps = np.abs(values.astype(np.float64) / scale)
        limit = spec.code_max
        beyond = steps > limit + 0.5
        if beyond.any():
            for edge in quantizer.consumers:
                ratio = float(steps.max()) / limit
                self._recorder.overflowed(
                    AccumulatorOverflow(edge.node, "bias", int(beyond.sum()), values.size, ratio)
                )


_KERNELS = {**LINEAR_KERNELS, **ELEMENTWISE_KERNELS, **MOVE_KERNELS, **REDUCTION_KERNELS}
# What a kernel may raise on inputs that no model that runs has; onnxruntime then says what is wrong with them.
_UNFIT = (ValueError, IndexError, KeyError, TypeError)


class Machine:
    """What all passes share.

    Attributes:
        program: The model, laid out for running.
        context: What kernels share.
        constants: Its constants.
        nodes: Runs single nodes in float.
        threads: Threads of matrix products.
    """

    def __init__(
        self, model: Model, quantizers: Sequence[Quantizer], arithmetic: Arithmetic, *, threads: int | None
    ) -> None:
        self.threads = threads or 1
        self.program = Program(model, quantizers)
        recorder = Recorder(tuple(step.node.name for step in self.program.steps))
        self.context = KernelContext(arithmetic, self.program.opset, recorder)
        self.nodes = SingleNodes(model, threads)
        self.constants = IntegerConstants(self.program, self.nodes, recorder, arithmetic)

    def compute(
        self, step: ProgramStep, operands: Sequence[Operand | None], captured: Mapping[str, Any]
    ) -> KernelResult:
        """Outputs of a node, those without a name left out: with integers if it can be, else in float."""
        node = step.node
        # A kernel refuses what integers cannot express, such as an input in float. The node then runs in float on
        # the values of its codes, as a deployed model falls back to the host, and the report says so.
        try:
            kernel, by_table = self._kernel(step, operands)
            results = kernel(self._call(step, operands))
            # A bias that is added to wide sums is a part of them.
            sums = any(isinstance(each.value, Wide) for each in operands if each is not None)
            if node.op_type in self.context.arithmetic.narrow and not sums:
                results = [each.narrow() if isinstance(each, Result) else each for each in results]
        except NotInteger as refusal:
            why = refusal.why
        except _UNFIT as error:
            why = f"its integer version failed ({error})"
        else:
            self.context.recorder.ran(node.name, table=by_table)
            return results
        results = self._in_float(step, operands, captured)
        # What computes shapes and indices has nothing to do with quantization.
        if any(map(holds_floats, results)):
            self.context.recorder.ran_in_float(node.name, node.op_type, why)
        return results

    def _kernel(self, step: ProgramStep, operands: Sequence[Operand | None]) -> tuple[IntegerKernel, bool]:
        node = step.node
        if not any(isinstance(operand.value, Result) for operand in operands if operand is not None):
            names = [operand.name for operand in operands if operand is not None and not operand.constant]
            raise NotInteger(
                english("its input {names!r} is not quantized", names=names[0])
                if names
                else english("it has no inputs")
            )
        if node.op_type in self.context.arithmetic.in_float and node.op_type not in FLOAT_KERNELS:
            raise NotInteger(english("the target computes it in float32"))
        table = table_kernel(node.op_type) if node.op_type in self.context.arithmetic.tables else None
        if table is not None:
            return table, True
        if node.domain not in STANDARD_DOMAINS or node.op_type not in _KERNELS:
            raise NotInteger(english("{op_type} has no integer version", op_type=node.op_type))
        return _KERNELS[node.op_type], False

    def _call(self, step: ProgramStep, operands: Sequence[Operand | None]) -> KernelCall:
        node = step.node

        def run_in_float(arrays: Sequence[Array | None]) -> list[Array]:
            return self.nodes.run(node, arrays)

        used = sum(1 for name in node.output if name)
        return KernelCall(node.name, node.op_type, step.attributes, operands, used, run_in_float, self.context)

    def _in_float(
        self, step: ProgramStep, operands: Sequence[Operand | None], captured: Mapping[str, Any]
    ) -> KernelResult:
        arrays = [None if operand is None else self.plain(operand.name, operand.value) for operand in operands]
        outside = {name: self.plain(name, value) for name, value in captured.items()}
        return self.nodes.run(step.node, arrays, outside)

    def plain(self, name: str, value: Any) -> Any:
        """A value as the float model has it."""
        if isinstance(value, Result):
            return narrowed(value.real(), self._types.get(name, "float32"))
        # What was captured of the float model is widened where numpy does not have its type.
        if isinstance(value, np.ndarray) and name in self._types:
            return narrowed(value, self._types[name])
        return value

    @cached_property
    def untold(self) -> frozenset[str]:
        """What nodes compute of kinds that a value alone does not show, such as optional tensors."""
        found = (value for value in self._values if value.kind not in ("tensor", "sequence"))
        return frozenset(value.name for value in found if value.node)

    @cached_property
    def _values(self) -> tuple[Value, ...]:
        return values(self.program.model)

    @cached_property
    def _types(self) -> dict[str, str]:
        """Tensors of other float types than float32, or of types that numpy does not have."""
        found = {value.name: value.element for value in self._values if value.element}
        return {
            name: element.dtype
            for name, element in found.items()
            if element.dtype in ("float16", "float64") or element.dtype != element.widened
        }


class IntegerExecution:
    """One pass through a network.

    Args:
        machine: The network.
        given: Inputs; for a local pass the tensors of the float model.
        asked: The tensors to return.
        local: Whether each unit is fed with what is given, instead of what was computed before it.
    """

    def __init__(
        self, machine: Machine, given: Mapping[str, Array], asked: frozenset[str], *, local: bool
    ) -> None:
        self._machine, self._program = machine, machine.program
        self._given, self._asked, self._local = given, asked, local
        self._steps = self._program.required(asked, given, local=local)
        self._last_use = {name: index for index, step in enumerate(self._steps) for name in step.needs}
        self._raw: dict[str, Any] = {}
        # By tensor and quantizer: what was computed, and what came from outside, as codes.
        self._coded: dict[str, dict[str, Coded]] = {}
        self._entered: dict[str, dict[str, Coded]] = {}
        self._kept: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Values of the tensors asked for: codes, results or plain arrays."""
        # Tensors go after their last use: a pass holds about as much as onnxruntime would.
        with np.errstate(all="ignore"), blas_threads(self._machine.threads):
            for index, step in enumerate(self._steps):
                operands = [self._operand(step, place, name) for place, name in enumerate(step.node.input)]
                captured = {name: self._value(name) for name in step.captured}
                results = self._machine.compute(step, operands, captured)
                for name, result in zip((name for name in step.node.output if name), results, strict=True):
                    self._store(name, result)
                for name in step.needs:
                    if self._last_use[name] == index:
                        self._drop(name)
            for name in self._asked - self._kept.keys():
                self._keep(name, self._value(name))
        return {name: self._kept[name] for name in self._asked}

    def _operand(self, step: ProgramStep, place: int, name: str) -> Operand | None:
        if not name:
            return None
        # In a local pass a unit reads the float model's tensors, but inside a unit what was just computed: there
        # nothing is rounded, and the float values would hide what the sums before have lost.
        edge = Consumer(step.node.name, place)
        quantizer = self._program.edges.read_by(edge.node, edge.input)
        if name in self._program.constant:
            constants = self._machine.constants
            return Operand(name, constants.plain(name) if quantizer is None else constants.coded(quantizer), True)
        fed = self._is_given(name) and edge not in self._program.units.inside
        if quantizer is None:
            return Operand(name, self._given[name] if fed else self._value(name), False)
        return Operand(name, self._view(quantizer, fed=fed), False)

    def _is_given(self, name: str) -> bool:
        return name in self._given and (self._local or name not in self._program.producer)

    def _value(self, name: str) -> Any:
        """A tensor as it was computed."""
        if name in self._raw:
            return self._raw[name]
        if name in self._program.constant:
            return self._machine.constants.plain(name)
        if name in self._given:
            return self._given[name]
        raise BadInput(
            english("There is no value for {name!r}.", name=name),
            fix=english("give the float model's values of {name!r}", name=name),
        )

    def _view(self, quantizer: Quantizer, *, fed: bool) -> Coded:
        """A tensor as seen through a quantizer."""
        views = (self._entered if fed else self._coded).setdefault(quantizer.tensor, {})
        if quantizer.name not in views:
            before = self._program.edges.before(quantizer)
            if before is not None:
                source: Any = self._view(before, fed=fed)
            else:
                source = self._given[quantizer.tensor] if fed else self._value(quantizer.tensor)
            views[quantizer.name] = coded(source, quantizer, self._machine.context.arithmetic)
        return views[quantizer.name]

    def _store(self, name: str, result: Any) -> None:
        self._raw[name] = result
        if name in self._asked:
            self._keep(name, result)
        if name not in self._last_use or (self._is_given(name) and name not in self._program.within_units):
            del self._raw[name]
            return
        # Sums are several times as large as codes: they go as soon as the codes are there.
        for quantizer in self._program.edges.of_tensor(name):
            self._view(quantizer, fed=False)
        if name not in self._program.read_plain:
            del self._raw[name]

    def _keep(self, name: str, value: Any) -> None:
        quantizer = self._program.reported(name)
        if quantizer is None:
            self._kept[name] = value
        elif name in self._program.constant:
            self._kept[name] = self._machine.constants.coded(quantizer)
        elif name in self._raw:
            self._kept[name] = self._view(quantizer, fed=False)
        else:
            self._kept[name] = coded(value, quantizer, self._machine.context.arithmetic)

    def _drop(self, name: str) -> None:
        self._raw.pop(name, None)
        self._coded.pop(name, None)
        self._entered.pop(name, None)


# Running a model with quantizers the way integer hardware does.


class _Values(Mapping[str, Array]):
    """Values of results, computed when they are asked for."""

    def __init__(self, held: Mapping[str, Any]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Array:
        value = self._held[name]
        if isinstance(value, Result):
            return value.real().astype(np.float32, copy=False)
        array: Array = plain_value(value)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class _Without(Mapping[str, Array]):
    """Values without some of them; none is read before it is asked for."""

    def __init__(self, held: Mapping[str, Array], left_out: frozenset[str]) -> None:
        self._held, self._left_out = held, left_out

    def __getitem__(self, name: str) -> Array:
        if name in self._left_out:
            raise KeyError(name)
        return self._held[name]

    def __contains__(self, name: object) -> bool:
        return name not in self._left_out and name in self._held

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._held if name not in self._left_out)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, eq=False)
class IntegerRun:
    """What one run computed of the tensors asked for.

    Attributes:
        held: Codes, results and plain arrays by tensor.
    """

    held: Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, Array]:
        """Values: float32 where anything was quantized, of the model's own type elsewhere.

        A tensor with a quantizer has the values of its codes, except an output that leaves the network in float.
        """
        return _Values(self.held)

    @property
    def codes(self) -> dict[str, Array]:
        """Codes of the tensors that have a quantizer."""
        return {name: value.codes for name, value in self.held.items() if isinstance(value, Coded)}


class IntegerRunner:
    """Interprets a float model with quantizers: exact integers between them, the hardware's way of rounding.

    Each node reads the codes of its inputs, computes with whole numbers of any size, and its result is brought to
    the scale of the output, if that has a quantizer. What cannot be computed so runs in float on dequantized
    inputs; `report` names it.

    Args:
        model: The float model.
        quantizers: Its quantizers.
        arithmetic: How the hardware computes.
        threads: Threads of matrix products, one by default, and of nodes that run in float, by default all cores.

    Raises:
        BadInput: A quantizer does not belong to the model.
    """

    def __init__(
        self, model: Model, quantizers: Sequence[Quantizer], arithmetic: Arithmetic, *, threads: int | None = None
    ) -> None:
        self._machine = Machine(model, quantizers, arithmetic, threads=threads)
        self._program = self._machine.program

    @property
    def report(self) -> IntegerReport:
        """What all runs so far met."""
        return self._machine.context.recorder.report()

    def run(
        self, feed: Mapping[str, Array], tensors: Collection[str] | None = None, *, sample: str = ""
    ) -> IntegerRun:
        """Run the whole network.

        Args:
            feed: A value for each input.
            tensors: What to return; the network's outputs by default.
            sample: What the user calls this feed; for messages.

        Raises:
            BadInput: The feed does not fit, or there is no such tensor.
            ModelFailed: A node that runs in float failed.
        """
        check_feed(feed, inputs(self._program.model), sample=sample)
        asked = self._asked(tensors)
        return IntegerRun(IntegerExecution(self._machine, feed, asked, local=False).run())

    def run_local(self, float_values: Mapping[str, Array], tensors: Collection[str] | None = None) -> IntegerRun:
        """Run each unit by itself, fed with the activations of the float model.

        Args:
            float_values: Values of the float model; tensors that are missing are computed, if they can be.
            tensors: What to return; the network's outputs by default.

        Raises:
            BadInput: There is no such tensor, or the float value of an input is missing.
            ModelFailed: A node that runs in float failed.
        """
        asked = self._asked(tensors)
        given = _Without(float_values, self._machine.untold) if self._machine.untold else float_values
        return IntegerRun(IntegerExecution(self._machine, given, asked, local=True).run())

    def _asked(self, tensors: Collection[str] | None) -> frozenset[str]:
        asked = frozenset(outputs(self._program.model) if tensors is None else tensors)
        for name in asked:
            if name not in self._program.tensors:
                what = english("{path} has no tensor {name!r}.", path=self._program.model.path, name=name)
                raise BadInput(what, fix=nearest(name, sorted(self._program.tensors)))
        return asked
