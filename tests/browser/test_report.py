"""Reports in a real browser: they open, stay silent, ask for nothing, and do what they offer."""

import base64
import json
from pathlib import Path

import pytest

from roundoff.core.document import RunDocument
from roundoff.pages.html.render import html_report
from roundoff.report.pages import all_pages
from tests.browser.chromium import Browser
from tests.report.documents import HOSTILE, empty_document, full_document, large_document

# What is not in view is not drawn: go there, wait for the next frames, and look.
SEEN = """(async () => {{
    document.querySelector('{}').scrollIntoView({{ behavior: 'instant' }});
    for (let frame = 0; frame < 4; frame++) await new Promise((done) => requestAnimationFrame(done));
    return {};
}})()"""


def written(folder: Path, document: RunDocument, *, language: str = "en") -> Path:
    path = folder / "report.html"
    text = html_report(all_pages(document), title="a report", language=language)  # type: ignore[arg-type]
    path.write_text(text, encoding="utf-8")
    return path


def silent(browser: Browser) -> bool:
    assert browser.complaints == []
    assert [each for each in browser.requests if not each.startswith(("file:", "about:", "data:", "blob:"))] == []
    return True


@pytest.mark.parametrize("nodes", [0, 1, 500, 2000])
def test_reports_of_any_size_open_silently(browser: Browser, tmp_path: Path, nodes: int) -> None:
    document = large_document(nodes) if nodes else empty_document()
    browser.open(written(tmp_path, document))
    assert silent(browser)
    assert browser.run("document.querySelectorAll('#table-layers tbody tr').length") == nodes
    assert browser.run("document.querySelectorAll('main > section').length") >= 1


def test_every_part_is_drawn(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, full_document()))
    charts = browser.run("document.querySelectorAll('figure.chart').length")
    drawn = """[...document.querySelectorAll('figure.chart .plot')].filter((plot) =>
        plot.getBoundingClientRect().width > 300 && plot.querySelector('path, rect')).length"""
    assert charts >= 8
    assert browser.run(drawn) == charts
    assert browser.run(SEEN.format(".network", "document.querySelectorAll('.network .box').length")) == 3
    assert silent(browser)


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, full_document()))
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run(f"document.querySelector('main').textContent.includes({HOSTILE[:40]!r})") is True
    assert silent(browser)


def test_tables_sort_and_search(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(60)))
    first = "document.querySelector('#table-layers tbody tr td').textContent"
    head = "document.querySelector('#table-layers th button')"
    browser.run(f"{head}.click()")
    once = browser.run(first)
    browser.run(f"{head}.click()")
    assert {once, browser.run(first)} == {"0", "59"}
    type_in = """((text) => {
        const input = document.getElementById('search-layers'); input.value = text;
        input.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('#table-layers tbody tr')].filter((row) => !row.hidden).length;
    })"""
    assert browser.run(f"{type_in}('*/conv1?')") == 10
    assert browser.run(f"{type_in}('CONV59')") == 1
    assert browser.run(f"{type_in}('')") == 60
    assert silent(browser)


def test_rows_far_down_are_shown_when_they_are_scrolled_to_or_printed(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(300)))
    box = "document.querySelector('#table-layers').closest('.scroll')"
    shown = "document.querySelectorAll('#table-layers tbody tr:not(.late)').length"
    links = "document.querySelectorAll('#table-layers tbody a').length"
    first = browser.run(SEEN.format("#table-layers", f"[{shown}, {links}]"))
    assert first == [60, 60]
    down = f"({box}.scrollTop = 1e6, new Promise((done) => setTimeout(() => done([{shown}, {links}]), 300)))"
    assert browser.run(down) == [260, 260]
    assert browser.run(down) == [300, 300]
    # Sorting starts from the top again, with the worst of all rows and not of those that were shown.
    browser.open(written(tmp_path, large_document(300)))
    browser.run("document.querySelector('#table-layers th button').click()")
    browser.run("document.querySelector('#table-layers th button').click()")
    top = "document.querySelector('#table-layers tbody tr:not(.late) td').textContent"
    assert {browser.run(top)} <= {"0", "299"}
    assert silent(browser)


