"""Scales of codes and of their sums, from every file that tells them, and what codes stand for by them."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import caffe_pair, is_caffe
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextMessage
from roundoff.errors import RoundoffError
from roundoff.graph.caffe.net import CaffeLayer, Net, read_net
from roundoff.messages.message import english
from roundoff.vendors.amct.records import LayerRecord, read_records, record_bits
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Folder, load_operator
from roundoff.vendors.ascend.layouts import Fitted
from roundoff.vendors.ascend.rules import DEQUANT_NAME, FusionRule, Warn

_QUANTIZER_END = re.compile(r"_quant_layer$|\.quant$|(?:/act_quant(?:_[0-9]+)?)?/AscendQuant(?:_[0-9]+)?$")
_BOTTOM = re.compile(r"_[0-9]+$")
_SCALE_BITS = np.uint64((1 << 32) - 1)
_KNOWN = 0.75
"""The share of names in a file that are those of the offline model, where both are of one network; mostly all."""

_AGREE = 2e-3
"""Scales of two files that differ by less are the same: some files hold reciprocals, or half precision."""

_BITS = 8


@dataclass(frozen=True, slots=True)
class LayerScale:
    """What a file tells of the numbers around one layer.

    Attributes:
        source: The file.
        step: What one code of its input stands for; None when the file does not say.
        offset: The code of zero.
        sums: What one unit of its sums stands for, one number or one for each channel; empty when unknown.
        bits: Width of the codes.
    """

    source: str
    step: float | None = None
    offset: int = 0
    sums: tuple[float, ...] = ()
    bits: int = _BITS

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest code."""
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales by layer, and by the names of quantizers where a file knows those.

    Attributes:
        layers: By the name of the layer that reads the codes.
        quantizers: By the name of the node that makes them.
        files: The files that were used.
    """

    layers: Mapping[str, LayerScale] = field(default_factory=dict)
    quantizers: Mapping[str, LayerScale] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    def of_codes(self, quantizer: str) -> LayerScale | None:
        """The scale of the codes that a quantizer writes."""
        found = self.quantizers.get(quantizer)
        if found is None:
            layer = quantized_layer(quantizer, self.layers)
            found = self.layers.get(layer) if layer else None
        return found if found is not None and found.step is not None else None

    def of_sums(self, layer: str) -> LayerScale | None:
        """The scale of a layer's sums."""
        found = self.layers.get(layer)
        return found if found is not None and found.sums else None


def quantized_layer(quantizer: str, layers: Collection[str]) -> str:
    """The layer in front of which a quantizer stands, by its name; empty when there is none."""
    if _QUANTIZER_END.search(quantizer) is None:
        return ""
    base = _QUANTIZER_END.sub("", quantizer)
    # Caffe numbers the bottoms of a layer; TensorFlow names the scope of a layer.
    for name in (base, _BOTTOM.sub("", base)):
        if name in layers:
            return name
    return next((name for name in layers if name.startswith(f"{base}/")), "")


@dataclass(frozen=True, slots=True)
class ScaleFiles:
    """The files that tell scales.

    Attributes:
        record: AMCT's record.
        deploy: The model that was compiled, ONNX or Caffe.
        beside: The quantization information, beside which both are looked for.
    """

    record: Path | None = None
    deploy: Path | None = None
    beside: Path | None = None

    def found(self) -> "ScaleFiles":
        """The same with what lies beside the quantization information, where nothing else was given."""
        if self.beside is None or not self.beside.parent.is_dir():
            return self
        prefix = self.beside.name.removesuffix(".json").removesuffix("quant").removesuffix("_")
        start = f"{prefix}_" if prefix else ""
        names = {path.name: path for path in self.beside.parent.iterdir() if path.is_file()}
        deploys = (f"{start}deploy_model.onnx", f"{start}deploy_model.prototxt")
        records = (
            f"{start}record.txt",
            "record.txt",
            f"{start}scale_offset_record.txt",
            "scale_offset_record.txt",
            *sorted(name for name in names if name.endswith("record.txt")),
        )
        deploy = self.deploy or next((names[name] for name in deploys if name in names), None)
        return replace(
            self, record=self.record or next((names[n] for n in records if n in names), None), deploy=deploy
        )


def same_network(known: int, count: int) -> bool:
    """Whether a file is of the network at hand, by how many of its names are known there.

    Names such as conv1 are in many networks, so that some are always known.
    """
    return known > 0 and known >= _KNOWN * count


