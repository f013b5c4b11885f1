"""Every page with a figure of KVM says first what is below KVM; metal of the embedded lab is called a container."""

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.support.committed_run import DEMO
from tests.support.page_text import banners, banners_text
from tests.support.records import BASELINE
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.model.verdict_columns import verdict_rows
from vmtoll.report import html, replication, words
from vmtoll.report.explorer import write_site
from vmtoll.report.tables import summaries

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_charts")]

GUEST = Arm("kvm-default")
SENTENCES = {kind: sentence for kind, (sentence, _) in words.KVM_HARDWARE.items()}
SHORT = {kind: words.platform_text(Accelerator.KVM, kind) for kind in SENTENCES}


def made(parent: Path, hardware: Hardware, accelerator: Accelerator = Accelerator.KVM) -> Run:
    return load_run(make_run(parent, Truth({"nginx": 0.9}, blocks=2, hardware=hardware, accelerator=accelerator)))


def said(text: str) -> set[Hardware]:
    """The kinds of hardware that a page's sentences name."""
    return {kind for kind, sentence in SENTENCES.items() if sentence in text}


@pytest.mark.parametrize("hardware", Hardware)
def test_the_report_states_it_above_its_headline(tmp_path: Path, hardware: Hardware) -> None:
    run = made(tmp_path, hardware)
    text = html.render(run, analyse(run))
    top, below = text.split("<h1>", 1)
    assert said(top) == {hardware} - {Hardware.NATIVE}
    assert f"<dt>Hardware below</dt><dd><strong>{hardware.text}</strong></dd>" in below  # of all alike
    if hardware in SHORT:
        assert f"kvm-default against metal (a container), {SHORT[hardware]}<br>" in below
        assert f"kvm-default ({SHORT[hardware]})" in below
    assert banners(text) == ["hardware"] * (hardware is not Hardware.NATIVE) + ["embedded"]


def test_the_report_names_the_hardware_of_the_labs_machine(tmp_path: Path) -> None:
    below = {Hardware.NESTED: "is itself a virtual one.", Hardware.EMULATED: "(TCG) emulates that machine's CPU."}
    for hardware in (Hardware.NESTED, Hardware.EMULATED, Hardware.NATIVE):
        run = made(tmp_path / hardware, hardware)
        noted = banners_text(html.render(run, analyse(run)))[-1]
        assert {kind for kind, sentence in below.items() if noted.endswith(sentence)} == {hardware} - {Hardware.NATIVE}


CHANGED = {"tuned": {"of": "metal", "apply": "true"}}


@pytest.mark.parametrize(
    ("truth", "start"),
    [
        (Truth(blocks=2), "“metal” is a container on this machine's kernel"),
        (Truth(blocks=2, guests=("tuned",), changes=CHANGED), "“metal” and “tuned” are one container on this"),
        (Truth(blocks=2, metal=False, guests=("tuned", "kvm-default"), changes=CHANGED), "“tuned” is a container on"),
        (Truth(blocks=2, guests=("container",)), "“metal” is a container on this machine's kernel, not a separate "
         "physical machine. “container” runs in podman on the same kernel: the difference from “metal” is"),
        (Truth(blocks=2, metal=False, guests=("container", "kvm-default")), ""),
    ],
)  # fmt: skip
def test_the_banner_of_the_lab_names_what_is_metal(tmp_path: Path, truth: Truth, start: str) -> None:
    text = words.lab_text(load_run(make_run(tmp_path, truth)))
    assert text.startswith(start) and bool(text) == bool(start)