def test_the_language_and_the_colours_change(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(3), language="zh"))
    title = "getComputedStyle(document.querySelector('#title-layers [lang={}]')).display"
    assert browser.run(title.format("zh")) != "none"
    browser.run(
        "(() => { const choice = document.getElementById('language'); choice.value = 'en';"
        " choice.dispatchEvent(new Event('change')); })()"
    )
    assert browser.run(title.format("zh")) == "none"
    assert browser.run(title.format("en")) != "none"
    back = "getComputedStyle(document.body).backgroundColor"
    before = browser.run(back)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(back) != before
    browser.run("localStorage.clear()")
    assert silent(browser)


def test_a_link_selects_a_node_and_the_panel_says_what_is_known(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(3)), "#node=stage0%2Fblock0%2Fconv1")
    assert browser.run("document.querySelectorAll('dialog').length") == 0
    assert browser.run("document.querySelector('.panel #card-title').textContent") == "stage0/block0/conv1"
    assert "stage0/block0/conv1=float" in browser.run("document.querySelector('.selector').textContent")
    chosen = "document.querySelector('.network .selected')?.getAttribute('href')"
    assert browser.run(chosen) == "#node=stage0%2Fblock0%2Fconv1"
    # The chart and the graph select the same; a click anywhere moves both.
    assert browser.run("document.querySelectorAll('.plot a.selected').length") == 1
    browser.run("document.querySelectorAll('.network .box')[2].dispatchEvent(new MouseEvent('click'))")
    browser.run("location.hash = document.querySelectorAll('.network .box')[2].getAttribute('href')")
    browser.wait(f"({chosen}) === '#node=stage0%2Fblock0%2Fconv2'")
    assert browser.run("document.querySelector('.plot a.selected').getAttribute('href')").endswith("conv2")
    assert silent(browser)


def test_the_network_is_searched_and_folds_what_repeats(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(500)))
    boxes = "document.querySelectorAll('.network .box').length"
    assert 1 < browser.run(boxes) < 100
    view = "JSON.stringify(document.querySelector('.network .graph').getBoundingClientRect())"
    assert json.loads(browser.run(view))["height"] <= 900
    browser.run(
        "(() => { const input = document.querySelector('.network input'); input.value = 'conv499';"
        " input.dispatchEvent(new Event('input'));"
        " input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' })); })()"
    )
    assert browser.run("document.querySelectorAll('.network .found').length") == 1
    browser.wait("document.querySelector('.panel #card-title')?.textContent.endsWith('conv499') === true")
    # It is inside of a folded block, whose members are named.
    assert browser.run("document.querySelectorAll('.panel .members a').length") > 1
    # Who is read is a link, and a key.
    assert browser.run("document.querySelector('.panel .around a')?.textContent.length > 0") is True
    title = "document.querySelector('.panel #card-title').textContent"
    before = browser.run(title)
    browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '[', bubbles: true }))")
    browser.wait(f"{title} !== {json.dumps(before)}")
    assert silent(browser)


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(browser: Browser, tmp_path: Path, width: int) -> None:
    browser.open(written(tmp_path, full_document()), width=width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert len(browser.screenshot()) > 1000


def test_a_report_reads_without_its_script(browser: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, large_document(3))
    text = path.read_text(encoding="utf-8")
    bare = text[: text.rindex("<script>")] + "<script>document.documentElement.dataset.ready = 'yes'</script>"
    # Its policy knows another script, so that this one must not run either.
    path.write_text(bare, encoding="utf-8")
    browser.show(path)
    browser.wait("document.readyState === 'complete' && location.protocol === 'file:'")
    assert browser.run("document.documentElement.dataset.ready ?? ''") == ""
    assert browser.run("document.querySelectorAll('#table-layers tbody tr').length") == 3


def test_without_scripts_every_row_and_chart_is_there_and_no_empty_frame(browser: Browser, tmp_path: Path) -> None:
    with browser.without_scripts():
        browser.show(written(tmp_path, large_document(100)))
        browser.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        seen = "[...document.querySelectorAll({!r})].filter((each) => each.offsetParent !== null).length"
        assert browser.run(seen.format("#table-layers tbody tr")) == 100
        assert browser.run(seen.format("figure.network")) == 1
        assert browser.run("document.querySelectorAll('.graph .box').length") > 1
        assert browser.run("getComputedStyle(document.querySelector('.panel')).display") == "none"
        assert browser.run(seen.format(".card.errors")) == 1
        assert browser.run("document.querySelector('.card.errors .plot').getBoundingClientRect().height") > 100
        assert browser.run("document.documentElement.dataset.ready ?? ''") == ""


def test_everything_is_reached_by_keyboard_and_escape_ends_a_selection(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(3)))
    reached = set()
    for _ in range(60):
        browser.press("Tab", 9)
        reached.add(browser.run("document.activeElement.localName + ':' + (document.activeElement.id || '')"))
        # Behind the last element the page itself has the focus.
        outline = (
            "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle"
        )
        assert browser.run(outline) != "none", sorted(reached)
    assert {"select:language", "button:theme", "summary:caption-layers", "a:"} <= reached
    browser.run("location.hash = '#node=stage0/block0/conv1'")
    shown = "document.querySelector('.panel #card-title') !== null"
    assert browser.run(f"new Promise((done) => setTimeout(() => done({shown}), 200))")
    browser.press("Escape", 27)
    assert not browser.run(f"new Promise((done) => setTimeout(() => done({shown}), 200))")
    assert silent(browser)


