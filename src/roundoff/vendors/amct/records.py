"""Record files: the scales and offsets of every layer, as protocol buffers' text in all of its dialects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roundoff.core.files import read_small, write_text
from roundoff.core.text_proto import Field, FieldTable, TextEntry, TextMessage, parse_text_proto, text_proto_text
from roundoff.messages.message import english
from roundoff.vendors.facade import WrongValue

# Dialects: AMCT writes one flat message per layer and names types as texts; another toolkit keeps inputs in
# messages of their own (record_d) and widths as numbers. All are read; what is not ours is kept and written back.
_SHIFT_BITS = range(1, 17)
_TYPES = {f"INT{bits}": bits for bits in (4, 6, 7, 8, 16)}
_USUAL_BITS = 8
_SMALLEST, _LARGEST = (float(getattr(np.finfo(np.float32), name)) for name in ("smallest_subnormal", "max"))

_NUMBERS = {"channels": Field("int"), "height": Field("int"), "width": Field("int")}
_ONE_INPUT = FieldTable(
    "record_d",
    {
        "scale_d": Field("float"), "offset_d": Field("int"), "index": Field("int"), "num_bits_d": Field("int"),
        **_NUMBERS,
    },
)  # fmt: skip
_LAYER = FieldTable(
    "value",
    {
        "scale_d": Field("float"),
        "offset_d": Field("int"),
        "scale_w": Field("float", repeated=True),
        "offset_w": Field("int", repeated=True),
        "shift_bit": Field("int", repeated=True),
        **_NUMBERS,
        "skip_fusion": Field("bool"),
        "tensor_balance_factor": Field("float", repeated=True),
        "is_tensor_quantize": Field("bool"),
        "op_data_type": Field("string"),
        "dst_type": Field("string"),
        "act_type": Field("string"),
        "wts_type": Field("string"),
        "fakequant_precision_mode": Field("string"),
        "scale_h": Field("float"),
        "offset_h": Field("int"),
        "scale_r": Field("float", repeated=True),
        "offset_r": Field("int", repeated=True),
        "object_layer": Field("string", repeated=True),
        "num_bits_w": Field("int"),
        "record_d": Field("message", repeated=True, table=_ONE_INPUT),
    },
)
_CACHE = FieldTable(
    "kv_cache_value", {"scale": Field("float", repeated=True), "offset": Field("int", repeated=True)}
)
_ENTRY = FieldTable(
    "record",
    {
        "key": Field("string", required=True),
        "value": Field("message", table=_LAYER),
        "kv_cache_value": Field("message", table=_CACHE),
    },
)
_FILE = FieldTable(
    "a record file",
    {
        "record": Field("message", repeated=True, table=_ENTRY),
        "prune_record": Field("message", repeated=True, table=FieldTable("prune_record", {}, open=True)),
    },
)


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """What a record file says of one layer.

    Attributes:
        scale_d: Step of the codes of its input; None while it is not calibrated.
        offset_d: The code of zero.
        scale_w: Steps of its weight, one or one for each output channel; empty when it has none.
        offset_w: Codes of zero of its weight; always 0.
        shift_bit: Bits by which sums are shifted; empty or one for each scale.
        tensor_balance_factor: Factors that inputs are divided by and weights multiplied with, by input channel.
        others: All other fields, as they were read.
        cache: Scales of a key and value cache, for which some tools write records too.
    """

    scale_d: float | None = None
    offset_d: int | None = None
    scale_w: tuple[float, ...] = ()
    offset_w: tuple[int, ...] = ()
    shift_bit: tuple[int, ...] = ()
    tensor_balance_factor: tuple[float, ...] = ()
    others: TextMessage = field(default_factory=TextMessage)
    cache: TextMessage | None = None


_OWN = tuple(name for name in LayerRecord.__dataclass_fields__ if name not in ("others", "cache"))


def read_records(path: Path) -> dict[str, LayerRecord]:
    """The layers of a record file by name; which of them make sense says `check_record`.

    Raises:
        BadInput: The file cannot be read or is no record file.
        WrongValue: A layer stands in it twice.
    """
    text = read_small(path, what=english("The record file")).decode(errors="replace")
    found: dict[str, LayerRecord] = {}
    for entry in parse_text_proto(text, _FILE, what=str(path)).messages("record"):
        key = str(entry.get("key"))
        if key in found:
            what = english(
                "{path}, line {line}: there is a second record of {key!r}.",
                path=path,
                line=entry.line("key"),
                key=key,
            )
            raise WrongValue(what, fix=english("remove one of them"))
        found[key] = _layer(entry)
    return found


def _layer(entry: TextMessage) -> LayerRecord:
    value = entry.message("value")
    if value is None:
        return LayerRecord(cache=entry.message("kv_cache_value"))
    # The dialect of another toolkit keeps what it knows of the inputs in messages of their own.
    inputs = value.message("record_d")
    nested = inputs.entries if inputs is not None else ()
    single = {each.name: each.value for each in (*nested, *value.entries)}
    lists = {
        name: tuple(value.all(name)) for name in ("scale_w", "offset_w", "shift_bit", "tensor_balance_factor")
    }
    rest = tuple(each for each in value.entries if each.name not in _OWN)
    return LayerRecord(single.get("scale_d"), single.get("offset_d"), **lists, others=TextMessage(rest))  # type: ignore[arg-type]


def record_bits(record: LayerRecord, part: str) -> int | None:
    """The width of codes that a record names; None when it names none.

    Args:
        record: The record.
        part: ``act`` or ``wts``.
    """
    names = (f"{part}_type", *(("dst_type",) if part == "act" else ()))
    for name in names:
        bits = _TYPES.get(str(record.others.get(name, "")).upper())
        if bits is not None:
            return bits
    # The dialect of another toolkit has numbers, those of inputs in messages of their own.
    holder = record.others if part == "wts" else record.others.message("record_d") or TextMessage()
    number = holder.get("num_bits_w" if part == "wts" else "num_bits_d")
    return number if isinstance(number, int) else None


def type_entries(activation: int, weight: int) -> tuple[TextEntry, ...]:
    """What widths are written as in a record, where they are not the usual ones."""
    wanted = {"act_type": activation, "wts_type": weight}
    return tuple(TextEntry(name, f"INT{bits}") for name, bits in wanted.items() if bits != _USUAL_BITS)


def check_record(layer: str, record: LayerRecord, *, channels: int | None, bits: int = 8) -> None:
    """Refuse scales and offsets that mean nothing.

    Args:
        layer: Whose record it is.
        record: The record.
        channels: Output channels of the layer; None for one without a weight.
        bits: Width of the codes of its input.

    Raises:
        WrongValue: Something in it means nothing, or it is not complete.
    """
    if record.scale_d is None or record.offset_d is None:
        what = english(
            "The record of {layer!r} has no scale_d and offset_d: the layer was not calibrated.", layer=layer
        )
        raise WrongValue(what, fix=english("run the modified model on batch_num batches first"))
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    _positive(layer, "scale_d", [record.scale_d])
    if not lowest <= record.offset_d <= highest:
        what = english(
            "The record of {layer!r} has offset_d {offset_d}; codes go from {lowest} to {highest}.",
            layer=layer,
            offset_d=record.offset_d,
            lowest=lowest,
            highest=highest,
        )
        raise WrongValue(what, fix=english("calibrate the layer again"))
    _positive(layer, "scale_w", record.scale_w)
    _positive(layer, "tensor_balance_factor", record.tensor_balance_factor)
    if any(record.offset_w):
        raise WrongValue(
            english("The record of {layer!r} has an offset_w that is not 0.", layer=layer),
            fix=english("offsets of weights are 0"),
        )
    _check_counts(layer, record, channels)
    # Sums are dequantized by this product, which must be a number of float32 as well.
    products = [record.scale_d * each for each in record.scale_w]
    _positive(layer, "scale_d times scale_w of", products)


def _check_counts(layer: str, record: LayerRecord, channels: int | None) -> None:
    allowed = (0, 1) if channels is None else (1, channels)
    if len(record.scale_w) not in allowed:
        count = english("1 or {channels}", channels=channels) if channels is not None else english("at most 1")
        what = english(
            "The record of {layer!r} has {count} values of scale_w; {count2} are possible.",
            layer=layer,
            count=len(record.scale_w),
            count2=count,
        )
        raise WrongValue(what, fix=english("use the record of this very model"))
    if len(record.offset_w) not in (0, len(record.scale_w)):
        what = english(
            "The record of {layer!r} has {count} scale_w and {count2} offset_w.",
            layer=layer,
            count=len(record.scale_w),
            count2=len(record.offset_w),
        )
        raise WrongValue(what, fix=english("give one offset_w for each scale_w"))
    shifts = set(record.shift_bit)
    if shifts and shifts != {0} and not shifts <= set(_SHIFT_BITS):
        what = english(
            "The record of {layer!r} has shift_bit values of {shifts} to {shifts2}.",
            layer=layer,
            shifts=sorted(shifts)[0],
            shifts2=sorted(shifts)[-1],
        )
        raise WrongValue(what, fix=english("all are 0, or all are 1 to 16"))


def _positive(layer: str, name: str, values: Iterable[float]) -> None:
    for value in values:
        if not _SMALLEST <= value <= _LARGEST:
            raise WrongValue(
                "The record of {layer!r} has {name} {value:g}; it must be positive and finite in float32.",
                fix=english("calibrate the layer again, on data on which it computes something"),
                layer=layer,
                name=name,
                value=value,
            )


def write_records(path: Path, records: Mapping[str, LayerRecord]) -> None:
    """Write a record file, replacing an earlier one when it is complete."""
    write_text(path, record_text(records))


def record_text(records: Mapping[str, LayerRecord]) -> str:
    """Records as the text of a file: one value in a line, nine digits."""
    entries = tuple(
        TextEntry("record", TextMessage((TextEntry("key", layer), _value(record))))
        for layer, record in records.items()
    )
    return text_proto_text(TextMessage(entries), _FILE)


def _value(record: LayerRecord) -> TextEntry:
    if record.cache is not None:
        return TextEntry("kv_cache_value", record.cache)
    entries: list[TextEntry] = []
    for name in _OWN:
        value = getattr(record, name)
        several = value if isinstance(value, tuple) else () if value is None else (value,)
        entries += (TextEntry(name, each) for each in several)
    return TextEntry("value", TextMessage((*entries, *record.others.entries)))
