"""Every server of the catalogue through the runner, and one for each program in the guest too: each serves the site."""

from pathlib import Path

import pytest
import yaml

from tests.lab.records import BY_CLIENT, measure, number, primary, undisturbed
from vmtoll.builds.suite import lab_release
from vmtoll.spec import sources
from vmtoll.spec.catalog import Registry
from vmtoll.spec.server import read_server

pytestmark = pytest.mark.lab


def at_hand() -> dict[str, str]:
    """Each server of pages that can be measured here, with its program. Mail and kernel TLS have tests of their own."""
    registry = Registry()
    servers = {name: read_server(name) for name in registry.servers()}
    skipped, suite = sources.find_sources(registry, servers).skipped, lab_release().suite
    plain = [s for s in servers.values() if s.serves == "pages" and not (s.tls and s.tls.kernel)]
    return {s.name: s.binary for s in plain if s.name not in skipped and suite not in s.not_in}


PROGRAMS = at_hand()
FIRST_OF_ITS_PROGRAM = {program: name for name, program in sorted(PROGRAMS.items(), reverse=True)}
IN_THE_GUEST = sorted(FIRST_OF_ITS_PROGRAM.values())
VARIANTS = sorted(set(PROGRAMS) - set(IN_THE_GUEST))


@pytest.mark.parametrize(
    ("servers", "environments", "workload"),
    # siege counts connections that a server closes as failed; the pages are what a variant answers in its own way
    [
        (IN_THE_GUEST, ["metal"], "site-siege-close"),
        pytest.param(VARIANTS, ["metal"], "page-hello-10", marks=pytest.mark.guest_minutes),
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
    _, records = measure(path, lab / "inventory.yml", tmp_path / "results")
    for record in records:
        assert undisturbed(record) <= BY_CLIENT, f"{record.scenario.server} on {record.arm}: {record.findings}"
        assert record.counts.bodies_wrong == 0
        assert number(primary(record).throughput_rps) > 0
        assert number(primary(record).server_cpu_us_per_request) > 0
    assert len(records) == len(servers) * len(environments)
