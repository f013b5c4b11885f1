#!/usr/bin/python
"""Make and start a container of podman that boots systemd, or remove it. Python 3.9, on its host, as root."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: podman_machine
short_description: Make and start a container of podman that boots systemd, or remove it
description:
  - C(state=present) makes a container that is new or differs from what is wanted, with its network, and starts it. One
    that is as it should be is left alone; one that is off starts again, as after a boot of its host.
  - C(state=absent) removes the container, its network namespace and its files.
  - A container that this module did not make is refused, and never touched.
  - A run that was killed in between is finished by the next one.
options:
  name:
    description: Name of the container and of its files.
    type: str
    required: true
  state:
    description: Make it or remove it.
    type: str
    choices: [present, absent]
    default: present
  folder:
    description: Folder of the containers' keys and settings of SSH; made where it is missing.
    type: path
    required: true
  image:
    description: The image in podman's store; empty with C(rootfs).
    type: str
    default: ""
  rootfs:
    description: The root filesystem instead, a folder that the caller has mounted.
    type: path
    default: ""
  network:
    description: A separate card on C(bridge), the network C(namespace) that the caller has made, or the host's.
    type: str
    choices: [bridge, namespace, host]
    default: bridge
  bridge:
    description: Bridge of the host, for C(network=bridge).
    type: str
    default: ""
  address:
    description: Address with its prefix length, for C(network=bridge).
    type: str
    default: ""
  gateway:
    description: Router, for C(network=bridge); may be empty.
    type: str
    default: ""
  namespace:
    description: Name of the network namespace; empty for that of C(network=bridge) is C(toll-NAME).
    type: str
    default: ""
  cpus:
    description: The host's CPUs that it may use, as 2-5,8.
    type: str
    required: true
  memory_mib:
    description: Memory that it may use, in MiB.
    type: int
    default: 0
  port:
    description: Port of its SSH server.
    type: int
    default: 22
  public_key:
    description: Public SSH key that root accepts.
    type: str
    default: ""
  host_key:
    description: Private key that its SSH server proves itself by.
    type: str
    default: ""
"""

LABEL = "vmtoll.machine"
CREDENTIALS = "/run/credentials/@vmtoll"
# Of crun and runc, only runc starts containers where control groups are hybrid (both versions); both need the package.
RUNTIME = "runc"


class ContainerError(Exception):
    """A command that failed, with the last line that it printed."""


