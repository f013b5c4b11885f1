"""Energy by RAPL: a made-up powercap folder, and what this machine itself says."""

from pathlib import Path

import pytest

from vmtoll.agent.machine import POWERCAP, energy_uj, read
from vmtoll.agent.protocol import Reading
from vmtoll.trial.usage import Usage, energy_j

END_UJ = 262_143_328_850


def zone(folder: Path, zone: str, name: str, energy: int | str, end: int = END_UJ) -> None:
    (folder / zone).mkdir()
    for file, value in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", end)):
        (folder / zone / file).write_text(f"{value}\n")


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two processors, the second with memory of its own; parts and the platform; the same once more by MMIO."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 400_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 2_000_000)
    zone(tmp_path, "intel-rapl:1:0", "dram", 300_000)
    zone(tmp_path, "intel-rapl:2", "psys", 9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return tmp_path


def usage(energy: dict[str, list[int]], host: Reading | None = None) -> Usage:
    return Usage(clients={}, suts={"guest": {"energy": energy}}, host=host)


def test_processors_and_memory_are_counted_once(powercap: Path) -> None:
    assert energy_uj(str(powercap)) == {
        "intel-rapl:0": [1_000_000, END_UJ],
        "intel-rapl:1": [2_000_000, END_UJ],
        "intel-rapl:1:0": [300_000, END_UJ],
    }


def test_a_counter_that_may_not_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "name").write_text("package-0\n")
    assert energy_uj(str(tmp_path)) == {}
    assert energy_uj(str(tmp_path / "not-there")) == {}


def test_joules_between_two_readings_also_over_the_end_of_a_counter() -> None:
    before = usage({"a": [1_000_000, END_UJ], "b": [END_UJ - 500_000, END_UJ]})
    after = usage({"a": [3_500_000, END_UJ], "b": [250_000, END_UJ]})
    assert energy_j(before, after) == pytest.approx(2.5 + 0.75)


def test_a_guests_energy_is_its_hosts() -> None:
    hosts: list[Reading] = [{"energy": {"a": [at, END_UJ]}} for at in (0, 4_000_000)]
    assert energy_j(usage({}, hosts[0]), usage({}, hosts[1])) == pytest.approx(4.0)


def test_no_figure_without_counters() -> None:
    assert energy_j(usage({}), usage({})) is None
    assert energy_j(usage({"a": [0, END_UJ]}), usage({})) is None, "they went away in between"


def test_this_machine_reports_the_counters_of_its_kernel() -> None:
    packages = [z for z in Path(POWERCAP).glob("intel-rapl:*") if read(f"{z}/name").startswith("package")]
    readable = [z for z in packages if read(f"{z}/energy_uj").isdigit()]
    assert {z.name for z in readable} <= energy_uj().keys()
    assert bool(energy_uj()) == bool(readable)
