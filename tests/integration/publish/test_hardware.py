"""A bundle says what KVM's host runs on: above its method, in every table, and in the machines' facts."""

import csv
import json
from pathlib import Path

from tests.support.recorded_hosts import facts
from tests.support.synthetic_run import Truth, make_run
from vmtoll.model.hardware import Hardware, hardware_of
from vmtoll.publish.bundle import open_bundle, publish


def test_the_bundle_of_two_guests_does_not_say_what_metal_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth(metal=False, guests=("kvm-default", "kvm-tuned"), blocks=2))
    text = (publish(run, tmp_path / "bundle") / "README.md").read_text(encoding="utf-8")
    assert "Lab: embedded; link" in text
    assert "metal" not in text


def test_the_bundle_is_marked_emulated_hardware(tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth({"nginx": 0.2}, blocks=2, hardware=Hardware.EMULATED))
    hosts = json.loads((run / "hosts.json").read_text())
    hosts["host"] |= facts("tcg-max").recorded
    (run / "hosts.json").write_text(json.dumps(hosts))
    bundle = publish(run, tmp_path / "bundle")
    text = (bundle / "README.md").read_text(encoding="utf-8")
    sentence = (
        "**KVM on emulated hardware: the run shows that everything works, not what KVM costs.** Software (TCG) emulates"
    )
    assert text.index(sentence) < text.index("## Method")
    assert "Lab: embedded (metal is a container on the kernel of the lab's machine)" in text
    for table in ("trials", "summaries", "verdicts"):
        with (bundle / f"{table}.csv").open(encoding="utf-8") as rows:
            assert {row["hardware"] for row in csv.DictReader(rows)} == {"emulated"}, table
    published = open_bundle(bundle)
    assert published.kvm_hardware == (Hardware.EMULATED,)
    (host,) = (known for known in published.hosts.values() if known.is_kvm_host)
    assert host.hypervisor == facts("tcg-max").hypervisor
    assert hardware_of(host) is Hardware.EMULATED
