"""The steps of preparing a model, in their order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roundoff.graph.load import Model
from roundoff.graph.preparation.affine import fold_affine
from roundoff.graph.preparation.checks import check_supported, unknown_operations
from roundoff.graph.preparation.constants import fold_constants, hold_constants
from roundoff.graph.preparation.draft import Draft, named
from roundoff.graph.preparation.padding import merge_padding
from roundoff.graph.preparation.passthrough import remove_passthroughs

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model ready to be quantized.

    Attributes:
        model: Computes what the original does, up to float rounding. Nodes and tensors that remain keep names.
        notes: What was folded, what was not and why.
        origins: For every node of the original model the node that now computes its result: itself, or the layer
            it was folded into; empty when its result has become a constant or is not computed any more.
    """

    model: Model
    notes: tuple[str, ...]
    origins: Mapping[str, str]


def prepare(model: Model, *, may_fold: Callable[[str], bool] = lambda _: True) -> Prepared:
    """Fold what need not be computed in a float model: constants, batch normalization, nodes that do nothing.

    Args:
        model: The float model; it is not changed.
        may_fold: Whether a node, by its name, may be folded into a layer or have others folded into it.

    Raises:
        BadInput: The model is quantized already, of an opset that is too old or unknown, or has operators that its
            opset does not have.
    """
    check_supported(model)
    draft = Draft(model)
    for operation, names in unknown_operations(model).items():
        draft.notes.append(
            f"{operation} is not an operation of ONNX, nothing is known of its results: {named(names)}"
        )
    for name, others in model.renamed.items():
        given = named(list(others))
        draft.notes.append(
            f"{len(others) + 1} nodes have the name {name!r}: the first keeps it, the others are now {given}"
        )
    _note_defaults(draft)
    hold_constants(draft)
    remove_passthroughs(draft)
    fold_constants(draft)
    merge_padding(draft)
    fold_affine(draft, may_fold=may_fold)
    return Prepared(draft.finish(), tuple(draft.notes), draft.origins())


def _note_defaults(draft: Draft) -> None:
    """Say which inputs are no longer inputs. In the oldest files every weight was one, and it meant nothing."""
    if draft.model.proto.ir_version < _FIRST_WITH_CONSTANTS:
        return
    names = [value.name for value in draft.model.proto.graph.input if draft.is_constant(value.name)]
    if names:
        draft.notes.append(f"inputs with a default value are now constants, and cannot be fed: {named(names)}")


_FIRST_WITH_CONSTANTS = 4
"""IR version from which an initializer need not be an input."""
