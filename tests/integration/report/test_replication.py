"""Published figures next to ours: the right trials, the right arithmetic, and whether the shape is the same."""

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.published_run import claim, make_published
from tests.support.synthetic_run import Row, Truth, failed_trial, share_load
from vmtoll.analysis.published import (
    CONVERSIONS,
    FIGURES,
    Point,
    figures,
    points,
    replication,
    servers,
    workloads,
)
from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import select_trials
from vmtoll.model.claim import EstimatorUsed, Reason, ReasonCode, Shape
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.run import Manifest
from vmtoll.model.trial import Accelerator, Arm, ClientPlace, Scenario, TrialRecord
from vmtoll.model.workload import ClosedWorkload, listed
from vmtoll.spec.experiment import load

ROOT = Path(__file__).parents[3]
METAL = Arm("metal")
SMALL: dict[str, dict[str, Any]] = {
    f"page-{size}-{connections}": {
        "page": f"page-{size}.html", "users": [100, 1000], "keep_alive": connections == "keep",
    }
    for size in ("4k", "100k")
    for connections in ("close", "keep")
}  # fmt: skip
CLAIMS = [
    claim("boa is as fast as lighttpd", of={"server": "boa"}, published=[1485.0, 1488.54], within_pct=10.0),
    claim("apache is faster", of={"server": "apache-prefork"}, over={"server": "thttpd"}, published=[2.0, 1.0]),
    claim("metal beats the guest", of={"server": "boa"}, over={"environment": "kvm-default"}, published=[400.0, 145.0]),
]


def small_servers(parent: Path, **keys: Any) -> Run:
    """The experiment on the servers of 2003, emulated, with two of them missing."""
    servers = {"lighttpd": 0.9, "boa": 0.9, "apache-prefork": 0.9}
    truth = Truth(servers, drift=0.0, aa=False, blocks=3, accelerator=Accelerator.TCG)
    meta = {"skipped": [{"server": "thttpd", "why": "sources.yml names no archive of <thttpd>"}]}
    keys = {"workloads": SMALL, "name": "small-servers-2003", "meta": meta} | keys
    return make_published(parent, keys.pop("truth", truth), keys.pop("claims", []), **keys)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_servers(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def result(run: Run) -> list[Point]:
    return replication(run)


def point_of(result: list[Point], **keys: str) -> Point:
    (point,) = [point for point in result if all(getattr(point.figure, key) == value for key, value in keys.items())]
    return point


def codes(point: Point) -> list[ReasonCode]:
    return [reason.code for reason in point.reasons]


def primaries(run: Run, server: str, workload: str, field: str, users: int | None = None) -> list[float]:
    """A field of the primary measurements of one server on metal, by block."""
    trials = select_trials(run, ClaimSide(server=server, environment="metal", workload=workload, users=users))
    return [float(getattr(trial.primary, field)) for trial in trials]


def test_every_published_figure_of_the_experiment_has_one_point(run: Run, result: list[Point]) -> None:
    with FIGURES.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "small-servers-2003"]
    assert [{key: str(value) for key, value in vars(point.figure).items() if key != "value"} for point in result] == [
        {key: value for key, value in row.items() if key != "value"} for row in rows
    ]
    assert [point.figure.value for point in result] == [float(row["value"]) for row in rows]
    assert all(point.shape is Shape.INCONCLUSIVE for point in result if point.measured_level.value is None)
    assert all(point.reasons or point.shape in (Shape.FIRST, Shape.ALONE) for point in result)
    together = points(run)
    assert sorted(map(repr, together)) == sorted(map(repr, result))
    headings = [point.figure.heading for point in together]
    assert len(set(headings)) == 1 + sum(a != b for a, b in itertools.pairwise(headings))


def test_each_command_of_2003_finds_its_own_workload_and_users(run: Run) -> None:
    for figure in figures("small-servers-2003"):
        size = "4k" if figure.payload_bytes == "4096" else "100k"
        assert workloads(run, figure) == [f"page-{size}-{'keep' if figure.keep_alive == 'yes' else 'close'}"]
        assert figure.users == int(figure.load.rpartition(" ")[2])
        assert figure.users in (100, 1000)


def test_figures_are_in_the_published_unit(run: Run, result: list[Point]) -> None:
    of = {"server": "boa", "load": "-n 10000 -c 100", "keep_alive": "no", "payload_bytes": "4096"}
    rate = point_of(result, metric="requests_per_second", **of)
    assert rate.measured_level.value == np.median(primaries(run, "boa", "page-4k-close", "throughput_rps", 100))
    assert rate.measured_level.value is not None
    assert rate.ratio == rate.measured_level.value / rate.figure.value
    assert point_of(result, metric="transfer_rate", **of).measured_level.value == pytest.approx(70_100)
    assert point_of(result, metric="cpu_user", **of).measured_level.value == pytest.approx(0.4 / 20000 * 10000)
    of = {"server": "apache", "load": "-n 5000 -c 100", "keep_alive": "no", "payload_bytes": "100000"}
    usage = point_of(result, metric="cpu_usage", **of)
    seconds = np.array(primaries(run, "apache-prefork", "page-100k-close", "duration_s", 100))
    assert usage.measured_level.value == pytest.approx(np.median(100 * 1.3 / seconds))


