"""Running single nodes with integers, on codes given by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec, dequantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.run.integer.machine import IntegerRun, IntegerRunner
from roundoff.run.integer.results import IntegerReport
from tests.models import value, wrapped

U8 = QuantSpec(8, signed=False, symmetric=False)
S8 = QuantSpec(8, signed=True, symmetric=True)
U16 = QuantSpec(16, signed=False, symmetric=False)
S32 = QuantSpec(32, signed=True, symmetric=True)
FIXED = Arithmetic(rounding="half_away", requantization="fixed_point", rounds_twice=True)


def params(scale: Any, zero_point: Any = 0) -> QuantParams:
    scales = np.asarray(scale, dtype=np.float32)
    return QuantParams(scales, np.broadcast_to(np.asarray(zero_point, dtype=np.int64), scales.shape))


@dataclass(frozen=True)
class Codes:
    """A quantized tensor: codes, and what they mean; or the float values of which they are made."""

    codes: Array
    params: QuantParams
    spec: QuantSpec = U8
    constant: bool = False
    kind: Kind = "activation"
    floats: Array | None = None

    @property
    def real(self) -> Array:
        if self.floats is not None:
            return self.floats
        return dequantize(self.codes, self.params, self.spec.axis)

    @property
    def centred(self) -> Array:
        """Codes without zero points, int64."""
        zero = self.params.zero_point
        if self.spec.axis is not None and zero.ndim:
            shape = [1] * self.codes.ndim
            shape[self.spec.axis] = -1
            zero = zero.reshape(shape)
        return self.codes.astype(np.int64) - zero


@dataclass(frozen=True)
class Ran:
    """What a node computed."""

    run: IntegerRun
    report: IntegerReport
    names: tuple[str, ...] = field(default=("y",))

    @property
    def codes(self) -> Array:
        return self.run.codes[self.names[0]]

    @property
    def values(self) -> Array:
        return self.run.values[self.names[0]]

    @property
    def is_integer(self) -> bool:
        return self.report.integer_nodes == ("node",) and not self.report.float_nodes


def random_codes(
    rng: np.random.Generator, shape: tuple[int, ...], parameters: QuantParams, spec: QuantSpec = U8, **more: Any
) -> Codes:
    """Codes of a tensor, all of them possible, the extremes among them."""
    codes = rng.integers(spec.code_min, spec.code_max + 1, shape)
    if codes.size > 1:
        codes.reshape(-1)[:2] = spec.code_min, spec.code_max
    return Codes(codes, parameters, spec, **more)


def in_memory(proto: Any) -> Model:
    """A model that was never in a file; its nodes must have names."""
    return Model(proto, Path("model.onnx"), 0)


def run_node(
    op_type: str,
    inputs: Mapping[str, Codes | Array | None],
    outputs: Mapping[str, tuple[QuantParams, QuantSpec] | None] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    opset: int = 17,
    **attributes: Any,
) -> Ran:
    """One node called ``node``: codes are quantized inputs, arrays constants, None an absent input."""
    results = {"y": None} if outputs is None else dict(outputs)
    node = helper.make_node(
        op_type, [name if inputs[name] is not None else "" for name in inputs], list(results), "node"
    )
    node.attribute.extend(helper.make_attribute(name, attribute) for name, attribute in attributes.items())
    live, constants, quantizers = [], [], []
    for place, (name, given) in enumerate(inputs.items()):
        if given is None:
            continue
        real = given.real if isinstance(given, Codes) else given
        if isinstance(given, Codes):
            codes = given.codes if given.constant and given.floats is None else None
            edge = (Consumer("node", place),)
            quantizers.append(Quantizer(name, name, given.kind, given.spec, given.params, edge, codes=codes))
        if isinstance(given, Codes) and not given.constant:
            live.append(value(name, None, TensorProto.FLOAT))
        else:
            constants.append(numpy_helper.from_array(real, name))
    for name, meaning in results.items():
        if meaning is not None:
            quantizers.append(
                Quantizer(f"{name} out", name, "activation", meaning[1], meaning[0], (), output=True)
            )
    model = in_memory(wrapped([node], live, [value(name) for name in results], constants, opset=opset))
    runner = IntegerRunner(model, quantizers, arithmetic or Arithmetic(), threads=1)
    feed = {name: given.real for name, given in inputs.items() if isinstance(given, Codes) and not given.constant}
    return Ran(runner.run(feed), runner.report, tuple(results))