def test_a_container_runtime_is_called_by_its_name(tmp_path: Path) -> None:
    folder = make_run(tmp_path, Truth(blocks=2, guests=("container",)))
    hosts = json.loads((folder / "hosts.json").read_text(encoding="utf-8"))
    for facts in hosts.values():
        if facts.get("environment") == "container":
            facts["runtime"] = {"runtime": "runc", "version": "1.1.5"}
    (folder / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")
    run, named = load_run(folder), "a runc container on the host's kernel, version 1.1.5"
    assert words.runtimes(run) == {"container": named}
    assert "“container” runs on this machine too" in words.lab_text(run) and "podman" not in words.lab_text(run)
    assert unescape(html.render(run, analyse(run))).count(named) == 2, "under what the run rests on, and by the machine"


def test_an_emulated_guest_is_no_kvm_whatever_is_below_its_host(tmp_path: Path) -> None:
    run = made(tmp_path, Hardware.EMULATED, Accelerator.TCG)
    text = html.render(run, analyse(run))
    assert said(text) == set()
    assert banners(text) == ["emulated", "embedded"]
    emulated = words.platform_text(Accelerator.TCG, Hardware.EMULATED)
    assert f"kvm-default against metal (a container), {emulated}<br>" in text


def test_the_report_names_the_module_for_which_a_guest_is_emulated(tmp_path: Path) -> None:
    truth = Truth({"nginx": 0.05}, blocks=2, accelerator=Accelerator.TCG, kvm_modules=("kvm_pvm",))
    other_run = load_run(make_run(tmp_path / "foreign", truth))
    assert words.module_text("kvm_pvm") in html.render(other_run, analyse(other_run)).split("<h1>")[0]
    native = made(tmp_path / "native", Hardware.NATIVE, Accelerator.TCG)
    assert not [line for line in banners_text(html.render(native, analyse(native))) if "/dev/kvm" in line]


@pytest.mark.parametrize("hardware", Hardware)
def test_the_replication_and_the_explorer_state_it(tmp_path: Path, hardware: Hardware) -> None:
    run = made(tmp_path, hardware)
    page = replication.write_page([(run, analyse(run))], tmp_path / "replication.html").read_text("utf-8")
    assert said(page) == {hardware} - {Hardware.NATIVE}
    assert f"kvm-default: KVM, hardware {hardware}" in page
    site = write_site(tmp_path / "results", tmp_path / "site").read_text("utf-8")
    (described,) = json.loads(site.split('<script type="application/json" id="data">')[1].split("</script>")[0])["runs"]
    assert described["kvm_hardware"] == [hardware] * (hardware is not Hardware.NATIVE)
    assert {row["hardware"] for row in described["rows"]} == {hardware}


def test_the_tables_have_it(tmp_path: Path) -> None:
    run = made(tmp_path, Hardware.NESTED)
    rows = [*summaries(run), *verdict_rows(analyse(run))]
    assert {row["hardware"] for row in rows} == {"nested"}
    assert {row["hardware"] for row in run.frame.to_dict("records")} == {"nested"}


def _older(folder: Path) -> Path:
    """The demo's run as an earlier version recorded it."""
    folder.mkdir()
    manifest = json.loads((DEMO / "run.json").read_text())
    hosts: dict[str, Any] = json.loads((DEMO / "hosts.json").read_text())
    records = [json.loads(line) for line in (DEMO / "trials.jsonl").read_text().splitlines()]
    for document in (manifest, *hosts.values(), *records):
        for key in ("hardware", "hypervisor"):
            document.pop(key, None)
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "hosts.json").write_text(json.dumps(hosts))
    (folder / "trials.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_only_the_recorded_hardware_counts_for_an_older_run(tmp_path: Path) -> None:
    """It has neither `hardware` nor `hypervisor`; its host said that it is a virtual machine."""
    run = load_run(_older(tmp_path / "older"))
    assert run.manifest.hardware == {}
    assert (run.hardware(BASELINE), run.hardware(GUEST)) == (Hardware.NESTED, Hardware.NESTED)
    assert {record.hardware for record in run.records} == {Hardware.UNKNOWN}
    path = made(tmp_path, Hardware.NATIVE).path
    document = json.loads((path / "run.json").read_text())
    del document["hardware"]
    (path / "run.json").write_text(json.dumps(document))
    older = load_run(path)
    assert (older.hardware(BASELINE), older.hardware(GUEST)) == (Hardware.UNKNOWN, Hardware.UNKNOWN)
    assert said(html.render(older, analyse(older))) == {Hardware.UNKNOWN}
