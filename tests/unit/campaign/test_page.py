"""The page of a campaign, of a handful of test beds and of a fleet."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from tests.support.page_text import words_of
from tests.support.snapshots import assert_snapshot
from tests.unit.campaign.test_facets import SLOW, USUAL, campaign
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.campaign.dataset import BedTrials, Failure, MachineLoad
from vmtoll.campaign.effects import Figures, campaign_effects
from vmtoll.campaign.facets import fleet
from vmtoll.campaign.page import MOST_ODD, _ratio_ticks, text, write_page
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.trial import Accelerator, Arm


@pytest.mark.parametrize(("low", "high"), [(0.0001, 1.1), (0.9, 1.1), (1.0, 40.0)])
def test_ratio_ticks_are_few_and_lie_in_the_picture(low: float, high: float) -> None:
    """A guest that is a thousand times slower is drawn like any other."""
    figure, axes = plt.subplots()
    axes.set_xlim(math.log(low), math.log(high))
    _ratio_ticks(axes)
    ticks = axes.get_xticks()
    plt.close(figure)
    assert 2 <= len(ticks) <= 5
    assert len(set(ticks)) == len(ticks)
    assert all(math.log(low) - 0.01 <= tick <= math.log(high) + 0.01 for tick in ticks)


def figures(count: int, **keys: float) -> Figures:
    """A campaign of one comparison in throughput on this many test beds."""
    rows, hosts = campaign(1, count, **keys)  # type: ignore[arg-type]
    rows = [replace(row, metric=THROUGHPUT) for row in rows]
    return Figures(
        campaign="spring", emulated=False, kvm_hardware=(Hardware.NATIVE,), margin=0.02,
        testbeds=tuple(BedTrials(row.testbed, "fleet", 1, 8, 15, 1, 0) for row in rows),
        effects=tuple(campaign_effects(rows, [], 0.02)), latencies=(),
        machines=tuple(MachineLoad(row.testbed, "client", 1, 60, 9.0, 20.0, 0.0, 0.0, 0.1) for row in rows),
        failures=(Failure("fleet", "kvm-default", "tool-failed", 3, 2),), fleet=fleet(rows, hosts, 0.02),
    )  # fmt: skip


def test_the_heading_is_of_virtualization_only_for_guests_against_metal(tmp_path: Path) -> None:
    made = figures(3)
    for keys, heading in (
        ({}, "What virtualization costs, over all test beds"),
        ({"baseline": Arm("kvm-tuned")}, "Every environment against its baseline, over all test beds"),
        ({"accelerator": Accelerator.NONE}, "Every environment against its baseline, over all test beds"),
    ):
        changed = replace(made, effects=tuple(replace(effect, **keys) for effect in made.effects))
        assert heading in words_of(write_page(changed, tmp_path / "page.html").read_text(encoding="utf-8"))


MANY: dict[str, Any] = {"model": 0.08, "hosts": 30, "slow": 0.5}


def test_the_words_of_the_page(tmp_path: Path) -> None:
    """Of few test beds each is listed; of many the oddest alone."""

    def said(count: int, **keys: float) -> list[str]:
        page = write_page(figures(count, **keys), tmp_path / f"{count}.html").read_text(encoding="utf-8")
        explained = page.partition('<section aria-labelledby="reading">')[0].partition("<main>")[2]
        return [re.sub(r"bed\d+", "bed…", line) for line in words_of(explained)]

    def unlike(lines: list[str]) -> list[str]:
        """The sentences and headings, without the rows of tables."""
        return [line for line in lines if not line.startswith("|")]

    assert_snapshot(SNAPSHOTS / "campaign.txt", {
        "A campaign": {
            "of four test beds": text(figures(4).effects[0]),
            "of two test beds": text(figures(2).effects[0]),
            "of six test beds": said(6),
            "of sixty hosts that differ in nothing that matters": unlike(said(60)),
            "of ten thousand, some of them odd": unlike(said(10_000, **MANY)),
        },
    })  # fmt: skip


def test_a_page_of_ten_thousand_test_beds_lists_the_oddest_alone(tmp_path: Path) -> None:
    made = figures(10_000, **MANY)
    assert len(made.fleet.odd) == 30
    page = write_page(made, tmp_path / "campaign.html", "data")
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 5e6 / 20, "it does not grow with the test beds"
    listed = re.findall(r'<a href="data/hosts/campaign=spring/testbed=(bed\d+)/">', text)
    assert len(listed) == MOST_ODD
    assert set(listed) <= {host.testbed for host in made.fleet.odd}
    assert len(set(re.findall(r"bed\d{5}", text))) == MOST_ODD
    for fact in (USUAL, SLOW, "tool-failed"):
        assert fact in text


def test_a_page_of_a_handful_lists_every_test_bed(tmp_path: Path) -> None:
    text = write_page(figures(6), tmp_path / "campaign.html").read_text(encoding="utf-8")
    assert text.count("bed00003") == 3, "its effect, its trials, its machine"
    assert 'id="facets"' not in text


def test_hosts_that_differ_in_nothing_that_matters_are_said_to(tmp_path: Path) -> None:
    made = figures(60)
    assert (made.fleet.facets, made.fleet.odd) == ((), ())
    assert made.fleet.tested
    assert 'id="facets"' in write_page(made, tmp_path / "campaign.html").read_text(encoding="utf-8")
