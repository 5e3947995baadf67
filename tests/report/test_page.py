"""The page in a real browser: the slider moves the curves, nothing comes from outside, nothing in a file is run."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from oat.report.page import write_report
from tests.report.example_results import HOSTILE_NAME, HOSTILE_PATH, HOSTILE_REMARK, HOSTILE_TASK, TABLE, write_results

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")

SECTIONS = ["refinement", "success", "depth", "videos", "tables", "distortion", "codebook", "training", "origins"]
LOCAL = ("file:", "data:", "blob:")
_PATIENCE = 120_000  # milliseconds, on a busy machine
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')]"
TRUTH, DECODED, LAST = (f"document.getElementById('dimensions').data[{trace}].y" for trace in (0, 1, 5))
PATH = "document.getElementById('path').data[1].z"


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(write_results(folder / "results"), folder / "new" / "page.html")
    return folder / "new" / "page.html"


@pytest.fixture(scope="module")
def visit(html: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page; whatever it complains about or fetches fails the test."""
    complaints: list[str] = []
    with sync_playwright() as playwright:
        expect.set_options(timeout=_PATIENCE)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--enable-unsafe-swiftshader"])

        def opened(**options: Any) -> Page:
            page = browser.new_context(**options).new_page()
            page.set_default_timeout(_PATIENCE)
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda sent: complaints.append(sent.url) if not sent.url.startswith(LOCAL) else None)
            page.goto(html.as_uri())
            expect(page.locator(".js-plotly-plot")).to_have_count(13)
            return page

        yield opened
        browser.close()
    assert complaints == []


@pytest.fixture(scope="module")
def desktop(visit: Callable[..., Page]) -> Page:
    return visit()


@pytest.fixture
def page(desktop: Page) -> Page:
    """The page on a desktop, as it was opened."""
    desktop.locator("#tokenizer").select_option("oat-seed0")
    desktop.locator("#chunk").select_option(index=0)
    desktop.locator("#prefix").fill("1")
    return desktop


def test_every_section_is_there(page: Page, html: Path) -> None:
    assert page.eval_on_selector_all("section", "found => found.map(each => each.id)") == SECTIONS
    assert page.eval_on_selector_all("nav li a", "found => found.map(each => each.hash.slice(1))") == SECTIONS
    wrong = page.evaluate(f"{PLOTS}.map(each => Plotly.validate(each.data, each.layout) ?? []).flat()")
    assert [each for each in wrong if each["code"] in ("schema", "value")] == [], "unknown keys or values"
    assert html.stat().st_size < 8e6


def test_the_slider_refines_by_keyboard(page: Page) -> None:
    slider = page.locator("#prefix")
    slider.focus()
    seen = []
    for _ in range(8):
        seen.append(
            (
                str(page.evaluate(DECODED)),
                str(page.evaluate(PATH)),
                page.locator("#readout").text_content(),
                page.locator("#tokens li.used").count(),
            )
        )
        page.keyboard.press("ArrowRight")
    assert [used for *_, used in seen] == list(range(1, 9))
    assert len({curve for curve, *_ in seen}) == 8
    assert len({path for _, path, *_ in seen}) == 8
    assert [told.split(" · ")[0] for _, _, told, _ in seen if told] == [f"{k} of 8 tokens" for k in range(1, 9)]
    assert slider.get_attribute("aria-valuetext") == "8 of 8 tokens"
    assert page.locator("#readout").get_attribute("aria-live") == "polite"


def test_another_chunk_has_another_truth_and_other_tokens(page: Page) -> None:
    truth, tokens = page.evaluate(TRUTH), page.locator("#tokens").text_content()
    page.locator("#chunk").select_option(index=3)
    assert page.evaluate(TRUTH) != truth
    assert page.locator("#tokens").text_content() != tokens


def test_a_tokenizer_without_prefixes_has_nothing_to_slide(page: Page) -> None:
    truth, decoded = page.evaluate(TRUTH), page.evaluate(DECODED)
    page.locator("#tokenizer").select_option("bin-seed0")
    assert page.locator("#prefix").is_disabled()
    assert "prefixes of bin-seed0 do not decode" in str(page.locator("#readout").text_content())
    assert page.evaluate(TRUTH) == truth, "tokenizers of one split show the same chunks"
    assert page.evaluate(DECODED) != decoded
    page.locator("#tokenizer").select_option("oat-seed0")
    assert page.evaluate(DECODED) == decoded


def test_actions_are_motions_or_positions(page: Page) -> None:
    steps, path = page.evaluate(LAST), page.evaluate(PATH)
    assert path[1:] == pytest.approx([sum(steps[: n + 1]) for n in range(len(steps))])
    page.locator("#meaning").select_option("positions")
    assert page.evaluate(PATH) == steps
    page.locator("#meaning").select_option("motions")


