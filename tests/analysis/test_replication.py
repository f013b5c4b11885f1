"""Published figures beside ours: the right trials, the right arithmetic, and whether the shape is the same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from published_run import claim, make_published
from synthetic_run import Row, Truth, failed

from analysis.evidence import select
from analysis.load import Run, load_run
from analysis.notebook import execute
from analysis.published import FIGURES, OURS, figures, servers, workloads
from analysis.replication import MEASURE, NOT_SAME, SAME, UNKNOWN, points, replication
from analysis.replication_page import write_page
from analysis.report import write_report
from workloads.runner.experiment import load

ROOT = Path(__file__).parents[2]

SMALL = {
    f"page-{size}-{users}{'-keep' if keep else ''}": {"page": f"page-{size}.html", "users": users, "keep_alive": keep}
    for size in ("4k", "100k")
    for users in (100, 1000)
    for keep in (False, True)
}
CLAIMS = [
    claim("boa is as fast as lighttpd", of={"server": "boa"}, published=[1485, 1488.54], within_pct=10),
    claim("apache is faster than thttpd", of={"server": "apache-prefork"}, over={"server": "thttpd"}, published=[2, 1]),
    claim("metal beats the guest", of={"server": "boa"}, over={"environment": "kvm-default"}, published=[400, 145]),
]


def small_servers(parent: Path, **keys: Any) -> Run:
    truth = Truth(
        {"lighttpd": 0.9, "boa": 0.9, "apache-prefork": 0.9}, drift=0.0, aa=False, blocks=3, accelerator="tcg"
    )
    meta = {"skipped": [{"server": "thttpd", "why": "sources.yml names no archive of <thttpd>"}]}
    keys = {"workloads": SMALL, "name": "small-servers-2003", "meta": meta} | keys
    return make_published(parent, keys.pop("truth", truth), CLAIMS, **keys)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_servers(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def told(run: Run) -> pd.DataFrame:
    return replication(run)


def row_of(told: pd.DataFrame, server: str, metric: str, load: str, keep: str, payload: str) -> Any:
    (found,) = told[
        (told["server"] == server) & (told["metric"] == metric) & (told["load"] == load)
        & (told["keep_alive"] == keep) & (told["payload_bytes"] == payload)
    ].itertuples()  # fmt: skip
    return found


def test_every_published_figure_of_the_experiment_has_one_row(told: pd.DataFrame) -> None:
    published = pd.read_csv(FIGURES, keep_default_na=False)
    mine = published[published["experiment"] == "small-servers-2003"].reset_index(drop=True)
    pd.testing.assert_frame_equal(told[list(published)], mine)
    assert (told["why"] != "").all()
    assert told.loc[told["ours"].isna(), "shape"].eq(UNKNOWN).all()


def test_each_command_of_2003_finds_its_own_workload(run: Run) -> None:
    for _, row in figures("small-servers-2003").iterrows():
        size = "4k" if row["payload_bytes"] == "4096" else "100k"
        users = row["load"].rpartition(" ")[2]
        keep = "-keep" if row["keep_alive"] == "yes" else ""
        assert workloads(run, row) == [f"page-{size}-{users}{keep}"]


def test_figures_are_in_the_published_unit(run: Run, told: pd.DataFrame) -> None:
    of = {"server": "boa", "environment": "metal", "workload": "page-4k-100"}
    trials = select(run, of)
    rate = row_of(told, "boa", "requests_per_second", "-n 10000 -c 100", "no", "4096")
    assert rate.ours == trials["throughput_rps"].median()
    assert rate.ratio == rate.ours / rate.value
    assert row_of(told, "boa", "transfer_rate", "-n 10000 -c 100", "no", "4096").ours == pytest.approx(70_100)
    user = row_of(told, "boa", "cpu_user", "-n 10000 -c 100", "no", "4096")
    assert user.ours == pytest.approx(0.4 / 20000 * 10000)
    usage = row_of(told, "apache", "cpu_usage", "-n 5000 -c 100", "no", "100000")
    seconds = select(run, of | {"server": "apache-prefork"})["duration_s"]
    assert usage.ours == pytest.approx((100 * 1.3 / seconds).median())


def test_shapes(told: pd.DataFrame) -> None:
    """lighttpd : boa : apache are 8,000 : 7,500 : 7,000 here; to the last percent in every workload."""
    rates = told[told["metric"] == "requests_per_second"].set_index(["server", "load", "keep_alive", "payload_bytes"])
    busy = ("-n 10000 -c 1000", "yes", "4096")
    assert rates["shape"]["lighttpd", *busy] == MEASURE
    assert rates["shape"]["boa", *busy] == SAME  # 1,552 of 1,732 there
    assert rates["shape"]["apache", *busy] == NOT_SAME  # 1,888 of 1,732 there
    assert rates["shape"]["thttpd", "-n 10000 -c 100", "no", "4096"] == UNKNOWN
    assert rates["why"]["thttpd", "-n 10000 -c 100", "no", "4096"] == "source not at hand"
    assert "median of 3" in rates["why"]["boa", *busy]


def test_the_2009_experiment(tmp_path: Path) -> None:
    """Localhost is the client on the same machine; three servers are one figure; an emulated guest has no shape."""
    known: dict[str, dict[str, Any]] = {
        "site-siege": {"page": None, "tool": "siege", "site": "office"},
        "site-siege-localhost": {"page": None, "tool": "siege", "site": "office", "client": "localhost"},
        "large-file": {"page": "page-100k.html", "tool": "siege"},
    }
    truth = Truth({"apache-prefork": 0.4, "apache-worker": 0.4, "lighttpd": 0.4}, drift=0.0, accelerator="tcg")
    run = make_published(
        tmp_path, truth, [], workloads=known, name="metal-vs-kvm-2009",
        per_workload={"site-siege-localhost": {"duration_s": 30.0, "transactions": 500}},
    )  # fmt: skip
    told = replication(run)
    by: dict[tuple[str, ...], Any] = {
        (row["server"], row["environment"], row["metric"], row["tool"]): row for _, row in told.iterrows()
    }
    assert by["lighttpd", "localhost", "transactions", "siege"].ours == pytest.approx(1000)  # of a minute
    assert by["lighttpd", "localhost", "transaction_rate", "siege"].here.endswith("site-siege-localhost")
    assert by["apache-prefork", "localhost", "elapsed", "siege"].why.startswith("how long")
    metal, kvm = (by["all three", e, "transaction_rate", "siege"] for e in ("metal", "kvm"))
    assert metal.here == "apache-prefork, apache-worker, lighttpd on metal, site-siege"
    assert (
        metal.ours
        == select(run, {"server": "apache-worker", "environment": "metal", "workload": "site-siege"})[
            "throughput_rps"
        ].median()
    )
    assert (metal["shape"], kvm["shape"]) == (MEASURE, UNKNOWN)
    assert "emulated (TCG): no KVM figure" in kvm.why
    assert "link unshaped here" in kvm.why
    assert by["all three", "kvm", "throughput", "download"].here.endswith("large-file")


def test_the_guest_has_a_shape_under_kvm(tmp_path: Path) -> None:
    known: dict[str, dict[str, Any]] = {"site-siege": {"page": None, "tool": "siege", "site": "office"}}
    truth = Truth({"lighttpd": 0.4}, drift=0.0)
    told = replication(make_published(tmp_path, truth, [], workloads=known, name="metal-vs-kvm-2009", link="100mbit"))
    row = told[(told["environment"] == "kvm") & (told["metric"] == "transaction_rate")].iloc[0]
    assert row["shape"] == SAME
    assert re.match(r"0\.362 there; here the ratio (0\.39|0\.4)", row["why"])


def test_a_ramp_has_a_knee_and_a_peak(tmp_path: Path) -> None:
    truth = Truth({"apache-prefork": 0.9, "lighttpd": 0.9}, loads=("share:0.3", "share:0.7", "share:1.1"), drift=0.0)
    known: dict[str, dict[str, Any]] = {"ramp": {"kind": "ramp", "tool": "httperf"}}
    run = make_published(tmp_path, truth, [], workloads=known, name="rate-sweep-2006")
    told = replication(run).set_index(["server", "metric"])
    rungs = select(run, {"server": "lighttpd", "environment": "metal"})
    at_seventy = rungs[rungs["offered_load"] == "share:0.7"]
    assert told["ours"]["lighttpd-1-worker", "goodput_knee"] == at_seventy["offered_rps"].median()
    assert told["why"]["lighttpd-4-workers", "goodput_knee"] == "this run has no lighttpd-4-workers"
    best = told.loc["best", "peak_goodput"]
    assert best["here"].startswith("apache-prefork on metal")
    assert "autobench there, httperf here" in best["why"]


def test_lowest_and_highest_trial_and_mean_of_three(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.9, "lighttpd": 0.9}, drift=0.0)
    known: dict[str, dict[str, Any]] = {"page-357-1000": {"page": "page-357.html", "users": 1000}}
    run = make_published(
        tmp_path, truth, [], workloads=known, name="event-servers-2008", published_estimator="mean-of-three"
    )
    told = replication(run).set_index(["server", "metric"])["ours"]
    trials = select(run, {"server": "nginx", "environment": "metal"}).sort_values("block")
    used = 100 * 1.3 / trials["duration_s"]
    assert (told["nginx", "cpu_usage_low"], told["nginx", "cpu_usage_high"]) == (used.min(), used.max())
    assert told["nginx", "requests_per_second"] == pytest.approx(trials["throughput_rps"][:3].mean())


def test_what_has_no_usable_trial_says_why(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "tool-failed: cut off") if row["server"] == "nginx" else row]

    known: dict[str, dict[str, Any]] = {"page-357-1000": {"page": "page-357.html", "users": 1000}}
    run = make_published(tmp_path, Truth({"nginx": 0.9}, change=change), [], workloads=known, name="event-servers-2008")
    told = replication(run).set_index(["server", "metric"])["why"]
    assert told["nginx", "memory"] == "no usable trial: tool-failed"
    assert told["lighttz", "memory"] == "this run has no lighttz"


def test_an_experiment_of_our_own_has_no_published_figures(tmp_path: Path) -> None:
    assert replication(make_published(tmp_path, Truth(), [])).empty


def test_every_published_figure_finds_its_workload_and_server_at_the_full_scale() -> None:
    """How long a test lasted is not compared; all else has one workload, a server that stands for it, and a column."""
    published = pd.read_csv(FIGURES, keep_default_na=False)
    for name in published["experiment"].unique():
        resolved = load(ROOT / "workloads" / "experiments" / f"{name}.yml", scale="full")
        experiment = {"workloads": {key: one.model_dump(mode="json") for key, one in resolved.workloads.items()}}
        experiment["site"] = resolved.site.model_dump(mode="json")
        trials = pd.DataFrame({"server": resolved.experiment.servers})
        run = Run(Path(), {"experiment": {"resolved": experiment}}, {}, trials)
        run.__dict__["trials"] = trials  # what it would have measured
        for _, row in figures(name).iterrows():
            assert len(workloads(run, row)) == 1, row
            assert servers(run, row["server"]), row
            assert (row["metric"], row["unit"]) in OURS or row["metric"] == "elapsed", row


# ---- the page


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with two of its workloads, and its report."""
    some = {name: SMALL[name] for name in ("page-4k-100", "page-4k-100-keep")}
    run = small_servers(tmp_path_factory.mktemp("reported"), workloads=some)
    write_report(run.path)
    return run


