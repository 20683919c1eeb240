"""Lay out the pages of the documentation site: docs/, the files beside it, and a reference made from the program.

``make docs`` runs it and hands the folder to mkdocs. A page ``x.zh.md`` is the Chinese form of ``x.md``; a page
that has none is shown in English in both languages.
"""

import contextlib
import io
import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

from roundoff.cli import GROUPS, main
from roundoff.measure.metrics import all_metrics
from roundoff.messages.catalogue import Language, use_language
from roundoff.report.explain import explain, term_names

ROOT = Path(__file__).resolve().parents[1]
LAID_OUT = ROOT / "out" / "docs"
# What stands beside docs/, and where it goes in the site.
_BESIDE = {
    "README.md": "readme.md",
    "README.zh.md": "readme.zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
_LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(```.*?```)", re.DOTALL)
_WIDE = "88"


def lay_out(folder: Path) -> list[Path]:
    """Write every page of the site below a folder, which is made anew; return them."""
    shutil.rmtree(folder, ignore_errors=True)
    sources = {f"docs/{path.relative_to(ROOT / 'docs').as_posix()}" for path in (ROOT / "docs").rglob("*.md")}
    for source in sorted(sources | set(_BESIDE)):
        _write(folder / _place(source), _linked((ROOT / source).read_text("utf-8"), source))
    endings: dict[Language, str] = {"en": ".md", "zh": ".zh.md"}
    for language, ending in endings.items():
        with use_language(language):
            _write(folder / f"reference/commands{ending}", commands_page(language))
            _write(folder / f"reference/words{ending}", words_page(language))
    return sorted(folder.rglob("*.md"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _place(source: str) -> str:
    return _BESIDE.get(source, source.removeprefix("docs/"))


def _linked(text: str, source: str) -> str:
    """A page whose links lead to where its neighbours are in the site; what is not in it is only named."""
    if source == "LICENSE":
        return f"# Apache License 2.0\n\n```text\n{text}```\n"
    here = posixpath.dirname(_place(source))

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        if target not in _BESIDE and not (target.startswith("docs/") and target.endswith(".md")):
            return f"] (`{target}`)"
        # The plugin of languages finds the Chinese form of a page by itself.
        place = _place(target).replace(".zh.md", ".md")
        return f"]({posixpath.relpath(place, here or '.')}{found[2] or ''})"

    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def commands_page(language: Language) -> str:
    """Every command with its help, in the groups of ``roundoff --help``."""
    title = {"en": "Commands", "zh": "命令"}[language]
    about = {"en": "What `--help` says of each command.", "zh": "各命令的 `--help`。"}[language]
    lines = [f"# {title}", "", about, ""]
    for group in GROUPS.values():
        for name in group:
            lines += [f"## {name}", "", "```text", help_text(name, language), "```", ""]
    return "\n".join(lines)


def help_text(name: str, language: Language) -> str:
    """The help of a command as a terminal without colours shows it."""
    before = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR")}
    os.environ.update({"COLUMNS": _WIDE, "NO_COLOR": "1"})
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
            main([name, "--help", "--lang", language])
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    return told.getvalue().rstrip()


def words_page(language: Language) -> str:
    """Every word that is printed, with what ``explain`` says of it."""
    title = {"en": "Words and numbers", "zh": "术语与数字"}[language]
    about = {"en": "What `roundoff explain WORD` says.", "zh": "`roundoff explain 词` 的内容。"}[language]
    metrics = tuple(all_metrics())
    known = sorted({*term_names(), *(each.name for each in metrics)}, key=str.casefold)
    said = (f"`{name.replace('_', ' ')}`\n:   {explain(name, metrics=metrics)}\n" for name in known)
    return "\n".join((f"# {title}", "", about, "", *said))


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else LAID_OUT
    sys.stdout.write(f"{len(lay_out(place))} pages in {place}\n")
