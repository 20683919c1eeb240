"""Settings in the words of other tools, as files of a folder."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roundoff.graph.load import Model
    from roundoff.vendors.dialects.decisions import Decisions
    from roundoff.vendors.dialects.dialect import Dialect, Written

__all__ = ["SETTINGS_NAME", "ToolSettings", "float_model_name", "settings_for"]

SETTINGS_NAME = "settings.json"
"""The file that says which files there are, and what they could not say."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Settings for some tools.

    Attributes:
        written: By name of the dialect.
        graph: Name of the file with the float model they belong to; empty where it is the user's own.
    """

    written: "Mapping[str, Written]"
    graph: str = ""

    @property
    def count(self) -> str:
        """For how many tools there is something to set."""
        from roundoff.messages.numbers import counted

        tools = sum(bool(each.files) for each in self.written.values())
        return f"for {counted(tools, 'tool')}" if tools else "none: nothing that can be told differs from defaults"

    @property
    def texts(self) -> dict[str, str]:
        """All files by name."""
        return {name: text for each in self.written.values() for name, text in each.files.items()}

    @property
    def record(self) -> dict[str, Any]:
        """The same for programs: which files there are, what they say, what they cannot say."""
        return {
            name: {
                "files": list(each.files),
                "said": each.said,
                "not_expressible": list(each.missing),
                "use": each.use,
            }
            for name, each in self.written.items()
        }

    def files(self) -> dict[str, str]:
        """All files by name, with the record of what they say."""
        from roundoff.core.document import json_text

        return {**self.texts, SETTINGS_NAME: json_text(self.record)}

    def lines(self) -> Iterator[tuple[str, str]]:
        """What to tell of them: a word, and what it is about."""
        for name, each in self.written.items():
            yield name, each.said
            if each.files:
                yield "", f"files: {', '.join(each.files)}"
            yield "", f"use: {each.use}"
            for missing in each.missing:
                yield "", f"not expressible in {name}: {missing}"

    def lost(self) -> Iterator[str]:
        """What could not be said, a line for what several tools cannot be told alike."""
        tools: dict[str, list[str]] = {}
        for name, each in self.written.items():
            for missing in each.missing:
                tools.setdefault(missing, []).append(name)
        for missing, names in tools.items():
            yield f"not expressible in {', '.join(names)}: {missing}"


def settings_for(
    decisions: "Decisions", dialects: "Sequence[Dialect]", *, given: "Model | None" = None
) -> ToolSettings:
    """Write decisions in some dialects.

    Args:
        decisions: What was decided.
        dialects: For which tools.
        given: The float model as the user gave it, where that is known: of names that it has not, it is said whose
            they are.
    """
    graph = decisions.made.graph
    strange = _names(decisions.quantized.float_model) - (set() if given is None else _names(given))

    def owned(text: str) -> str:
        return f"{text} (names in {graph})" if any(repr(name) in text for name in strange) else text

    found = {each.name: each.write(decisions) for each in dialects}
    if not graph:
        return ToolSettings(found)
    told = {name: replace(each, missing=tuple(map(owned, each.missing))) for name, each in found.items()}
    return ToolSettings(told, graph)


def _names(model: "Model") -> set[str]:
    return {name for node in model.proto.graph.node for name in (node.name, *node.input, *node.output)}


def float_model_name(stem: str, given: "Model | None", quantized: "Model") -> str:
    """Name of the file for the float model that settings belong to; empty where it is the user's own.

    Args:
        stem: How names of files start.
        given: The float model as the user gave it; None where that is not known.
        quantized: The one that was quantized.
    """
    return f"{stem}_float_model.onnx" if given is None or _changed(given, quantized) else ""


def _changed(given: "Model", quantized: "Model") -> bool:
    """Whether the user's file holds another graph: something was folded, transformed, imported, or got a name."""
    import onnx

    from roundoff.core.files import is_caffe

    ours, theirs = given.proto.graph, quantized.proto.graph
    if is_caffe(given.path):
        return True
    if not given.path.is_file() or (ours is not theirs and ours.SerializeToString() != theirs.SerializeToString()):
        return True
    named = {node.name for node in onnx.load(given.path, load_external_data=False).graph.node}
    return not named.issuperset(node.name for node in theirs.node)
