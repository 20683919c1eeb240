"""What layers compute on the first sample, as files: float values, codes, and ONNX test data."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.analysis.layers.copies import Copies, Variant, build_copies
from roundoff.analysis.layers.passes import CopiesPass
from roundoff.analysis.layers.tally import Tally
from roundoff.analysis.layers.tensors import LayerTensor, layer_tensors
from roundoff.core.files import write_bytes, write_text
from roundoff.core.names import FileNames
from roundoff.core.quantization import dequantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.tap import tap
from roundoff.report.documents import json_text
from roundoff.runtime.feeds import Samples
from roundoff.runtime.integer import IntegerRunner
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed
from roundoff.runtime.session import available_threads, open_session

__all__ = ["Dumping", "write_test_data"]

# Float values of as many tensors as this are computed at a time.
_MOST_BYTES = 1 << 29
_NAMES = "names.json"


@dataclass(frozen=True, slots=True, eq=False)
class Dumping:
    """What is written.

    Attributes:
        quantized: The quantized model.
        samples: The first of them is run.
        end_to_end: Whether the quantized model runs through; otherwise each layer is fed with float tensors.
        arithmetic: How integers compute; None for fake quantization.
        tensors: The tensors that have files of their own, besides inputs and outputs.
    """

    quantized: QuantizedModel
    samples: Samples
    end_to_end: bool
    arithmetic: Arithmetic | None
    tensors: frozenset[str]

    def write(self, folder: Path) -> None:
        """Fill ``numpy/float``, ``numpy/xrun``, ``io/float`` and ``io/quant``.

        Codes are written as they are; outputs of the network as values. ``names.json`` says which file is which.
        """
        model = self.quantized.float_model
        feed = read_feed(model, self.samples, 0)
        inferred = values(model, {name: array.shape for name, array in feed.items()})
        known = complete_values(model, inferred, feed)
        tensors = layer_tensors(self.quantized, known)
        wanted = [
            each
            for each in tensors
            if each.value.node and not each.value.obstacle() and (each.output or each.name in self.tensors)
        ]
        names = FileNames()
        # In the order of the network, so that stems do not depend on what is written first.
        stems = {each.name: names.stem(each.name) for each in tensors}
        for name, array in feed.items():
            for side in ("float", "quant"):
                _save(folder / "io" / side / f"{stems[name]}.npy", array)
        for each, ours, theirs in self._runs(feed, wanted):
            stem = f"{stems[each.name]}.npy"
            _save(folder / "numpy" / "float" / stem, ours)
            _save(folder / "numpy" / "xrun" / stem, theirs)
            if each.output:
                _save(folder / "io" / "float" / stem, ours)
                _save(folder / "io" / "quant" / stem, theirs)
        written = {f"{stems[each.name]}.npy": each.name for each in wanted}
        write_text(folder / "numpy" / _NAMES, json_text(written))

    def _runs(
        self, feed: Mapping[str, Array], wanted: Sequence[LayerTensor]
    ) -> Iterator[tuple[LayerTensor, Array, Array]]:
        """Each tensor with its float values and what the quantized model has."""
        variant: Variant = "accumulated" if self.end_to_end else "local"
        copies = build_copies(self.quantized, [variant])
        integers = self._integers(feed, [each.name for each in wanted])
        for some in _portions(wanted):
            tallies = {each.name: Tally(each, [variant]) for each in some}
            run = CopiesPass(copies, tallies, model=self.quantized.float_model, threads=available_threads()).run(
                self.samples.names[0], feed
            )
            for each in some:
                theirs = integers[each.name] if integers is not None else _reference(copies, variant, each, run)
                yield each, run[each.name], _as_value(each, theirs)

    def _integers(self, feed: Mapping[str, Array], names: Sequence[str]) -> Mapping[str, Array] | None:
        if self.arithmetic is None:
            return None
        model = self.quantized.float_model
        runner = IntegerRunner(model, self.quantized.quantizers, self.arithmetic)
        if self.end_to_end:
            run = runner.run(feed, names, sample=self.samples.names[0])
        else:
            floats = dict(feed)
            computed = [name for node in model.proto.graph.node for name in node.output if name]
            session = open_session(model, outputs=tap(model, computed))
            floats.update(zip(computed, session.run(feed), strict=True))
            run = runner.run_local(floats, names)
        return {**run.values, **run.codes}


def _portions(tensors: Sequence[LayerTensor]) -> Iterator[list[LayerTensor]]:
    some: list[LayerTensor] = []
    size = 0
    for each in tensors:
        needed = 4 * math.prod(each.value.shape or ())
        if some and size + needed > _MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += needed
    if some:
        yield some


def _reference(copies: Copies, variant: Variant, tensor: LayerTensor, run: Mapping[str, Array]) -> Array:
    return run[copies.taps[tensor.name][variant].name]


def _as_value(tensor: LayerTensor, array: Array) -> Array:
    """Codes of an output of the network as the values that leave it."""
    coded = np.issubdtype(array.dtype, np.integer) and tensor.quantizer is not None
    if not coded or not tensor.output or tensor.quantizer is None:
        return array
    return dequantize(array, tensor.quantizer.params, tensor.axis).astype(np.float32)


def _save(path: Path, array: Array) -> None:
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    write_bytes(path, buffer.getvalue())


def write_test_data(folder: Path, feed: Mapping[str, Array], results: Mapping[str, Array]) -> None:
    """Write inputs and float outputs as ONNX test data: ``input_0.pb`` ... and ``output_0.pb`` ..."""
    from onnx.numpy_helper import from_array

    for kind, arrays in (("input", feed), ("output", results)):
        for place, (name, array) in enumerate(arrays.items()):
            content = from_array(np.ascontiguousarray(array), name).SerializeToString()
            write_bytes(folder / f"{kind}_{place}.pb", content)