def read_scales(files: ScaleFiles, rule: FusionRule, *, warn: Warn, mine: Folder | None = None) -> Scales:
    """Everything that files, rule and dump tell of scales; where they contradict each other, the first counts.

    The model that was compiled comes first, then the record, then the quantization information and the offline
    model, then the scales that dequantizers were fed. A file that was asked for and cannot be read is an error;
    one that lay beside is passed over.

    Args:
        files: What was given.
        rule: The operators of the model under test.
        warn: Told of what contradicts, of files of other networks, and of layers without scales.
        mine: The dump under test.
    """
    whole = files.found()
    known = {
        name
        for operator in rule.in_order
        for name in (*operator.parts, *operator.originals, *(origin.name for origin in operator.deploys))
    }
    tables: list[tuple[Path | None, Mapping[str, LayerScale], Mapping[str, LayerScale]]] = []
    for path, asked, read in ((whole.deploy, files.deploy, _of_deploy), (whole.record, files.record, _of_record)):
        if path is None:
            continue
        try:
            layers, quantizers = read(path)
        except (RoundoffError, OSError) as error:
            if asked is not None:
                raise
            warn(english("{path} lies beside, but tells no scales: {error}", path=path, error=error))
            continue
        if known and not same_network(sum(name in known for name in layers), len(layers)):
            warn(
                english(
                    "{path} is of another network: {known} of its {count} layers are in the offline model, not so "
                    "{first!r}; it is not used.",
                    path=path,
                    known=sum(name in known for name in layers),
                    count=len(layers),
                    first=next((name for name in layers if name not in known), "none"),
                )
            )
            continue
        tables.append((path, layers, quantizers))
    tables.append((None, {}, _of_rule(rule)))
    if mine is not None:
        tables.append((None, _of_dump(mine, rule), {}))
    return _merged(tables, known, warn=warn)


def _merged(
    tables: Iterable[tuple[Path | None, Mapping[str, LayerScale], Mapping[str, LayerScale]]],
    known: Collection[str],
    *,
    warn: Warn,
) -> Scales:
    layers: dict[str, LayerScale] = {}
    quantizers: dict[str, LayerScale] = {}
    files = []
    differing: list[str] = []
    for path, by_layer, by_quantizer in tables:
        if path is not None:
            files.append(path)
        for name, scale in by_layer.items():
            differing += _contradiction(name, layers.get(name), scale)
            layers[name] = _completed(layers.get(name), scale)
        for name, scale in by_quantizer.items():
            owner = layers.get(quantized_layer(name, layers))
            differing += _contradiction(name, quantizers.get(name) or owner, scale)
            quantizers.setdefault(name, owner if owner is not None and owner.step is not None else scale)
    if differing:
        more = "" if len(differing) == 1 else f" ({len(differing)} such contradictions)"
        warn(f"{differing[0]}{more}")
    if files:
        lacking = sorted({
            name for name in known if _QUANTIZER_END.search(name)
            and name not in quantizers and not quantized_layer(name, layers)
        })  # fmt: skip
        if lacking:
            warn(
                english(
                    "{count} quantizers have no scale in {files}, such as {first!r}; theirs are fitted.",
                    count=len(lacking),
                    files=" or ".join(path.name for path in files),
                    first=lacking[0],
                )
            )
    return Scales(layers, quantizers, tuple(files))


def _completed(first: LayerScale | None, second: LayerScale) -> LayerScale:
    if first is None:
        return second
    if first.step is None and second.step is not None:
        first = replace(first, step=second.step, offset=second.offset, bits=second.bits)
    return replace(first, sums=first.sums or second.sums)


def _contradiction(name: str, first: LayerScale | None, second: LayerScale) -> list[str]:
    """What two files say of one layer, where that is not the same."""
    if first is None or first.source == second.source:
        return []
    told = []
    if first.step is not None and second.step is not None:
        told = [(first.step, second.step, english("the scale"))]
        if first.offset != second.offset:
            told.append((first.offset, second.offset, english("the offset")))
    if first.sums and second.sums and len(first.sums) == len(second.sums):
        far = max(zip(first.sums, second.sums, strict=True), key=lambda pair: abs(pair[1] / pair[0] - 1))
        told.append((*far, english("the scale of sums")))
    elif first.sums and second.sums and 1 not in (len(first.sums), len(second.sums)):
        told.append((len(first.sums), len(second.sums), english("the number of channels")))
    return [
        english(
            "{name}: {what} is {one:.6g} in {first}, and {other:.6g} in {second}; that of {first} is used.",
            name=name,
            what=what,
            one=one,
            other=other,
            first=first.source,
            second=second.source,
        )
        for one, other, what in told
        if abs(other - one) > _AGREE * abs(one)
    ]