def test_shapes(result: list[Point]) -> None:
    """lighttpd : boa : apache are 8,000 : 7,500 : 7,000 here; to the last percent in every workload."""
    of = {"metric": "requests_per_second", "payload_bytes": "4096"}
    busy = of | {"load": "-n 10000 -c 1000", "keep_alive": "yes"}
    assert point_of(result, server="lighttpd", **busy).shape is Shape.FIRST
    boa = point_of(result, server="boa", **busy)
    assert boa.shape is Shape.SAME  # 1,552 of 1,732 there
    assert (boa.measured_level.estimator, boa.measured_level.blocks, boa.blocks) == (EstimatorUsed.MEDIAN, 3, 3)
    assert point_of(result, server="apache", **busy).shape is Shape.NOT_SAME  # 1,888 of 1,732 there
    thttpd = point_of(result, server="thttpd", load="-n 10000 -c 100", keep_alive="no", **of)
    assert thttpd.shape is Shape.INCONCLUSIVE
    assert thttpd.reasons == (Reason(ReasonCode.SOURCE_NOT_AT_HAND, names=("thttpd",)),)


def test_the_2009_experiment(tmp_path: Path) -> None:
    """Localhost is the client on the same machine; three servers are one figure; an emulated guest has no shape."""
    known: dict[str, dict[str, Any]] = {
        "site-siege": {"page": None, "tool": "siege", "site": "office"},
        "site-siege-localhost": {"page": None, "tool": "siege", "site": "office", "client": "localhost"},
        "large-file": {"page": "page-100k.html", "tool": "siege"},
    }
    names = ("apache-prefork", "apache-worker", "lighttpd")
    truth = Truth(dict.fromkeys(names, 0.4), drift=0.0, accelerator=Accelerator.TCG)
    run = make_published(
        tmp_path, truth, [], workloads=known, name="metal-vs-kvm-2009",
        per_workload={"site-siege-localhost": {"duration_s": 30.0, "transactions": 500}},
    )  # fmt: skip
    result = replication(run)
    local = {"environment": "localhost", "tool": "siege"}
    transactions = point_of(result, server="lighttpd", metric="transactions", **local)
    assert transactions.measured_level.value == pytest.approx(1000), "of a minute"
    assert ReasonCode.SET_TO_A_MINUTE in codes(transactions)
    rate = point_of(result, server="lighttpd", metric="transaction_rate", **local)
    assert rate.workloads == ("site-siege-localhost",)
    assert codes(point_of(result, server="apache-prefork", metric="elapsed", **local)) == [ReasonCode.NOT_COMPARED]
    metal, kvm = (
        point_of(result, server="all three", environment=e, metric="transaction_rate", tool="siege")
        for e in ("metal", "kvm")
    )
    assert (metal.servers, metal.environments, metal.workloads) == (names, ("metal",), ("site-siege",))
    assert metal.measured_level.value == np.median(primaries(run, "apache-worker", "site-siege", "throughput_rps"))
    assert (metal.shape, kvm.shape) == (Shape.FIRST, Shape.INCONCLUSIVE)
    assert {ReasonCode.EMULATED, ReasonCode.OTHER_LINK} <= set(codes(kvm))
    assert kvm.reasons[-1].names == ("unshaped",)
    download = point_of(result, server="all three", environment="kvm", metric="throughput", tool="download")
    assert download.workloads == ("large-file",)


def test_the_guest_has_a_shape_under_kvm(tmp_path: Path) -> None:
    known: dict[str, dict[str, Any]] = {"site-siege": {"page": None, "tool": "siege", "site": "office"}}
    truth = Truth({"lighttpd": 0.4}, drift=0.0)
    result = replication(make_published(tmp_path, truth, [], workloads=known, name="metal-vs-kvm-2009", link="100mbit"))
    first, *_ = [p for p in result if (p.figure.environment, p.figure.metric) == ("kvm", "transaction_rate")]
    assert first.shape is Shape.SAME
    assert first.published_ratio == pytest.approx(0.362, abs=0.001)
    assert first.measured_ratio is not None and first.measured_ratio.value == pytest.approx(0.4, abs=0.01)


SWEEP = {
    "kind": "ramp", "tool": "httperf", "shares": [0.3, 0.7, 1.1], "deadline_ms": 50.0,
    "capacity": {"tool": "h2load", "users": 10},
}  # fmt: skip


