"""The page of a campaign, of a handful of test beds and of a fleet."""

import math
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tests.unit.campaign.test_facets import campaign
from vmtoll.campaign.dataset import BedTrials, Failure, MachineLoad
from vmtoll.campaign.effects import Figures, campaign_effects
from vmtoll.campaign.facets import fleet
from vmtoll.campaign.page import _ratio_ticks, write_page
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import THROUGHPUT


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


def test_a_page_of_ten_thousand_test_beds_lists_the_oddest_alone(tmp_path: Path) -> None:
    page = write_page(figures(10_000, model=0.08, hosts=30, slow=0.5), tmp_path / "campaign.html", "data")
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 5e6 / 20, "it does not grow with the test beds"
    assert "10,000 test beds" in text
    assert "the 20 oddest of 30" in text
    assert len(re.findall(r'<a href="data/hosts/campaign=spring/testbed=bed\d+/">', text)) == 20
    for words in ("AMD EPYC 7543", "Intel Xeon 6230", "Shape: how the ", "tool-failed"):
        assert words in text
    assert "Each test bed by itself" not in text


def test_a_page_of_a_handful_lists_every_test_bed(tmp_path: Path) -> None:
    text = write_page(figures(6), tmp_path / "campaign.html").read_text(encoding="utf-8")
    assert "Each test bed by itself" in text
    assert text.count("bed00003") == 3, "its effect, its trials, its machine"
    assert "What it depends on" not in text
    assert "Circle: a " in text


def test_hosts_that_differ_in_nothing_that_matters_are_said_to(tmp_path: Path) -> None:
    text = write_page(figures(60), tmp_path / "campaign.html").read_text(encoding="utf-8")
    assert "No property of the hosts makes a difference of 2% or more" in text
    assert "No test bed is unlike its kind." in text
