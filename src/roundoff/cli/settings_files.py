"""Settings in the words of other tools, as files of a command's folder; loaded when one is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roundoff.graph.load import Model
    from roundoff.vendors.dialects import Decisions, Dialect, Written

__all__ = ["DIALECT_HELP", "SETTINGS_NAME", "Settings", "changed_model", "settings_for"]

SETTINGS_NAME = "settings.json"
"""The file that says which files there are, and what they could not say."""

DIALECT_HELP = (
    "write settings for other tools: roundoff, onnxruntime, pulsar2, horizon, amct, rknn, tpu-mlir, nncf, aimet, "
    "or all"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for some tools.

    Attributes:
        written: By name of the dialect.
    """

    written: "Mapping[str, Written]"

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
        from roundoff.report.documents import json_text

        return {**self.texts, SETTINGS_NAME: json_text(self.record)}

    def lines(self) -> Iterator[tuple[str, str]]:
        """What to tell of them: a word, and what it is about."""
        for name, each in self.written.items():
            yield name, each.said
            yield "", f"files: {', '.join(each.files)}"
            yield "", f"use: {each.use}"
            for missing in each.missing:
                yield "", f"not expressible in {name}: {missing}"


def settings_for(decisions: "Decisions", dialects: "Sequence[Dialect]") -> Settings:
    """Write decisions in some dialects."""
    return Settings({each.name: each.write(decisions) for each in dialects})


def changed_model(given: "Model", quantized: "Model") -> bool:
    """Whether scales are those of another graph than the user's: something was folded or transformed."""
    ours, theirs = given.proto.graph, quantized.proto.graph
    return ours is not theirs and ours.SerializeToString() != theirs.SerializeToString()
