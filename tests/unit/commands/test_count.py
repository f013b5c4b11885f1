"""The command count: figures, verdicts, exit codes, the record."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from frictionless import Resource, Schema

from tests.support import counted
from vmtoll import cli
from vmtoll.analysis.schema import schema
from vmtoll.builds import counting, emulator, image, servers
from vmtoll.commands.outcome import Exit
from vmtoll.counting import boots
from vmtoll.recordings.rows import read_rows

QEMU = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18 with svm-interrupt.patch of vmtoll)"
Count = Callable[..., int]


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Count:
    """Run the command with a machine whose boots drift; returns the exit code."""
    folder = tmp_path / "images/abc"
    (folder / "root/lib/modules/6.12").mkdir(parents=True)
    (folder / "image.json").write_text('{"suite": "trixie"}')
    (folder / "machine-1.qcow2").touch()
    monkeypatch.setattr(image, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(emulator, "ensure", lambda _say, *, build=True: tmp_path / "qemu")
    monkeypatch.setattr(emulator, "version_of", lambda _: QEMU)
    monkeypatch.setattr(counting, "ensure", lambda: tmp_path)
    monkeypatch.setattr(servers, "program", lambda name: name.encode())

    def run(*words: object, drift: int = 2) -> int:
        monkeypatch.setattr(boots, "boot", counted.boots([], drift=drift))
        words = words if words[0] in ("preflight", "show", "report") else ("count", "--results", tmp_path, *words)
        monkeypatch.setattr("sys.argv", ["vmtoll", *map(str, words)])
        try:
            cli.main()
        except SystemExit as ended:
            assert isinstance(ended.code, int | None)
            return ended.code or 0
        return 0

    return run


def folder_of(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "count").iterdir()
    return folder


def test_the_pair_is_shown_with_its_toll_and_recorded(
    count: Count, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count("--suite", "trixie") == 0
    printed = capsys.readouterr().out
    assert "counts of an emulated AMD host: no times; per request" in printed
    lines = {line.split("  ")[0]: line.split()[1:] for line in reversed(printed.splitlines())}
    assert lines["instructions"][:2] == ["1,006", "2,406"]
    assert lines["toll"] == ["1.000×", "2.392×"]
    assert lines["exits: hlt"][1:] == ["0.00", "3.00"]
    folder = folder_of(tmp_path)
    document = json.loads((folder / "count.json").read_text())
    assert (document["qemu"], document["guest_kernel"]) == (QEMU, "6.12")
    rows = read_rows(folder / "trials.csv")
    assert {row.side for row in rows} == {"metal", "guest"}
    assert {row.block for row in rows} == {1, 2, 3}


def test_a_profile_needs_one_kernel(count: Count, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.deb").touch()
    assert count("--suite", "trixie", "--profile", "--kernel", tmp_path / "new.deb") == 128
    assert "give --kernel and --guest-kernel the same package" in capsys.readouterr().err


def test_programs_read_the_verdict(count: Count, capsys: pytest.CaptureFixture[str]) -> None:
    assert count("--suite", "trixie", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (toll,) = [row for row in document["judged"]["rows"] if row["gate"]]
    assert (toll["metric"], toll["answer"]) == ("instructions", "worse")
    assert toll["ratio"] == pytest.approx(2.392, abs=0.001)
    assert toll["low"] < 2.392 < toll["high"]
    assert document["sides"]["guest"]["exits"] == {"hlt": 3.0, "npf": 1.0}


@pytest.mark.parametrize(("level", "code"), [(2400, {0, Exit.UNDECIDED}), (2520, {Exit.WORSE}), (2280, {0})])
def test_a_later_count_is_judged_against_an_earlier_one(
    count: Count, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, code: set[int]
) -> None:
    words = ("guest", "--suite", "trixie", "--boots", 6)
    count(*words)
    before = folder_of(tmp_path).rename(tmp_path / "before")
    monkeypatch.setattr(counted, "GUEST_LEVEL", level)
    assert count(*words, "--against", before) in code


def test_a_profile_is_printed_and_recorded(
    count: Count, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {("host", "tcp_ack"): 400 * 310, ("guest", "[virtio_net]"): 400 * 25}
    monkeypatch.setattr(
        boots, "read_boot", lambda _: lambda windows: Counter({k: n * len(windows) for k, n in found.items()})
    )
    assert count("guest", "--suite", "trixie", "--profile") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["guest", "host", "310.0", "tcp_ack"] in lines
    assert ["guest", "guest", "25.0", "[virtio_net]"] in lines
    assert (folder_of(tmp_path) / "profile.csv").read_text().splitlines()[1] == "guest,host,tcp_ack,310.0"


def test_boots_that_differ_give_no_valid_count(count: Count, capsys: pytest.CaptureFixture[str]) -> None:
    assert count("--suite", "trixie", drift=20) == 4
    assert "metal: no valid count: its boots differ by 3.8%" in capsys.readouterr().err


def test_preconditions_are_listed_and_required(
    count: Count, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count("preflight", "--count", "--suite", "trixie") == 0
    assert "Preflight passed" in capsys.readouterr().out
    monkeypatch.setattr(emulator, "version_of", lambda _: "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)")
    assert count("preflight", "--count", "--suite", "trixie") == 0
    assert "guests may hang. vmtoll count first builds the corrected one" in capsys.readouterr().out
    monkeypatch.setattr(emulator, "version_of", lambda _: "QEMU emulator version 10.0.13 (Debian)")
    assert count("preflight", "--count", "--suite", "bookworm") == 1
    printed = capsys.readouterr().out
    assert "the plugin that counts needs QEMU 7.2, which Debian 12 has" in printed
    assert "vmtoll lab image --machines --suite bookworm" in printed
    assert count("--suite", "trixie") == 128
    assert "the plugin that counts needs QEMU 7.2, which Debian 12 has" in capsys.readouterr().err


def test_show_and_report_read_the_folder_of_a_count(
    count: Count, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count("--suite", "trixie") == 0
    folder, counted_text = folder_of(tmp_path), capsys.readouterr().out
    report = (folder / "report.html").read_text()
    assert "Counts of an emulated AMD host: no times." in report
    assert "guest: 2.39× (" in report
    (folder / "report.html").unlink()
    assert count("show", folder) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == counted_text.splitlines()[:-2]
    assert not (folder / "report.html").exists()
    assert count("report", folder) == 0
    assert (folder / "report.html").read_text() == report


def test_the_table_follows_the_schema_of_judge_files(count: Count, tmp_path: Path) -> None:
    assert count("--suite", "trixie") == 0
    table = Resource(
        path="trials.csv", basepath=str(folder_of(tmp_path)), schema=Schema.from_descriptor(dict(schema("judge")))
    )
    assert table.validate().valid
