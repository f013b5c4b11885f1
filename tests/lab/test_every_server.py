"""Every server of the catalogue through the runner, and one for each program in the guest too: each serves the site."""

import csv
from pathlib import Path

import pytest
import yaml

from workloads.runner import sources
from workloads.runner.registry import Registry
from workloads.runner.run import run

pytestmark = pytest.mark.lab


def at_hand() -> dict[str, str]:
    """Each server of pages that can be measured here, with its program; that of mail has tests of its own."""
    registry = Registry()
    names = [name for name in registry.servers() if name not in sources.look(registry, registry.servers()).skipped]
    told = {name: yaml.safe_load(registry.server_file(name).read_text()) for name in names}
    return {name: server["binary"] for name, server in told.items() if "mail" not in server}


PROGRAMS = at_hand()
FIRST_OF_ITS_PROGRAM = {program: name for name, program in sorted(PROGRAMS.items(), reverse=True)}
IN_THE_GUEST = sorted(FIRST_OF_ITS_PROGRAM.values())
VARIANTS = sorted(set(PROGRAMS) - set(IN_THE_GUEST))


@pytest.mark.parametrize(
    ("servers", "environments", "workload"),
    # siege counts connections that a server closes as failed; the pages are what a variant answers in its own way
    [
        (IN_THE_GUEST, ["metal"], "site-siege-close"),
        (VARIANTS, ["metal"], "page-hello-10"),
        pytest.param(IN_THE_GUEST, ["kvm-default"], "site-siege-close", marks=pytest.mark.guest_minutes),
    ],
    ids=["programs", "variants", "in-the-guest"],
)
def test_every_server_serves_its_site(
    lab: Path, tmp_path: Path, servers: list[str], environments: list[str], workload: str
) -> None:
    experiment = {
        "question": "does every server serve?",
        "purpose": "smoke",
        "environments": environments,
        "servers": servers,
        "workloads": [workload],
        "blocks": 1,
        "warmup_s": 0.2,
        "duration_s": 0.5,
    }
    path = tmp_path / "every-server.yml"
    path.write_text(yaml.safe_dump(experiment))
    folder = run(path, lab / "inventory.yml", tmp_path / "results")
    with (folder / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, f"{row['server']} on {row['environment']}: {row['reasons']}"
        assert int(row["bodies_wrong"]) == 0
        assert float(row["throughput_rps"]) > 0
        assert float(row["server_cpu_us_per_request"]) > 0
    assert len(rows) == len(servers) * len(environments)
