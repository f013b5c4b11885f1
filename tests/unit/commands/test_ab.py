"""`vmtoll ab`: what the exit code says, and what is printed before a request is sent."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.synthetic_run import Row, Truth, make_run
from vmtoll import cli
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.commands.ab import counted_verdicts, exit_of, junit_cases
from vmtoll.commands.outcome import Exit, junit_report
from vmtoll.model.metric import CPU, THROUGHPUT
from vmtoll.model.verdict import Kind, Verdict


def verdict(kind: Kind) -> Verdict:
    return Verdict(metric=THROUGHPUT, kind=kind)


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([Kind.FASTER, Kind.EQUIVALENT], Exit.NOT_WORSE),
        ([Kind.SLOWER, Kind.UNDECIDED], Exit.WORSE),
        ([Kind.FASTER, Kind.UNDECIDED], Exit.UNDECIDED),
        ([Kind.NOT_JUDGED], Exit.UNDECIDED),
        ([], Exit.UNDECIDED),
    ],
)
def test_worse_goes_before_undecided(kinds: list[Kind], code: Exit) -> None:
    assert exit_of([verdict(kind) for kind in kinds]) is code


def test_the_main_figure_of_each_load_counts_or_those_that_are_named(tmp_path: Path) -> None:
    """The guest serves more and uses more CPU."""
    analysis = analyse(load_run(make_run(tmp_path, Truth({"nginx": 1.3}, cpu_ratio=1.5))))
    main, cpu = ([v for _, v in counted_verdicts(analysis, names)] for names in ((), (CPU.name,)))
    assert [one.metric for one in main] == [THROUGHPUT]
    assert (exit_of(main), exit_of(cpu)) == (Exit.NOT_WORSE, Exit.WORSE)


def test_the_junit_report_has_a_case_for_each_verdict(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        factor = 0.5 if row["arm"].environment == "kvm-default" and row["server"] == "nginx" else 1.0
        return [row | {name: row[name] * factor for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    run = load_run(make_run(tmp_path, Truth({"nginx": 1.0, "lighttz": 1.0}, noise=0.05, change=change)))
    analysis = analyse(run)
    suite = ElementTree.fromstring(junit_report("page", junit_cases(analysis, list(counted_verdicts(analysis, ())))))
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        "tests": "2", "failures": "1", "skipped": "1",
    }  # fmt: skip
    (failed,) = suite.findall("./testcase/failure")
    assert str(failed.get("message")).startswith("the guest serves ")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["nginx: requests per second"]


def exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> object:
    monkeypatch.setattr("sys.argv", ["vmtoll", *words, "--results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["metal", "metal"], "metal is both sides"),
        (["metal", "kvm-defualt"], "unknown environment 'kvm-defualt'"),
        (["metal", "kvm-default", "--metric", "speed"], "--metric speed: unknown metric"),
        (
            ["metal", "kvm-default", "--workload", "site-siege", "--metric", "tail", "--dry-run"],
            "--metric tail: site-siege does not measure it; give another --metric",
        ),
        (["metal", "kvm-default", "--junit", "/no/such/ab.xml", "--dry-run"], "--junit /no/such/ab.xml: there is no"),
        (["metal", "kvm-defualt", "--dry-run"], "vmtoll: environments[1]: unknown environment"),
        (["metal", "kvm-default", "--at-most-min", "0.1"], "--at-most-min is 0.1"),
        (["metal", "kvm-default", "--blocks", "3"], "--blocks"),
        (["metal", "changed", "--apply", "true"], "--apply and --revert go together"),
        (["metal", "kvm-default", "--apply", "true", "--revert", "true"], "changes.kvm-default: is a guest profile"),
        (["metal", "changed", "--differs-in", "binary"], "--differs-in says what --apply changes; give that too"),
        (
            ["metal", "changed", "--apply", "true", "--revert", "true", "--differs-in", "binry", "--dry-run"],
            "vmtoll: changes.changed.differs_in: unknown fact 'binry' (did you mean 'binary'?)",
        ),
        (["metal"], "missing argument 'other'"),
    ],
)
def test_an_error_is_no_verdict(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`git bisect run` would take 2 for bad; from 128 on it stops."""
    assert exit_code(monkeypatch, tmp_path, "ab", *words) == 128
    assert said in capsys.readouterr().err
    assert list(tmp_path.rglob("*.yml")) == []


def test_what_the_lab_lacks_is_named_before_it_comes_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def up(*_: object) -> None:
        raise AssertionError("the lab came up")

    monkeypatch.setattr("vmtoll.lab.embedded.up", up)
    assert exit_code(monkeypatch, tmp_path, "ab", "metal", "container-host-network") == 128
    assert "vmtoll: container-host-network: the embedded lab has no such container" in capsys.readouterr().err


def test_a_defect_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("defect")

    monkeypatch.setattr("vmtoll.commands.adhoc.plan", broken)
    assert exit_code(monkeypatch, tmp_path, "ab", "metal", "kvm-default") == 128
    assert "RuntimeError: defect" in capsys.readouterr().err


def test_a_change_is_an_environment_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["metal", "changed", "--apply", "true", "--revert", "true", "--dry-run", "--json"]
    assert exit_code(monkeypatch, tmp_path, "ab", *words) == 0
    assert {trial["arm"] for trial in json.loads(capsys.readouterr().out)["trials"]} >= {"metal", "changed"}


def test_what_it_takes_is_said_and_a_dry_run_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from vmtoll.commands.plans import cost_text  # noqa: PLC0415
    from vmtoll.runner.run import plan  # noqa: PLC0415
    from vmtoll.spec.catalog import Registry  # noqa: PLC0415
    from vmtoll.spec.experiment import load  # noqa: PLC0415

    assert exit_code(monkeypatch, tmp_path, "ab", "kvm-2009", "kvm-default", "--dry-run") == 0
    assert "24 trials, about 2.0 minutes" in capsys.readouterr().out
    assert list(tmp_path.rglob("*.yml")) == []
    text = cost_text(plan(load(Registry().experiment_file("demo"))))
    assert text.startswith("80 trials, about 4 minutes, ")
    assert " 380,000 requests to lighttz, nginx: 1 user, 65%" in text