# The files.

_Tables = tuple[dict[str, LayerScale], dict[str, LayerScale]]


def _of_record(path: Path) -> _Tables:
    return {name: _layer_scale(record, path.name) for name, record in read_records(path).items()}, {}


def widths(files: ScaleFiles) -> set[int]:
    """Widths of weights and activations that a record names; without one, those of activations by the model."""
    if files.record is not None:
        records = read_records(files.record).values()
        return {bits for record in records for part in ("act", "wts") if (bits := record_bits(record, part))}
    return {scale.bits for scale in _of_deploy(files.deploy)[0].values()} if files.deploy is not None else set()


def _layer_scale(record: LayerRecord, source: str) -> LayerScale:
    step = record.scale_d
    sums = tuple(float(np.float32(step) * np.float32(one)) for one in record.scale_w) if step else ()
    return LayerScale(source, step, int(record.offset_d or 0), sums, record_bits(record, "act") or _BITS)


def _of_deploy(path: Path) -> _Tables:
    """Scales of a model as AMCT writes it: from its quantizers, and from what its sums are multiplied with."""
    if is_caffe(path):
        prototxt, caffemodel = caffe_pair(path)
        return _of_net(read_net(prototxt, caffemodel), prototxt.name)
    from roundoff.graph.load import load_model
    from roundoff.vendors.amct.quantizers import records_of_qat

    _, _, records = records_of_qat(load_model(path))
    return {name: _layer_scale(record, path.name) for name, record in records.items()}, {}


def _of_net(net: Net, source: str) -> _Tables:
    layers: dict[str, LayerScale] = {}
    quantizers: dict[str, LayerScale] = {}
    made: dict[str, LayerScale] = {}
    writer: dict[str, str] = {}
    for layer in net.layers:
        if layer.type == "Quant":
            scale = _of_quant(layer, source)
            quantizers[layer.name] = made[layer.tops[0]] = scale
        elif layer.type == "DeQuant":
            owner = writer.get(layer.bottoms[0], "")
            if owner in layers:
                layers[owner] = replace(layers[owner], sums=_of_dequant(layer))
        elif layer.bottoms and layer.bottoms[0] in made:
            layers[layer.name] = made[layer.bottoms[0]]
        writer |= dict.fromkeys(layer.tops, layer.name)
    return layers, quantizers


def _of_quant(layer: CaffeLayer, source: str) -> LayerScale:
    params = layer.message.message("quant_param") or TextMessage()
    factor, offset = params.get("scale", 0.0), params.get("offset", b"")
    raw = offset if isinstance(offset, bytes) else str(offset).encode("latin-1", "ignore")
    number = int(np.frombuffer(raw[:1] or b"\0", np.int8)[0])
    step = 1 / factor if isinstance(factor, int | float) and factor > 0 else None
    return LayerScale(source, step, number)


def _of_dequant(layer: CaffeLayer) -> tuple[float, ...]:
    if not layer.blobs:
        params = layer.message.message("dequant_param") or TextMessage()
        return tuple(float(one) for one in params.all("deqscale") if isinstance(one, int | float))
    return tuple(unpacked(layer.blobs[0]).tolist())


def unpacked(scales: Array) -> Array:
    """Scales of sums as numbers: packed ones hold float32 in their lowest 32 bits."""
    flat = scales.ravel()
    if flat.dtype.kind == "f":
        return flat.astype(np.float32)
    return (flat.astype(np.uint64) & _SCALE_BITS).astype(np.uint32).view(np.float32)


def _of_rule(rule: FusionRule) -> dict[str, LayerScale]:
    """Scales that the operators of a rule carry as attributes."""
    return {
        operator.name: LayerScale(english("the JSON of the model"), *operator.scale[:2], bits=operator.scale[2])
        for operator in rule.in_order
        if operator.scale is not None
    }


def _of_dump(mine: Folder, rule: FusionRule) -> dict[str, LayerScale]:
    """Scales of sums that the device fed to dequantizers, which stand for layers of their names."""
    found: dict[str, LayerScale] = {}
    for operator in rule.in_order:
        names = [name for name in operator.parts or (operator.name,) if DEQUANT_NAME.search(name)]
        if not names:
            continue
        try:
            inputs = load_operator(mine.find(operator.name), strict=False).inputs
            packed = [unpacked(each.values) for each in inputs if each.about.element_type == "UINT64"]
        except (NotCompared, Unreadable, OSError):
            continue
        for name, scales in zip(names, packed if len(packed) == len(names) else (), strict=False):
            # Channels are filled up to whole blocks with zeros.
            sums = tuple(np.trim_zeros(scales, "b").tolist())
            found[DEQUANT_NAME.sub("", name)] = LayerScale(english("the dump"), sums=sums)
    return found