def test_the_dark_page_is_dark_but_its_print_is_not(visit: Callable[..., Page]) -> None:
    page = visit(color_scheme="dark")
    body, ink = page.locator("body"), page.locator("#distortion .xtick text").first
    expect(body).to_have_css("background-color", "rgb(16, 19, 23)")
    expect(ink).to_have_css("fill", "rgb(233, 231, 226)")
    page.emulate_media(media="print")
    expect(body).to_have_css("background-color", "rgb(255, 255, 255)")
    expect(ink).to_have_css("fill", "rgb(29, 32, 38)")
    page.emulate_media(media="screen")
    expect(ink).to_have_css("fill", "rgb(233, 231, 226)")
    page.emulate_media(color_scheme="light")
    expect(body).to_have_css("background-color", "rgb(250, 249, 247)")
    expect(ink).to_have_css("fill", "rgb(29, 32, 38)")


def test_a_phone_scrolls_only_down(visit: Callable[..., Page]) -> None:
    page = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.locator(".table").evaluate_all(
        "found => found.filter(each => each.scrollWidth > each.clientWidth).length"
    )
    assert wide > 0, "wide tables scroll inside their own boxes"
    assert page.evaluate(f"{PLOTS}.every(each => each.getBoundingClientRect().right <= 390)")


def test_what_files_say_is_shown_and_not_run(page: Page) -> None:
    assert page.evaluate("typeof window.hacked") == "undefined"
    text = page.locator("body").inner_text()
    assert HOSTILE_TASK in text
    assert HOSTILE_NAME in text
    assert HOSTILE_PATH in text
    assert HOSTILE_REMARK in text
    for tag in ("main script", "img[onerror]", "svg[onload]", "[onclick]", "a[href^='javascript']"):
        assert page.locator(tag).count() == 0, tag
    assert HOSTILE_NAME in page.locator("#tokenizer").inner_text()
    assert HOSTILE_TASK in page.locator("#chunk").inner_text()
    assert HOSTILE_NAME in str(page.locator("#distortion .legend").first.text_content())


def test_a_script_that_got_into_the_page_would_not_run(page: Page) -> None:
    """The page's own scripts carry a number that no file can know."""
    other = page.context.new_page()  # whose complaints nobody collects: this one should complain
    other.goto(page.url)
    other.evaluate("document.body.insertAdjacentHTML('beforeend', '<i id=probe onclick=window.hacked=1>x</i>')")
    other.locator("#probe").dispatch_event("click")
    assert other.evaluate("typeof window.hacked") == "undefined"
    other.close()


def test_tables_say_what_the_files_say(page: Page) -> None:
    cells = page.locator("#tables table").first.locator("th, td").all_inner_texts()
    assert cells == [*TABLE.columns, *(cell for row in TABLE.rows for cell in row)]
    assert TABLE.notes[0] in page.locator("#tables").inner_text()


def test_pictures_of_tables_are_in_the_page(page: Page) -> None:
    picture = page.locator("#tables img")
    expect(picture).to_have_attribute("alt", f"Picture of {TABLE.title}")
    assert picture.evaluate("image => image.complete && image.naturalWidth") == 1


def test_success_is_drawn_with_intervals_for_each_protocol(page: Page) -> None:
    assert page.locator("#success h3").all_inner_texts() == [
        "metaworld, reporting conditions",
        "protocol elsewhere, reporting conditions",
    ]
    (dp, oat, stopped) = page.evaluate("document.getElementById('success-0-tokens').data")
    assert (oat["x"], oat["y"]) == ([1, 2, 4, 8], [20, 40, 60, 90])
    assert all(below > 0 for below in oat["error_y"]["arrayminus"])
    assert dp["text"] == ["10 steps"]
    assert (stopped["name"], stopped["mode"], stopped["x"]) == ("oat residual", "markers", [3])


def test_tokens_are_drawn_over_time_beside_frames_of_the_episode(page: Page) -> None:
    assert page.locator("#depth h3").all_inner_texts() == ["oat K=8 residual=0.1, metaworld, reporting conditions"]
    (bars,) = page.evaluate("document.getElementById('depth-0-0').data")
    assert (bars["x"], bars["y"], bars["width"]) == ([0, 16], [1, 5], [16, 4])
    frames = page.locator("#depth .strip img")  # of one task: there is no film of the other
    assert frames.evaluate_all("found => found.map(each => each.complete && each.naturalWidth)") == [64] * 6
    plot = page.locator("#depth-0-0 .bglayer .bg, #depth-0-0 .nsewdrag").first.bounding_box()
    first = frames.first.bounding_box()
    last = frames.last.bounding_box()
    assert plot is not None
    assert first is not None
    assert last is not None
    assert abs(first["x"] - plot["x"]) < 2
    assert abs(last["x"] + last["width"] - plot["x"] - plot["width"]) < 2


def test_the_measure_of_training_can_be_chosen(page: Page) -> None:
    groups = page.locator("#measure optgroup").evaluate_all("found => found.map(each => each.label)")
    assert groups == ["tokenizers", "policies"]
    page.locator("#measure").select_option(label="validation/nll_1")
    (curve,) = page.evaluate("document.getElementById('curves').data")
    assert (curve["x"], curve["y"]) == ([20, 40, 60], [0.1, 0.05, 0.03333])


def test_videos_play(page: Page) -> None:
    assert page.locator("video").count() == 3
    loaded = "each => each.readyState > 0 || new Promise(resolve => each.addEventListener('loadedmetadata', resolve))"
    for video in page.locator("video").all():
        video.evaluate(loaded)
        assert video.evaluate("each => each.videoWidth") == 64
