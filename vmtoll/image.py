"""The one root filesystem of the embedded lab, kept in a cache under a key of everything it depends on."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from vmtoll import builds, servers
from vmtoll.paths import CACHE, PLAYBOOKS, REPO, VM_IMAGES
from vmtoll.shell import UserError, lock, play, run

IMAGES = CACHE / "images"
KEPT_IMAGES = 2
BOOT_TIMEOUT_S = 60
# Of playbooks/, what is done around the machines and not in them.
_AROUND = {"embedded_lab", "kvm_guest", "host_tuning", "topologies"}

Say = Callable[[str], None]


def ensure(say: Say) -> Path:
    """Return the folder of the image for this checkout (root/, guest.qcow2, vmlinuz, initrd.img), built if needed."""
    with lock("image"):
        variables = builds.variables(servers.Policy())
        key = _key(variables)
        folder = IMAGES / key
        if folder.is_dir():
            folder.touch()
            say(f"image {key} is in the cache")
            return folder
        _build(folder, variables, say)
        _forget_old_images()
        return folder


def _key(variables: dict[str, Any]) -> str:
    """Digest of the recipe, of what site.yml would do, and of what it would copy."""
    digest = hashlib.sha256()
    files = [VM_IMAGES / "image.yml", Path(__file__), PLAYBOOKS / "image.yml", PLAYBOOKS / "site.yml"]
    files += [file for file in PLAYBOOKS.glob("*/**/*") if not _AROUND.intersection(file.parts)]
    for file in sorted(file for file in files if file.is_file()):
        digest.update(f"{file.relative_to(REPO)}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    digest.update(Path(variables["web_servers_archive"]).read_bytes())
    digest.update(json.dumps(variables["web_servers_list"], sort_keys=True).encode())
    for site in variables["site_content_sites"]:
        digest.update(f"{site['name']} {site['digest']}\n".encode())
    for tool in variables["load_tools_binaries"]:
        digest.update(f"{tool['name']} {tool['key']}\n".encode())
    for adapter in sorted(REPO.glob("workloads/tools/*.py")):
        installed = [line for line in adapter.read_text().splitlines() if line.startswith(("PACKAGE = ", "MASK = "))]
        digest.update("\n".join(installed).encode())
    return digest.hexdigest()[:16]


def _build(folder: Path, variables: dict[str, Any], say: Say) -> None:
    recipe = yaml.safe_load((VM_IMAGES / "image.yml").read_text())
    partial = IMAGES / f".partial-{folder.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    root, log = partial / "root", CACHE / "logs" / f"image-{folder.name}.log"
    log.unlink(missing_ok=True)

    say(f"image {folder.name}: base system ({recipe['suite']}) by mmdebstrap")
    run(
        [
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join(recipe['include'])}",
            recipe["suite"],
            root,
        ],
        log=log,
    )
    say(f"image {folder.name}: provisioning by playbooks/image.yml")
    _provision(partial, root, variables)
    say(f"image {folder.name}: disk of the guest")
    _strip(root)
    shutil.copyfile(next(root.glob("boot/vmlinuz-*")), partial / "vmlinuz")
    shutil.copyfile(next(root.glob("boot/initrd.img-*")), partial / "initrd.img")
    raw = partial / "guest.raw"
    run(["mkfs.ext4", "-q", "-d", root, "-L", "vmtoll", raw, f"{recipe['disk_gib']}G"], log=log)
    run(["qemu-img", "convert", "-O", "qcow2", raw, partial / "guest.qcow2"], log=log)
    raw.unlink()
    packages = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"])
    (partial / "image.json").write_text(
        json.dumps({"key": folder.name, "packages": dict(line.split() for line in packages.splitlines())}, indent=1)
    )
    partial.rename(folder)


def _proxies() -> list[str]:
    """Return mmdebstrap's options for the proxies that this machine's apt uses; they reach the image's own apt too."""
    lines = [line for line in run(["apt-config", "dump", "Acquire"]).splitlines() if re.match(r"\S+::Proxy ", line)]
    if "http_proxy" in os.environ:
        lines.append(f'Acquire::http::Proxy "{os.environ["http_proxy"]}";')
    return [f"--aptopt={line}" for line in lines]


def _provision(partial: Path, root: Path, variables: dict[str, Any]) -> None:
    """Boot the tree with the machine's network and run image.yml against it over SSH, as against every host."""
    key = partial / "bake-key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bake = root / "etc/ssh/sshd_config.d/00-bake.conf"
    bake.write_text(f"Port {port}\nListenAddress 127.0.0.1\nPasswordAuthentication no\n")
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
    (partial / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
    ssh_options = f"-o UserKnownHostsFile={partial}/known_hosts -o IdentitiesOnly=yes"
    inventory = partial / "inventory.yml"
    image_host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": ssh_options,
    }
    groups = {group: {"hosts": {"image": None}} for group in ("lab_machines", "clients", "suts")}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"image": image_host}, "children": groups}}))
    # The machine dies with this process: an interrupted build leaves nothing running.
    machine = subprocess.Popen(
        [
            *(
                "setpriv",
                "--pdeathsig",
                "KILL",
                "systemd-nspawn",
                "--quiet",
                "--keep-unit",
                "--register=no",
                "--boot",
            ),
            *(f"--directory={root}", "--machine=vmtoll-image", "--resolv-conf=copy-host", "--timezone=off"),
            f"--load-credential=ssh.authorized_keys.root:{key}.pub",
        ],
        stdin=subprocess.DEVNULL,
        stdout=(partial / "console.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        reach: list[str | Path] = ["ssh", *ssh_options.split(), "-i", key, "-p", str(port), "root@127.0.0.1"]
        _wait_for_ssh(reach, machine)
        run([*reach, "apt-get", "update", "-q"])
        extra = partial / "variables.json"
        extra.write_text(json.dumps(variables))
        play("image.yml", "-e", f"@{extra}", inventory=inventory, quiet=True)
        run([*reach, "apt-get", "clean"])
    finally:
        machine.terminate()  # systemd-nspawn powers its machine off
        try:
            machine.wait(timeout=20)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
    bake.unlink()
    for file in (
        key,
        key.with_suffix(".pub"),
        inventory,
        partial / "known_hosts",
        partial / "variables.json",
    ):
        file.unlink(missing_ok=True)


def _wait_for_ssh(reach: list[str | Path], machine: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while subprocess.run([*map(str, reach), "true"], capture_output=True, check=False).returncode != 0:
        if machine.poll() is not None or time.monotonic() > deadline:
            raise UserError(f"The image's machine does not answer; its console: {IMAGES}/.partial-*/console.log")
        time.sleep(0.2)


def _strip(root: Path) -> None:
    """Remove what must not be shared by machines, or is of no use to them."""
    for pattern in (
        "etc/ssh/ssh_host_*",
        "root/.ssh",
        "var/lib/apt/lists/*",
        "var/log/*",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/apt/apt.conf.d/99mmdebstrap",
    ):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc/machine-id").write_text("")


def _forget_old_images() -> None:
    folders = [folder for folder in IMAGES.iterdir() if not folder.name.startswith(".")]
    folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    in_use = Path("/proc/self/mounts").read_text()
    for folder in folders[KEPT_IMAGES:]:
        if f"lowerdir={folder}/" not in in_use:
            shutil.rmtree(folder)
