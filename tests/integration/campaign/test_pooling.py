"""Which test beds of a campaign are added up, and by which measurement each is compared."""

import re
from pathlib import Path

import pytest

from tests.support.synthetic_run import (
    Row,
    role_findings,
    with_findings,
)
from tests.support.testbed_runs import CLOSED, OPEN, entry, run_of
from vmtoll.campaign.effects import campaign_figures
from vmtoll.campaign.page import write_page
from vmtoll.campaign.store import partition
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator
from vmtoll.model.verdict import Kind, VerdictReason
from vmtoll.report.words import KVM_HARDWARE, platform_text


def test_guests_on_emulation_are_not_pooled_with_others(tmp_path: Path) -> None:
    for testbed, accelerator in (("a", "kvm"), ("b", "kvm"), ("c", "tcg"), ("d", "tcg")):
        run = run_of(tmp_path, testbed, 0.9, accelerator=Accelerator(accelerator))
        partition(run, tmp_path / "d", "mixed", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    assert figures.emulated is True
    kinds = {(one.accelerator, one.verdict.blocks, one.verdict.kind, one.verdict.because) for one in figures.effects}
    both = (Accelerator.KVM, Accelerator.TCG)
    assert kinds == {(accelerator, 2, Kind.UNDECIDED, VerdictReason.FEW_BLOCKS) for accelerator in both}


def test_guests_on_different_hardware_are_not_pooled_which_the_page_states(tmp_path: Path) -> None:
    for testbed, hardware in (("a", "native"), ("b", "native"), ("c", "nested"), ("d", "emulated")):
        run = run_of(tmp_path, testbed, 0.9, hardware=Hardware(hardware))
        partition(run, tmp_path / "d", "mixed", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    assert figures.kvm_hardware == (Hardware.NATIVE, Hardware.NESTED, Hardware.EMULATED)
    beds = {(one.hardware, one.verdict.blocks) for one in figures.effects}
    assert beds == {(Hardware.NATIVE, 2), (Hardware.NESTED, 1), (Hardware.EMULATED, 1)}
    page = write_page(figures, tmp_path / "campaign.html").read_text(encoding="utf-8")
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'\bid="([^"]+)"', page))
    top, tables = page.split("<h1>", 1)
    for hardware in (Hardware.NESTED, Hardware.EMULATED):
        assert KVM_HARDWARE[hardware][0] in top
        assert f"kvm-default against metal, {platform_text(Accelerator.KVM, hardware)}, by" in tables
        assert f"({platform_text(Accelerator.KVM, hardware)}) against metal" in tables


@pytest.mark.parametrize(
    ("code", "roles"), [(Code.CLIENT_SATURATED, (Role.PRIMARY, Role.CROSSCHECK)), (Code.LINK_BOUND, (None,))]
)
def test_no_verdict_when_both_sides_are_client_or_link_limited(
    tmp_path: Path, code: Code, roles: tuple[Role | None, ...]
) -> None:
    def limit_closed(row: Row) -> list[Row]:
        return [row if row["load"].is_open else with_findings(row, *(Finding(code, role=role) for role in roles))]

    for testbed in "abcde":
        partition(run_of(tmp_path, testbed, 0.8, change=limit_closed), tmp_path / "d", "slow-client", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    verdict = entry(figures, "throughput", "nginx", CLOSED).verdict
    assert (verdict.kind, verdict.because) == (Kind.UNDECIDED, VerdictReason.LIMIT)
    assert (verdict.limited, verdict.role) == (5 * 6 * 3, Role.CROSSCHECK)
    doubt = verdict.doubts[0]
    assert (doubt.cause, doubt.baseline, doubt.compared) == (code, 5 * 6 * 2, 5 * 6)
    assert doubt.size == pytest.approx(2, rel=0.2), "the natural limit"
    assert entry(figures, "tail", "nginx", OPEN).verdict.kind is Kind.SLOWER


def test_the_crosscheck_counts_where_the_client_limited_the_tool(tmp_path: Path) -> None:
    def limit_primary(row: Row) -> list[Row]:
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]

    for testbed in "abcde":
        partition(run_of(tmp_path, testbed, 0.8, change=limit_primary), tmp_path / "d", "slow-tool", testbed)
    verdict = entry(campaign_figures(str(tmp_path / "d")), "throughput", "nginx", CLOSED).verdict
    assert (verdict.kind, verdict.role, verdict.tool, verdict.limited) == (Kind.SLOWER, Role.CROSSCHECK, "h2load", 0)


def test_test_beds_whose_runs_compared_different_tools_are_named(tmp_path: Path) -> None:
    """Each run chooses its measurement: the client limited the tool on two test beds."""

    def limit_primary(row: Row) -> list[Row]:
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]

    for testbed in "abcde":
        change = limit_primary if testbed in "ab" else None
        partition(run_of(tmp_path, testbed, 0.8, change=change), tmp_path / "d", "mixed", testbed)
    figures = campaign_figures(str(tmp_path / "d"))
    effect = entry(figures, "throughput", "nginx", CLOSED)
    assert (effect.verdict.kind, effect.verdict.role, effect.verdict.tool) == (Kind.SLOWER, None, "h2load, siege")
    roles = [bed.role for bed in effect.by_testbed]
    assert roles == [Role.CROSSCHECK] * 2 + [Role.PRIMARY] * 3
    page = write_page(figures, tmp_path / "campaign.html").read_text()
    assert page.count("<small>by h2load</small>") >= 2