class Machine:
    """A container with its files and, with a card on a bridge, its network namespace."""

    def __init__(self, parameters: dict[str, Any], *, check: bool) -> None:
        self.parameters, self.check = parameters, check
        self.name = parameters["name"]
        self.files = Path(parameters["folder"]) / self.name
        self.namespace = parameters["namespace"] or f"toll-{self.name}"  # vmtoll-… are the embedded lab's
        # The name of a network card has at most 15 bytes.
        self.card = f"vt{hashlib.sha256(self.name.encode()).hexdigest()[:10]}"
        self.done: list[str] = []

    def present(self) -> None:
        """Make it if it is new or differs from what is wanted, and start it. Raises ContainerError, OSError."""
        state = self._state()
        if state and _label(state) is None:
            raise ContainerError(
                "podman has a container of this name that vmtoll did not make; set vmtoll_container to another name, "
                "or leave vmtoll_cpus out to measure it as it is"
            )
        if state and _label(state) != self._digest():
            self.absent()
            state = None
        if state and state["State"]["Running"]:
            return
        self._step(f"{'start' if state else 'make'} container {self.name}")
        if self.check:
            return
        try:
            if self.parameters["network"] == "bridge":
                self._connect()
            if not state:
                self._write_files()
                run(["podman", "--runtime", RUNTIME, "create", *self._options()])
            run(["podman", "--runtime", RUNTIME, "start", self.name])
        except (ContainerError, OSError):
            if not state:  # what was half made would look like a container
                self.absent()
            raise

    def absent(self) -> None:
        """Remove the container, its network and its files, unless the container is another's. Raises ContainerError,
        OSError.
        """
        state = self._state()
        if state and _label(state) is not None:
            self._step(f"remove container {self.name}", "podman", "rm", "--force", "--time", "10", self.name)
        # Also of a container that has the host's network now: its earlier one.
        if not self.parameters["namespace"] and self._has_network():
            self._step(f"remove network of {self.name}")
            if not self.check:
                self._disconnect()
        if self.files.exists():
            self._step(f"remove {self.files}")
            if not self.check:
                shutil.rmtree(self.files)

    def _step(self, text: str, *argv: str) -> None:
        self.done.append(text)
        if argv and not self.check:
            run(list(argv))

    def _state(self) -> dict[str, Any] | None:
        """What podman knows of the container; None without such a container or without podman."""
        argv = ["podman", "inspect", "--type", "container", self.name]
        try:
            facts: list[dict[str, Any]] = json.loads(run(argv))
        except FileNotFoundError:
            return None
        except ContainerError as error:
            if "no such container" in str(error).lower():
                return None
            raise
        return facts[0]

    def _digest(self) -> str:
        """Digest of everything that makes the container."""
        kept = {key: value for key, value in self.parameters.items() if key != "state"}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    def _write_files(self) -> None:
        """Write the keys, which systemd takes as credentials, and the port of SSH."""
        self.files.mkdir(parents=True, exist_ok=True, mode=0o700)
        credentials = self.files / "credentials"
        credentials.mkdir(exist_ok=True, mode=0o700)
        for name, key in (("ssh.authorized_keys.root", "public_key"), ("vmtoll.ssh_host_key", "host_key")):
            file = credentials / name
            file.touch(mode=0o600)
            file.write_text(f"{self.parameters[key].strip()}\n")
        (self.files / "sshd.conf").write_text(f"Port {self.parameters['port']}\nPasswordAuthentication no\n")

    def _options(self) -> list[str]:
        """The words of `podman create`: systemd as the first process, its limits, its network, its root."""
        parameters, memory_mib = self.parameters, self.parameters["memory_mib"]
        is_host = parameters["network"] == "host"
        return [
            f"--name={self.name}",
            f"--label={LABEL}={self._digest()}",
            "--systemd=always",
            "--restart=no",
            f"--cpuset-cpus={parameters['cpus']}",
            # podman would allow as much swap again, which a guest of this size has not.
            *([f"--memory={memory_mib}m", f"--memory-swap={memory_mib}m"] if memory_mib else []),
            # podman asks for more than the host's own limits, which not every root may exceed.
            f"--ulimit=nofile={_limit(resource.RLIMIT_NOFILE, 1 << 20)}",
            f"--ulimit=nproc={_limit(resource.RLIMIT_NPROC, 1 << 15)}",
            f"--network={'host' if is_host else 'ns:/run/netns/' + self.namespace}",
            # Its network is its own, so its kernel parameters are its own to set; with the host's they are the host's.
            *([] if is_host else [f"--hostname={self.name}", "--cap-add=NET_ADMIN", "--security-opt=unmask=/proc/sys"]),
            f"--env=CREDENTIALS_DIRECTORY={CREDENTIALS}",
            f"--volume={self.files}/credentials:{CREDENTIALS}:ro",
            f"--volume={self.files}/sshd.conf:/etc/ssh/sshd_config.d/00-vmtoll-port.conf:ro",
            *(["--rootfs", parameters["rootfs"]] if parameters["rootfs"] else [parameters["image"]]),
            "/sbin/init",
        ]

    def _connect(self) -> None:
        """Make its network namespace, with a card (veth) whose other end is on the bridge."""
        self._disconnect()
        run(["ip", "netns", "add", self.namespace])
        parameters, inside = self.parameters, ["ip", "-n", self.namespace]
        run(["ip", "link", "add", self.card, "type", "veth", "peer", "name", "eth0", "netns", self.namespace])
        run(["ip", "link", "set", self.card, "master", parameters["bridge"], "up"])
        run([*inside, "link", "set", "lo", "up"])
        run([*inside, "address", "add", parameters["address"], "dev", "eth0"])
        run([*inside, "link", "set", "eth0", "up"])
        if parameters["gateway"]:
            run([*inside, "route", "add", "default", "via", parameters["gateway"]])

    def _has_network(self) -> bool:
        return self._has_card() or Path(f"/run/netns/{self.namespace}").exists()

    def _has_card(self) -> bool:
        return bool(shutil.which("ip")) and f" {self.card}@" in run(["ip", "-o", "link", "show"])

    def _disconnect(self) -> None:
        """Remove its card and namespace, where they exist. With the namespace alone, the card would go later."""
        if self._has_card():
            run(["ip", "link", "delete", self.card])
        if Path(f"/run/netns/{self.namespace}").exists():
            run(["ip", "netns", "delete", self.namespace])


def _label(state: dict[str, Any]) -> str | None:
    """The digest that a container of this module has; None for a container of others."""
    label: str | None = (state["Config"]["Labels"] or {}).get(LABEL)
    return label


def _limit(kind: int, wanted: int) -> str:
    hard = resource.getrlimit(kind)[1]
    limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    return f"{limit}:{limit}"


def run(argv: list[str]) -> str:
    """Run a command; return what it printed. Raises ContainerError, FileNotFoundError."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ContainerError(f"{' '.join(argv[:3])}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return done.stdout


def main() -> None:
    spec = {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "folder": {"type": "path", "required": True},
        "image": {"type": "str", "default": ""},
        "rootfs": {"type": "path", "default": ""},
        "network": {"type": "str", "choices": ["bridge", "namespace", "host"], "default": "bridge"},
        "bridge": {"type": "str", "default": ""},
        "address": {"type": "str", "default": ""},
        "gateway": {"type": "str", "default": ""},
        "namespace": {"type": "str", "default": ""},
        "cpus": {"type": "str", "required": True},
        "memory_mib": {"type": "int", "default": 0},
        "port": {"type": "int", "default": 22},
        "public_key": {"type": "str", "default": "", "no_log": False},
        "host_key": {"type": "str", "default": "", "no_log": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    machine = Machine(module.params, check=module.check_mode)
    try:
        (machine.present if module.params["state"] == "present" else machine.absent)()
    except (ContainerError, OSError) as error:
        module.fail_json(msg=f"container {machine.name}: {error}")
    diff = {"before": "", "after": "".join(f"{step}\n" for step in machine.done)}
    module.exit_json(changed=bool(machine.done), diff=diff)


if __name__ == "__main__":
    main()
