"""What was not the same in two runs beside their results, and whether they scored the same samples."""

from collections.abc import Iterator, Sequence

from roundoff.analysis.run_diff.readings import sample_names
from roundoff.core.document import RunDocument
from roundoff.core.run_diff import InputChange, RunKind

__all__ = ["changed_conditions", "same_samples"]

_SHOWN_HASH = 8
# Where results go says nothing of what was run.
_OUTPUT_FLAGS = frozenset({"--json", "--force"})
_OUTPUT_OPTIONS = frozenset(
    {
        "-o",
        "--output",
        "--csv",
        "--html",
        "--plot",
        "--junit",
        "--top",
        "--rows",
        "--sort",
        "--threads",
        "--max-memory",
    }
)


def changed_conditions(before: RunDocument, after: RunDocument) -> tuple[InputChange, ...]:
    """Inputs, options and surroundings that differ."""
    return (*_inputs(before, after), *_options(before, after), *_surroundings(before, after))


def same_samples(before: RunDocument, after: RunDocument, kind: RunKind) -> bool:
    """Whether both runs scored the same samples, or one some of the other's, as far as their files tell."""
    names = sample_names(before, kind), sample_names(after, kind)
    if names[0] is None or names[1] is None:
        return False
    for role in ("data", "reference"):
        given = _hashes(before, role), _hashes(after, role)
        if given[0] or given[1]:
            return given[0] == given[1] and bool(set(names[0]) & set(names[1]))
    return names[0] == names[1]


def _hashes(document: RunDocument, role: str) -> list[str]:
    return [each.sha256 for each in document.inputs if each.role == role]


def _inputs(before: RunDocument, after: RunDocument) -> Iterator[InputChange]:
    for role in dict.fromkeys(each.role for each in (*before.inputs, *after.inputs)):
        if _hashes(before, role) != _hashes(after, role):
            yield InputChange(role, _files(before, role), _files(after, role))


def _files(document: RunDocument, role: str) -> str:
    files = (each for each in document.inputs if each.role == role)
    return ", ".join(f"{each.path} ({each.sha256[:_SHOWN_HASH]})" for each in files)


def _options(before: RunDocument, after: RunDocument) -> Iterator[InputChange]:
    ours, theirs = _asked(before), _asked(after)
    lost = [word for word in ours if word not in theirs]
    new = [word for word in theirs if word not in ours]
    if lost or new:
        yield InputChange("options", " ".join(lost), " ".join(new))


def _asked(document: RunDocument) -> list[str]:
    """The options of a command with their values, but for files, which are told by their content."""
    paths = {each.path for each in document.inputs}
    found: list[str] = []
    words = iter(document.command[2:])
    for word in words:
        if word in _OUTPUT_OPTIONS:
            next(words, None)
        elif word.startswith("-") and word.partition("=")[0] not in _OUTPUT_OPTIONS | _OUTPUT_FLAGS:
            found.append(word)
        elif not word.startswith("-") and found and not _names_file(word, paths):
            found[-1] += f" {word}"
    return found


def _names_file(word: str, paths: set[str]) -> bool:
    return word in paths or word.partition("=")[2] in paths


def _surroundings(before: RunDocument, after: RunDocument) -> Iterator[InputChange]:
    ours, theirs = before.environment, after.environment
    packages = dict.fromkeys((*ours.packages, *theirs.packages))
    told: Sequence[tuple[str, str, str]] = (
        ("roundoff", ours.roundoff, theirs.roundoff),
        ("python", ours.python, theirs.python),
        *((name, ours.packages.get(name, ""), theirs.packages.get(name, "")) for name in packages),
        ("host", ours.host, theirs.host),
        ("arithmetic", ours.arithmetic, theirs.arithmetic),
    )
    for what, old, new in told:
        if old != new:
            yield InputChange(what, old, new, environment=True)
