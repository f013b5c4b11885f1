"""Servers that this machine runs in a container runtime, or as plain processes beside those: without SSH or Python
inside. Each is one container, or one control group, which is named after its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from vmtoll.agent.containers import Container, find_container
from vmtoll.agent.docker import imported_image, registered_name
from vmtoll.agent.facts import sysctls
from vmtoll.agent.machine import output_of, processes_cpu, read
from vmtoll.agent.protocol import CpuTimes, SandboxOptions, ServerSpec
from vmtoll.agent.servers import CommandServer, listens

Answer = TypeVar("Answer")

LABEL = "vmtoll.sandbox"
CONTENT = "/srv/vmtoll"
_LOGS = "/var/log/vmtoll"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # as podman sets it
_LIMIT_S = 60.0
_REMOVE_S = 15.0
_TRY_S = 20.0  # a platform that does not work may also start for ever
_OPEN_FILES = 65536
_CLONE_NEWNET = 0x40000000
_HOSTS_KERNEL = ("process", "runc", "crun")  # serves TCP, and what else a server asks of it
_STORAGE_FULL = re.compile(r"no space left on device", re.IGNORECASE)
# Of engines and of runtimes: what says nothing about the cause.
_NOISE = re.compile(
    r'^(Error: |docker: |Error response from daemon: |time="\S+" level=\w+ msg="?|OCI runtime error: )+|"$'
)


class Sandbox:
    """The place of one environment's servers on this machine. `root`: the folder of its lock and records."""

    def __init__(self, options: SandboxOptions, root: Path) -> None:
        self.declared, self.options, self.root = options, options, root
        self.name = f"vmtoll-{options['name']}"
        self._files: Path | None = None
        # Of Docker: the image of the root file system, and the runtimes that the daemon knows.
        self._image, self._registered = "", dict[str, Any]()
        self.timed: Path | None = None  # stands for the runtime and notes its calls, while a start is measured

    def isolate(self, parts: Mapping[str, Any]) -> None:
        """Replace these parts of the declared isolation for the servers that are started from now on."""
        self.options = {**self.declared, **parts}  # type: ignore[typeddict-item]

    def is_left(self) -> bool:
        """Return whether a server of this environment runs here, or has left something."""
        if self.is_process:
            return any(folder.is_dir() for folder in group_folders(self.name))
        return shutil.which(self.engine) is not None and self.container() is not None

    @property
    def engine(self) -> str:
        """`podman`; `docker` where this machine has only that."""
        return "docker" if shutil.which("docker") and not shutil.which("podman") else "podman"

    @property
    def is_process(self) -> bool:
        return self.options["runtime"] == "process"

    @property
    def shares_stack(self) -> bool:
        """Return whether this machine's kernel serves the servers' TCP, so that its counters are theirs."""
        return self.options["runtime"] in _HOSTS_KERNEL or self.options["stack"] == "host"

    @property
    def program(self) -> str:
        """The runtime's program. Raises RuntimeError where this machine has none."""
        name = self.options["runtime"]
        found = self.options["runtime_path"] or shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if not found or not os.access(found, os.X_OK):
            raise RuntimeError(
                f"the container runtime {found or name} is not here; install it, or set vmtoll_runtime_path"
            )
        return found

    @contextlib.contextmanager
    def timing(self) -> Iterator[Callable[[], list[tuple[float, float]] | None]]:
        """Note begin and end of each call of the runtime; yield what returns them: none of a plain process, None with
        Docker, which takes no other program for a runtime than the registered one. Raises RuntimeError, OSError.
        """
        if self.is_process or self.engine == "docker":
            yield lambda: [] if self.is_process else None
            return
        folder = self.root / "run" / "vmtoll-timed"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "calls"
        log.write_text("")
        timed = folder / Path(self.program).name  # podman knows runtimes by their names
        timed.write_text(
            "#!/bin/bash\nLC_ALL=C begin=$EPOCHREALTIME\n"
            f'{shlex.quote(self.program)} "$@"\nstatus=$?\n'
            f'LC_ALL=C; echo "$begin $EPOCHREALTIME" >>{shlex.quote(str(log))}\nexit $status\n'
        )
        timed.chmod(0o755)
        self.timed = timed
        try:
            yield lambda: [(float(begin), float(end)) for begin, end in map(str.split, log.read_text().splitlines())]
        finally:
            self.timed = None

    @property
    def files(self) -> Path:
        """The root file system that the servers see. Raises RuntimeError where it is not here."""
        if self._files is None:
            kind, _, name = str(self.options["rootfs"]).partition(":")
            if self.engine == "docker" and (self.options["image"] or kind == "podman"):
                raise RuntimeError(
                    "Docker does not show the files of an image or a container here; unpack them into a folder, as with"
                    " `docker export`, and set vmtoll_rootfs to it"
                )
            if self.options["image"]:
                self.refuse_missing_image()
                self._files = Path(self.call("image", "mount", str(self.options["image"])))
            else:
                self._files = Path(self.call("mount", name) if kind == "podman" else str(self.options["rootfs"]))
            if not self._files.is_dir():
                raise RuntimeError(
                    f"{self._files}: no root file system is here; provision it, or correct vmtoll_rootfs"
                )
        return self._files

    def refuse_missing_image(self) -> None:
        """Raise RuntimeError where the engine does not have the image: a run fetches nothing."""
        image = str(self.options["image"])
        if subprocess.run(["podman", "image", "exists", image], check=False, capture_output=True).returncode:
            raise RuntimeError(f"podman has no image {image} here; pull it, or correct vmtoll_image")

    def call(self, *words: str, limit_s: float = _LIMIT_S, stdin: IO[bytes] | None = None) -> str:
        """Run the engine's command; return what it printed. Raises RuntimeError with one sentence."""
        engine = self.engine
        if os.geteuid():
            raise RuntimeError(
                f"{engine} is rootless here, and CPU sets and network namespaces need root; set ansible_become, or log"
                " in as root"
            )
        try:
            done = subprocess.run(
                [engine, *words], stdin=stdin, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except FileNotFoundError:
            raise RuntimeError("podman is not here; install it") from None
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it did not start within {limit_s:g} s") from None
        if done.returncode == 0:
            return done.stdout.strip()
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("See 'docker")]
        if _STORAGE_FULL.search(done.stderr):
            raise RuntimeError(
                f"{engine}'s storage on this machine is full; make room for it, as with `{engine} system prune`"
            )
        raise RuntimeError(_NOISE.sub("", (lines or [f"{engine} {words[0]} failed"])[-1]))

    def container(self) -> dict[str, Any] | None:
        """What the engine knows of this environment's container; None without one. Raises RuntimeError for one of this
        name that vmtoll did not make.
        """
        listing = output_of(self.engine, "inspect", "--type", "container", self.name, limit_s=_LIMIT_S)
        known: dict[str, Any] | None = next(iter(json.loads(listing or "[]")), None)
        if known and (known["Config"].get("Labels") or {}).get(LABEL) != str(self.root):
            raise RuntimeError(
                f"{self.engine} has a container {self.name} here that vmtoll did not make; rename it, or this host of "
                "the inventory"
            )
        return known

    def remove(self) -> bool:
        """End and remove what a server of this environment left here; return whether there was anything."""
        if self.is_process:
            return end_group(self.name)
        known = self.container() if shutil.which(self.engine) else None
        if known is None:
            return False
        rm = ["rm", "--force", *(["--time", "5"] if self.engine == "podman" else []), self.name]
        try:
            self.call(*rm, limit_s=_REMOVE_S)
        except RuntimeError:  # a platform that does not work answers no signal of its runtime
            pid = str(known["State"]["Pid"])
            for each in Container(pid, known["Id"]).pids() if pid != "0" else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(each), signal.SIGKILL)
            self.call(*rm)
        return True

    @property
    def runtime_flags(self) -> list[str]:
        """The runtime's own flags."""
        options, flags = self.options, list(self.options["flags"] or [])
        if options["platform"]:
            flags.append(f"platform={options['platform']}")
        return [*flags, "network=host"] if options["stack"] == "host" else flags

    def command(self, spec: ServerSpec) -> list[str]:
        """The command line that starts a server. Raises RuntimeError."""
        return self._process_command(spec) if self.is_process else [self.engine, *self._container_words(spec)]

    def _container_words(self, spec: ServerSpec) -> list[str]:
        options, name = self.options, spec["name"]
        memory = options["memory_mib"]
        if self.engine == "docker":
            self._registered = self._registered or json.loads(self.call("info", "--format", "{{json .Runtimes}}"))
            runtime = registered_name(self._registered, self.program, self.runtime_flags)
            begin = ["run", f"--runtime={runtime}", "--pull=never"]
            of_podman, mode = [], "mode=1777"
        else:
            runtime = str(self.timed or self.program)
            begin = [f"--runtime={runtime}", *(f"--runtime-flag={flag}" for flag in self.runtime_flags), "run"]
            of_podman, mode = ["--no-hosts", "--dns=none", "--read-only-tmpfs=false"], "mode=1777,notmpcopyup"
        return [
            *begin, "--detach", f"--name={self.name}", f"--label={LABEL}={self.root}", "--log-driver=none",
            "--read-only", *of_podman, "--pids-limit=-1", *limits(),
            f"--cpuset-cpus={options['cpus']}", *([f"--memory={memory}m"] if memory else []),
            *(f"--tmpfs={folder}:{mode}" for folder in ("/run", "/tmp", f"/run/vmtoll-{name}", _LOGS)),
            *([] if options["seccomp"] in (None, True) else ["--security-opt=seccomp=unconfined"]),
            *self._user_words(),
            *self._network_words(spec),
            *(f"--env={key}={value}" for key, value in spec.get("environment", {}).items()),
            *([f"--user={spec['user']}"] if spec.get("user") else []),
            *self._root_words(), *spec["argv"],
        ]  # fmt: skip

    def _user_words(self) -> list[str]:
        if not self.options["user_namespace"]:
            return []
        if self.engine == "docker":
            raise RuntimeError("Docker maps the users of all its containers alike; leave user_namespace out")
        return ["--uidmap=0:100000:65536", "--gidmap=0:100000:65536"]

    def _network_words(self, spec: ServerSpec) -> list[str]:
        network = self.options["network"]
        if network == "namespace" and self.engine == "docker":
            raise RuntimeError("Docker does not join a network namespace; set vmtoll_network to bridge or host")
        if network == "bridge":
            return ["--network=bridge", *(f"--publish={port}:{port}" for port in all_ports(spec))]
        return [f"--network=ns:{self._namespace}" if network == "namespace" else "--network=host"]

    def _root_words(self) -> list[str]:
        """The root file system, and the content as a mount, or read through an overlay over the root."""
        is_overlay = self.options["content"] == "overlay"
        content = [] if is_overlay else [f"--volume={self.files}{CONTENT}:{CONTENT}:ro"]
        if self.options["image"]:
            return [*content, str(self.options["image"])]
        if self.engine == "docker":
            self._image = self._image or imported_image(self.files, self.call)
            return [*content, self._image]
        return [*content, "--rootfs", f"{self.files}{':O' * is_overlay}"]

    def _process_command(self, spec: ServerSpec) -> list[str]:
        """A plain process in this root file system, with the CPUs and the network of the environment, and no other
        isolation: the mounts are only what makes the root read-only.
        """
        root, name = shlex.quote(str(self.files)), spec["name"]
        user = [f"--userspec={spec['user']}:"] if spec.get("user") else []
        environment = ["-i", f"PATH={_PATH}", *(f"{key}={value}" for key, value in spec.get("environment", {}).items())]
        script = "; ".join([
            "set -e", *(f"echo $$ >{shlex.quote(str(folder))}/cgroup.procs" for folder in group_folders(self.name)),
            "mount --make-rprivate /", f"mount --rbind {root} {root}", f"mount -o remount,bind,ro {root}",
            f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev",
            *(f"mount -t tmpfs tmpfs {root}/{folder}" for folder in ("run", "tmp", "var/log")),
            f"mkdir -m 1777 {root}/run/vmtoll-{name} {root}/var/log/vmtoll", f"ulimit -n {_open_files()}",
            f"exec chroot {shlex.join([*user, str(self.files), '/usr/bin/env', *environment, *spec['argv']])}",
        ])  # fmt: skip
        enter = ["nsenter", f"--net={self._namespace}"] if self.options["network"] == "namespace" else []
        return [*enter, "taskset", "-c", self.options["cpus"], "unshare", "--mount", "sh", "-c", script]

    @property
    def _namespace(self) -> str:
        return f"/run/netns/{self.options['network_namespace']}"

    def prepare_network(self) -> None:
        """Give the network namespace its address: a sandbox with its own TCP takes it from the card. Raises
        RuntimeError.
        """
        options = self.options
        if options["network"] != "namespace":
            return
        if not Path(self._namespace).exists():
            raise RuntimeError(f"there is no network namespace {options['network_namespace']}; correct the inventory")
        name = str(options["network_namespace"])
        cards = [line.split("@")[0].split()[0] for line in output_of("ip", "-n", name, "-br", "link").splitlines()]
        for card in (card for card in cards if card != "lo" and options["prefix"]):
            output_of("ip", "-n", name, "address", "replace", f"{options['address']}/{options['prefix']}", "dev", card)

    def listens(self, port: int, pid: str = "") -> bool | None:
        """Return whether a server accepts connections on the port; None where this machine cannot ask. `pid`: the first
        process of a server that was started.
        """
        network = self.options["network"]
        if network == "namespace":
            return in_network(self._namespace, lambda: listens(port)) if self.shares_stack else None
        if network == "bridge" and pid:
            template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
            addresses = output_of(self.engine, "inspect", "--format", template, self.name).split()
            return any(listens(port, address) for address in addresses)
        return listens(port)

    def settings(self, pid: str) -> dict[str, str]:
        """The kernel parameters of a server that runs; none where another kernel serves it, whose ones are not seen."""
        if self.options["runtime"] not in _HOSTS_KERNEL:
            return {}
        return in_network(f"/proc/{pid}/ns/net", sysctls)

    def settings_before(self) -> dict[str, str]:
        """The same before a server runs; none where its network is not there yet."""
        if self.options["runtime"] not in _HOSTS_KERNEL or self.options["network"] == "bridge":
            return {}
        return in_network(self._namespace, sysctls) if self.options["network"] == "namespace" else sysctls()

    def record(self, specs: Mapping[str, ServerSpec]) -> dict[str, Any]:
        """What the environment is, for a run's record. Raises RuntimeError."""
        options = self.options
        place = {key: options[key] for key in ("runtime", "network", "cpus", "memory_mib", "rootfs", "image")}
        commands = {name: shlex.join(self.command(spec)) for name, spec in specs.items()}
        if self.is_process:
            return {**place, "seccomp": "none", "capabilities": "all", "commands": commands}
        seccomp, capabilities = self._security()
        image = str(options["image"] or self._image)
        field = "{{.Id}}" if self._image else "{{.Digest}}"
        digest = self.call("image", "inspect", "--format", field, image) if image else ""
        return {
            **place, "version": self.version(), "platform": options["platform"],
            "stack": "host" if self.shares_stack else "own", "flags": self.runtime_flags,
            "engine": self.call("--version"), "seccomp": "none" if options["seccomp"] is False else seccomp,
            "capabilities": capabilities, "user_namespace": bool(options["user_namespace"]),
            "content": options["content"] or "mounted", "image_digest": digest or None, "commands": commands,
        }  # fmt: skip

    def _security(self) -> tuple[str, str]:
        """The filter of system calls and the capabilities that the engine gives a container. Raises RuntimeError."""
        if self.engine == "docker":
            return self.call("info", "--format", '{{join .SecurityOptions " "}}'), "Docker's own"
        security = json.loads(self.call("info", "--format", "json"))["host"]["security"]
        return security["seccompProfilePath"], security["capabilities"]

    def try_out(self) -> str:
        """Start a program that ends at once in this environment; return the runtime's version. Raises RuntimeError,
        with what the runtime said: one that is too old knows its platform, or this kernel, as little.
        """
        if self.is_process:
            return ""
        self.remove()
        self.prepare_network()
        spec: ServerSpec = {"name": "true", "argv": ["/bin/true"], "ports": []}
        words = [word for word in self._container_words(spec) if word != "--detach"]
        try:
            self.call(*words, limit_s=_TRY_S)
        except RuntimeError as error:
            raise RuntimeError(self.explained(str(error))) from None
        finally:
            with contextlib.suppress(RuntimeError):
                self.remove()
        return self.version()

    def version(self) -> str:
        """What the runtime's program says of itself; empty where it says nothing. Raises RuntimeError."""
        return output_of(self.program, "--version").partition("\n")[0]

    def explained(self, complaint: str) -> str:
        """A complaint of the runtime with its version and platform, which decide whether it works on this kernel."""
        if complaint.startswith(("podman", "docker", "Docker", "the container runtime")):
            return complaint
        version = self.version() or self.program
        platform = f" with platform {self.options['platform']}" if self.options["platform"] else ""
        return (
            f"{version}{platform} does not start a container on kernel {os.uname().release}: {complaint}; choose "
            "another platform or a newer runtime"
        )


