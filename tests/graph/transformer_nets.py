"""Transformers as exporters write them, small enough to run: each option is a form met in files."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.nodes import make_model

LOWEST = float(np.finfo(np.float32).min)
WIDTH, HEADS, TOKENS, WORDS = 16, 2, 6, 40
HEAD = WIDTH // HEADS


@dataclass(frozen=True)
class Form:
    """How a transformer is written.

    Attributes:
        mask: ``none``, ``multiplied`` (old Hugging Face), ``where``, ``expanded`` (nn.TransformerEncoder),
            ``reshaped`` (the same, by each layer for itself),
            ``causal`` (an initializer), ``mixed`` (T5: bias and mask in one), ``selected`` (Where on scores),
            ``two`` (causal and padding added), ``fed`` (a float input), ``lowered`` ((mask - 1) times a large
            number), ``logarithm`` (of ones and zeros), ``subtracted`` (GPT-2 of TensorFlow: scores * keep - 1e10 *
            (1 - keep)), ``flattened`` (DeBERTa: a bias is added to three axes, the mask to four).
        value: What masked keys get.
        norm: ``spelled``, ``fused``, ``rms``, ``rms_fused``, ``tensorflow`` (tf2onnx: scale and shift).
        scale: ``div``, ``mul``, ``roots`` (d^-1/4 on both sides), ``shape`` (computed from shapes), ``heads``
            (a learned one per head), ``none``.
        gelu: ``erf``, ``tanh``, ``swish``.
        softmax: ``fused``, ``spelled`` (JAX: the sum is brought back to the shape of scores), ``masked`` (its
            exponentials are multiplied with ones and zeros instead of a mask on scores).
        pre_norm: Norms stand before the branches, not behind the additions.
        guarded: NaN of fully masked rows becomes 0.
        rotary: Queries and keys are turned by position.
        shared_keys: Keys and values have one head, expanded to all.
        cached: Keys and values of earlier tokens are fed in.
        layers: How many.
        images: Fed features of patches instead of words.
        noise: Seed of the weights.
        width: Features of a token.
        heads: Of an attention.
        tokens: Of a sample.
        words: How many there are.
        patch: Pictures are fed and cut into squares of so many pixels; 0 for features of patches.
        outliers: What two channels get added behind the first layer.
        head_weights: Weights of a last layer, its bias below them; None without one.
    """

    mask: str = "none"
    value: float = LOWEST
    norm: str = "fused"
    scale: str = "div"
    gelu: str = "erf"
    softmax: str = "fused"
    pre_norm: bool = False
    guarded: bool = False
    rotary: bool = False
    shared_keys: bool = False
    cached: bool = False
    layers: int = 2
    images: bool = False
    noise: int = 0
    width: int = WIDTH
    heads: int = HEADS
    tokens: int = TOKENS
    words: int = WORDS
    patch: int = 0
    outliers: float = 0.0
    head_weights: NDArray[np.float32] | None = None

    @property
    def head(self) -> int:
        """Features of a head."""
        return self.width // self.heads


class Builder:
    """Writes one network down."""

    def __init__(self, form: Form) -> None:
        self.form, self.rng = form, np.random.default_rng(form.noise)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def __call__(self, op: str, *inputs: str | float, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.hold(np.float32(each)) for each in inputs]
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def hold(self, values: Any, kind: str = "c") -> str:
        """A constant."""
        name = f"{kind}{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.hold(np.array(numbers, dtype=np.int64))

    def weight(self, *shape: int) -> str:
        return self.hold((self.rng.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32))

    def linear(self, x: str, rows: int, columns: int) -> str:
        return self("Add", self("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def feed(self, name: str, dtype: int, shape: list[Any]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    # Parts

    def norm(self, x: str) -> str:
        gain = self.hold(self.rng.uniform(0.5, 1.5, self.form.width).astype(np.float32), "gain")
        match self.form.norm:
            case "fused":
                return self("LayerNormalization", x, gain, self.weight(self.form.width), axis=-1)
            case "spelled":
                centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
                spread = self("ReduceMean", self("Pow", centred, 2.0), axes=[-1])
                scaled = self("Div", centred, self("Sqrt", self("Add", spread, 1e-5)))
                return self("Add", self("Mul", scaled, gain), self.weight(self.form.width))
            case "tensorflow":
                mean = self("ReduceMean", x, axes=[-1])
                apart = self("Sub", x, mean)
                spread = self("ReduceMean", self("Mul", apart, apart), axes=[-1])
                inverse = self("Reciprocal", self("Sqrt", self("Add", spread, 1e-5)))
                factor = self("Mul", inverse, gain)
                shift = self("Sub", self.weight(self.form.width), self("Mul", mean, factor))
                return self("Add", self("Mul", x, factor), shift)
            case "rms_fused":
                return self("RMSNormalization", x, gain, axis=-1)
        wide = self("Cast", x, to=TensorProto.FLOAT)
        spread = self("ReduceMean", self("Pow", wide, 2.0), axes=[-1])
        root = self("Sqrt", self("Add", spread, 1e-5))
        scaled = self("Mul", wide, self("Div", 1.0, root))
        return self("Mul", gain, self("Cast", scaled, to=TensorProto.FLOAT))

    def activation(self, x: str) -> str:
        if self.form.gelu == "swish":
            return self("Mul", x, self("Sigmoid", x))
        if self.form.gelu == "tanh":
            cube = self("Mul", self("Pow", x, 3.0), 0.044715)
            inner = self("Mul", self("Add", x, cube), math.sqrt(2 / math.pi))
            return self("Mul", self("Mul", x, 0.5), self("Add", self("Tanh", inner), 1.0))
        erf = self("Erf", self("Div", x, math.sqrt(2)))
        return self("Mul", self("Mul", x, self("Add", erf, 1.0)), 0.5)

    def heads(self, x: str, count: int = 0) -> str:
        return self(
            "Transpose",
            self("Reshape", x, self.ints(0, 0, count or self.form.heads, self.form.head)),
            perm=[0, 2, 1, 3],
        )

    def turned(self, x: str, cosine: str, sine: str) -> str:
        half = self.form.head // 2
        first = self("Slice", x, self.ints(0), self.ints(half), self.ints(3))
        second = self("Slice", x, self.ints(half), self.ints(self.form.head), self.ints(3))
        turned = self("Concat", self("Neg", second), first, axis=-1)
        return self("Add", self("Mul", x, cosine), self("Mul", turned, sine))

    def angles(self, embedded: str) -> tuple[str, str]:
        """Cosines and sines of positions, computed as Hugging Face does: a product with inverse frequencies."""
        length = self("Gather", self("Shape", embedded), self.hold(np.int64(1)))
        positions = self("Cast", self("Range", self.hold(np.int64(0)), length, self.hold(np.int64(1))), to=1)
        column = self("Unsqueeze", positions, self.ints(1))
        half = self.form.head // 2
        speeds = 10000.0 ** -(np.arange(half) / half)
        turns = self("MatMul", column, self.hold(speeds[None].astype(np.float32)))
        both = self("Concat", turns, turns, axis=-1)
        return self("Cos", both), self("Sin", both)

    def masked(self, scores: str, masks: list[str], words: str) -> str:
        form = self.form
        if form.mask == "selected":
            keep = self("Cast", self.over_keys(words), to=TensorProto.BOOL)
            return self("Where", keep, scores, form.value)
        if form.mask == "subtracted":
            keep = self("Cast", self.over_keys(words), to=TensorProto.FLOAT)
            return self("Sub", self("Mul", scores, keep), self("Mul", self("Sub", 1.0, keep), -form.value))
        if form.mask == "flattened":
            bias = self.hold(self.rng.normal(size=(1, self.form.tokens, self.form.tokens)).astype(np.float32))
            flat = self("Add", self("Reshape", scores, self.ints(-1, self.form.tokens, self.form.tokens)), bias)
            scores = self("Reshape", flat, self.ints(-1, self.form.heads, self.form.tokens, self.form.tokens))
        for mask in masks:
            # nn.TransformerEncoder hands the mask itself to its layers: each brings it to its shape.
            own = self("Reshape", mask, self.ints(-1, 1, 1, self.form.tokens)) if form.mask == "reshaped" else mask
            scores = self("Add", scores, own)
        return scores

    def over_keys(self, mask: str) -> str:
        return self("Unsqueeze", self("Unsqueeze", mask, self.ints(1)), self.ints(2))

    def causal(self) -> str:
        upper = np.triu(np.ones((self.form.tokens, self.form.tokens), bool), 1)
        return self.hold(np.where(upper, np.float32(self.form.value), np.float32(0))[None, None])

    def masks(self, mask: str) -> list[str]:  # noqa: C901, PLR0911
        """What is added to scores; computed once, as exporters do."""
        value, zero = np.float32(self.form.value), np.float32(0)
        match self.form.mask:
            case "lowered":
                off = self("Sub", self("Cast", self.over_keys(mask), to=TensorProto.FLOAT), 1.0)
                return [self("Mul", off, -float(value))]
            case "logarithm":
                return [self("Log", self("Cast", self.over_keys(mask), to=TensorProto.FLOAT))]
            case "multiplied" | "flattened":
                off = self("Sub", 1.0, self("Cast", self.over_keys(mask), to=TensorProto.FLOAT))
                return [self("Mul", off, float(value))]
            case "where":
                keep = self("Cast", self.over_keys(mask), to=TensorProto.BOOL)
                return [self("Where", keep, self.hold(zero), self.hold(value))]
            case "expanded" | "reshaped":
                padded = self("Not", self("Cast", mask, to=TensorProto.BOOL))
                row = self("Where", padded, self.hold(value), self.hold(zero))
                if self.form.mask == "reshaped":
                    return [row]
                row = self("Reshape", row, self.ints(-1, 1, 1, self.form.tokens))
                return [self("Expand", row, self.ints(1, self.form.heads, 1, 1))]
            case "causal":
                return [self.causal()]
            case "two":
                keep = self("Cast", self.over_keys(mask), to=TensorProto.BOOL)
                return [self.causal(), self("Where", keep, self.hold(zero), self.hold(value))]
            case "mixed":
                bias = self.hold(
                    self.rng.normal(size=(1, self.form.heads, self.form.tokens, self.form.tokens)).astype(
                        np.float32
                    )
                    * 3
                )
                keep = self("Cast", self.over_keys(mask), to=TensorProto.BOOL)
                return [self("Where", keep, bias, self.hold(value))]
            case "fed":
                return [self.feed("bias", TensorProto.FLOAT, ["b", 1, 1, self.form.tokens])]
        return []

    def scaled(self, query: str, key: str) -> tuple[str, str]:
        """Queries and keys; keys transposed."""
        if self.form.scale == "roots":
            query, key = self("Mul", query, self.form.head**-0.25), self("Mul", key, self.form.head**-0.25)
        return query, self("Transpose", key, perm=[0, 1, 3, 2])

    def scores(self, query: str, key: str) -> str:
        product = self("MatMul", query, key)
        if self.form.scale == "div":
            return self("Div", product, math.sqrt(self.form.head))
        if self.form.scale == "mul":
            return self("Mul", product, 1 / math.sqrt(self.form.head))
        if self.form.scale == "heads":
            return self(
                "Mul", product, self.hold(np.linspace(0.3, 0.4, self.form.heads, dtype=np.float32)[:, None, None])
            )
        if self.form.scale == "shape":
            size = self("Gather", self("Shape", query), self.ints(3))
            return self("Mul", product, self("Div", 1.0, self("Sqrt", self("Cast", size, to=1))))
        return product

    def keys(self, x: str, angles: tuple[str, str] | None, at: int) -> tuple[str, str]:
        count = 1 if self.form.shared_keys else self.form.heads
        key, value = (self.heads(self.linear(x, self.form.width, count * self.form.head), count) for _ in range(2))
        if angles is not None:
            key = self.turned(key, *angles)
        found = []
        for name, made in (("key", key), ("value", value)):
            each = made
            if self.form.cached:
                past = self.feed(f"past_{name}_{at}", TensorProto.FLOAT, ["b", count, "p", self.form.head])
                each = self("Concat", past, each, axis=2)
                self.outputs.append(helper.make_tensor_value_info(each, TensorProto.FLOAT, None))
            if self.form.shared_keys:
                each = self("Expand", each, self.ints(1, self.form.heads, 1, 1))
            found.append(each)
        return found[0], found[1]

    def attention(self, x: str, masks: list[str], words: str, angles: tuple[str, str] | None, at: int) -> str:
        query = self.heads(self.linear(x, self.form.width, self.form.width))
        if angles is not None:
            query = self.turned(query, *angles)
        key, value = self.keys(x, angles, at)
        scores = self.masked(self.scores(*self.scaled(query, key)), masks, words)
        weights = self.probabilities(scores, words)
        if self.form.guarded:
            weights = self("Where", self("IsNaN", weights), 0.0, weights)
        context = self("Transpose", self("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.linear(
            self("Reshape", context, self.ints(0, 0, self.form.width)), self.form.width, self.form.width
        )

    def probabilities(self, scores: str, words: str) -> str:
        if self.form.softmax == "fused":
            return self("Softmax", scores, axis=-1)
        most = self("Max", self("ReduceMax", scores, axes=[-1]), -500.0)
        powers = self("Exp", self("Sub", scores, most))
        if self.form.softmax == "masked":
            powers = self("Mul", powers, self("Cast", self.over_keys(words), to=TensorProto.FLOAT))
            return self("Div", powers, self("Add", self("ReduceSum", powers, self.ints(-1)), 1e-6))
        total = self("ReduceSum", powers, self.ints(-1))
        shape = self.ints(1, 1, 1, self.form.tokens)
        return self("Div", powers, self("Expand", total, shape))

    def layer(self, x: str, masks: list[str], words: str, angles: tuple[str, str] | None, at: int) -> str:
        def branch(inner: str) -> str:
            return self.attention(inner, masks, words, angles, at)

        def wide(inner: str) -> str:
            return self.linear(
                self.activation(self.linear(inner, self.form.width, 2 * self.form.width)),
                2 * self.form.width,
                self.form.width,
            )

        for part in (branch, wide):
            x = self("Add", x, part(self.norm(x))) if self.form.pre_norm else self.norm(self("Add", part(x), x))
        return x

    def network(self) -> Model:
        form = self.form
        if form.images:
            x = self("Add", self.patches(), self.weight(form.tokens, form.width))
        else:
            words = self.feed("words", TensorProto.INT64, ["b", form.tokens])
            x = self("Gather", self.weight(form.words, form.width), words)
            if not form.rotary:
                positions = self("Gather", self.weight(form.tokens, form.width), self.positions(words))
                x = self("Add", x, positions)
        padded = form.mask not in ("none", "causal", "fed") or form.softmax == "masked"
        mask = self.feed("mask", TensorProto.INT64, ["b", self.form.tokens]) if padded else ""
        # Hugging Face takes positions from the shape of embeddings.
        angles = self.angles(x) if form.rotary else None
        if not form.pre_norm and not form.images:
            x = self.norm(x)
        masks = self.masks(mask)
        for at in range(form.layers):
            x = self.layer(x, masks, mask, angles, at)
            if form.outliers and at == 0:
                # A few channels that every later norm sees, as trained networks have.
                x = self(
                    "Add",
                    x,
                    self.hold(
                        np.where(
                            np.arange(form.width) % (form.width // 2) == 3, np.float32(form.outliers), 0
                        ).astype(np.float32)
                    ),
                )
        if form.pre_norm:
            x = self.norm(x)
        if form.head_weights is not None:
            x = self(
                "Add",
                self("MatMul", self.pooled(x), self.hold(form.head_weights[:-1])),
                self.hold(form.head_weights[-1]),
            )
        self.outputs.insert(0, helper.make_tensor_value_info(x, TensorProto.FLOAT, None))
        graph = helper.make_graph(self.nodes, "transformer", self.inputs, self.outputs, self.constants)
        opset = 23 if form.norm == "rms_fused" else 17
        proto = make_model(graph, opset=opset)
        return Model(proto, Path("transformer.onnx"), inside_bytes(proto))

    def pooled(self, x: str) -> str:
        """Of pictures all tokens side by side; words are answered one by one."""
        form = self.form
        return self("Reshape", x, self.ints(0, form.tokens * form.width)) if form.images else x

    def patches(self) -> str:
        form = self.form
        if not form.patch:
            return self.linear(
                self.feed("patches", TensorProto.FLOAT, ["b", form.tokens, form.width]), form.width, form.width
            )
        size = form.patch * math.isqrt(form.tokens)
        picture = self.feed("picture", TensorProto.FLOAT, ["b", 1, size, size])
        kernel = self.hold(
            (self.rng.normal(size=(form.width, 1, form.patch, form.patch)) / form.patch).astype(np.float32)
        )
        cut = self("Conv", picture, kernel, kernel_shape=[form.patch] * 2, strides=[form.patch] * 2)
        return self("Transpose", self("Reshape", cut, self.ints(0, form.width, form.tokens)), perm=[0, 2, 1])

    def positions(self, words: str) -> str:
        length = self("Gather", self("Shape", words), self.hold(np.int64(1)))
        return self("Range", self.hold(np.int64(0)), length, self.hold(np.int64(1)))


def transformer(form: Form) -> Model:
    """The network of a form."""
    return Builder(form).network()


def feeds(model: Model, count: int = 8, *, padded: bool = True, seed: int = 1) -> list[dict[str, NDArray[Any]]]:
    """Inputs for a network: words, masks that leave at least two keys, patches, empty or random caches."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        lengths = rng.integers(2, TOKENS + 1, size=2) if padded else np.full(2, TOKENS)
        keep = (np.arange(TOKENS)[None] < lengths[:, None]).astype(np.int64)
        every: dict[str, NDArray[Any]] = {
            "words": rng.integers(0, WORDS, size=(2, TOKENS)),
            "mask": keep,
            "patches": rng.normal(size=(2, TOKENS, WIDTH)).astype(np.float32),
            "bias": np.where(keep, np.float32(0), np.float32(LOWEST))[:, None, None].astype(np.float32),
        }
        for value in model.proto.graph.input:
            if value.name.startswith("past"):
                heads = value.type.tensor_type.shape.dim[1].dim_value
                every[value.name] = rng.normal(size=(2, heads, 3, HEAD)).astype(np.float32)
        found.append({value.name: every[value.name] for value in model.proto.graph.input})
    return found
