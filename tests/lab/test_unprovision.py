"""A machine that serves is provisioned and restored: a Debian of its own, compared before and after.

The container shares the network of the machine that runs the tests, whose kernel parameters it cannot set.
"""

import json
import os
import pty
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.the_lab import VMTOLL
from vmtoll.builds.booted_tree import BootedMachine, booted
from vmtoll.builds.suite import guest_release
from vmtoll.paths import VM_IMAGES
from vmtoll.shell import run

pytestmark = pytest.mark.long
# What the user has: a server of the catalogue that serves on another port, a load tool that another package brought.
USERS = ("nginx-light", "siege")
# Written by the system as it runs, not by a user or vmtoll, and the books of apt, dpkg and ucf.
VOLATILE = ("proc", "sys", "run", "tmp", "dev", "var/log", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/tmp",
            "var/lib/ucf", "var/lib/systemd", "etc/ld.so.cache", "root/.ansible")  # fmt: skip
# Debian's packages leave their system users when they are purged, lest a number be given to another.
ACCOUNTS = {f"etc/{name}{backup}" for name in ("passwd", "group", "shadow", "gshadow") for backup in ("", "-")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian that serves."""
    tree = tmp_path_factory.mktemp("unprovision") / "root"
    include = [*yaml.safe_load((VM_IMAGES / "image.yml").read_text())["include"], *USERS, "zip"]
    suite = guest_release().suite
    run(["mmdebstrap", "--variant=minbase", f"--include={','.join(include)}", suite, tree], log=tree.parent / "log")
    (tree / "etc/nginx/sites-enabled/default").unlink()
    (tree / "etc/nginx/conf.d/mine.conf").write_text("server { listen 127.0.0.1:18080; }\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (tree / "etc/sysctl.d/60-vmtoll.conf").write_text("# mine\n")
    run(["chroot", tree, "apt-mark", "auto", "siege"])
    return tree


@pytest.fixture(scope="module")
def machine(root: Path) -> Iterator[BootedMachine]:
    """The machine, booted."""
    with booted(root, root.parent, "unprovisioned", ("clients", "metal_hosts")) as there:
        data = yaml.safe_load(there.inventory.read_text())
        data["all"]["hosts"]["unprovisioned"]["vmtoll_environment"] = "metal"
        there.inventory.write_text(yaml.safe_dump(data))
        run([*there.ssh_command, "apt-get", "update", "-q"])
        yield there


def files(root: Path) -> dict[str, tuple[object, ...]]:
    """Path → kind, mode, owner and content of everything that a user or vmtoll may have written."""
    seen: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(root):
        here = os.path.relpath(folder, root)
        folders[:] = [n for n in folders if os.path.normpath(f"{here}/{n}") not in VOLATILE and n != "__pycache__"]
        for name in [*names, *folders]:
            path = Path(folder, name)
            if str(path.relative_to(root)) in {*VOLATILE, *ACCOUNTS}:
                continue
            facts = path.lstat()
            content: object = None
            if path.is_symlink():
                content = path.readlink()
            elif path.is_file():
                content = path.read_bytes()
            seen[str(path.relative_to(root))] = (stat.S_IFMT(facts.st_mode), facts.st_mode, facts.st_uid, content)
    return seen


def state(machine: BootedMachine) -> set[str]:
    """Packages, marks and units of the machine, a line each."""
    asked = {
        "packages": "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n'",
        "automatic": "apt-mark showauto",
        "units": "systemctl list-unit-files --no-legend --no-pager --plain",
        "active": "systemctl list-units --type=service --state=active --no-legend --no-pager --plain -o json",
    }
    told = {name: run([*machine.ssh_command, command]) for name, command in asked.items()}
    told["active"] = "\n".join(unit["unit"] for unit in json.loads(told["active"]))
    return {f"{name}: {' '.join(line.split())}" for name, lines in told.items() for line in lines.splitlines()}


def vmtoll(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VMTOLL, *map(str, words)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_a_machine_is_restored_as_it_was(machine: BootedMachine, root: Path) -> None:
    before, files_before = state(machine), files(root)
    assert "active: nginx.service" in before
    assert vmtoll("status", "-i", machine.inventory).stdout == "unprovisioned  nothing\n"

    refused = vmtoll("provision", "-i", machine.inventory)
    assert refused.returncode == 2, refused.stderr
    assert "nginx.service on unprovisioned" in refused.stderr
    assert "agree with --yes" in refused.stderr
    assert files(root) == files_before

    provisioned = vmtoll("provision", "-i", machine.inventory, "--yes")
    assert provisioned.returncode == 0, provisioned.stdout[-3000:] + provisioned.stderr
    during = state(machine)
    assert "active: nginx.service" in during
    assert "units: nginx.service masked enabled" in during
    assert len(during - before) > 20
    changed = json.loads(vmtoll("status", "-i", machine.inventory, "--json").stdout)["machines"]["unprovisioned"]
    assert changed["provisioned"]["units"] == ["nginx.service"]
    assert {"lighttpd", "iperf3"} < set(changed["provisioned"]["packages"])
    assert not {"siege", "nginx-light"} & set(changed["provisioned"]["packages"])
    # Who has agreed once is not asked again; what the user installs meanwhile stays.
    assert vmtoll("provision", "-i", machine.inventory).returncode == 0
    run([*machine.ssh_command, "apt-get", "install", "-qy", "tree"])

    restored = vmtoll("unprovision", "-i", machine.inventory, "--yes", "--json")
    assert restored.returncode == 0, restored.stderr[-3000:]
    assert "remove package lighttpd" in restored.stdout
    assert vmtoll("status", "-i", machine.inventory).stdout == "unprovisioned  nothing\n"
    run([*machine.ssh_command, "apt-get", "purge", "-qy", "tree"])
    after, files_after = state(machine), files(root)
    assert after ^ before == set()
    differing = sorted(
        path for path in files_before.keys() | files_after if files_before.get(path) != files_after.get(path)
    )
    assert not differing, "\n".join(differing)
    again = json.loads(vmtoll("unprovision", "-i", machine.inventory, "--yes", "--json").stdout)
    assert again == {"check": False, "machines": [{"name": "unprovisioned", "changes": []}]}


def test_a_question_is_asked_on_a_terminal_and_no_is_an_answer(machine: BootedMachine, root: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [VMTOLL, "provision", "-i", machine.inventory], stdin=theirs, stderr=subprocess.PIPE, text=True
    ) as asking:
        os.write(ours, b"n\n")
        assert asking.stderr is not None
        said = asking.stderr.read()
    assert asking.returncode == 2
    assert "Go on? [y/N]" in said
    assert not (root / "var/lib/vmtoll/provisioning.json").exists()
