"""Activations of a PyTorch module: the first rung of torch -> ONNX -> quantized -> device; torch is optional."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english


class ModuleSource:
    """A `TensorSource` of what the modules of a network gave, in the order in which they ran.

    Args:
        captured: For each sample, the tensors by their names.
        label: Where they come from.
        kinds: The class of the module behind each tensor.
    """

    ordered = True

    def __init__(self, captured: Sequence[Mapping[str, Array]], *, label: str, kinds: Mapping[str, str]) -> None:
        self.label = label
        self.samples = tuple(map(str, range(len(captured)))) if len(captured) > 1 else ("",)
        self._values = dict(zip(self.samples, captured, strict=True))
        named = {name: value for each in reversed(captured) for name, value in each.items()}
        order = list(dict.fromkeys(name for each in captured for name in each))
        self.tensors = tuple(
            TensorInfo(name, named[name].dtype.name, named[name].shape, node=name, op_type=kinds.get(name, ""))
            for name in order
        )

    def read(self, name: str, sample: str) -> Array:
        """The values of one tensor in one sample."""
        if sample not in self._values:
            what = english("{label} has no sample {sample!r}.", label=self.label, sample=sample)
            raise BadInput(what, fix=nearest(sample, self.samples))
        if name not in self._values[sample]:
            what = english("{label} has no tensor {name!r}.", label=self.label, name=name)
            raise BadInput(what, fix=nearest(name, self._values[sample]))
        return self._values[sample][name]


def capture(module: Any, inputs: Any, *, label: str = "") -> ModuleSource:
    """Run a module and keep what each of its modules gives, under the path of that module.

    Args:
        module: The ``torch.nn.Module``; it is run as it is, so call ``module.eval()`` first.
        inputs: What one call takes: a tensor, or a tuple of them; or a list of such calls, one for each sample.
        label: What to call it in messages.

    Returns:
        A source that every command takes in the place of a dump: ``roundoff.compare(source, "model.onnx", ...)``.
        A module that runs several times has ``path#2`` for its second result; one that gives several tensors
        ``path.0``, ``path.1``.

    Raises:
        BadInput: It is no module, or there is nothing to run it on.
    """
    if not all(hasattr(module, name) for name in ("named_modules", "__call__")):
        what = english("{kind} is no module of PyTorch.", kind=type(module).__name__)
        raise BadInput(what, fix=english("give a torch.nn.Module"))
    if getattr(module, "training", False):
        what = english(
            "The module is in training mode, where dropout and batch statistics change what it computes."
        )
        raise BadInput(what, fix=english("call module.eval() first"))
    calls = inputs if isinstance(inputs, list) else [inputs]
    if not calls:
        raise BadInput(english("There are no inputs to run the module on."), fix=english("give at least one"))
    kinds: dict[str, str] = {}
    captured = [_one(module, each if isinstance(each, tuple) else (each,), kinds) for each in calls]
    return ModuleSource(captured, label=label or type(module).__name__, kinds=kinds)


def _one(module: Any, arguments: tuple[Any, ...], kinds: dict[str, str]) -> dict[str, Array]:
    """What the modules give in one call."""
    kept: dict[str, Array] = {}
    count: dict[str, int] = {}

    def hook(path: str) -> Callable[..., None]:
        def keep(owner: Any, _: Any, result: Any) -> None:
            count[path] = count.get(path, 0) + 1
            name = path if count[path] == 1 else f"{path}#{count[path]}"
            for place, value in _tensors(name, result):
                kept[place] = value
                kinds[place] = type(owner).__name__

        return keep

    handles = [each.register_forward_hook(hook(path or "output")) for path, each in module.named_modules()]
    try:
        module(*arguments)
    finally:
        for handle in handles:
            handle.remove()
    for number, value in enumerate(arguments):
        kept = {f"input.{number}": _array(value), **kept}
    return kept


def _tensors(name: str, result: Any) -> list[tuple[str, Array]]:
    if hasattr(result, "detach"):
        return [(name, _array(result))]
    if isinstance(result, Mapping):
        return [pair for key, value in result.items() for pair in _tensors(f"{name}.{key}", value)]
    if isinstance(result, tuple | list):
        return [pair for number, value in enumerate(result) for pair in _tensors(f"{name}.{number}", value)]
    return []


def _array(value: Any) -> Array:
    """A copy of a tensor; what runs next may write into it."""
    plain = value.detach().cpu() if hasattr(value, "detach") else value
    if "bfloat16" in str(getattr(plain, "dtype", "")):
        plain = plain.float()
    return np.array(plain)
