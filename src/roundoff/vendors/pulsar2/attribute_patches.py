"""New attributes for an operation of a model, of the types that its definition demands."""

from typing import Any

from roundoff.errors import BadInput, nearest

__all__ = ["patched_attribute"]

_INT64, _FLOAT32 = 2**63, float.fromhex("0x1.fffffep+127")


def patched_attribute(node: Any, name: str, value: Any, *, opset: int, where: str) -> Any:
    """An attribute with a new value.

    Args:
        node: The operation.
        name: The attribute.
        value: Its new value: a number, a text, or a list of them.
        opset: Version of the operators in the node's domain.
        where: What to call it in messages.

    Returns:
        An `onnx.AttributeProto`.

    Raises:
        BadInput: The operation has no such attribute, or it takes another type.
    """
    from onnx import AttributeProto
    from onnx.helper import make_attribute

    kind = _kind(node, name, opset=opset, where=where)
    expected = {
        AttributeProto.INT: ("a whole number of 64 bits", _whole),
        AttributeProto.FLOAT: ("a number of 32 bits", _number),
        AttributeProto.STRING: ("a text", _text),
        AttributeProto.INTS: ("a list of whole numbers of 64 bits", _list_of(_whole)),
        AttributeProto.FLOATS: ("a list of numbers of 32 bits", _list_of(_number)),
        AttributeProto.STRINGS: ("a list of texts", _list_of(_text)),
    }
    if kind not in expected:
        what = f"{where}: {name!r} is a tensor or a graph, which cannot be given here."
        raise BadInput(what, fix="replace constants with const_processors")
    words, read = expected[kind]
    content = read(value)
    if content is None:
        raise BadInput(f"{where}: {name!r} takes {words}, not {value!r:.60}.", fix=f"give {words}")
    return make_attribute(name, content, attr_type=kind)


def _kind(node: Any, name: str, *, opset: int, where: str) -> int:
    """The type of an attribute: that of the definition, or what the node has where there is none."""
    from onnx.defs import SchemaError, get_schema

    has = {attribute.name: attribute.type for attribute in node.attribute}
    try:
        schema = get_schema(node.op_type, opset, node.domain)
        known = {key: each.type.value for key, each in schema.attributes.items()}
    except SchemaError:
        known = has
    if name not in known:
        fix = nearest(name, known) if known else f"{node.op_type} has no attributes"
        raise BadInput(f"{where}: there is no attribute {name!r}.", fix=fix)
    return int(known[name])


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and abs(value) < _INT64 else None


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= _FLOAT32 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list_of(read: Any) -> Any:
    def values(value: Any) -> list[Any] | None:
        found = [read(each) for each in value] if isinstance(value, list) else [None]
        return None if None in found else found

    return values