class SandboxServer:
    """A server in a container that this machine's engine runs."""

    def __init__(self, spec: ServerSpec, sandbox: Sandbox) -> None:
        self.spec, self.sandbox = spec, sandbox
        self._container: Container | None = None
        self.start_lock = threading.Lock()

    def start(self, limit_s: float) -> None:
        self.prepare()
        self.launch(limit_s)

    def prepare(self) -> None:
        """Do what comes before a start. Raises RuntimeError."""
        self.sandbox.remove()
        self.sandbox.prepare_network()

    def launch(self, limit_s: float) -> None:
        """Start it after `prepare`. Raises RuntimeError."""
        with self.start_lock:  # so that stop() misses no server that is just starting
            try:
                self.sandbox.call(*self.sandbox.command(self.spec)[1:], limit_s=limit_s)
                self._container = find_container(self.sandbox.name, [self.sandbox.engine])
            except RuntimeError as error:
                with contextlib.suppress(RuntimeError):
                    self.sandbox.remove()
                raise RuntimeError(self.sandbox.explained(str(error))) from None

    def stop(self, limit_s: float) -> None:
        del limit_s
        with self.start_lock:
            self._container = None
            self.sandbox.remove()

    @property
    def pid(self) -> str:
        """Its first process; empty when none runs."""
        return self._container.pid if self._container and self._container.runs else ""

    def pids(self) -> list[str]:
        return self._container.pids() if self._container and self._container.runs else []

    def cpu(self, pids: list[str]) -> CpuTimes:
        return self._container.cpu() if self._container else processes_cpu(pids)