def test_pictures_for_those_who_cannot_see_them_have_words(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(3), language="zh"))
    labels = browser.run(
        "new Promise((done) => setTimeout(() => done("
        "[...document.querySelectorAll('[role=img], svg[role]')]"
        ".map((each) => each.getAttribute('aria-label') ?? "
        "document.getElementById(each.getAttribute('aria-labelledby'))?.innerText)), 400))"
    )
    assert len(labels) == 2
    assert all("网络" in label or "表" in label for label in labels)
    assert not any("The " in label for label in labels)
    unnamed = (
        "[...document.querySelectorAll('table')].filter((each) => !each.getAttribute('aria-labelledby')).length"
    )
    assert browser.run(unnamed) == 0


def test_it_can_be_printed(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, large_document(20)))
    assert base64.b64decode(browser.printed()).startswith(b"%PDF-")


def test_a_folded_block_opens_where_it_stands_and_a_map_shows_what_is_looked_at(
    browser: Browser, tmp_path: Path
) -> None:
    browser.open(written(tmp_path, large_document(400)))
    click = "dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
    browser.run(f"document.querySelector('a.box[aria-expanded]').{click}")
    parts = browser.run("document.querySelectorAll('.opened .box').length")
    assert parts >= 3
    browser.press("Escape", 27)
    assert browser.run("document.querySelectorAll('.opened').length") == 0
    browser.run("document.querySelector('.zoom button').click()")
    assert browser.run("document.querySelectorAll('.minimap.shown .frame').length") == 1
    width = "document.querySelector('.graph').viewBox.baseVal.width"
    near = browser.run(width)
    browser.run("document.querySelectorAll('.zoom button')[2].click()")
    assert browser.run(width) > near
    assert browser.run("document.querySelectorAll('.minimap.shown').length") == 0
    # A stretch of a strip that is dragged over: boxes outside of it step back, until Escape.
    drag = """(() => { const cells = document.querySelector('.strip .cells'), box = cells.getBoundingClientRect();
        const at = (share) => ({bubbles: true, clientX: box.left + share * box.width, clientY: box.top + 5});
        cells.dispatchEvent(new PointerEvent('pointerdown', at(0.1)));
        dispatchEvent(new PointerEvent('pointermove', at(0.4)));
        dispatchEvent(new PointerEvent('pointerup', at(0.4)));
        return document.querySelectorAll('.box.outside').length; })()"""
    assert 0 < browser.run(drag) < browser.run("document.querySelectorAll('.graph > .box').length")
    browser.press("Escape", 27)
    assert browser.run("document.querySelectorAll('.outside, .brush').length") == 0
    assert silent(browser)
