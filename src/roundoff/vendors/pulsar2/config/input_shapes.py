"""The text by which a configuration gives inputs another shape: ``name:1x3x224x224;name2:1x1x112x112``."""

import re

__all__ = ["parse_input_shapes"]

_SIZES = re.compile(r"[0-9]{1,9}(?:[xX][0-9]{1,9})*")


def parse_input_shapes(text: str) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """Read the shapes by the names of inputs, and what is wrong with the text.

    A name may hold colons; what stands behind the last one is the shape.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    wrong: list[str] = []
    for part in (each.strip() for each in text.split(";")):
        name, colon, sizes = (each.strip() for each in part.rpartition(":"))
        if not part:
            continue
        if not colon or not name or not _SIZES.fullmatch(sizes):
            wrong.append(f"{part!r} is not of the form name:1x3x224x224")
        elif name in shapes:
            wrong.append(f"the input {name!r} has two shapes")
        elif 0 in (shape := tuple(int(size) for size in re.split("[xX]", sizes))):
            wrong.append(f"{part!r} has an axis of size 0")
        else:
            shapes[name] = shape
    return shapes, tuple(wrong)
