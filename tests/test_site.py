"""The documentation site: pages lead to each other, are all in its contents, and are built in both languages."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from scripts.docs_site import ROOT, lay_out

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
FENCED = re.compile(r"```.*?```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
CHINESE = sorted((ROOT / "docs").rglob("*.zh.md"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    assert len(lay_out(folder)) > 90
    return folder


def contents() -> list[str]:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    return [page for group in nav for found in group.values() for page in found]


def test_every_link_of_the_site_leads_to_a_page_of_it(pages: Path) -> None:
    broken = [
        f"{page.relative_to(pages)}: {target}"
        for page in pages.rglob("*.md")
        for target in LINK.findall(FENCED.sub("", page.read_text("utf-8")))
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).is_file()
    ]
    assert broken == []


def test_every_page_is_in_the_contents_once(pages: Path) -> None:
    there = [path.relative_to(pages).as_posix() for path in pages.rglob("*.md") if ".zh." not in path.name]
    assert sorted(contents()) == sorted(there)


def test_the_reference_is_made_of_the_program(pages: Path) -> None:
    for ending, help_word, meaning in ((".md", "--fix", "higher is better"), (".zh.md", "--fix", "信号能量")):
        commands = (pages / f"reference/commands{ending}").read_text("utf-8")
        assert "## diagnose" in commands
        assert help_word in commands
        assert "\x1b" not in commands
        words = (pages / f"reference/words{ending}").read_text("utf-8")
        assert "`sqnr db`" in words
        assert meaning in words


@pytest.mark.parametrize("page", CHINESE, ids=[path.name for path in CHINESE])
def test_a_chinese_page_has_the_commands_of_its_english_form(page: Path) -> None:
    other = page.with_name(page.name.replace(".zh.md", ".md"))
    text = page.read_text("utf-8")
    assert any("\u4e00" <= letter <= "\u9fff" for letter in text.splitlines()[0])
    if page.stem != "index.zh":
        assert CONSOLE.findall(text) == CONSOLE.findall(other.read_text("utf-8"))


@pytest.mark.slow
def test_the_site_is_built_in_both_languages_without_a_warning(pages: Path, tmp_path: Path) -> None:
    if find_spec("mkdocs_static_i18n") is None or find_spec("material") is None:
        pytest.skip("mkdocs is not installed: pip install -e '.[docs]', or make docs")
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    text = text.replace("docs_dir: out/docs", f"docs_dir: {json.dumps(str(pages))}")
    (tmp_path / "mkdocs.yml").write_text(text.replace("site_dir: out/site", "site_dir: site"), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    found = {
        entry["location"] for entry in json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    }
    assert {"tutorials/int8.html", "zh/tutorials/int8.html"} <= found
    assert "我的 int8 模型不准" in (site / "zh/tutorials/int8.html").read_text("utf-8")
    fetched = [page for page in site.rglob("*.html") if "fonts.googleapis" in page.read_text("utf-8")]
    assert fetched == []
