"""The explorer over runs of several machines, in a real browser: picture, facets, history, baseline, CSV."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.support.browser import IS_INSTALLED, chromium, until
from tests.support.explorer_runs import add_run
from tests.support.synthetic_run import Truth
from vmtoll.report.explorer import render, write_site
from vmtoll.report.explorer.collect import collect

OLD, NEW, OTHER = "web/20260101T000000Z-aaaa", "web/20260102T000000Z-bbbb", "web/20260103T000000Z-cccc"

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="chromium and chromium-driver are not installed")


def on(folder: Path, started_at: str, **facts: object) -> None:
    """Give all machines of a run these facts."""
    hosts = json.loads((folder / "hosts.json").read_text())
    (folder / "hosts.json").write_text(json.dumps({name: known | facts for name, known in hosts.items()}))
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"started_at": started_at}))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One machine before and after an update of its kernel, which costs; and another machine."""
    folder = tmp_path_factory.mktemp("commons") / "results"
    on(add_run(folder, Truth({"nginx": 0.9}, drift=0), *OLD.split("/")), "2026-01-01T00:00:00Z",
       cpu_model="EPYC 9354", kernel="6.1.0-30", mitigations={"mds": "Not affected"})  # fmt: skip
    on(add_run(folder, Truth({"nginx": 0.7}, drift=0, seed=2), *NEW.split("/")), "2026-01-02T00:00:00Z",
       cpu_model="EPYC 9354", kernel="6.1.0-31", mitigations={"mds": "Not affected"})  # fmt: skip
    on(add_run(folder, Truth({"nginx": 0.8}, drift=0, seed=3), *OTHER.split("/")), "2026-01-03T00:00:00Z",
       cpu_model="Xeon 8480", kernel="6.1.0-31", mitigations={"mds": "Vulnerable"})  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def index(results: Path) -> str:
    return write_site(results, results.parent / "site").as_uri()


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def browser(chrome: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """Afterwards no page has logged anything."""
    yield chrome
    assert [entry["message"] for entry in chrome.get_log("browser")] == []


def visit(browser: webdriver.Chrome, address: str) -> None:
    browser.get("about:blank")
    browser.get(address)


def lines(browser: webdriver.Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('.picture .line:not(.axis)')].map((line) => line.innerText)"
    return [" ".join(text.split()) for text in browser.execute_script(script)]


def test_the_page_opens_with_what_virtualization_cost_by_machine_and_server(
    browser: webdriver.Chrome, index: str
) -> None:
    visit(browser, index)
    assert browser.execute_script("return document.querySelector('#out > :nth-child(2)').className") == "picture"
    machines = [h.text for h in browser.find_elements(By.CSS_SELECTOR, ".picture h3")]
    assert machines == ["Xeon 8480 · native", "EPYC 9354 · native"]
    other, epyc = lines(browser)
    numbers = r"([\d.]+)× \(([\d.]+) to ([\d.]+)\)"
    (of_other,) = re.findall(rf"^nginx · 10 users · kvm-default \S+ {numbers}", other)
    (of_epyc,) = re.findall(rf"^nginx · 10 users · kvm-default \S+, 2 runs {numbers}", epyc)
    assert float(of_other[0]) == pytest.approx(0.8, rel=0.02)
    assert float(of_epyc[0]) == pytest.approx(0.7, rel=0.02), "the newest run has the dot"
    assert len(browser.find_elements(By.CSS_SELECTOR, ".picture .earlier")) == 1
    assert browser.execute_script("return document.getElementById('choose').open") is False
    browser.find_element(By.LINK_TEXT, "Host CPU per request ÷ metal's").click()
    until(browser, lambda b: b.find_element(By.CSS_SELECTOR, ".picture").get_attribute("data-metric") == "host_cpu")


def site_of(folder: Path, **truths: Truth) -> str:
    for name, truth in truths.items():
        add_run(folder / "results", truth, "web", f"20260101T000000Z-{name}")
    return write_site(folder / "results", folder / "site").as_uri()


def text_of(browser: webdriver.Chrome) -> str:
    return str(browser.find_element(By.TAG_NAME, "main").text)


def test_without_metal_the_picture_is_against_the_baseline(browser: webdriver.Chrome, tmp_path: Path) -> None:
    visit(browser, site_of(tmp_path, aaaa=Truth(metal=False, guests=("kvm-default", "kvm-tuned"), drift=0)))
    caption = browser.find_element(By.CSS_SELECTOR, ".picture figcaption").text
    assert caption.startswith("Against kvm-default · Requests per second ÷ kvm-default's.")
    (line,) = lines(browser)
    assert line.startswith("nginx · 10 users · kvm-tuned")
    shown = text_of(browser)
    visit(browser, browser.current_url + "#view=scenarios")
    assert "metal" not in (shown + text_of(browser)).replace("against bare metal, for a web workload", "")


def test_a_change_of_metal_is_not_what_virtualization_cost(browser: webdriver.Chrome, tmp_path: Path) -> None:
    changes = {"tuned": {"of": "metal", "apply": "true"}}
    truth = Truth(guests=("container", "kvm-default", "tuned"), changes=changes, drift=0)
    visit(browser, site_of(tmp_path, aaaa=truth, bbbb=Truth(metal=False, guests=("kvm-a", "kvm-b"))))
    assert browser.find_element(By.CSS_SELECTOR, ".picture figcaption").text.startswith("What virtualization cost")
    assert {line.split(" · ")[2].split()[0] for line in lines(browser)} == {"container", "kvm-default"}


def test_facets_of_the_machine_filter_the_picture_and_the_rows(browser: webdriver.Chrome, index: str) -> None:
    visit(browser, f"{index}#mitigations=some+missing")
    assert [h.text for h in browser.find_elements(By.CSS_SELECTOR, ".picture h3")] == ["Xeon 8480 · native"]
    visit(browser, f"{index}#view=scenarios")
    names = [legend.text for legend in browser.find_elements(By.CSS_SELECTOR, ".facets legend")]
    assert {"cpu", "kernel", "qemu", "mitigations", "hardware", "tuned"} <= set(names)
    browser.find_element(By.CSS_SELECTOR, "input[value='6.1.0-30']").click()
    until(browser, lambda b: b.find_element(By.ID, "count").text.startswith("3 of 9 rows"))
    browser.find_element(By.CSS_SELECTOR, "#choose > summary").click()
    until(browser, lambda b: not b.find_element(By.CSS_SELECTOR, ".facets").is_displayed())


def test_a_history_marks_the_new_kernel_and_the_ratio_that_left_its_interval(
    browser: webdriver.Chrome, index: str
) -> None:
    visit(browser, f"{index}#cpu=EPYC+9354")
    browser.find_element(By.CSS_SELECTOR, ".picture .line a").click()
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".history"))
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert [OLD in rows[0].replace("\n", ""), NEW in rows[1].replace("\n", "")] == [True, True]
    assert "kernel: 6.1.0-30 → 6.1.0-31" in rows[1]
    assert "ratio changed: " in rows[1]
    assert "→" not in rows[0]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".history .change")) == 1
    assert len(browser.find_elements(By.CSS_SELECTOR, ".history .bar")) == 2


