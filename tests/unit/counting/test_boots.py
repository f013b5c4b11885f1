"""Boots until each side has enough: what an early end keeps, what is judged, how far boots may lie apart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import counted
from vmtoll.analysis.recorded import Answer, judge_rows
from vmtoll.counting import boots, record
from vmtoll.counting.machine import Load, Parts
from vmtoll.counting.sides import Side, side
from vmtoll.model.errors import UserError

PARTS = Parts(Path("qemu"), Path("image/machine-1.qcow2"), Path("programs"), b"")
LOAD = Load(requests=10, windows=3)
METAL, GUEST = side("metal"), side("guest")


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Replace the machine; returns the sides of each boot, as they are booted."""

    def replace(*finished: int, drift: int = 0) -> list[list[str]]:
        calls: list[list[str]] = []
        monkeypatch.setattr(boots, "boot", counted.boots(calls, *finished, drift=drift))
        return calls

    return replace


def count(*sides: Side, number: int = 3) -> boots.Counts:
    return boots.count(PARTS, sides, LOAD, number, lambda _: None)


def test_each_boot_measures_all_sides(booted: Callable[..., list[list[str]]]) -> None:
    calls = booted()
    counts = count(METAL, GUEST)
    assert calls == [["metal", "guest"]] * 3
    assert [len(each.windows) for each in counts["guest"]] == [LOAD.windows] * 3
    assert boots.exits(counts["guest"], LOAD) == {"hlt": 3.0, "npf": 1.0}
    assert boots.exits(counts["metal"], LOAD) == {}


def test_a_boot_that_hangs_keeps_its_finished_windows_and_the_machine_boots_again(
    booted: Callable[..., list[list[str]]],
) -> None:
    calls = booted(6, 5)  # in the first boot the guest finishes two windows, in the second one
    counts = count(METAL, GUEST)
    assert calls == [["metal", "guest"]] * 3 + [["guest"]]
    assert [len(each.windows) for each in counts["guest"]] == [2, 3, 3]
    assert [each.seed for each in counts["guest"]] == [1, 3, 4]
    assert boots.exits(counts["guest"], LOAD) == {"hlt": 3.0, "npf": 1.0}, "the first boot has none"


def test_too_many_hangs_are_an_error(booted: Callable[..., list[list[str]]]) -> None:
    calls = booted(*[0] * 20)
    with pytest.raises(UserError, match="8 boots gave metal 0 of 3"):
        count(METAL, GUEST)
    assert len(calls) == 8


def test_sides_whose_hosts_differ_have_boots_of_their_own(booted: Callable[..., list[list[str]]]) -> None:
    calls = booted()
    count(GUEST, side("guest+host-mitigations-off"), number=2)
    assert calls == [["guest"]] * 2 + [["guest+host-mitigations-off"]] * 2


def test_the_toll_is_judged_with_a_boot_as_a_block(booted: Callable[..., list[list[str]]]) -> None:
    booted(drift=3)
    page = judge_rows(boots.rows(count(METAL, GUEST), LOAD), baseline="metal", gates=[boots.METRIC])
    (toll,) = page.gates
    assert toll.answer is Answer.WORSE
    assert toll.judged.estimate
    assert toll.judged.estimate.value == pytest.approx(2407 / 1007, rel=1e-3)
    assert {each.subject.metric for each in page.comparisons} == {"instructions", "host kernel", "host user"}


def test_two_counts_of_one_side_do_not_differ(booted: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    booted(drift=1)
    before, now = count(METAL, GUEST), count(METAL, GUEST)
    record.write(tmp_path / "before", before, LOAD, {})
    earlier = record.earlier(tmp_path / "before", ["metal", "guest"])
    page = record.write(tmp_path / "now", now, LOAD, {}, earlier).judged()
    assert page
    assert {each.subject.name for each in page.gates} == {"metal instructions", "guest instructions"}
    assert {each.answer for each in page.gates} <= {Answer.EQUAL, Answer.UNDECIDED}


def test_a_record_has_its_label_and_figures_per_request(booted: Callable[..., list[list[str]]], tmp_path: Path) -> None:
    booted(drift=20)
    content = record.write(tmp_path / "now", count(METAL, GUEST), LOAD, {"qemu": "7.2"}).document
    guest = content["sides"]["guest"]
    assert content["label"] == "counts of an emulated AMD host: no times"
    assert guest["per_request"]["instructions"] == pytest.approx(2441)
    assert guest["per_request"]["guest entries"] == pytest.approx(4)
    assert guest["boots_apart"] == pytest.approx(40 / 2441)
    assert content["sides"]["metal"]["boots_apart"] > content["most_boots_apart"]


def test_a_folder_without_a_count_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"count\.json: No such file or directory; give the folder"):
        record.earlier(tmp_path, [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mteal", "unknown side 'mteal' .did you mean 'metal'"),
        ("guest+vhost-of", "unknown change 'vhost-of' .did you mean 'vhost-off'"),
        ("metal+vhost-off", "vhost-off changes a guest; name the side guest.vhost-off"),
    ],
)
def test_a_side_that_does_not_exist_is_an_error(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        side(name)


def test_changes_become_what_the_machine_runs() -> None:
    assert METAL.line == "measure metal /4k.html keep on '' ''"
    changed = side("guest+vhost-off+event-idx-off+close+64k+guest-mitigations-off")
    assert changed.line == "measure guest /64k.html close off ,event_idx=off mitigations=off"
    assert side("metal+host-mitigations-off").host_parameters == "mitigations=off"