def test_a_ramp_has_a_knee_and_a_peak(tmp_path: Path) -> None:
    truth = Truth(
        {"apache-prefork": 0.9, "lighttpd": 0.9}, loads=(share_load(0.3), share_load(0.7), share_load(1.1)), drift=0.0
    )
    run = make_published(tmp_path, truth, [], workloads={"ramp": SWEEP}, name="rate-sweep-2006")
    result = replication(run)
    offered = [
        trial.offered.offered_rps
        for trial in run.trials_of(Scenario("lighttpd", "ramp", share_load(0.7)), METAL)
        if trial.offered.offered_rps
    ]
    knee = point_of(result, server="lighttpd-1-worker", metric="goodput_knee")
    assert knee.measured_level.value == np.median(offered)
    lacking = point_of(result, server="lighttpd-4-workers", metric="goodput_knee")
    assert lacking.reasons == (Reason(ReasonCode.NO_SUCH_SERVER, names=("lighttpd-4-workers",)),)
    best = point_of(result, server="best", metric="peak_goodput")
    assert (best.servers, best.environments) == (("apache-prefork",), ("metal",))
    assert Reason(ReasonCode.OTHER_TOOL, names=("autobench", "httperf")) in best.reasons


def test_lowest_and_highest_trial_and_mean_of_three(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.9, "lighttpd": 0.9}, drift=0.0)
    known: dict[str, dict[str, Any]] = {"page-357": {"page": "page-357.html", "users": 1000}}
    run = make_published(
        tmp_path, truth, [], workloads=known, name="event-servers-2008", published_estimator="mean-of-three"
    )
    result = replication(run)
    used = 100 * 1.3 / np.array(primaries(run, "nginx", "page-357", "duration_s"))
    for metric, value, how in (
        ("cpu_usage_low", used.min(), EstimatorUsed.LOWEST),
        ("cpu_usage_high", used.max(), EstimatorUsed.HIGHEST),
        (
            "requests_per_second",
            np.mean(primaries(run, "nginx", "page-357", "throughput_rps")[:3]),
            EstimatorUsed.MEAN_OF_THREE,
        ),
    ):
        ours = point_of(result, server="nginx", metric=metric).measured_level
        assert ours.estimator is how
        assert ours.value == pytest.approx(value)


def test_rows_without_a_usable_trial_name_the_findings(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.TOOL_FAILED) if row["server"] == "nginx" else row]

    known: dict[str, dict[str, Any]] = {"page-357": {"page": "page-357.html", "users": 1000}}
    run = make_published(tmp_path, Truth({"nginx": 0.9}, change=change), [], workloads=known, name="event-servers-2008")
    result = replication(run)
    (reason,) = point_of(result, server="nginx", metric="memory").reasons
    assert (reason.code, reason.codes) == (ReasonCode.NO_FIGURE, (Code.TOOL_FAILED,))
    lighttz = point_of(result, server="lighttz", metric="memory")
    assert lighttz.reasons == (Reason(ReasonCode.NO_SUCH_SERVER, names=("lighttz",)),)


def test_an_experiment_of_our_own_has_no_published_figures(tmp_path: Path) -> None:
    assert (
        replication(make_published(tmp_path, Truth(), []))
        == points(make_published(tmp_path / "again", Truth(), []))
        == []
    )


def _planned(server: str) -> TrialRecord:
    return TrialRecord(
        run_id="", block=1, order=1, attempt=1, clients=1, guests=1, started_at="", arm=METAL,
        accelerator=Accelerator.NONE, scenario=Scenario(server, "", Load(LoadKind.CLOSED, 1)),
        client=ClientPlace.REMOTE,
    )  # fmt: skip


def test_every_published_figure_finds_its_workload_and_server_at_the_full_scale() -> None:
    """How long a test lasted is not compared; all else has one workload, a server that stands for it, and a column."""
    with FIGURES.open(encoding="utf-8", newline="") as file:
        names = sorted({row["experiment"] for row in csv.DictReader(file)})
    for name in names:
        resolved = load(ROOT / "workloads" / "experiments" / f"{name}.yml", scale="full")
        manifest = Manifest.model_construct(workloads=resolved.workloads, site=resolved.site, skipped=[])
        run = Run(Path(), manifest, {}, ())
        run.__dict__["trials"] = [_planned(server) for server in resolved.experiment.servers]
        for figure in figures(name):
            (workload,) = workloads(run, figure)
            document = manifest.workloads[workload]
            assert not figure.users or (isinstance(document, ClosedWorkload) and figure.users in listed(document.users))
            assert servers(run, figure.server), figure
            assert (figure.metric, figure.unit) in CONVERSIONS or figure.metric == "elapsed", figure
