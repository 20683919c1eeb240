"""How this machine computes with integers: measured, not looked up."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from roundoff.core.claims import ScratchFolder
from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.insertion import bake_quantizers
from roundoff.graph.load import Model
from roundoff.graph.nodes import make_model
from roundoff.messages.catalogue import Phrase, bilingual, plain
from roundoff.messages.numbers import share_text
from roundoff.pages.blocks import Facts, Headline, Page, Tone
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.session import available_threads

_CPU_FACTS = Path("/proc/cpuinfo")
# Instructions that decide which integer kernels run.
_FEATURES = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx_vnni_int8",
    "amx_int8",
    "asimddp",
    "i8mm",
    "sve",
)
_NETWORKS = ("Conv", "Gemm", "MatMul", "network")
Data: TypeAlias = Literal["bell-shaped", "whole range"]
_Level: TypeAlias = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"]
_ONLY_FATAL = 4
_BATCH = 4
_ACTIVATION = QuantSpec(8, signed=False, symmetric=False)
_WEIGHT = QuantSpec(8, signed=True, symmetric=True)
_BIAS = QuantSpec(32, signed=True, symmetric=True)


@dataclass(frozen=True, slots=True)
class FusedPath:
    """What happens to an operation between quantizers when onnxruntime may fuse them.

    Attributes:
        name: The operation, or ``network`` for several.
        data: How weights and activations are distributed: most near zero, or evenly up to the largest codes.
        kernels: The integer operations it became; empty when it stayed in float.
        elements: Codes compared.
        moved: Codes that differ from those of the graph as it is.
        largest: By how many steps at most.
        moved_from_exact: Codes that differ from exact integer arithmetic.
    """

    name: str
    data: Data
    kernels: tuple[str, ...]
    elements: int
    moved: int
    largest: int
    moved_from_exact: int


@dataclass(frozen=True, slots=True)
class HostArithmetic:
    """How onnxruntime computes here.

    Attributes:
        onnxruntime: Its version.
        machine: The processor's architecture.
        features: The processor's instructions for integers, as far as known.
        threads: Threads compared with one.
        fused: Operations at the default level of optimization, compared with the graph as it is.
        largest_product: Sum of products of largest u8 and s8 codes as computed, over the true one; below 1 when
            pairs of products saturate at 16 bits.
        basic_is_equal: Whether the first level of optimization leaves all bits as they are.
        threads_are_equal: Whether the number of threads leaves all bits as they are.
        batches_are_equal: Whether samples computed together have the same bits as samples computed alone.
    """

    onnxruntime: str
    machine: str
    features: tuple[str, ...]
    threads: int
    fused: tuple[FusedPath, ...]
    largest_product: float
    basic_is_equal: bool
    threads_are_equal: bool
    batches_are_equal: bool

    @property
    def saturates(self) -> bool:
        """Whether products of u8 and s8 codes are cut off before they are added up."""
        return self.largest_product < 1

    @property
    def fused_steps(self) -> int:
        """Steps by which fused kernels move results at most."""
        return max((path.largest for path in self.fused), default=0)

    @property
    def reference_is_stable(self) -> bool:
        """Whether the way roundoff runs models gives the same bits whatever the settings."""
        return self.basic_is_equal and self.threads_are_equal and self.batches_are_equal

    def summary(self) -> str:
        """One line for the record of a run."""
        steps = self.fused_steps
        fused = f"move results by up to {_steps(steps)}" if steps else "equal the graph"
        product = "saturates" if self.saturates else "is exact"
        features = " ".join(self.features) or "unknown instructions"
        return (
            f"onnxruntime {self.onnxruntime} on {self.machine} ({features}): "
            f"fused int8 kernels {fused}, u8 x s8 {product}"
        )

    def record(self) -> dict[str, object]:
        """All measurements and what follows from them, for programs."""
        return asdict(self) | {
            "saturates": self.saturates,
            "fused_steps": self.fused_steps,
            "reference_is_stable": self.reference_is_stable,
            "summary": self.summary(),
        }


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"


@cache
def measure_host() -> HostArithmetic:
    """Run small models in different ways and compare what comes out; takes a fraction of a second."""
    import onnxruntime as ort

    threads = max(2, available_threads())
    net = _network("network", "bell-shaped")
    graph = _run(net.deployed, net.feed, "ORT_DISABLE_ALL")
    single = [_run(net.deployed, {"x": row[None]}, "ORT_DISABLE_ALL") for row in net.feed["x"]]
    return HostArithmetic(
        onnxruntime=ort.__version__,
        machine=platform.machine() or "unknown machine",
        features=cpu_features(),
        threads=threads,
        fused=tuple(_fused_path(name, data) for name in _NETWORKS for data in get_args(Data)),
        largest_product=_largest_product(),
        basic_is_equal=np.array_equal(graph, _run(net.deployed, net.feed, "ORT_ENABLE_BASIC")),
        threads_are_equal=np.array_equal(graph, _run(net.deployed, net.feed, "ORT_DISABLE_ALL", threads=threads)),
        batches_are_equal=np.array_equal(graph, np.concatenate(single)),
    )


def cpu_features(facts: Path = _CPU_FACTS) -> tuple[str, ...]:
    """The processor's instructions for integers; empty where the system does not tell."""
    try:
        lines = facts.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    named = (line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features")))
    known = set(next(named, []))
    return tuple(name for name in _FEATURES if name in known)


@dataclass(frozen=True, slots=True)
class _Net:
    """A quantized model and something to feed it."""

    model: Model
    quantizers: tuple[Quantizer, ...]
    deployed: Model
    feed: Mapping[str, Array]


def _fused_path(name: str, data: Data) -> FusedPath:
    net = _network(name, data)
    graph = _run(net.deployed, net.feed, "ORT_DISABLE_ALL")
    with ScratchFolder() as folder:
        written = folder / "optimized.onnx"
        fused = _run(net.deployed, net.feed, "ORT_ENABLE_ALL", written=written)
        kernels = _integer_kernels(written)
    exact = IntegerRunner(net.model, net.quantizers, Arithmetic()).run(net.feed).values["y"]
    scale = next(each.params.scale for each in net.quantizers if each.output)
    moved = np.abs(np.rint((fused - graph) / scale))
    from_exact = np.rint((fused - exact) / scale)
    return FusedPath(
        name,
        data,
        kernels,
        elements=graph.size,
        moved=int(np.count_nonzero(moved)),
        largest=int(moved.max()),
        moved_from_exact=int(np.count_nonzero(from_exact)),
    )


def _integer_kernels(path: Path) -> tuple[str, ...]:
    from onnx import load

    # The only file that is read here is the one that onnxruntime has just written.
    types = dict.fromkeys(node.op_type for node in load(path).graph.node)
    return tuple(name for name in types if name.startswith(("QLinear", "QGemm", "MatMulInteger", "ConvInteger")))


def _network(name: str, data: Data) -> _Net:
    """A small network, or one operation, quantized as a whole."""
    from onnx.helper import make_graph, make_tensor_value_info
    from onnx.numpy_helper import from_array

    nodes, shape, sizes = _layers(name)
    rng = np.random.default_rng(0)

    def drawn(size: tuple[int, ...]) -> Array:
        numbers = rng.uniform(-1, 1, size) if data == "whole range" else rng.standard_normal(size)
        return np.asarray(numbers, dtype=np.float32)

    values = np.abs(drawn(shape))
    weights = {tensor: drawn(size) * np.float32(0.1) for tensor, size in sizes.items()}
    graph = make_graph(
        nodes,
        "host",
        [make_tensor_value_info("x", 1, ["N", *shape[1:]])],
        [make_tensor_value_info("y", 1, None)],
        [from_array(array, tensor) for tensor, array in weights.items()],
    )
    model = Model(make_model(graph), Path("host.onnx"), 0)
    quantizers = tuple(_quantizers(nodes, weights, values))
    return _Net(model, quantizers, bake_quantizers(model, quantizers), {"x": values})


def _layers(name: str) -> tuple[list[Any], tuple[int, ...], dict[str, tuple[int, ...]]]:
    """The nodes of a network, the shape of its input, and those of its weights."""
    from onnx.helper import make_node

    kernel, image = {"k": (32, 64, 3, 3), "kb": (32,)}, (_BATCH, 64, 12, 12)
    if name == "Conv":
        return [make_node("Conv", ["x", "k", "kb"], ["y"], "conv", pads=[1] * 4)], image, kernel
    if name == "Gemm":
        return [make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")], (64, 512), {"w": (512, 48), "b": (48,)}
    if name == "MatMul":
        return [make_node("MatMul", ["x", "w"], ["y"], "matmul")], (64, 512), {"w": (512, 48)}
    nodes = [
        make_node("Conv", ["x", "k", "kb"], ["c"], "conv", pads=[1] * 4),
        make_node("Relu", ["c"], ["r"], "relu"),
        make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        make_node("Flatten", ["p"], ["f"], "flatten"),
        make_node("Gemm", ["f", "w", "b"], ["y"], "gemm"),
    ]
    return nodes, image, {**kernel, "w": (32, 48), "b": (48,)}


def _quantizers(nodes: Sequence[Any], weights: Mapping[str, Array], values: Array) -> Iterator[Quantizer]:
    """Everything quantized; the ranges of what is computed hold most of it."""
    ranges = {"x": (0.0, float(values.max())), "r": (0.0, 6.0), "p": (0.0, 3.0), "f": (0.0, 3.0), "y": (-6.0, 6.0)}
    activations = {name: parameters_from_range(*ends, _ACTIVATION) for name, ends in ranges.items()}
    for node in nodes:
        source, *constants = node.input
        edges = [(Consumer(node.name, place),) for place in range(3)]
        if source in activations:
            yield Quantizer(f"q:{source}", source, "activation", _ACTIVATION, activations[source], edges[0])
        if not constants:
            continue
        largest = float(np.abs(weights[constants[0]]).max())
        params = parameters_from_range(-largest, largest, _WEIGHT)
        yield Quantizer(f"q:{constants[0]}", constants[0], "weight", _WEIGHT, params, edges[1])
        for bias in constants[1:]:
            scale = np.asarray(activations[source].scale * params.scale, dtype=np.float32)
            exact = QuantParams(scale, np.zeros((), dtype=np.int64))
            yield Quantizer(f"q:{bias}", bias, "bias", _BIAS, exact, edges[2])
    yield Quantizer("q:y", "y", "activation", _ACTIVATION, activations["y"], (), output=True)


def _run(
    model: Model, feed: Mapping[str, Array], level: _Level, *, threads: int = 1, written: Path | None = None
) -> Array:
    """The one output of a model, at a level of optimization."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.intra_op_num_threads = threads
    options.log_severity_level = _ONLY_FATAL
    if written is not None:
        options.optimized_model_filepath = str(written)
    data = model.proto.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, dict(feed))[0]
    return result


def _largest_product() -> float:
    """The sum of products of the largest codes of both types, over what it should be."""
    from onnx import TensorProto
    from onnx.helper import make_graph, make_node, make_tensor_value_info
    from onnx.numpy_helper import from_array

    inner = 64
    graph = make_graph(
        [make_node("MatMulInteger", ["x", "w"], ["y"], "product")],
        "product",
        [make_tensor_value_info("x", TensorProto.UINT8, [8, inner])],
        [make_tensor_value_info("y", TensorProto.INT32, None)],
        [from_array(np.full((inner, 16), 127, dtype=np.int8), "w")],
    )
    model = Model(make_model(graph), Path("host.onnx"), 0)
    sums = _run(model, {"x": np.full((8, inner), 255, dtype=np.uint8)}, "ORT_DISABLE_ALL")
    return float(sums.min()) / (inner * 255 * 127)


# What is shown of it: the verdict, then for each question what was measured, and below it what that means.


def host_page(host: HostArithmetic) -> Page:
    """How this machine computes with integers."""
    exact = not host.fused_steps and not host.saturates
    kernels = bilingual("run.host_kernels_equal" if exact else "run.host_kernels_differ")
    verdict = bilingual("run.host_stable" if host.reference_is_stable else "run.host_unstable", kernels=kernels)
    features = plain(", ".join(host.features)) if host.features else bilingual("run.host_features_unknown")
    about = f"onnxruntime {host.onnxruntime}, {host.machine}, "
    rows = [(bilingual("run.host_title_host"), Phrase(about + features.en, about + features.zh))]
    for title, measured, meaning in (_fused_rows(host), _product_rows(host), *_stability_rows(host)):
        means = bilingual(f"run.host_{meaning}")
        lines = (*measured, Phrase(f"-> {means.en}", f"-> {means.zh}"))
        labels = (bilingual(f"run.host_title_{title}"), *(plain(""),) * (len(lines) - 1))
        rows += zip(labels, lines, strict=True)
    tone: Tone = "good" if exact and host.reference_is_stable else "open"
    return Page("self_check", plain("self-check"), (Headline(tone, verdict), Facts(tuple(rows))))


def _fused_rows(host: HostArithmetic) -> tuple[str, tuple[Phrase, ...], str]:
    measured = tuple(_path_text(path) for path in host.fused)
    return "fused", measured, "fused_differs" if host.fused_steps else "fused_follows"


def _path_text(path: FusedPath) -> Phrase:
    name = bilingual("run.host_path_network") if path.name == "network" else plain(path.name)
    data = bilingual(f"run.host_data_{path.data.replace('-', '_').replace(' ', '_')}")
    subject = bilingual("run.host_path", name=name, data=data)
    if not path.kernels:
        return bilingual("run.host_path_not_fused", path=subject)
    codes = f"{path.elements:,}"
    if not path.moved:
        return bilingual("run.host_path_equal", path=subject, codes=codes)
    return bilingual("run.host_path_moves", path=subject, moved=f"{path.moved:,}", codes=codes, steps=path.largest)


def _product_rows(host: HostArithmetic) -> tuple[str, tuple[Phrase, ...], str]:
    if not host.saturates:
        return "products", (bilingual("run.host_products_exact"),), "products_fine"
    share = share_text(host.largest_product, 1)
    return "products", (bilingual("run.host_products_saturate", share=share),), "products_lose"


def _stability_rows(host: HostArithmetic) -> Iterator[tuple[str, tuple[Phrase, ...], str]]:
    checks = {
        "optimization": host.basic_is_equal,
        "threads": host.threads_are_equal,
        "batches": host.batches_are_equal,
    }
    for title, equal in checks.items():
        subject = bilingual(f"run.host_compared_{title}", threads=host.threads)
        measured = bilingual("run.host_bit_equal" if equal else "run.host_not_bit_equal", subject=subject)
        yield title, (measured,), f"{title}_fine" if equal else "keep_setting"
