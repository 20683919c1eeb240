"""What other tools call the quantizer of a tensor, so that names from their logs and documents are understood."""

__all__ = ["quantizer_names", "tensor_named_by"]

# Horizon's calibration nodes; the nodes that onnxruntime's quantizer adds.
_SUFFIXES = ("_HzCalibration", "_QuantizeLinear", "_DequantizeLinear")


def quantizer_names(tensor: str) -> tuple[str, ...]:
    """What the quantizer of a tensor may be called."""
    return tuple(tensor + suffix for suffix in _SUFFIXES)


def tensor_named_by(name: str) -> str | None:
    """The tensor that such a name belongs to; None when it is not of that kind."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), None)
