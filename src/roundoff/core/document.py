"""The run document: what was asked, on what, what was found; the only input of reports."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.comparison import Comparison

__all__ = ["SCHEMA", "Environment", "InputFile", "RunDocument"]

# Raised whenever a reader of older documents would misread a newer one.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file or folder the run read.

    Attributes:
        role: What it was used as: reference, candidate, model, data, aliases.
        path: As the user gave it.
        size_bytes: Size, all files of a folder together.
        sha256: Hash, by which a changed input is noticed.
        hashed: What the hash is of: the content, or the names and sizes where it is more than 256 MiB or
            a file in it cannot be read.
    """

    role: str
    path: str
    size_bytes: int
    sha256: str
    hashed: Literal["content", "listing"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and how long it ran; never part of what two runs are compared by."""

    roundoff: str
    python: str
    packages: dict[str, str]
    host: str
    arithmetic: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class RunDocument:
    """One run. Everything but `environment` is the same, bit for bit, when the same is run twice.

    Attributes:
        schema: Version of this layout.
        command: The command line, word by word.
        inputs: What it read.
        comparison: What a comparison found.
        environment: Versions, host and time.
    """

    schema: int
    command: tuple[str, ...]
    inputs: tuple[InputFile, ...]
    comparison: Comparison
    environment: Environment
