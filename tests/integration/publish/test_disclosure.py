"""What a machine discloses of itself, and what a bundle keeps of it."""

import json
from pathlib import Path

from tests.support.synthetic_run import Truth, make_run
from tests.support.this_machine import local_lab, opened_lab
from vmtoll import preflight
from vmtoll.model.disclosure import NAMES
from vmtoll.publish.bundle import open_run, publish

SECRET = "rack7-node12"


def test_preflight_names_the_items_that_this_machine_does_not_disclose(tmp_path: Path) -> None:
    stated = {item: "stated" for item in NAMES if item != "switch"} | {"operator": "Jane Doe"}
    with opened_lab(local_lab(tmp_path, metal={"vmtoll_disclosure": stated})) as (lab, _):
        told = lab.lines["client"].call("disclosure", 180)
        results = {result.machine: result for result in preflight.disclosure(lab)}
    assert set(told) == set(NAMES) - {"switch"}
    assert told["cpu"] and told["kernel"] and "libc6 " in told["packages"]
    assert set(results) == {"client", "metal"}
    assert (results["metal"].level, results["metal"].found) == ("warn", "not disclosed: switch")
    assert "{switch: 'Arista 7060CX, one hop, MTU 1500'}" in results["metal"].advice
    assert "switch" in results["client"].found


def test_a_bundle_keeps_the_block_under_roles_and_names_the_authors(tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth(blocks=2))
    hosts = json.loads((run / "hosts.json").read_text())
    machine = next(name for name, facts in hosts.items() if facts.get("environment") == "metal")
    items = {
        "cpu": {"text": f"EPYC of {SECRET}, 10.1.2.3", "source": "machine"},
        "nic_firmware": {"text": "4.40.1.2", "source": "machine"},
    }
    block = {"operator": "Jane Doe of Example", "machines": {machine: items}, "virtual": []}
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(manifest | {"disclosure": block}))
    (run / "private.json").write_text(json.dumps({"hosts": {machine: [SECRET]}, "users": []}))
    bundle = publish(run, tmp_path / "bundle", ["A. Author"])
    kept = open_run(bundle).manifest.disclosure
    assert kept is not None
    assert kept.operator == "A. Author"
    assert kept.machines["metal"]["cpu"].text == "EPYC of metal, [address]"
    assert kept.machines["metal"]["nic_firmware"].text == "4.40.1.2"
    page = (bundle / "disclosure.html").read_text()
    assert "EPYC of metal" in page and "Jane" not in page and SECRET not in page
