"""Which inputs of an operation are values, and which are shapes, indices, limits or parameters of its own."""

__all__ = ["BIAS_INPUT", "CARRIES_NO_DATA", "PRODUCTS", "SAME_TYPE", "setting_inputs", "value_inputs"]

_FIRST = (0,)
_NONE: tuple[int, ...] = ()

# Inputs behind the first say in which shape, along which axes, how many or within which limits.
_WITH_SETTINGS = (
    "Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Pad", "Resize", "Upsample", "TopK", "Split",
    "Dropout", "CumSum", "Trilu", "CenterCropPad", "SplitToSequence", "DFT", "STFT", "Clip", "Pow",
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
# Inputs behind the first say where to look.
_WITH_PLACES = (
    "Gather", "GatherElements", "GatherND", "MaxUnpool", "Compress", "ReverseSequence", "GridSample", "RoiAlign",
    "MaxRoiPool", "AffineGrid",
)  # fmt: skip
# Gain, offset, mean and variance are applied in the unit's own precision.
_WITH_PARAMETERS = (
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization",
)  # fmt: skip
_MADE_OF_SETTINGS = ("Range", "ConstantOfShape", "EyeLike")

# Operations of which not every input is a value to be quantized; of all others every float input is.
_VALUE_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_WITH_SETTINGS, *_WITH_PLACES, *_WITH_PARAMETERS), _FIRST),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), (0, 2)),
    "Where": (1, 2),
    **dict.fromkeys(_MADE_OF_SETTINGS, _NONE),
    **dict.fromkeys(("Shape", "Size", "OneHot", "NonMaxSuppression"), _NONE),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), _NONE),
}

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operations that sum products of an activation and a weight."""

BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
"""Where operations take a bias."""

CARRIES_NO_DATA = frozenset({"Shape", "Size"})
"""What these compute depends on shapes alone."""


SAME_TYPE = frozenset(
    {*PRODUCTS, "Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Concat", "PRelu", "Where"}
)
"""Operations whose value inputs all have one element type."""


def setting_inputs(operation: str, count: int) -> range:
    """Places of the inputs that only say how to compute: their values go nowhere.

    Args:
        operation: The op type.
        count: How many inputs the node has.
    """
    if operation in _MADE_OF_SETTINGS:
        return range(count)
    return range(1, count) if operation in _WITH_SETTINGS else range(0)


def value_inputs(operation: str, count: int) -> tuple[int, ...]:
    """Places of the inputs that are values, of a node with so many inputs; biases are not among them.

    Args:
        operation: Its op type; one of another domain with it and a dot in front.
        count: How many inputs the node has.
    """
    if operation in PRODUCTS:
        return (0, 1)
    places = _VALUE_INPUTS.get(operation)
    return tuple(range(count)) if places is None else tuple(place for place in places if place < count)