class ProcessServer(CommandServer):
    """A server as a plain process in a new control group, so that its account is that of a container."""

    def __init__(self, spec: ServerSpec, sandbox: Sandbox) -> None:
        super().__init__({"command": []})
        self.spec, self.sandbox = spec, sandbox

    def start(self, limit_s: float) -> None:
        self.prepare()
        self.launch(limit_s)

    def prepare(self) -> None:
        """Do what comes before a start. Raises RuntimeError."""
        self.sandbox.remove()
        self.sandbox.prepare_network()
        for folder in group_folders(self.sandbox.name):
            folder.mkdir(exist_ok=True)
            if memory_mib := self.sandbox.options["memory_mib"]:
                for file in (folder / "memory.max", folder / "memory.limit_in_bytes"):
                    if file.exists():
                        file.write_text(str(memory_mib << 20))
        self.command = self.sandbox.command(self.spec)

    def launch(self, limit_s: float) -> None:
        """Start it after `prepare`."""
        super().start(limit_s)

    def stop(self, limit_s: float) -> None:
        super().stop(limit_s)
        end_group(self.sandbox.name)

    @property
    def pid(self) -> str:
        return str(self.process.pid) if self.process and self.process.poll() is None else ""

    def pids(self) -> list[str]:
        return Container(self.pid, self.sandbox.name).pids() if self.pid else []

    def cpu(self, pids: list[str]) -> CpuTimes:
        return Container(self.pid, self.sandbox.name).cpu() if self.pid else processes_cpu(pids)