def test_a_history_names_the_arm_that_its_ratios_are_against(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Of one guest against another, and then against metal: two ratios that are not one history."""
    guests = ("kvm-2009", "kvm-default")
    first = add_run(tmp_path / "results", Truth({"nginx": 0.9}, guests=guests, metal=False), "web", "a")
    on(first, "2026-01-01T00:00:00Z")
    identifier = collect(tmp_path / "results")[0]["rows"][-1]["id"]
    heading = "return document.querySelector('thead th:nth-child(2)').textContent"
    visit(browser, f"{write_site(first.parents[1], tmp_path / 'one').as_uri()}#view=history&id={identifier}")
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".history"))
    assert browser.execute_script(heading) == "kvm-default ÷ kvm-2009"
    on(add_run(tmp_path / "results", Truth({"nginx": 0.4}, guests=guests), "web", "b"), "2026-01-02T00:00:00Z")
    visit(browser, f"{write_site(first.parents[1], tmp_path / 'two').as_uri()}#view=history&id={identifier}")
    until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".history"))
    assert browser.execute_script(heading) == "kvm-default ÷ baseline"
    _, last = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert "against: kvm-2009 → metal" in last
    assert "ratio changed" not in last


def test_two_environments_are_compared_fact_by_fact(browser: webdriver.Chrome, index: str) -> None:
    visit(browser, f"{index}#view=compare&a={OLD}&b={NEW}")
    browser.find_element(By.XPATH, "//summary[text()='Environments: 4 differences (A → B)']").click()
    shown = [item.text for item in browser.find_elements(By.CSS_SELECTOR, ".environments li")]
    parts = ("client", "metal", "kvm-default", "kvm host")
    assert shown == [f"{part} kernel: 6.1.0-30 → 6.1.0-31" for part in parts]


def test_any_run_can_be_the_baseline_of_all_others(browser: webdriver.Chrome, index: str) -> None:
    visit(browser, f"{index}#run={OLD}")
    browser.find_element(By.LINK_TEXT, "Use as baseline").click()
    until(browser, lambda b: b.find_element(By.ID, "count").text.startswith("6 rows of 2 runs"))
    assert not browser.find_element(By.NAME, "b").is_displayed()
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    guest = next(row for row in rows if "kvm-default" in row and NEW.split("/")[1] in row)
    assert re.search(r"0\.7[78]\d×", guest), "0.7 ÷ 0.9"


def test_the_shown_rows_are_downloaded_as_csv(browser: webdriver.Chrome, index: str, tmp_path: Path) -> None:
    visit(browser, f"{index}#view=scenarios&cpu=EPYC+9354&environment=kvm-default")
    browser.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.find_element(By.CSS_SELECTOR, "#download button").click()
    file = tmp_path / "vmtoll-scenarios.csv"
    until(browser, lambda _: file.exists() and file.read_text())
    table = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    throughput = {row["run"]: row for row in table if row["metric"] == "throughput"}
    assert set(throughput) == {OLD, NEW}
    assert throughput[OLD]["kernel"] == "6.1.0-30"
    low, ratio, high = (float(throughput[OLD][name]) for name in ("ratio_low", "ratio", "ratio_high"))
    assert low < ratio < high
    assert ratio == pytest.approx(0.9, rel=0.02)
    blocks = [block.split(":") for block in throughput[OLD]["blocks"].split()]
    assert [int(number) for number, *_ in blocks] == list(range(1, len(blocks) + 1)) and len(blocks) > 1
    assert all(float(least) <= float(mid) <= float(most) for _, least, mid, most in blocks)
    assert 0 < float(throughput[OLD]["level"]) <= 0.05 and throughput[OLD]["open_low"] == "false"


def test_a_cell_that_a_spreadsheet_would_run_is_text(browser: webdriver.Chrome, index: str) -> None:
    visit(browser, index)
    script = "return csvText([['=1+1', '-2', -2, 'a,b', 'say \"x\"', null]])"
    assert browser.execute_script(script) == '\'=1+1,\'-2,-2,"a,b","say ""x""",\r\n'


@pytest.fixture(scope="module")
def thousand(results: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """A page of a thousand runs, and these."""
    three = collect(results)
    runs = [three[number % 3] | {"id": f"web/{number:04}"} for number in range(1000)]
    page = tmp_path_factory.mktemp("thousand") / "index.html"
    page.write_text(render(runs), encoding="utf-8")
    return page.as_uri(), runs


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ("view=runs", "1000 of 1000 runs"),
        ("view=scenarios", "3000 of 3000 rows"),
        ("view=scenarios&q=xeon", "1002 of 3000 rows"),
        ("view=compare&a=web/0000&b=web/0001", "3 scenarios in both"),
        ("view=baseline&a=web/0000", "2997 rows of 999 runs"),
        ("view=history&id={guest}", "1000 runs, 2 marked changes"),
    ],
)
def test_a_thousand_runs_count_and_few_are_laid_out_at_once(
    browser: webdriver.Chrome, thousand: tuple[str, list[dict[str, Any]]], state: str, count: str
) -> None:
    page, runs = thousand
    visit(browser, f"{page}#{state.format(guest=runs[0]['rows'][-1]['id'])}")
    assert browser.find_element(By.ID, "count").text.split(" — ")[0] == count
    assert browser.execute_script("return document.querySelectorAll('tbody tr, article').length") <= 300


def test_a_phone_shows_picture_and_history_without_sideways_scrolling(browser: webdriver.Chrome, index: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for state in ("", f"#view=baseline&a={OLD}", "#view=history"):
            visit(browser, f"{index}{state}")
            assert browser.execute_script("return document.documentElement.scrollWidth") == 390, state
        visit(browser, index)
        browser.find_element(By.CSS_SELECTOR, ".picture .line a").click()
        until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".history svg"))
        assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
