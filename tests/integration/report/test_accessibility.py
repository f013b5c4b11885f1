"""Every page that a person sees, at three widths, light and dark, and on paper: axe-core finds no fault, no text of a
chart is cut or covered, no page scrolls sideways.
"""

import importlib.resources
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.support.browser import IS_INSTALLED, chromium
from tests.support.pages import write_documents, write_explorer, write_other_pages

SUPPORT = Path(__file__).parents[2] / "support"
WIDTHS = (390, 1100, 1600)
THEMES = ("light", "dark")
# Colours depend on the theme and, below 42 rem, on the width; most rules on neither: they run once in each theme.
FOCUS, CONTRAST = "scrollable-region-focusable", "color-contrast"
RULES = {
    (390, "light"): [FOCUS, CONTRAST], (1100, "light"): [], (1600, "light"): [FOCUS],
    (390, "dark"): [], (1100, "dark"): [FOCUS, CONTRAST], (1600, "dark"): [FOCUS],
}  # fmt: skip
SHEET_PX = (718, 1046)  # A4 less margins of 1 cm, at 96 dots an inch
VIOLATIONS = """
const [rules, done] = arguments;
document.querySelectorAll("details").forEach((element) => { element.open = true; });
const options = { resultTypes: ["violations"], preload: false, ...(rules.length ? { runOnly: rules } : {}) };
axe.run(options).then(
  (result) => done(result.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ")}`)),
  (error) => done([String(error)]),
);
"""

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="chromium and chromium-driver are not installed")


@pytest.fixture(scope="module")
def axe() -> str:
    return (importlib.resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_script_timeout(120)
        yield driver


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_explorer(tmp_path_factory.mktemp("explorer"))


def test_the_explorer_its_reports_and_its_disclosures(browser: webdriver.Chrome, explorer: list[str], axe: str) -> None:
    assert not (faults := faults_of(browser, explorer, axe)), "\n".join(faults)


@pytest.mark.long
def test_tuning_steps_claims_campaigns_and_notebooks(browser: webdriver.Chrome, axe: str, tmp_path: Path) -> None:
    assert not (faults := faults_of(browser, write_other_pages(tmp_path), axe)), "\n".join(faults)


def test_the_documents(browser: webdriver.Chrome, axe: str) -> None:
    assert not (faults := faults_of(browser, write_documents(), axe)), "\n".join(faults)


def test_faults_are_seen(browser: webdriver.Chrome, explorer: list[str], axe: str) -> None:
    """An image without words, a label over another, and a dark box on paper."""
    open_page(browser, explorer[0], 1100, "light")
    browser.execute_script(
        "document.querySelector('main').append(document.createElement('img'));"
        "const label = document.querySelector('figure svg text'); label.after(label.cloneNode(true));"
        "document.querySelector('.basis').style.background = '#000';"
    )
    browser.execute_script(axe)
    (fault,) = browser.execute_async_script(VIOLATIONS, ["image-alt"])
    assert fault.startswith("image-alt: ")
    assert "overlap" in browser.execute_script((SUPPORT / "geometry.js").read_text())[0]
    set_paper(browser)
    assert any(fault.startswith("dark: <dl") for fault in on_paper(browser))


def faults_of(browser: webdriver.Chrome, pages: list[str], axe: str) -> list[str]:
    """What is wrong with these pages, each fault after the page, the width and the theme."""
    faults = []
    geometry = (SUPPORT / "geometry.js").read_text(encoding="utf-8")
    for page in pages:
        for theme in THEMES:
            open_page(browser, page, WIDTHS[0], theme)
            browser.execute_script(axe)
            for width in WIDTHS:
                set_screen(browser, width)
                found = browser.execute_async_script(VIOLATIONS, RULES[width, theme])
                found += browser.execute_script(geometry) if theme == THEMES[0] else []
                faults += [f"{page}, {width} px, {theme}: {fault}" for fault in found]
        set_paper(browser)
        browser.get(page)
        faults += [f"{page}, on paper: {fault}" for fault in on_paper(browser)]
    return faults


def open_page(browser: webdriver.Chrome, page: str, width: int, theme: str) -> None:
    set_screen(browser, width)
    set_media(browser, theme)
    browser.get("about:blank")
    browser.get(page)
    assert browser.execute_script("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", theme)


def set_screen(browser: webdriver.Chrome, width: int, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_media(browser: webdriver.Chrome, theme: str, media: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def set_paper(browser: webdriver.Chrome) -> None:
    """A sheet, printed from a browser with the dark theme."""
    set_screen(browser, *SHEET_PX)
    set_media(browser, "dark", "print")


def on_paper(browser: webdriver.Chrome) -> list[str]:
    """What is wrong with the page that is open."""
    faults: list[str] = browser.execute_script((SUPPORT / "print.js").read_text(encoding="utf-8"), SHEET_PX[1])
    return faults