@pytest.fixture(scope="module")
def page(reported: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    beside = results / "small-servers-2003" / reported.path.name
    shutil.copytree(reported.path, beside)
    truth = Truth({"nginx": 0.9, "lighttpd": 0.8}, loads=("share:0.3", "share:0.7", "share:1.1"), status="running")
    peak = claim(metric="peak_goodput_rps", of={"workload": "ramp"}, published=[10000, 6000])
    ramp = make_published(
        tmp_path_factory.mktemp("ramp"), truth, [peak], workloads={"ramp": {"kind": "ramp", "tool": "httperf"}},
        name="rate-sweep-2006",
    )  # fmt: skip
    own = make_published(tmp_path_factory.mktemp("own"), Truth(), [])
    return write_page([beside, ramp.path, own.path], results / "replication.html")


def test_the_page_counts_what_came_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heading = re.search(r"<h1>(.*?)</h1>", text)
    assert heading
    assert heading[1] == "Of 4 published claims in 2 experiments, 2 held, 0 did not hold, 2 cannot be told here."
    for words in (
        "Emulation (TCG): not a KVM measurement",
        "Synthetic CPU, CPUs allowed: 1, 2.0 GiB",
        "source of thttpd not at hand",
        "sources.yml names no archive of &lt;thttpd&gt;",
        "An article",
        "Incomplete run",
        "kvm-default: TCG (emulated)",
        "Goodput against offered load",
        "Claims: ratios published and here",
        "This experiment claims nothing",
        "3 blocks, 36 trials",
    ):
        assert words in text, words


def test_the_page_is_one_file_and_links_the_reports_beside_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"<(script|link|iframe|img|object|embed)\b|@import|url\((?!#)", text)
    links = re.findall(r'href="([^"#]+)"', text)
    assert links == ["small-servers-2003/20260101T000000-synthetic/report.html"]
    assert (page.parent / links[0]).is_file()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_the_report_shows_claims_before_verdicts_and_the_points(reported: Run) -> None:
    text = (reported.path / "report.html").read_text(encoding="utf-8")
    assert text.index("What was published") < text.index('id="verdicts"')
    assert "Of 3 claims: <strong>1</strong> held, <strong>0</strong> did not hold, <strong>2</strong> cannot" in text
    assert f"Point by point: {len(points(reported))} published figures" in text


def test_the_report_of_our_own_experiment_says_nothing_of_it(tmp_path: Path) -> None:
    run = load_run(make_published(tmp_path, Truth(), []).path)
    assert "What was published" not in write_report(run.path).read_text(encoding="utf-8")


def test_the_notebook_shows_claims_and_figures(reported: Run) -> None:
    text = execute("replication", reported.path).read_text(encoding="utf-8")
    for words in ("cannot be told here", "source of thttpd not at hand", "requests_per_second", "none of its figures"):
        assert words in text, words
