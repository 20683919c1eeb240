"""A recipe: everything that decides a quantized model besides the float model, the target and the samples."""

from dataclasses import dataclass

from roundoff.core.quant_plan import Rule

__all__ = ["OptionValue", "Recipe", "Step"]

OptionValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of the float model, or one correction of the quantized one.

    Attributes:
        name: Under which it is registered.
        options: Its options by name, sorted; what is not here has its default.
        nodes: The nodes it is limited to, by their names in the user's model; all that can take part when empty.
    """

    name: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a float model is quantized, as data: two equal recipes give the same model, bit for bit.

    Attributes:
        method: Calibration method of activations; the target's own when empty.
        weight_method: Calibration method of weights; the target's own when empty.
        tensor_methods: Tensors whose range another method finds, each with its name, sorted.
        variations: What is done otherwise than by the target's default but within what the target allows, sorted.
        transforms: Changes of the float model that keep its function, in their order.
        rules: Nodes in another precision.
        corrections: Changes of the quantized numbers, in their order.
    """

    method: str = ""
    weight_method: str = ""
    tensor_methods: tuple[tuple[str, str], ...] = ()
    variations: tuple[str, ...] = ()
    transforms: tuple[Step, ...] = ()
    rules: tuple[Rule, ...] = ()
    corrections: tuple[Step, ...] = ()
