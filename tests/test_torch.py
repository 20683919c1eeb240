"""Activations of modules, of anything that hooks like a PyTorch module: torch itself is no requirement."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import roundoff
from roundoff.core.tensors import Array
from roundoff.errors import BadInput


class _Handle:
    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        self._hooks.remove(self._hook)


class _Module:
    """What capture needs of a module."""

    training = False

    def __init__(self, forward: Callable[[Any], Any], **parts: "_Module") -> None:
        self._forward, self._parts, self.hooks = forward, parts, list[Any]()

    def named_modules(self, path: str = "") -> Iterator[tuple[str, "_Module"]]:
        yield path, self
        for name, part in self._parts.items():
            yield from part.named_modules(f"{path}.{name}".lstrip("."))

    def register_forward_hook(self, hook: Any) -> _Handle:
        self.hooks.append(hook)
        return _Handle(self.hooks, hook)

    def __call__(self, value: Any) -> Any:
        result = self._forward(value)
        for hook in self.hooks:
            hook(self, (value,), result)
        return result


class _Tensor:
    def __init__(self, values: Array) -> None:
        self.values = values

    def detach(self) -> "_Tensor":
        return self

    def cpu(self) -> Array:
        return self.values


def _double(given: _Tensor) -> _Tensor:
    return _Tensor(given.values * 2)


def test_capture_names_results_by_module_path_in_order() -> None:
    twice = _Module(_double)
    block = _Module(lambda given: twice(twice(given)), twice=twice)
    net = _Module(lambda given: (block(given), given), block=block)
    calls = [_Tensor(np.array([value], np.float32)) for value in (1.0, 3.0)]
    source = roundoff.torch.capture(net, calls, label="net")
    assert source.samples == ("0", "1")
    names = ["input.0", "block.twice", "block.twice#2", "block", "output.0", "output.1"]
    assert [info.name for info in source.tensors] == names
    assert [float(source.read(name, "1")[0]) for name in names] == [3, 6, 12, 12, 12, 3]
    assert all(not part.hooks for _, part in net.named_modules())
    found = roundoff.compare(source, source)
    assert found.good
    with pytest.raises(BadInput, match="has no tensor 'blok'"):
        source.read("blok", "0")


def test_what_cannot_be_captured_is_said() -> None:
    with pytest.raises(BadInput, match="is no module"):
        roundoff.torch.capture(object(), None)
    net = _Module(_double)
    net.training = True
    with pytest.raises(BadInput, match="training mode"):
        roundoff.torch.capture(net, _Tensor(np.zeros(1)))
    net.training = False
    with pytest.raises(BadInput, match="no inputs"):
        roundoff.torch.capture(net, [])
