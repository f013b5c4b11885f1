"""axe-core finds no fault in the pages: report, disclosure, explorer; on a wide screen and a phone, light and dark."""

import importlib.resources
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.support.browser import IS_INSTALLED, chromium
from tests.support.explorer_runs import add_run
from tests.support.synthetic_run import Row, Truth, closed, failed, found, limited, rate
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import Accelerator
from vmtoll.report.disclosure import write_disclosure
from vmtoll.report.explorer import write_site
from vmtoll.report.html import write_report

A, B = "web/20260101T000000Z-aaaa", "web/20260102T000000Z-bbbb"
SCREENS = {"wide": (1100, 900), "phone": (390, 844)}
VIOLATIONS = """
const done = arguments[arguments.length - 1];
document.querySelectorAll("details").forEach((element) => { element.open = true; });
axe.run().then(
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
        yield driver


def _troubled(row: Row) -> list[Row]:
    """Bounds on metal, and an invalid trial: every kind of table and note shows."""
    if row["arm"].environment == "metal":
        return [found(row, *limited(Code.CLIENT_SATURATED, Role.PRIMARY))]
    return [failed(row, Code.WRONG_BODY, "first a.html")] if row["block"] == 1 else [row]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two runs with their reports and disclosures; returns its folder."""
    results = tmp_path_factory.mktemp("pages") / "results"
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    loads = (closed(), rate(1000), rate(2000))
    calm = Truth({"nginx": 0.9, "lighttz": 0.5}, histograms=True, loads=loads, latency_ratio=2.0)
    troubled = Truth(
        {"nginx": 0.05, "lighttz": 0.04}, accelerator=Accelerator.TCG, status="running", undeclared=undeclared,
        change=_troubled,
    )  # fmt: skip
    for name, truth in ((A, calm), (B, troubled)):
        run = load_run(add_run(results, truth, *name.split("/")))
        write_report(run, analyse(run))
        write_disclosure(run, run.path)
    return write_site(results, results.parent / "site").parent


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize(
    "page",
    [
        f"runs/{A}/report.html", f"runs/{B}/report.html", f"runs/{A}/disclosure.html", "index.html",
        "index.html#view=scenarios", f"index.html#view=compare&a={A}&b={B}", f"index.html#view=baseline&a={A}",
        "index.html#view=history",
    ],
)  # fmt: skip
def test_axe_finds_no_fault(
    browser: webdriver.Chrome, site: Path, axe: str, page: str, screen: str, theme: str
) -> None:
    width, height = SCREENS[screen]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get("about:blank")
    browser.get(f"{site.as_uri()}/{page}")
    assert browser.execute_script("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", theme)
    browser.execute_script(axe)
    assert browser.execute_async_script(VIOLATIONS) == []
    scrolled = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
    assert browser.execute_script(scrolled) == 0


def test_axe_sees_a_fault(browser: webdriver.Chrome, site: Path, axe: str) -> None:
    browser.get(f"{site.as_uri()}/runs/{A}/report.html")
    browser.execute_script("document.querySelector('main').append(document.createElement('img'))")
    browser.execute_script(axe)
    (fault,) = browser.execute_async_script(VIOLATIONS)
    assert fault.startswith("image-alt: ")
