"""The site in a real Chromium: `make test-site`. `make test` needs no browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from docs_site.support.built import built

#: A page of each kind.
PAGES = (
    "index.html",
    "groups/math.html",
    "groups/tpu.html",
    "ops/MatMul.html",
    "ops/Sum.html",
    "ops/CudnnRNNV3.html",
    "ops/BatchCholesky.html",
    "how-to/guide.html",
    "how-to/rnn.html",
    "how-to/embedding.html",
    "explanation/architecture.html",
    "explanation/embedding_engine.html",
    "reference/performance.html",
    "reference/wheels.html",
    "reference/index.html",
    "reference/api.html",
    "reference/types.html",
    "adr/README.html",
)
#: By query: a page that must be among the first five results.
QUERIES = {
    "MatMul": "MatMul",
    "matrix product": "MatMul",
    "tf.math.cumsum": "Cumsum",
    "softmax": "Softmax",
    "CudnnRNNV3": "CudnnRNNV3",
    "SendTPUEmbeddingGradients": "SendTPUEmbeddingGradients",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served."""
    output = built(tmp_path_factory.mktemp("built"))
    handler = functools.partial(Quiet, directory=str(output))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if found is None:
        pytest.fail(
            "no Chromium here: `apt-get install chromium`, or `playwright install "
            "chromium` and put it on PATH as `chromium`"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"]
        )
        yield started
        started.close()


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1280, 390], ids=["wide", "phone"])
def page(
    request: pytest.FixtureRequest, browser: Browser, scheme: str
) -> Iterator[Page]:
    """A window without an error on its console or a failed request."""
    context = browser.new_context(
        viewport={"width": request.param, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    opened = context.new_page()
    wrong: list[str] = []
    opened.on(
        "console",
        lambda said: wrong.append(said.text) if said.type == "error" else None,
    )
    opened.on("requestfailed", lambda request: wrong.append(request.url))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    yield opened
    context.close()
    assert not wrong


@pytest.mark.parametrize("name", PAGES)
def test_site_page_is_accessible_and_fits_the_window(
    address: str, page: Page, name: str
) -> None:
    """Accessible, as far as axe can tell, and no wider than the window."""
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.goto(f"{address}/{name}", wait_until="networkidle")
    # Colours change gradually when the page takes its scheme.
    page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
    # axe would load style sheets anew, those that others import from a wrong address.
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert not [(one["id"], one["nodes"][0]["html"]) for one in found]
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.evaluate("window.innerWidth")
    assert hosts == {address.split("/")[2]}


@pytest.mark.parametrize(
    "name", ["index.html", "explanation/embedding_engine.html", "reference/wheels.html"]
)
def test_site_figures_keep_their_colours(address: str, page: Page, name: str) -> None:
    """The theme would darken them on dark pages, where their text is then too dim."""
    page.goto(f"{address}/{name}", wait_until="networkidle")
    filters = page.eval_on_selector_all(
        ".bd-article img", "all => all.map(one => getComputedStyle(one).filter)"
    )
    assert filters and set(filters) == {"none"}


def test_site_button_copies_a_block_of_code(address: str, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{address}/ops/MatMul.html", wait_until="networkidle")
    block = page.locator("div.highlight").first
    block.hover()
    block.locator("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == block.locator("pre").text_content() != ""
    assert block.locator("button").inner_text() == "Copied"


def test_site_search_finds_the_op(address: str, page: Page) -> None:
    for query, wanted in QUERIES.items():
        page.goto(f"{address}/how-to/guide.html", wait_until="networkidle")
        page.keyboard.press("Control+k")
        page.locator("dialog input[type=search]").fill(query)
        page.keyboard.press("Enter")
        page.wait_for_selector(".search-summary >> text=/finished|found/i")
        links = page.locator("ul.search li > a")
        found = [links.nth(at).get_attribute("href") for at in range(5)]
        pages = [link.partition("#")[0].partition("?")[0] for link in found if link]
        assert f"ops/{wanted}.html" in pages, (query, found)
    links.nth(pages.index(f"ops/{wanted}.html")).click()
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").inner_text().startswith(wanted)


def test_site_keyboard_skips_the_header(address: str, page: Page) -> None:
    """The first tab stop is a visible link past the header."""
    page.goto(f"{address}/ops/MatMul.html", wait_until="networkidle")
    page.keyboard.press("Tab")
    link = page.locator("a:focus")
    assert link.inner_text() == "Skip to main content"
    # The theme moves the link into view, which takes longer on a busy machine.
    link.evaluate("it => Promise.all(it.getAnimations().map(one => one.finished))")
    box = link.bounding_box()
    assert box is not None and box["x"] >= 0 and box["y"] >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main-content")


@pytest.mark.parametrize("name", ["ops/MatMul.html", "how-to/index.html"])
def test_site_header_has_the_four_kinds_of_pages(
    address: str, page: Page, name: str
) -> None:
    page.goto(f"{address}/{name}")
    kinds = page.locator("header nav li.nav-item > a").all_text_contents()
    assert [kind.strip() for kind in kinds] == [
        "Tutorials",
        "How-to guides",
        "Reference",
        "Explanation",
    ]


def test_site_page_screenshot_is_not_empty(
    address: str, page: Page, tmp_path: Path
) -> None:
    """A screenshot of the full page is not empty."""
    page.goto(f"{address}/ops/MatMul.html", wait_until="networkidle")
    picture = tmp_path / "page.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000
