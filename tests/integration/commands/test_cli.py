"""The command line: what a user types wrong is one clear sentence and exit code 2."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.committed_run import DEMO
from tests.support.measured import plan
from tests.support.program import VMTOLL, started, vmtoll
from tests.support.small_disk import fill, mounted
from vmtoll.runs.folder import read_manifest
from vmtoll.spec.catalog import Registry


@pytest.mark.parametrize(
    "words",
    [(), ("lab",), ("workload", "from-log"), ("run",), ("report",), ("provision",), ("list",), ("site",), ("demo",)],
)
def test_help_is_complete(words: tuple[str, ...]) -> None:
    done = vmtoll(*words, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert vmtoll("--version").stdout == f"vmtoll {version('vmtoll')}\n"


def test_dry_run_prints_the_schedule_and_the_time() -> None:
    done = vmtoll("run", "demo", "--dry-run")
    assert done.returncode == 0, done.stderr
    *trials, total = done.stdout.splitlines()
    assert len(trials) == 8 * 2 * (2 * 2 + 1)
    assert total.startswith("80 trials, about ")


def test_dry_run_prints_the_schedule_as_json() -> None:
    schedule = json.loads(vmtoll("run", "tls-bulk", "--dry-run", "--scale", "small", "--json").stdout)
    assert {"block", "order", "arm", "server", "workload", "load_kind", "load_value"} == set(schedule["trials"][0])
    assert {trial["arm"] for trial in schedule["trials"]} >= {"metal", "kvm-default"}
    assert "TLS" in next(skip["why"] for skip in schedule["skipped"] if skip["server"] == "lighttz")
    assert schedule["total_s"] > 0


def test_dry_run_reads_the_inventory(tmp_path: Path) -> None:
    """What the run would refuse, its dry run refuses; no machine is contacted."""
    inventory = tmp_path / "hosts.yml"
    hosts = {name: {"ansible_host": f"{name}.invalid", "vmtoll_lab": "hosts"} for name in ("load1", "big1")}
    hosts["load1"]["vmtoll_link"], hosts["big1"]["vmtoll_environment"] = "unshaped", "metal"
    groups = {"clients": {"hosts": {"load1": hosts["load1"]}}, "metal_hosts": {"hosts": {"big1": hosts["big1"]}}}
    inventory.write_text(json.dumps(groups))
    refused = vmtoll("run", "demo", "--inventory", inventory, "--dry-run")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "0 hosts have vmtoll_environment 'kvm-default', " in refused.stderr
    guest = {"ansible_host": "guest1.invalid", "vmtoll_lab": "hosts", "vmtoll_environment": "kvm-default"}
    guest |= {"vmtoll_kvm_host": "big1-host", "vmtoll_domain": "guest1"}
    groups |= {"kvm_guests": {"hosts": {"guest1": guest}}, "kvm_hosts": {"hosts": {"big1-host": {}}}}
    inventory.write_text(json.dumps(groups))
    done = vmtoll("run", "demo", "--inventory", inventory, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("80 trials, about ")
    other_link = vmtoll("run", "metal-vs-kvm-2009", "--inventory", inventory, "--dry-run")
    assert other_link.returncode == 2
    assert "client load1 has vmtoll_link: unshaped" in other_link.stderr


def test_dry_run_reads_the_profiles_of_guests_that_it_would_make(tmp_path: Path) -> None:
    """With an inventory the guests are there, and their kernels may be files of another machine."""
    (tmp_path / "lab.yml").write_text("all: {}\n")
    file = tmp_path / "experiments/own-kernel.yml"
    file.parent.mkdir()
    shipped = Registry().experiment_file("kernels").read_text()
    file.write_text(shipped.replace("linux-image-cloud-amd64", "/nowhere/bzImage"))
    refused = vmtoll("run", "own-kernel", "--dry-run", cwd=tmp_path)
    assert refused.returncode == 2
    name = "kvm-default-kernel-nowhere-bzimage"
    assert f"{file}: {name}: kernel: there is no file /nowhere/bzImage; correct the path" in refused.stderr
    guests = {
        f"guest{n}": {"ansible_host": f"guest{n}.invalid", "vmtoll_lab": "hosts", "vmtoll_environment": environment}
        for n, environment in enumerate(("kvm-default", name))
    }
    clients = {"hosts": {"load1": {"ansible_host": "load1.invalid", "vmtoll_lab": "hosts"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"clients": clients, "kvm_guests": {"hosts": guests}}))
    done = vmtoll("run", "own-kernel", "--dry-run", "--inventory", "hosts.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_dry_run_prints_what_is_left_of_a_run(tmp_path: Path) -> None:
    resolved = plan(Registry().experiment_file("demo")).resolved
    run = tmp_path / "run"
    run.mkdir()
    update = {"experiment": resolved.experiment, "workloads": dict(resolved.workloads), "site": resolved.site}
    recorded = read_manifest(DEMO).model_copy(update={**update, "status": "running", "skipped": []})
    (run / "run.json").write_text(recorded.model_dump_json(by_alias=True))
    lines = (DEMO / "trials.jsonl").read_text().splitlines(keepends=True)
    (run / "trials.jsonl").write_text("".join(lines[:13]) + lines[13][:20])
    done = vmtoll("run", "demo", "--resume", run, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{80 - 13} trials, about ")
    assert sorted(file.name for file in run.iterdir()) == ["run.json", "trials.jsonl"]
    other = vmtoll("run", "tails", "--resume", run, "--dry-run")
    assert other.returncode == 2
    assert "experiment tails, " in other.stderr and "since the run" in other.stderr


def test_dry_run_of_all_names_each_experiment_at_its_scale() -> None:
    small, full = (
        vmtoll("run", "all", "--dry-run", "--scale", scale).stdout.splitlines() for scale in ("small", "full")
    )
    assert [line.split()[0] for line in small] == [line.split()[0] for line in full]
    assert small[-1].startswith("9 experiments, about ")
    assert int(small[-1].split()[-2]) <= 90 < int(full[-1].split()[-2])
    schedule = json.loads(vmtoll("run", "all", "--dry-run", "--scale", "small", "--json").stdout)
    assert [each["experiment"] for each in schedule["experiments"]] == [line.split()[0] for line in small[:-1]]
    assert {"experiment", "trials", "total_s", "link", "boots"} == set(schedule["experiments"][0])
    assert {each["boots"] for each in schedule["experiments"]} == {1}
    assert all(line.endswith("  4 boots") for line in full[:-1]), "of two blocks each; small scale has one"
    assert not any("boot" in line for line in small)
    assert f"about {schedule['total_s'] / 60:.0f} minutes" in small[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "dmeo", "--dry-run"), "did you mean 'demo'"),
        (("run", "demo"), "lab is not up"),
        (
            ("run", "demo", "--scale", "small", "--dry-run"),
            "demo.yml: defines no scales, so --scale does not",
        ),
        (
            ("run", "demo", "--resume", "{tmp}", "--dry-run"),
            "no run in this folder; give results/<experiment>",
        ),
        (("run",), "vmtoll: missing argument 'experiment'; see `vmtoll run --help`"),
        (("run", "--bogus"), "vmtoll: no such option: --bogus; see `vmtoll run --help`"),
        (("bogus",), "vmtoll: no such command 'bogus'; see `vmtoll --help`"),
        (("run", "demo", "--scale", "huge"), "vmtoll: invalid value for '--scale': 'huge' is not one of "),
        (("run", "demo", "--until", "3"), "'--until': '3' is not PERCENT,MINUTES; give the half-width in percent"),
        (("report", "{tmp}/nosuch"), "nosuch' does not exist; see `vmtoll report --help`"),
        (
            ("capacity", str(DEMO), "--rate", "x", "--p99-ms", "5"),
            "invalid value for '--rate': must be a valid number; see `vmtoll capacity --help`",
        ),
        (("run", "all", "--resume", "{tmp}"), "--resume cannot be combined with `run all`"),
        (("replication", "--results", "{tmp}"), "no batch (all-<scale>.json); name the runs"),
        (("replication", "--results", "{junk}"), "junk/all-small.json: not the record of a batch; remove it"),
        (("lab", "up", "--link", "fast"), "vmtoll: --link 'fast': not a rate; give `unshaped`, or a rate"),
        (
            ("lab", "up", "--topology", "ring"),
            "vmtoll: unknown topology 'ring' (did you mean 'single'?); allowed: ",
        ),
        (
            ("lab", "up", "--guests", "kvm-2008"),
            "vmtoll: unknown guest profile 'kvm-2008' (did you mean 'kvm-2009'?); allowed",
        ),
        (("report", "{tmp}"), "run.json"),
        (("replay", "{tmp}"), "SHA256SUMS: No such file or directory; give a folder that `vmtoll publish` wrote"),
        (("compare", str(DEMO), "{tmp}"), "run.json: no such file; is this a run directory?"),
        (("publish", str(DEMO), "--output", "/dev/null"), "/dev/null: exists and is not a bundle; choose another"),
        (("site", "--results", "{tmp}", "--output", "{tmp}/site"), "no run (<experiment>/<run-id>/run.json)"),
        (
            ("workload", "from-log", "{binary}", "--output", "{tmp}/w"),
            "vmtoll: {binary}: not a text; give an access log",
        ),
        (
            ("untune", "--inventory", "/dev/null"),
            "vmtoll: /dev/null: no host to restore; give an --inventory with hosts",
        ),
        (("replication", str(DEMO), "--output", "{binary}/page.html"), "vmtoll: {binary}: is a file, not a folder"),
        (
            ("notebook", "tails", "{tmp}"),
            "vmtoll: {tmp}: neither a run nor a folder of runs; set RUN to results/<experi",
        ),
        (
            ("site", "--results", "{runs}", "--output", "/dev/null/site"),
            "vmtoll: /dev/null/site: Not a directory",
        ),
        (
            ("publish", str(DEMO), "--output", "/dev/null/bundle", "--author", "A"),
            "vmtoll: /dev/null/bundle: Not a directory",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    junk, runs = tmp_path / "junk", tmp_path / "runs"
    junk.mkdir()
    (runs / "demo").mkdir(parents=True)
    (runs / "demo" / DEMO.name).symlink_to(DEMO)
    (junk / "all-small.json").write_text("{")
    places = {"tmp": tmp_path, "junk": junk, "runs": runs, "binary": junk / "binary"}
    places["binary"].write_bytes(bytes(99))
    said = re.sub(r"\{(tmp|binary)\}", lambda word: str(places[word[1]]), said)
    done = vmtoll(*(word.format(**places) for word in words), VMTOLL_STATE=str(tmp_path / "state"))
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert "[Errno" not in done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "command", ["untune --check", "tune --check", "preflight", "provision --check", "campaign run demo"]
)
def test_a_file_that_is_no_inventory_is_refused(command: str, tmp_path: Path) -> None:
    """Ansible itself warns, and goes on with no hosts."""
    (tmp_path / "hosts.yml").write_text("clients:\n  hosts: [\n")
    done = vmtoll(*command.split(), "--inventory", tmp_path / "hosts.yml")
    assert done.returncode == 2, done.stdout
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"vmtoll: {tmp_path}/hosts.yml: Ansible finds ")
    assert "(line 3: YAML parsing" in sentence


def test_an_inventory_that_ansible_cannot_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("clients: {hosts: {a: {}}}\n")
    done = vmtoll("preflight", "--inventory", tmp_path / "hosts.yml", ANSIBLE_HOME="/dev/null/ansible")
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert "local directories" in sentence
    assert "; set ANSIBLE_HOME " in sentence


def test_a_report_names_its_files_to_programs(tmp_path: Path) -> None:
    run = shutil.copytree(DEMO, tmp_path / "run")
    done = vmtoll("report", run, "--json")
    written = json.loads(done.stdout)
    assert list(written) == ["run", "analysis", "report", "table", "spreadsheet", "answer"]
    assert all(Path(written[key]).exists() for key in ("run", "analysis", "report", "table", "spreadsheet"))


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("publish {run} --output {tmp}/bundle --author A", ["bundle", "SHA256SUMS"]),
        ("partition {run} --output {tmp}/data --campaign c --testbed t", ["dataset", "runs"]),
        ("replication {run} --output {tmp}/page.html", ["page"]),
        ("site --results {tmp}/results --output {tmp}/site", ["site", "refused"]),
        ("notebook metal_vs_kvm {run}", ["notebook"]),
    ],
)
def test_what_was_written_is_named_to_programs(tmp_path: Path, words: str, keys: list[str]) -> None:
    run = shutil.copytree(DEMO, tmp_path / "results" / "demo" / DEMO.name)
    done = vmtoll(*words.format(run=run, tmp=tmp_path).split(), "--json")
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert list(written) == keys
    assert Path(written[keys[0]]).exists()


def test_a_run_that_cannot_be_read_is_refused_by_the_site(tmp_path: Path) -> None:
    for name in ("sound", "damaged"):
        shutil.copytree(DEMO, tmp_path / "results" / "demo" / name)
    (tmp_path / "results" / "demo" / "damaged" / "run.json").write_text("{")
    done = vmtoll("site", "--results", tmp_path / "results", "--output", tmp_path / "site", "--json")
    assert done.returncode == 1, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"vmtoll: refused: {tmp_path}/results/demo/damaged: run.json: Expecting ")
    assert json.loads(done.stdout)["refused"] == [sentence.removeprefix("vmtoll: refused: ")]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_state_of_the_lab_is_text_or_json(tmp_path: Path, as_json: bool) -> None:
    done = vmtoll("lab", "status", *(["--json"] if as_json else []), VMTOLL_STATE=str(tmp_path))
    assert done.returncode == 1, done.stderr
    if as_json:
        assert json.loads(done.stdout) == {"up": False, "silent_machines": []}
    else:
        assert done.stdout == "up: no\nsilent machines: none\n"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A run on a disk of its own that has no room left."""
    with mounted(tmp_path / "disk", 8) as disk:
        shutil.copytree(DEMO, disk / "results" / "demo" / "run")
        line = '10.0.0.1 - - [22/Nov/2026:12:00:00 +0000] "GET /a.html HTTP/1.1" 200 1000 "-" "-"'
        (disk / "log").write_text(f"{line}\n" * 9)
        fill(disk)
        yield disk


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("publish {disk}/results/demo/run --output {disk}/bundle --author A", "bundle"),
        ("replication {disk}/results/demo/run --output {disk}/page.html", "page.html"),
        ("site --results {disk}/results --output {disk}/site", "site"),
        pytest.param(
            "notebook metal_vs_kvm {disk}/results/demo/run",
            "results/demo/run/metal_vs_kvm.html",
            marks=pytest.mark.long,
        ),
        ("report {disk}/results/demo/run", "results/demo/run/analysis.json"),
        ("workload from-log {disk}/log --output {disk}/w --name shop", "w/shop.yml"),
        (
            "partition {disk}/results/demo/run --output {disk}/data --campaign c --testbed t",
            f"data/samples/campaign=c/testbed=t/experiment=demo/{DEMO.name}.parquet",
        ),
    ],
)
def test_what_a_full_disk_does_not_take_is_named(full_disk: Path, words: str, file: str) -> None:
    done = vmtoll(*words.format(disk=full_disk).split())
    assert done.returncode == 2, done.stdout
    assert f"vmtoll: {full_disk / file}: {os.strerror(errno.ENOSPC)}" in done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert not list(full_disk.rglob("*.partial")), "no draft is left"


