"""The HTML file: whole, self-contained, and deaf to hostile names."""

import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from roundoff.pages.html.render import html_report
from roundoff.report.pages import all_pages
from tests.report.documents import HOSTILE, empty_document, full_document, large_document

ROOT = Path(__file__).parents[3]
WEB = ROOT / "web"
ASSETS = ROOT / "src/roundoff/pages/html/assets"
MEGABYTE = 1 << 20


class Elements(HTMLParser):
    """Counts elements, and collects what they refer to and what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.events: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and value:
                self.references.append(value)
            if name == "id" and value:
                self.ids.append(value)
            if name.startswith("on") or name == "style":
                self.events.append(name)


def test_hostile_names_add_no_element_and_nothing_is_fetched() -> None:
    page = Elements(html_report(all_pages(full_document()), title=HOSTILE))
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not page.events
    assert all(each.startswith("#") for each in page.references)
    assert len(page.ids) == len(set(page.ids))


def test_the_policy_allows_its_own_script_and_style_alone() -> None:
    text = html_report(all_pages(empty_document()), title="t")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].replace("&#39;", "'").startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]


def test_what_the_script_draws_is_json() -> None:
    text = html_report(all_pages(full_document()), title="t")
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["networks"][0]["nodes"][-1]["name"].endswith(HOSTILE)


def test_both_languages_are_there_and_one_is_shown() -> None:
    text = html_report(all_pages(full_document()), title="t", language="zh")
    assert '<html lang="zh" data-language="zh">' in text
    assert '<span lang="en">Layers</span><span lang="zh">逐层误差</span>' in text


def test_a_report_of_nothing_is_a_page() -> None:
    assert Elements(html_report((), title="nothing")).tags.count("section") == 0


@pytest.mark.parametrize(("nodes", "most"), [(500, 0.4), (2000, 1.2)])
def test_large_reports_are_small(nodes: int, most: float) -> None:
    text = html_report(all_pages(large_document(nodes)), title="large")
    assert len(text.encode()) < most * MEGABYTE


def sources() -> list[str]:
    found = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    return sorted(
        path.relative_to(WEB).as_posix() for path in (*found, WEB / "package-lock.json", WEB / "build.mjs")
    )


@pytest.mark.parametrize("asset", ["report.js", "report.css"])
def test_the_bundle_was_built_from_these_sources(asset: str) -> None:
    digest = hashlib.sha256()
    for name in sources():
        digest.update(f"{name}\n".encode() + (WEB / name).read_bytes())
    first = (ASSETS / asset).read_text(encoding="utf-8").splitlines()[0]
    assert first == f"/*! sources {digest.hexdigest()} */", (
        "run: npm --prefix web ci && npm --prefix web run build"
    )


def test_the_front_ends_own_tests(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules", "build"))
    assets = tmp_path / "src/roundoff/pages/html/assets"
    assets.mkdir(parents=True)
    installed = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"], cwd=web, capture_output=True, text=True, check=False
    )
    if installed.returncode:
        pytest.skip(f"npm ci did not work here: {installed.stderr.strip().splitlines()[-1:]}")
    tests = subprocess.run(["npm", "test"], cwd=web, capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout[-4000:] + tests.stderr[-2000:]
    built = subprocess.run(["npm", "run", "build"], cwd=web, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    for asset in ("report.js", "report.css"):
        assert (assets / asset).read_bytes() == (ASSETS / asset).read_bytes(), (
            f"{asset} is not what its sources give"
        )
