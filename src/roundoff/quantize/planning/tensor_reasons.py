"""Why tensors that rules name are not what the rules ask for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roundoff.core.quant_plan import FLOAT, NodePlan
from roundoff.core.quantizer import Consumer
from roundoff.quantize.planning.constants import bias_place
from roundoff.quantize.planning.quantizers import BIAS_DTYPE, Quantizers
from roundoff.quantize.planning.roles import Roles
from roundoff.quantize.planning.selecting import Selection
from roundoff.quantize.planning.storing import Storage
from roundoff.quantize.planning.wishes import TensorWish, tensor_dtype

__all__ = ["TensorReasons"]


@dataclass(frozen=True, slots=True)
class TensorReasons:
    """Compares rules with what tensors became.

    Attributes:
        roles: What every unit is.
        storage: How tensors are stored.
        quantizers: What is quantized.
        plans: The plans of all nodes by their names in the graph.
    """

    roles: Roles
    storage: Storage
    quantizers: Quantizers
    plans: Mapping[str, NodePlan]

    def reason(self, selection: Selection, tensor: str, node: str) -> str:
        """Why a tensor is not what a rule asks for, as far as a node is concerned."""
        if node not in self.touching(tensor):
            return ""
        strongest = self.roles.wishes.tensors[tensor]
        if strongest.order != selection.order and not _agrees(selection, strongest):
            return f"{strongest.rule!r} counts more for {tensor!r}"
        wanted = tensor_dtype(selection.rule.precision, constant=self.roles.view.is_constant(tensor))
        if self._is_bias(tensor) and not (wanted == FLOAT and strongest.refusal):
            return self._bias_reason(tensor, node, wanted)
        return strongest.refusal or self._unmet(tensor, strongest.dtype)

    def _unmet(self, tensor: str, wanted: str) -> str:
        """Why a tensor is not what the target could have given it; empty when it is."""
        if tensor in self.roles.inner:
            unit = self.roles.unit_of(self.roles.view.producers[tensor].name)
            last = self.roles.names.original(unit.last.name)
            return f"{tensor!r} does not exist: what computes it is computed as one with {last}"
        got = list(dict.fromkeys(self._dtypes(tensor)))
        if got in ([wanted], []):
            return "" if got else f"nothing reads or writes {tensor!r} as a value"
        why = self._left_in_float(tensor) if got == [FLOAT] else ""
        return f"{tensor!r} is {'/'.join(got)}{why or self._why(tensor)}"

    def _is_bias(self, tensor: str) -> bool:
        """Whether a constant is read as a bias only."""
        readers = self.roles.view.readers[tensor]
        if not readers or not self.roles.view.is_constant(tensor):
            return False
        return all(bias_place(self.roles.unit_of(reader.node), self.roles.view) == reader for reader in readers)

    def _bias_reason(self, tensor: str, node: str, wanted: str) -> str:
        """Why a bias is not what a rule asks for."""
        got = list(dict.fromkeys(self._dtypes(tensor)))
        if got == [wanted]:
            return ""
        what = f"{tensor!r} is {'/'.join(got)}"
        if wanted not in (BIAS_DTYPE, FLOAT):
            return f"{what}: biases are {BIAS_DTYPE} or {FLOAT}, not {wanted}"
        target = self.roles.target
        if target.bias == FLOAT:
            return f"{what}: {target.name} keeps biases in {FLOAT}"
        why = self.quantizers.notes.get(node, "") or self.plans[node].reason
        return f"{what}: {why or 'the nodes that read it are not computed in integers'}"

    def touching(self, tensor: str) -> set[str]:
        """The node that computes a tensor; for inputs and constants those that read it."""
        producer = self.roles.view.producers.get(tensor)
        return {producer.name} if producer is not None else {r.node for r in self.roles.view.readers[tensor]}

    def _left_in_float(self, tensor: str) -> str:
        """Why an output of the network is not quantized."""
        view, target = self.roles.view, self.roles.target
        producer = view.producers.get(tensor)
        if producer is None or tensor not in view.outputs:
            return ""
        if target.float_results:
            return f": integer operations of {target.name} hand on float values"
        if not target.quantize_outputs:
            return f": {target.name} leaves outputs of the network in float"
        return f": {self.plans[producer.name].reason or 'what computes it is not computed in integers'}"

    def _why(self, tensor: str) -> str:
        stored = self.storage.stored.get(self.storage.group_of.get(tensor, ""))
        why = stored.why if stored is not None else ""
        if why:
            return f": {why}"
        producer = self.roles.view.producers.get(tensor)
        reason = self.plans[producer.name].reason if producer is not None else ""
        return f": {reason}" if reason else ": the nodes that read it are not computed in integers"

    def _dtypes(self, tensor: str) -> Iterator[str]:
        """In which dtypes a tensor exists."""
        view = self.roles.view
        if not view.is_float(tensor):
            return
        if view.is_constant(tensor):
            for reader in view.readers[tensor]:
                operands = view.operands(view.by_name[reader.node])
                is_bias = bias_place(self.roles.unit_of(reader.node), view) == reader
                if is_bias or any(reader == edge for edge, _ in operands):
                    yield self._dtype_for(reader)
            return
        stored = self.storage.spec_of(tensor)
        if stored is not None:
            yield stored.spec.dtype
            return
        readers = [reader for reader in view.readers[tensor] if self.roles.is_operand(reader)]
        yield from map(self._dtype_for, readers)
        if not readers and tensor in view.used and not view.is_private(tensor):
            yield FLOAT

    def _dtype_for(self, reader: Consumer) -> str:
        if reader in self.quantizers.biases:
            return BIAS_DTYPE
        spec = self.quantizers.weights.get(reader, self.storage.seen.get(reader))
        return spec.dtype if spec is not None else FLOAT


def _agrees(selection: Selection, wish: TensorWish) -> bool:
    return wish.dtype in (selection.rule.precision.output, selection.rule.precision.weight)
