"""`vmtoll watch --judge`: the history of runs that are there, its exit code and its files."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.nights import NEW_KERNEL, make_nights
from tests.support.synthetic_run import rate_load
from vmtoll.analysis.history import FigureHistory, LevelChange, Night
from vmtoll.commands.outcome import Exit
from vmtoll.commands.watch import PAGE, watch
from vmtoll.model.errors import UserError
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import Estimate
from vmtoll.report.words.history import state_text


def judged(results: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    """The command's document."""
    with pytest.raises(SystemExit) as ended:
        watch("synthetic", judge=True, results=results, as_json=True, **options)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["exit"] == ended.value.code
    return document


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """24 nights; the guest is slower from the 16th on."""
    return make_nights(tmp_path_factory.mktemp("results"), 24, slower_from=15)


def test_a_change_of_level_is_found_with_what_changed_beside_it(
    nights: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = nights[0].parents[1]
    files = {"junit": tmp_path / "watch.xml", "openmetrics": tmp_path / "watch.prom"}
    document = judged(results, capsys, **files)
    assert document["exit"] == Exit.WORSE
    worse = {figure["environment"]: figure["worse"] for figure in document["figures"]}
    assert worse == {"metal": False, "kvm-default": True}
    (change,) = next(figure["changes"] for figure in document["figures"] if figure["worse"])
    assert change["run"] == nights[15].name
    assert change["ratio_low"] < 0.8 < change["ratio_high"]
    assert change["facts"] == [{"fact": "kernel", "before": "6.1.0-synthetic", "after": NEW_KERNEL}]
    suite = ElementTree.parse(files["junit"]).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    parsed = text_string_to_metric_families(files["openmetrics"].read_text())  # type: ignore[no-untyped-call]
    families = {each.name: each.samples for each in parsed}
    gauges = {sample.labels["environment"]: sample.value for sample in families["vmtoll_watch_worse"]}
    assert gauges == {"metal": 0.0, "kvm-default": 1.0}
    assert NEW_KERNEL in (results / "synthetic" / PAGE).read_text()


def test_a_copied_night_is_one_night(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy beside its run, whatever its name, a copy in place of its run, and one as the newest by its name."""
    nights = make_nights(tmp_path / "results", 4)
    folder = nights[0].parent
    for name in ("zz-backup", "20251231T000000Z-copy"):
        shutil.copytree(nights[1], folder / name)
    nights[2].rename(folder / "restored")
    document = judged(tmp_path / "results", capsys)
    names = [night["run"] for night in document["figures"][0]["nights"]]
    assert names == [nights[0].name, nights[1].name, "restored", nights[3].name]
    document = judged(tmp_path / "results", capsys, since="zz-backup")
    assert [night["run"] for night in document["figures"][0]["nights"]] == names[1:]


def test_a_level_that_is_accepted_is_the_new_beginning(nights: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    document = judged(nights[0].parents[1], capsys, since=nights[15].name)
    assert document["exit"] == Exit.UNDECIDED
    assert {figure["nights_needed"] for figure in document["figures"]} == {1}


def history(*ratios: float, metric: str = "throughput") -> FigureHistory:
    """24 nights with these changes of level."""
    night = Night("20260101T020000Z-0000", "2026-01-01T02:00:00Z", 100.0)
    higher = METRICS[metric].higher_is_better
    changes = [
        LevelChange(5 * number, Estimate(ratio, ratio, ratio), (ratio < 1) == higher)
        for number, ratio in enumerate(ratios, 1)
    ]
    return FigureHistory(
        Scenario("nginx", "w", rate_load(1)), Arm("metal"), METRICS[metric], (night,) * 24, (*changes,)
    )


@pytest.mark.parametrize(
    ("ratios", "is_worse"),
    [
        ((), False), ((0.8,), True), ((1.25,), False), ((0.99,), False),
        ((0.8, 0.99), True), ((0.8, 1.01), True), ((0.8, 1.03), False), ((0.985, 0.985), True), ((1.1, 0.99), False),
    ],
)  # fmt: skip
def test_a_level_stays_worse_until_it_is_better_again(ratios: tuple[float, ...], is_worse: bool) -> None:
    assert history(*ratios).is_worse(0.02) is is_worse
    assert history(*(1 / ratio for ratio in ratios), metric="cpu").is_worse(0.0199) is is_worse
    assert not history().is_worse(0)


def test_several_steps_are_named_together() -> None:
    text = state_text(history(0.8, 0.99), 0.02)
    assert text == "worse: 20.8% less, in 2 steps since 2026-01-01, run 20260101T020000Z-0000"
    assert state_text(history(0.8, 1.1), 0.02).startswith("better: 10% more ")


def test_a_change_below_what_counts_is_no_alarm(nights: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(nights[0].parents[1], capsys, at_least=30.0)["exit"] == Exit.NOT_WORSE


def test_a_night_without_a_figure_is_no_good_night(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that does not start any more has no figure, and no worse one either."""
    *_, newest = make_nights(tmp_path / "results", 12)
    records = [json.loads(line) for line in (newest / "trials.jsonl").read_text().splitlines()]
    for record in records:
        if record["arm"]["environment"] == "kvm-default":
            record |= {"findings": [{"code": "server-failed"}], "measurements": []}
    (newest / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    files = {"junit": tmp_path / "watch.xml", "openmetrics": tmp_path / "watch.prom"}
    document = judged(tmp_path / "results", capsys, **files)
    assert document["exit"] == Exit.UNDECIDED
    assert {each["environment"]: each["missing"] for each in document["figures"]} == {
        "metal": False, "kvm-default": True,
    }  # fmt: skip
    suite = ElementTree.parse(files["junit"]).getroot()
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "1", "0")
    assert 'environment="kvm-default"' in next(
        line for line in files["openmetrics"].read_text().splitlines() if line.endswith(" NaN")
    )
    assert "no value in the newest run" in (tmp_path / "results" / "synthetic" / PAGE).read_text()


def test_equal_nights_are_no_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_nights(tmp_path, 20)
    assert judged(tmp_path, capsys)["exit"] == Exit.NOT_WORSE


def test_another_workload_is_another_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = make_nights(tmp_path, 12)
    for folder in folders[:4]:
        manifest = json.loads((folder / "run.json").read_text())
        manifest["lab"] = "hosts"
        (folder / "run.json").write_text(json.dumps(manifest))
    document = judged(tmp_path, capsys)
    assert {len(figure["nights"]) for figure in document["figures"]} == {8}


@pytest.mark.parametrize(
    ("options", "key"), [({"since": "20250101T000000Z-0000"}, "--since"), ({"metric": ["speed"]}, "--metric")]
)
def test_bad_input_names_its_option(nights: list[Path], options: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=f"^{key} "):
        watch("synthetic", judge=True, results=nights[0].parents[1], **options)


@pytest.mark.parametrize("option", ["junit", "openmetrics", "since"])
def test_bad_input_is_named_before_a_night_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("vmtoll.commands.watch.run_one", lambda *args, **options: pytest.fail("it measured"))
    given: dict[str, Any] = {"since": "20250101T000000Z-0000"} if option == "since" else {option: tmp_path / "no" / "x"}
    with pytest.raises(
        UserError, match=f"^--{option} .*: (there is no folder .*/no; make it, or name another file|no complete run)"
    ):
        watch("synthetic", results=tmp_path, **given)


def test_without_a_run_there_is_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tmp_path}/synthetic: no complete run"):
        watch("synthetic", judge=True, results=tmp_path)


def test_a_library_that_is_missing_is_named_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtoll.commands.watch.find_spec", lambda name: None if name == "ruptures" else object())
    with pytest.raises(UserError, match=r"^ruptures is missing: install vmtoll"):
        watch("first", results=tmp_path)