def check_pinned(image: str) -> None:
    """Raise RuntimeError unless podman has this image here, and it is given by its digest."""
    argv = ["podman", "image", "inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}", image]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except OSError:
        raise RuntimeError("podman is not here; install it") from None
    if os.geteuid() or done.returncode:
        why = "; it is rootless here: log in as root" if os.geteuid() else f"; get it: podman pull {image}"
        raise RuntimeError(f"podman has no image {image} here{why}")
    if "@sha256:" not in image:
        raise RuntimeError(
            f"{image} may name another image tomorrow; give it by its digest: {' or '.join(done.stdout.split())}"
        )


def group_folders(name: str) -> list[Path]:
    """The folders of a control group of this name, one for each hierarchy that counts what it uses."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root / name]
    return [folder / name for folder in (root / "cpuacct", root / "memory") if folder.is_dir()]


def end_group(name: str) -> bool:
    """End every process of a control group and remove it; return whether there was one."""
    folders = [folder for folder in group_folders(name) if folder.is_dir()]
    for _ in range(100):
        pids = {pid for folder in folders for pid in read(f"{folder}/cgroup.procs").split()}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            for folder in folders:
                if folder.is_dir():
                    folder.rmdir()
            break
        time.sleep(0.05)  # until the kernel has removed what was killed
    return bool(folders)


def all_ports(spec: ServerSpec) -> list[int]:
    """Every port that a server listens on, its metrics' excepted: they are on its loopback."""
    return [
        *spec.get("ports", [spec["port"]] if "port" in spec else []),
        *(spec["tls"]["ports"] if "tls" in spec else []),
    ]


def in_network(namespace: str, ask: Callable[[], Answer]) -> Answer:
    """Call a function in a network namespace, in a thread that ends with it. Raises what it raises, RuntimeError."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with Path(namespace).open("rb") as handle:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(handle.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            answers.append(ask())
        except BaseException as error:  # of whatever kind: it is raised where the answer is waited for
            errors.append(error)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0] if isinstance(errors[0], RuntimeError) else RuntimeError(str(errors[0])) from errors[0]
    return answers[0]


def limits() -> list[str]:
    """The options of an engine with the highest limits that this machine's root may grant a container."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    processes = 1 << 15 if hard == resource.RLIM_INFINITY else min(hard, 1 << 15)
    files = _open_files()
    return [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def _open_files() -> int:
    """How many files a server may have open: no more than this machine's root may grant."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