@pytest.mark.parametrize("words", [("list",), ("run", "demo", "--dry-run"), ("run", "--help")])
def test_a_reader_that_ends_early_is_no_error(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([VMTOLL, *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_interrupt_is_one_sentence(tmp_path: Path) -> None:
    """It reaches the program while an inventory, which is a script, is being read."""
    inventory, begun = tmp_path / "inventory.sh", tmp_path / "begun"
    inventory.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 20\n")
    inventory.chmod(0o755)
    with subprocess.Popen([VMTOLL, "preflight", "-i", inventory], stderr=subprocess.PIPE, text=True) as process:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        assert process.stderr.readline() == "vmtoll: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("module", ["vmtoll.cli", "typer", "vmtoll.commands.list"])
def test_an_interrupt_while_modules_load_is_silent(module: str) -> None:
    program = f"""
import os, signal, sys
from vmtoll.__main__ import main
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
main()
"""
    done = subprocess.run([sys.executable, "-c", program, "list"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("words", [("report", "{run}"), ("show", "{run}", "--json"), ("--help",)])
def test_any_encoding_of_the_terminal_will_do(words: tuple[str, ...], tmp_path: Path) -> None:
    """What the encoding lacks is printed as in JSON, so that JSON stays the same for programs."""
    run = shutil.copytree(DEMO, tmp_path / "run")
    typed = [word.format(run=run) for word in words]
    done = started(*typed, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    if "--json" in words:
        utf_8 = started(*typed, PYTHONIOENCODING="utf-8")
        assert not utf_8.stdout.isascii()
        assert json.loads(done.stdout) == json.loads(utf_8.stdout)