# Codes as the numbers they stand for.

_BLOCK = 1 << 18
_SAME = 1e-3
"""A scale and offset this close to 1 and 0 leave codes as they are: the golden tensor holds codes, too."""


def decode_codes(fitted: Fitted, scale: LayerScale | None) -> tuple[Fitted, str]:
    """Codes as numbers, and what was done to them; by the straight line that fits best where no file tells more.

    Raises:
        NotCompared: No file tells the scale, and the codes do not grow with the golden numbers.
    """
    if scale is not None and scale.step is not None:
        # Some simulators keep whole numbers between quantizer and dequantizer: codes, less their offset.
        step = 1.0 if _whole(fitted.golden) else scale.step
        numbers = ((fitted.mine.astype(np.int32) - scale.offset) * np.float64(step)).astype(np.float32)
        told = english(
            "The codes were decoded by the scale {step:.6g} and offset {offset} of {source}.",
            step=scale.step,
            offset=scale.offset,
            source=scale.source,
        )
        return replace(fitted, mine=numbers), told
    line = _through(fitted.mine, fitted.golden)
    if line is None and (not fitted.mine.size or _whole(fitted.golden)):
        return fitted, ""
    if line is not None and abs(line[0] - 1) < _SAME and abs(line[1]) < _SAME:
        return fitted, ""
    if line is None or line[0] <= 0:
        what = english("No file tells the scale of these codes, and they do not grow with the golden numbers.")
        raise NotCompared(what, code=Code.UNSUPPORTED)
    numbers = fitted.mine.astype(np.float32) * np.float32(line[0]) + np.float32(line[1])
    told = english(
        "No file tells the scale of these codes; fitted to the golden numbers it is {scale:.6g}, "
        "plus {offset:.6g}.",
        scale=line[0],
        offset=line[1],
    )
    return replace(fitted, mine=numbers), told


def decode_sums(fitted: Fitted, scale: LayerScale, *, layout: str) -> tuple[Fitted, str]:
    """Sums of codes as numbers, and what was done to them.

    Raises:
        NotCompared: The file has scales for another number of channels.
    """
    shape = fitted.shape
    if _whole(fitted.golden):
        return fitted, ""
    steps = np.asarray(scale.sums)
    axis = _channel_axis(shape, layout, steps.size)
    if axis is None:
        what = english(
            "{source} has {count} scales for these sums of the shape {shape}, which are not compared.",
            source=scale.source,
            count=steps.size,
            shape="x".join(map(str, shape)),
        )
        raise NotCompared(what, code=Code.SHAPE)
    spread = steps.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    numbers = (fitted.mine.reshape(shape) * spread).astype(np.float32).reshape(-1)
    told = english(
        "The sums were decoded by {count} scales of {source}, {low:.6g} to {high:.6g}.",
        count=steps.size,
        source=scale.source,
        low=float(steps.min()),
        high=float(steps.max()),
    )
    return replace(fitted, mine=numbers), told


def _channel_axis(shape: tuple[int, ...], layout: str, channels: int) -> int | None:
    """The axis of channels, by the layout where it is known; None when none has as many."""
    known = [layout.index("C")] if len(layout) == len(shape) and "C" in layout else [1, len(shape) - 1]
    fitting = [axis for axis in known if 0 <= axis < len(shape) and shape[axis] == channels]
    return fitting[0] if fitting else (0 if channels == 1 else None)


def _whole(numbers: Array) -> bool:
    """Whether all of some numbers are whole, and not all zero."""
    some = numbers[: _BLOCK * 4]
    with np.errstate(all="ignore"):
        return bool(some.any()) and bool((np.rint(some) == some).all())


def _through(codes: Array, numbers: Array) -> tuple[float, float] | None:
    """Scale and offset by least squares in float64; None when there is no line: equal codes, or no numbers."""
    count = codes.size
    sums = np.zeros(4)
    for start in range(0, count, _BLOCK):
        left, right = (side[start : start + _BLOCK].astype(np.float64) for side in (codes, numbers))
        with np.errstate(all="ignore"):
            sums += (left.sum(), right.sum(), (left * left).sum(), (left * right).sum())
    if not count or not np.isfinite(sums).all():
        return None
    spread = sums[2] - sums[0] ** 2 / count
    if spread <= 0:
        return None
    slope = (sums[3] - sums[0] * sums[1] / count) / spread
    return float(slope), float((sums[1] - slope * sums[0]) / count)
