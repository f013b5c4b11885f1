"""The results explorer in a real browser: what a visitor clicks, sees, copies and goes back to."""

import functools
import re
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.explorer_runs import add_run
from tests.support.synthetic_run import Truth
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator
from vmtoll.report.explorer import render, write_site
from vmtoll.report.explorer.collect import collect

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1100,900",
]  # fmt: skip
A, B = "web/20260101T000000Z-aaaa", "web/20260102T000000Z-bbbb"
EMULATED, RUNNING, BROKEN = "web/20260103T000000Z-cccc", "web/20260104T000000Z-dddd", "web/20260105T000000Z-eeee"

pytestmark = pytest.mark.skipif(
    not (CHROMIUM.exists() and CHROMEDRIVER.exists()), reason="chromium and chromium-driver are not installed"
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of five runs: two alike, one emulated, one not complete, one broken."""
    results = tmp_path_factory.mktemp("explorer") / "results"
    add_run(results, Truth({"nginx": 0.9, "lighttz": 0.95}, drift=0), *A.split("/"))
    add_run(results, Truth({"nginx": 0.8, "lighttz": 0.95}, drift=0, seed=2), *B.split("/"))
    add_run(results, Truth({"nginx": 0.05}, accelerator=Accelerator.TCG, guests=("kvm-tuned",)), *EMULATED.split("/"))
    add_run(results, Truth({"nginx": 0.9}, blocks=2, status="running", link="100mbit"), *RUNNING.split("/"))
    (add_run(results, Truth(blocks=1), *BROKEN.split("/")) / "hosts.json").unlink()
    (results / A / "report.html").write_text("<!doctype html><title>the report</title>")
    return write_site(results, results.parent / "site")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=str(CHROMEDRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def visit(browser: webdriver.Chrome, index: Path) -> Iterator[Callable[[str], webdriver.Chrome]]:
    """Open the page afresh at a state; afterwards nothing was wrong and nothing was asked of any server."""

    def go(state: str = "") -> webdriver.Chrome:
        browser.get("about:blank")
        browser.get(f"{index.as_uri()}{state}")
        return browser

    yield go
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def rows(browser: webdriver.Chrome) -> list[str]:
    """The text of every row (or run) shown."""
    script = "return [...document.querySelectorAll('tbody tr, article')].map((row) => row.innerText)"
    return list(browser.execute_script(script))


def pairs(browser: webdriver.Chrome) -> list[str]:
    """The text of every scenario in the comparison of two runs, with all of its figures."""
    return list(browser.execute_script("return [...document.querySelectorAll('tbody')].map((one) => one.innerText)"))


def until(browser: webdriver.Chrome, condition: Callable[[webdriver.Chrome], Any]) -> Any:
    return WebDriverWait(browser, 10, poll_frequency=0.02).until(condition)


def tick(browser: webdriver.Chrome, value: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"input[value='{value}']").click()


def test_lists_every_run_with_its_problems(visit: Callable[..., webdriver.Chrome]) -> None:
    shown = rows(visit())
    assert len(shown) == 5
    broken, running, emulated, b, a = shown
    assert "Cannot be read" in broken
    assert "hosts.json: no such file" in broken
    assert "incomplete: 6 of 6 trials" in running
    assert "emulated, not a KVM " in emulated
    assert B in b
    assert "emulated" not in a + b


def test_a_run_under_kvm_on_emulated_hardware_bears_the_sentence(browser: webdriver.Chrome, tmp_path: Path) -> None:
    add_run(tmp_path / "results", Truth({"nginx": 0.2}, hardware=Hardware.EMULATED), *A.split("/"))
    add_run(tmp_path / "results", Truth({"nginx": 0.9}), *B.split("/"))
    site = write_site(tmp_path / "results", tmp_path / "site").as_uri()
    sentence = "KVM on emulated hardware: the run shows that everything works, not what KVM costs."
    browser.get(site)
    native, emulated = rows(browser)
    assert sentence in emulated and "kvm-default: emulated (its " in emulated
    assert sentence not in native and "kvm-default: native" in native
    browser.get(f"{site}#view=scenarios&hardware=emulated")
    browser.refresh()
    guests = [row for row in rows(browser) if "kvm-default" in row]
    assert guests and all(sentence in row for row in guests)
    assert len(rows(browser)) == 3, "metal, metal again, the guest"


def test_filters_keep_the_rows_that_match_all_of_them(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit("#view=scenarios")
    everything = len(rows(page))
    assert everything == 18
    tick(page, "nginx")
    until(page, lambda p: len(rows(p)) == 12)
    tick(page, "kvm-default")
    until(page, lambda p: len(rows(p)) == 3)
    tick(page, "kvm-tuned")
    until(page, lambda p: len(rows(p)) == 4)
    tick(page, "tcg")
    (only,) = until(page, lambda p: len(rows(p)) == 1 and rows(p))
    assert "emulated, not a KVM " in only
    assert page.find_element(By.TAG_NAME, "summary").text == "Filters (3 set)"
    assert "environment: kvm-default or kvm-tuned" in page.find_element(By.ID, "count").text
    page.find_element(By.LINK_TEXT, "Clear filters").click()
    until(page, lambda p: len(rows(p)) == everything)


def test_every_row_of_an_emulated_or_incomplete_run_is_marked(visit: Callable[..., webdriver.Chrome]) -> None:
    for run, words in ((EMULATED, "guest emulated, not a KVM measurement"), (RUNNING, "incomplete: 6 of 6 trials")):
        shown = rows(visit(f"#view=scenarios&run={run}"))
        assert len(shown) == 3
        assert all(words in row for row in shown)


def test_a_link_restores_the_whole_state(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit("#view=scenarios")
    tick(page, "lighttz")
    tick(page, "metal")
    page.find_element(By.NAME, "q").send_keys("aaaa")
    shown = until(page, lambda p: len(rows(p)) == 1 and rows(p))
    link = page.find_element(By.ID, "link").get_attribute("href")
    assert link
    assert link == page.current_url
    again = visit(link[link.index("#") :])
    assert rows(again) == shown
    assert again.find_element(By.NAME, "q").get_attribute("value") == "aaaa"
    ticked = [box.get_attribute("value") for box in again.find_elements(By.CSS_SELECTOR, "input:checked")]
    assert ticked == ["lighttz", "metal"]


def test_a_term_opens_its_entry_and_keeps_the_state(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit("#view=scenarios")
    address = page.current_url
    page.find_element(By.CSS_SELECTOR, 'caption a[href="#term-interval"]').click()
    assert page.find_element(By.ID, "glossary").get_attribute("open")
    assert page.switch_to.active_element.get_attribute("id") == "term-interval"
    assert page.current_url == address
    page = visit("#view=runs")
    links = {link.get_dom_attribute("href") for link in page.find_elements(By.CSS_SELECTOR, 'a[href^="#term-"]')}
    assert links and all(page.find_elements(By.CSS_SELECTOR, link or "") for link in links)


def test_back_undoes_one_step_and_a_typed_word_is_one(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit("#view=scenarios")
    tick(page, "nginx")
    until(page, lambda p: len(rows(p)) == 12)
    page.find_element(By.NAME, "q").send_keys("running nothing")
    until(page, lambda p: rows(p) == [])
    page.back()
    until(page, lambda p: len(rows(p)) == 12)
    assert page.find_element(By.NAME, "q").get_attribute("value") == ""
    page.back()
    until(page, lambda p: len(rows(p)) == 18)
    assert page.find_elements(By.CSS_SELECTOR, "input:checked") == []


def test_compares_two_runs_that_were_chosen_in_the_list(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit(f"#run={A}")
    page.find_element(By.LINK_TEXT, "Compare with another run").click()
    until(page, lambda p: p.find_element(By.ID, "pair").is_displayed())
    Select(page.find_element(By.NAME, "b")).select_by_visible_text(B)
    tick(page, "kvm-default")
    both = until(page, lambda p: len(pairs(p)) == 2 and pairs(p))
    nginx = next(row for row in both if row.startswith("nginx"))
    throughput = nginx.split("p99 latency")[0]
    ratios = [float(ratio) for ratio in re.findall(r"serves ([\d.]+)× the requests", throughput)]
    assert ratios == pytest.approx([0.9, 0.8], abs=0.01)
    assert re.search(r"0\.8[89]\d×", throughput)  # 0.8 ÷ 0.9


def test_runs_on_other_ground_are_not_comparable(visit: Callable[..., webdriver.Chrome]) -> None:
    shown = pairs(visit(f"#view=compare&a={A}&b={RUNNING}&environment=kvm-default"))
    assert len(shown) == 1
    assert "×" not in shown[0].splitlines()[-1]
    assert "B: incomplete" in shown[0]
    assert "link differs (unshaped, 100mbit)" in shown[0]
    page = visit(f"#view=compare&a={A}&b=web/never-run")
    assert "no readable run web/never-run" in page.find_element(By.ID, "count").text


def test_is_read_by_keyboard_and_by_screen_readers(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit("#view=scenarios")
    box = page.find_element(By.CSS_SELECTOR, "input[value='nginx']")
    page.execute_script("arguments[0].focus()", box)
    box.send_keys(Keys.SPACE)
    until(page, lambda p: len(rows(p)) == 12)
    assert page.switch_to.active_element == box
    assert page.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unnamed = "return [...document.querySelectorAll('input, select')].filter((e) => !e.labels.length).length"
    assert page.execute_script(unnamed) == 0
    headings = page.find_elements(By.CSS_SELECTOR, "thead th")
    assert [h.get_attribute("scope") for h in headings] == ["col"] * 6
    assert page.find_element(By.CSS_SELECTOR, "tbody th").get_attribute("scope") == "row"
    assert page.find_element(By.CSS_SELECTOR, "nav [aria-current=page]").text == "Scenarios"


def figures_of(page: webdriver.Chrome, column: int) -> list[float]:
    """The first figure of each row in this column, as far as the rows have one."""
    cells = page.execute_script(
        "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[arguments[0]].querySelector('b'))"
        ".map((one) => one?.innerText)",
        column,
    )
    shown = [None if cell is None else float(cell.split()[0].replace(",", "")) for cell in cells]
    known = [figure for figure in shown if figure is not None]
    assert shown == known + [None] * (len(shown) - len(known))
    return known


def test_rows_are_sorted_by_a_column_and_turned_round(visit: Callable[..., webdriver.Chrome]) -> None:
    page = visit(f"#view=scenarios&run={A}")
    page.find_element(By.LINK_TEXT, "Throughput").click()
    until(page, lambda p: p.find_elements(By.CSS_SELECTOR, "th[aria-sort=descending]"))
    falling = figures_of(page, 2)
    assert len(falling) > 3
    assert falling == sorted(falling, reverse=True)
    page.find_element(By.LINK_TEXT, "Throughput ▼").click()
    until(page, lambda p: p.find_elements(By.CSS_SELECTOR, "th[aria-sort=ascending]"))
    assert figures_of(page, 2) == sorted(falling)
    page.find_element(By.LINK_TEXT, "p99").click()
    until(page, lambda p: p.current_url.endswith("sort=p99"))
    assert figures_of(page, 3) == sorted(figures_of(page, 3))
    page.back()
    until(page, lambda p: p.find_elements(By.LINK_TEXT, "Throughput ▲"))


def test_many_rows_are_shown_at_a_wish(browser: webdriver.Chrome, index: Path, tmp_path: Path) -> None:
    (run,) = (run for run in collect(index.parents[1] / "results") if run["id"] == A)
    many = tmp_path / "many.html"
    many.write_text(render([run | {"rows": run["rows"] * 60}]), encoding="utf-8")
    browser.get(f"{many.as_uri()}#view=scenarios")
    assert len(rows(browser)) == 300
    assert browser.find_element(By.ID, "count").text == "360 of 360 rows"
    browser.find_element(By.LINK_TEXT, "Show all 360").click()
    until(browser, lambda p: len(rows(p)) == 360)


@pytest.mark.parametrize("state", ["", "#view=scenarios", f"#view=compare&a={A}&b={B}"])
def test_a_phone_needs_no_sideways_scrolling(visit: Callable[..., webdriver.Chrome], state: str) -> None:
    page = visit(state)
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.refresh()
        assert rows(page)
        assert page.execute_script("return document.documentElement.scrollWidth") == 390
        assert page.execute_script("return document.getElementById('choose').open") is False
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_report_is_one_click_away_on_any_static_host(browser: webdriver.Chrome, index: Path) -> None:
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(index.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.get(f"http://127.0.0.1:{server.server_port}/#run={A}")
        assert len(rows(browser)) == 1
        assert asked == ["/"]
        browser.find_element(By.LINK_TEXT, "Report").click()
        until(browser, lambda p: p.title == "the report")
        assert [path for path in asked if path != "/favicon.ico"] == ["/", f"/runs/{A}/report.html"]
        server.shutdown()
    assert [e["message"] for e in browser.get_log("browser") if "favicon.ico" not in e["message"]] == []
