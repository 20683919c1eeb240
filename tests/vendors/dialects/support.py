"""A quantized network with nodes in float and at 16 bits, and what its dialects say of it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.save import save_model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import parse_rule
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from roundoff.vendors.dialects import find_dialect
from roundoff.vendors.dialects.settings import Decisions, Made, Written, decisions_of
from tests.models import loaded
from tests.vendors.pulsar2.nets import mixed

FEEDS = np.random.default_rng(3).standard_normal((8, 3, 8, 8)).astype(np.float32)
# What tools can say: a node in float reads what an integer node stores.
RULES = ("conv2=u16", "softmax1=float", "classifier=float", "tensor:p1=u8", "tensor:x1=u8")


def decided(folder: Path, *rules: str, target: str = "generic-int8", net: Any = None) -> Decisions:
    """What is decided for the mixed network, or another one with an input ``image``."""
    model = loaded(mixed() if net is None else net, folder)
    settings = QuantizeSettings(load_target(target), rules=tuple(map(parse_rule, rules)))
    result = quantize_model(model, ArraySamples({"image": FEEDS}), settings)
    made = Made.by_plan(result.best.plan, stem="net", method=result.best.method, samples=len(FEEDS))
    return decisions_of(result.quantized, made, origins=result.prepared.origins)


def written(name: str, decisions: Decisions, folder: Path) -> Written:
    """The files of a dialect, in a folder, with the float model beside them."""
    found = find_dialect(name).write(decisions)
    for file, text in found.files.items():
        (folder / file).write_text(text, encoding="utf-8")
    save_model(decisions.quantized.float_model, folder / "float.onnx", replace=True)
    return found


def outputs(path: Path) -> Array:
    """What a model gives, computed as its graph says."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": feed[None]})[0] for feed in FEEDS])


def quantized_outputs(quantized: QuantizedModel, folder: Path) -> Array:
    """What our own fake-quant model gives."""
    model: Model = insert_quantizers(quantized.float_model, quantized.quantizers)
    save_model(model, folder / "ours.onnx", replace=True)
    return outputs(folder / "ours.onnx")
