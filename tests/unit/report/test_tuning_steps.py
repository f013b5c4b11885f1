"""Tuning steps in the report: the chart, what is skipped, and what the host saw."""

import json
import re
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from tests.support.page_text import words_of
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, make_run
from tests.support.tuning_run import LEVELS, STEPS, TuningTruth, make_tuning
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.report import words
from vmtoll.report.charts import draw_all
from vmtoll.report.html import render

pytestmark = pytest.mark.slow

WHY = "the inventory has no such guest; it needs hugepages"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(make_tuning(tmp_path_factory.mktemp("tuning"), TuningTruth()))


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the report says of the steps of an emulated run that lacks a profile."""
    guests = tuple(name for name in TuningTruth().guests if name != "kvm-step-pinned")
    skipped = [{"environment": "kvm-step-pinned", "why": WHY}, {"server": "thttpd", "why": "no source"}]
    tuning = TuningTruth(guests=guests, blocks=6, skipped=skipped, accelerator=Accelerator.TCG)
    lacking = load_run(make_tuning(tmp_path_factory.mktemp("lacking"), tuning))
    (lacking.path / "telemetry").mkdir()
    for trial in lacking.trials:
        if trial.arm == Arm("kvm-2009") and trial.scenario.load.is_open:
            kvm = {"exits": 5000, "io_exits": 3000, "halt_exits": 1000}
            content = {"primary": {"requests": 1000, "kvm": kvm}}
            (lacking.path / "telemetry" / f"{trial.name}.json").write_text(json.dumps(content))
    text = render(lacking, analyse(lacking))
    assert text.count('<figure id="tuning_steps-') == 3
    return text[text.index('<h2 id="tuning">') : text.index('<h2 id="trials">')]


def test_the_waterfall_shows_every_step_and_metal(run: Run) -> None:
    drawn = dict(draw_all(run, analyse(run), ["tuning_steps"]))
    assert list(drawn) == ["tuning_steps-1", "tuning_steps-2", "tuning_steps-3"]
    for chart in drawn.values():
        for profile in [*STEPS["cumulative"], *STEPS["single"]]:
            assert profile in chart.alt
        assert "Metal: " in chart.alt
        (axes,) = chart.figure.axes
        assert len(axes.patches) == 2 + 5, "both ends and five steps"
    first, *steps = (
        bar.get_bbox() for bar in drawn["tuning_steps-1"].figure.axes[0].patches[:4] if isinstance(bar, Rectangle)
    )
    assert first.x0 == 0
    for below, above in zip([first, *steps], steps, strict=False):
        assert above.x0 == pytest.approx(below.x1)
    assert steps[-1].x1 == pytest.approx(LEVELS["kvm-tuned"].rps, rel=0.1)


def test_a_profile_that_was_not_measured_is_skipped_and_named(section: str) -> None:
    assert f"skipped: {WHY}" in section
    assert "over kvm-step-pinned" in section
    assert "Not measured: kvm-step-pinned." in section


def test_the_report_names_emulation_and_what_the_host_saw(section: str) -> None:
    assert section.count('<figure id="tuning_steps-') == 3
    assert '<p class="emulated">' in section
    emulated = words.platform_text(Accelerator.TCG, Hardware.NATIVE)
    assert len(re.findall(rf"<h3>[^<]*, {emulated}\)</h3>", section)) == 3


def test_the_words_around_the_steps(section: str) -> None:
    lines = [line for line in words_of(section) if not line.startswith("|") or "io 3" in line]
    assert_snapshot(SNAPSHOTS / "tuning-steps.txt", {"Of an emulated run without a profile": {"the section": lines}})


def test_a_run_without_tuning_steps_has_none(tmp_path: Path) -> None:
    plain = load_run(make_run(tmp_path, Truth(blocks=2)))
    assert draw_all(plain, analyse(plain), ["tuning_steps"]) == []
