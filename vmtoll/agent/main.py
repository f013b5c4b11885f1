"""The agent's operations and its loop.

It reads one JSON request a line, `{"id", "op", "args"}`, and answers `{"id", "result"}` or `{"id", "error"}`,
in any order. When its input ends (the runner is gone) it resumes the guests it paused, kills what it started, stops
the servers it started, reverts the change that it applied and releases its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, Union

from vmtoll.agent.applied import Applied
from vmtoll.agent.changed import active_units, changes_left, clean_up
from vmtoll.agent.commands import Commands
from vmtoll.agent.conditions import clock, mask_of, network, ports, survey
from vmtoll.agent.containers import Containers, engine_of
from vmtoll.agent.disclosure import disclosure
from vmtoll.agent.domains import Domains
from vmtoll.agent.exits import TracedExits
from vmtoll.agent.facts import (
    fingerprint,
    installed_packages,
    libvirt_facts,
    machine_facts,
    release,
    server_facts,
    sysctls,
    tree_digest,
)
from vmtoll.agent.handshake import handshake, kernel_sessions, tls_context
from vmtoll.agent.kvm_host import facts as kvm_host_facts
from vmtoll.agent.libvirt_guests import guest_processes, libvirt_guests, refusals
from vmtoll.agent.machine import (
    counters,
    drop_caches,
    energy_uj,
    forbid_deep_sleep,
    memory,
    other_vhost_threads,
    pss_kib,
    read,
    read_kib,
    rss_kib,
    stat_fields,
)  # fmt: skip
from vmtoll.agent.mail import count_delivered, drain, prepare
from vmtoll.agent.monitors import guests, pid_of, process
from vmtoll.agent.preflight import kvm_works, port_problem, route, space, speed_settings, system
from vmtoll.agent.prober import Probers
from vmtoll.agent.protocol import (
    BodyCheck,
    DeliveryCounts,
    Facts,
    File,
    FoundGuest,
    GuestAddress,
    Handshake,
    KernelTls,
    KvmAnswer,
    MachineChanges,
    PageAnswer,
    Process,
    Reading,
    Samples,
    SandboxOptions,
    ServerSpec,
    StartedSandbox,
    StartedServer,
)  # fmt: skip
from vmtoll.agent.sampler import Sampler
from vmtoll.agent.sandboxes import ProcessServer, Sandbox, SandboxServer, check_pinned, in_network, limits
from vmtoll.agent.servers import CommandServer, UnitServer, confine, listens, metrics_page, threads_outside, wait_until
from vmtoll.agent.service import ask, find
from vmtoll.agent.telemetry import interrupts, kvm_counters, thread_seconds
from vmtoll.agent.virtual_machine import prices
from vmtoll.agent.waits import WaitCounter, guest_waits, merge_kinds, thread_waits

Answer = TypeVar("Answer")
AnyServer = Union[UnitServer, CommandServer, SandboxServer]


class Agent:
    """Each attribute `op_<name>` is an operation; arguments and results are JSON."""

    def __init__(self) -> None:
        self.root = Path("/")
        self.lock: IO[str] | None = None
        self.awake_file: IO[bytes] | None = None
        self.sandbox: Sandbox | None = None
        self.servers: dict[str, AnyServer] = {}
        self.started_servers: set[str] = set()
        self.commands = Commands()
        self.sampler: Sampler | None = None
        self.output_lock = threading.Lock()
        self.servers_lock = threading.Lock()
        self.qemu: dict[str, tuple[str, str]] = {}
        self.containers = Containers()
        self.op_containers, self.op_container_engine = self.containers.accounts, engine_of
        self.op_exec, self.op_interrupt, self.op_kill = self.commands.run, self.commands.interrupt, self.commands.kill
        self.op_drop_caches = drop_caches
        self.op_system, self.op_speed_settings, self.op_space = system, speed_settings, space
        self.op_port_problem, self.op_route, self.op_kvm_host = port_problem, route, kvm_host_facts
        self.op_libvirt_guests, self.op_guest_processes, self.op_refusals = libvirt_guests, guest_processes, refusals
        self.domains = Domains()
        self.op_pause, self.op_resume = self.domains.pause, self.domains.resume
        self.op_resume_left = self.domains.resume_left
        self.op_note_paused, self.op_forget_paused = self.domains.add_record, self.domains.remove_record
        self.exits, self.op_exit_prices = TracedExits(self.process_of), prices
        self.op_exits_obstacle, self.op_exits_start, self.op_exits, self.op_exits_stop = (
            self.exits.obstacle, self.exits.start, self.exits.read, self.exits.stop,
        )  # fmt: skip
        probers = Probers()
        self.op_probe, self.op_probe_stop = probers.probe, probers.stop
        self.applied = Applied()
        self.op_apply, self.op_revert, self.op_keep_change = (
            self.applied.apply, self.applied.revert, self.applied.keep,
        )  # fmt: skip

    def op_hello(self, root: str = "/", sandbox: SandboxOptions | None = None) -> dict[str, int | str]:
        """Take the folder of this agent's records, and the environment whose servers it runs in a sandbox."""
        self.root = self.applied.root = Path(root)
        self.sandbox = Sandbox(sandbox, self.root) if sandbox else None
        return {"pid": os.getpid(), "python": sys.version.split()[0]}

    def op_boot(self) -> dict[str, str]:
        """Return `boot`, the identity of this boot: the kernel's boot ID and the first process's start (containers
        share the kernel); and `uuid`, the machine's UUID from its firmware, empty if it has none.
        """
        uuid = Path("/sys/class/dmi/id/product_uuid")
        return {
            "boot": f"{read('/proc/sys/kernel/random/boot_id')} {stat_fields('1')[19]}",
            "uuid": read(str(uuid)) if uuid.exists() else "",
        }

    def op_ping(self) -> dict[str, float]:
        """Return this machine's wall-clock time, and the time since its kernel started, without what it slept."""
        return {"time_s": time.time(), "monotonic_s": time.monotonic()}

    def op_shift_clock(self, by_s: float) -> None:
        """Set this machine's wall clock ahead, or back if `by_s` is negative."""
        time.clock_settime(time.CLOCK_REALTIME, time.time() + by_s)

    def op_stay_awake(self) -> None:
        """Keep this machine's idle CPUs out of deep sleep until the agent ends, so that it sends load on time."""
        self.awake_file = self.awake_file or forbid_deep_sleep()

    def op_lock(self, owner: str) -> dict[str, str | None]:
        """Lock the machine for one run; return who holds it, if another does. The kernel unlocks it when we die."""
        if self.lock is None:
            path = self.root / "run" / "vmtoll.lock"
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("a+", encoding="utf-8")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                holder = handle.read().strip() or "another run"
                handle.close()
                return {"held_by": holder}
            handle.truncate(0)
            handle.write(owner)
            handle.flush()
            self.lock = handle
        return {"held_by": None}

    def op_changed(self) -> MachineChanges:
        """Return what vmtoll changed on this machine and has not undone. Releases the lock, also an earlier one."""
        held_by = self.op_lock("vmtoll status")["held_by"]
        if self.lock:
            self.lock.close()
            self.lock = None
        left = changes_left(self.root, held_by)
        return {**left, "servers": [*left["servers"], *self._sandboxes_left()]}

    def _sandboxes_left(self) -> list[str]:
        """The server that a killed run has left in this agent's sandbox."""
        has_one = self.sandbox and self.sandbox.is_left()
        return [self.sandbox.name] if self.sandbox and has_one else []

    def op_end_left(self) -> list[str]:
        """Clean up after a killed run; see changed.clean_up."""
        left = self._sandboxes_left()
        if self.sandbox:
            self.sandbox.remove()
        return [*clean_up(self.root), *(f"{name} removed" for name in left)]

    def op_kvm_works(self, kernel: str = "") -> KvmAnswer:
        """Run code on a virtual CPU, and boot a kernel; see preflight.kvm_works."""
        return kvm_works(self.commands, kernel)

    def op_running(self, units: list[str]) -> list[str]:
        """Return the active units among these."""
        return active_units(units)

    @property
    def files(self) -> Path:
        """The root file system with the servers and their content."""
        return self.sandbox.files if self.sandbox else self.root

    @property
    def system_root(self) -> Path:
        """What the paths of a server's description begin at."""
        return self.sandbox.files if self.sandbox else Path("/")

    def spec_file(self, name: str) -> Path:
        return self.files / "etc" / "vmtoll" / "servers" / f"{name}.json"

    def spec(self, name: str) -> ServerSpec:
        """The description of a server that provisioning wrote."""
        spec: ServerSpec = json.loads(self.spec_file(name).read_text(encoding="utf-8"))
        return spec

    def server(self, name: str) -> AnyServer:
        with self.servers_lock:
            if name not in self.servers:
                self.servers[name] = self._server(self.spec(name))
            return self.servers[name]

    def _server(self, spec: ServerSpec) -> AnyServer:
        if self.sandbox:
            return (ProcessServer if self.sandbox.is_process else SandboxServer)(spec, self.sandbox)
        return CommandServer(spec) if "command" in spec else UnitServer(spec)

    def op_disclosure(self) -> dict[str, str]:
        """The machine's facts for a run's disclosure: item → text; empty if unknown."""
        specs = [self.spec(path.stem) for path in self.spec_file("*").parent.glob("*.json")]
        return disclosure(installed_packages(), tuple(name for spec in specs for name in spec.get("packages", [])))

    def op_facts(self, uri: str | None = None, domains: Sequence[str] = (), site: str | None = None) -> Facts:
        """Facts of the machine; with `site`, also those of a SUT; with `uri`, also those of a KVM host."""
        facts = machine_facts()
        if site:
            names = sorted(p.stem for p in self.spec_file("*").parent.glob("*.json"))
            if self.sandbox:
                release_text = (self.files / "etc" / "os-release").read_text(encoding="utf-8")
                facts |= {"packages": installed_packages(self.files), "release": release(release_text)}
                facts |= {"sysctls": self.sandbox.settings_before()}
                facts["runtime"] = self.sandbox.record({n: self.spec(n) for n in names})
            facts["servers"] = {n: server_facts(self.spec(n), facts["packages"], self.system_root) for n in names}
            facts["content_digest"] = tree_digest(self.files / "srv" / "vmtoll" / "sites" / site)
        return {**facts, **(libvirt_facts(uri, domains) if uri else {})}

    def op_server_start(
        self, name: str, limit_s: float = 60.0, cores: int | None = None, isolation: Mapping[str, Any] | None = None
    ) -> StartedServer:
        """Start a server and wait until its ports answer here; return its fingerprint and the kernel parameters.

        `cores`: use only this number of the machine's CPUs, the first ones; by default all. The answer's `cores` is
        the number of CPUs that it may use. `isolation`: parts of the sandbox's that this start replaces.
        """
        if self.sandbox:
            self.sandbox.isolate(isolation or {})
        spec, server = self.spec(name), self.server(name)
        can_ask = not self.sandbox or self.sandbox.listens(spec["port"]) is not None
        closed_ports = list(spec.get("ports", [spec["port"]])) + (
            [spec["metrics"]["port"]] if "metrics" in spec else []
        )
        closed_ports += spec["tls"]["ports"] if "tls" in spec else []
        if not can_ask:
            closed_ports = []
        for port in closed_ports:
            if self.port_is_open(port):
                raise RuntimeError(f"port {port} is already in use before {name} is started")
        self.started_servers.add(name)
        server.start(limit_s)
        begin_s = time.monotonic()

        def has_settled() -> bool:
            while closed_ports and self.port_is_open(
                closed_ports[0], name
            ):  # probe each only until it answers: a connection costs the server
                closed_ports.pop(0)
            return not closed_ports or (time.monotonic() - begin_s > 0.5 and not server.pids())

        wait_until(has_settled, limit_s, f"{name} does not listen on port {(closed_ports or [0])[0]}")
        if closed_ports:
            raise RuntimeError(f"{name} ended without listening on port {closed_ports[0]}")
        if cores:
            pids = map(int, server.pids()) if self.sandbox else [0]
            allowed = set[int]().union(*map(os.sched_getaffinity, pids))
            self.restrict_to_cpus(name, set(sorted(allowed)[:cores]), limit_s)
        cpu_count = max((bin(mask_of(pid)).count("1") for pid in server.pids()), default=0)
        settings = self.sandbox.settings(self.first_pid(name)) if self.sandbox else sysctls()
        return {
            **fingerprint(spec, self.system_root), "answers": can_ask, "sysctls": settings, "cores": cpu_count,
        }  # fmt: skip

    def port_is_open(self, port: int, name: str = "") -> bool:
        """Return whether something listens on a port where the servers of this agent do. `name`: one that runs."""
        if self.sandbox:
            return bool(self.sandbox.listens(port, self.first_pid(name) if name else ""))
        return listens(port)

    def first_pid(self, name: str) -> str:
        """The first process of a server in a sandbox; empty for another one."""
        server = self.server(name)
        return server.pid if isinstance(server, (SandboxServer, ProcessServer)) else ""

    def op_reaches(self, host: str, port: int, limit_s: float = 60.0) -> None:
        """Wait until something at this address accepts connections. Raises RuntimeError when it does not in time."""
        wait_until(lambda: listens(port, host), limit_s, f"{host} does not listen on port {port}")

    def op_sandbox_start(self, name: str, start_at_s: float, limit_s: float = 60.0) -> StartedSandbox:
        """Start a server at a time of this machine's clock, and note what the runtime took. Raises RuntimeError."""
        server = self.server(name)
        if not isinstance(server, (SandboxServer, ProcessServer)):
            raise RuntimeError(f"{name} runs in no container runtime")
        self.started_servers.add(name)
        with server.sandbox.timing() as calls:
            server.prepare()
            time.sleep(max(0.0, start_at_s - time.time()))
            started_at, begin_s = time.time(), time.monotonic()
            server.launch(limit_s)
            return {"started_at": started_at, "wall_s": time.monotonic() - begin_s, "calls": calls()}

    def op_image(self, name: str) -> list[str]:
        """Check that podman has this image here, given by its digest; return podman's options with the highest limits
        of a container here. See check_pinned.
        """
        check_pinned(name)
        return limits()

    def op_sandbox_works(self) -> str:
        """Start a program in the sandbox on this kernel; return the runtime's version. See Sandbox.try_out."""
        return self.sandbox.try_out() if self.sandbox else ""

    def restrict_to_cpus(self, name: str, cpus: set[int], limit_s: float) -> None:
        """Restrict a server to these CPUs. When no thread is left outside, all that it starts inherits them.

        Sets them for its processes, not for its unit: systemd would have to reload all units, which takes an emulated
        guest seconds, and a setting of the unit would affect later starts.
        """

        def confine_rest() -> bool:
            threads = threads_outside(self.server(name).pids(), cpus)
            confine(threads, cpus)
            return not threads

        wait_until(confine_rest, limit_s, f"{name} does not stay on {len(cpus)} cores")

    def op_server_check(self, name: str) -> None:
        """Raise RuntimeError when a server that was started has ended."""
        if not self.server(name).pids():
            raise RuntimeError(f"{name} has ended")

    def op_server_metrics(self, name: str, limit_s: float = 5.0) -> str | None:
        """A server's metrics page; None if the server has none or does not answer with it."""
        spec = self.spec(name)
        if "metrics" not in spec:
            return None
        if self.sandbox and (pid := self.first_pid(name)):
            is_seen = self.sandbox.shares_stack
            return (
                in_network(f"/proc/{pid}/ns/net", lambda: metrics_page(spec["metrics"], limit_s)) if is_seen else None
            )
        return metrics_page(spec["metrics"], limit_s)

    def op_server_stop(self, name: str, limit_s: float = 60.0) -> None:
        """Stop a server; wait until its port is closed and none of its processes is left."""
        port, server = int(self.spec(name)["port"]), self.server(name)
        server.stop(limit_s)
        wait_until(lambda: not self.port_is_open(port) and not server.pids(), limit_s, f"{name} does not stop")
        self.started_servers.discard(name)

    def op_stop_all(self, names: Sequence[str], limit_s: float = 60.0) -> None:
        """Stop those of these servers that a dead run may have left running."""
        for name in names:
            if self.spec_file(name).exists():
                self.op_server_stop(name, limit_s)

    def op_service_watch(self, name: str, kind: str, value: str) -> dict[str, int]:
        """Account the CPU time of a service that runs here as that of the server `name`; see service.find. Return the
        number of CPUs that it may use.
        """
        self.servers[name] = find(kind, value)
        return {"cores": max((bin(mask_of(pid)).count("1") for pid in self.servers[name].pids()), default=0)}

    def op_service_pages(
        self, address: str, paths: Sequence[str], headers: Mapping[str, str], rate_rps: float, ca: str, verify: bool
    ) -> list[PageAnswer]:
        """Ask a service for these paths; see service.ask."""
        return ask(address, paths, headers, rate_rps, ca, verify=verify)

    def op_usage(
        self,
        server: str | None = None,
        domains: Sequence[str] = (),
        neighbours: Sequence[str] = (),
        remote: tuple[str, int] | None = None,
        uri: str = "qemu:///system",
        guests: Mapping[str, GuestAddress] | None = None,
        contained: Sequence[str] = (),
    ) -> Reading:
        """Read the machine's counters, clocks and processes; with `server`, `domains` or `contained` (containers of
        podman or Docker), also what these have used.

        `neighbours`: domains that belong to the trial, but are not measured. `remote`: count the local ports
        toward this address and port; `uri`: libvirt's, of the domains; `guests`: the addresses of the guests that
        libvirt does not run.
        """
        reading: Reading = {"machine": counters(), "clock": clock(), "network": network(), "energy": energy_uj()}
        reading["read_kib"] = read_kib()
        measured_pids: list[str] = []
        if remote:
            reading["ports"] = ports(*remote)
        if server:
            server_process = self.server(server)
            measured_pids = server_process.pids()
            if self.sandbox:
                pid = self.first_pid(server)
                reading["network"] = network(pid) if pid and self.sandbox.shares_stack else {}
            reading["server"] = {
                **server_process.cpu(measured_pids),
                "pss_kib": pss_kib(measured_pids),
                "processes": len(measured_pids),
                "cpus": mask_of(*measured_pids),
                "waits_ns": thread_waits(measured_pids),
            }
        others = guests or {}
        pids = {name: self.process_of(name, others.get(name)) for name in (*domains, *neighbours)}
        vhost = {name: other_vhost_threads(pid) for name, pid in pids.items()}
        measured_pids += [*pids.values(), *(thread for threads in vhost.values() for thread in threads)]
        reading["domains"] = {}
        for name in domains:
            threads_s = thread_seconds(pids[name], vhost[name], others.get(name, {}).get("vcpus", ()))
            total_s, cpus = sum(threads_s.values()), mask_of(pids[name])
            waits_ns = guest_waits(pids[name], vhost[name], others.get(name, {}).get("vcpus", ()))
            reading["domains"][name] = {
                "total_s": total_s, "threads_s": threads_s, "cpus": cpus, "waits_ns": waits_ns,
                "rss_kib": rss_kib(pids[name]),
            }  # fmt: skip
        if domains:
            reading["memory"] = memory()
        reading["containers"] = {name: self.containers.get(name).usage() for name in contained}
        reading["interrupts"], reading["survey"] = interrupts(), survey(measured_pids)
        for name in domains:  # last: it may have to start a process
            reading["domains"][name]["kvm"] = kvm_counters(pids[name], name, None if name in others else uri)
        return reading

    def op_process(self, guest: GuestAddress) -> Process | None:
        """A guest's process and its threads; None if it does not run."""
        pid = pid_of(guest, self.root)
        return process(pid) if pid else None

    def op_panics(self, guests: Sequence[GuestAddress]) -> dict[str, str]:
        """By guest: the panic of its kernel with its console's last lines, empty if it has not panicked or is off."""
        pids = {guest["name"]: pid_of(guest, self.root) for guest in guests}
        return {
            guest["name"]: self.domains.panic(guest, pid) if (pid := pids[guest["name"]]) else "" for guest in guests
        }

    def op_process_of(self, pid: int) -> Process:
        """Read a process and its threads."""
        return process(str(pid))

    def op_guests(self) -> list[FoundGuest]:
        """Return every guest of this machine; see monitors.guests."""
        return guests(self.root)

    def process_of(self, name: str, guest: GuestAddress | None = None) -> str:
        """PID of a guest's process, by default of libvirt's domain. Raises RuntimeError when there is none."""
        pid, start_ticks = self.qemu.get(name, ("", ""))
        if not pid or stat_fields(pid)[19:20] != [start_ticks]:
            pid = pid_of(guest or {"kind": "libvirt", "name": name}, self.root) or ""
            self.qemu[name] = (pid, "".join(stat_fields(pid)[19:20]))
        if not pid:
            sought = "process of the guest" if guest else "QEMU process of the domain"
            raise RuntimeError(f"no {sought} {name}")
        return pid

    def op_sample_start(
        self,
        interval_s: float = 1.0,
        pulse_s: float | None = None,
        loopback: bool = False,
        mhz_s: float | None = None,
        server: str | None = None,
        domains: Sequence[str] = (),
        guests: Mapping[str, GuestAddress] | None = None,
    ) -> None:
        """Begin to sample; see Sampler. `server`, `domains`: whose threads' waits for a CPU are sampled too. `guests`:
        the addresses of the guests that libvirt does not run.
        """
        self.op_sample_stop()
        wait_counter = None
        if server:
            process = self.server(server)
            wait_counter = WaitCounter(lambda: thread_waits(process.pids()))
        elif domains:
            others = guests or {}
            pids = {name: self.process_of(name, others.get(name)) for name in domains}
            threads = [
                (pid, other_vhost_threads(pid), others.get(name, {}).get("vcpus", ())) for name, pid in pids.items()
            ]
            wait_counter = WaitCounter(lambda: merge_kinds(guest_waits(*known) for known in threads))
        self.sampler = Sampler(interval_s, pulse_s, loopback, mhz_s, wait_counter)

    def op_sample_stop(self) -> Samples:
        """Stop sampling and return the samples; see Sampler.stop."""
        sampler, self.sampler = self.sampler, None
        return sampler.stop() if sampler else {"counters": [], "mhz": [], "pulse": [], "cpu_s": 0.0}

    def op_http_check(
        self, host: str, port: int, files: Sequence[File], limit_s: float = 30.0, *, tls: bool = False
    ) -> BodyCheck:
        """Poll until the server answers, then compare the digest of each body; return descriptions of wrong ones."""
        scheme = "https" if tls else "http"
        wrong = retry_until_answer(
            lambda: wrong_bodies(host, port, files, tls=tls), f"{scheme}://{host}:{port}", limit_s
        )
        return {"wrong": wrong, "checked": len(files)}

    def op_tls_handshake(self, host: str, port: int, alpn: str, limit_s: float = 30.0) -> Handshake:
        """Poll until the server answers over TLS; return what was agreed on."""
        return retry_until_answer(lambda: handshake(host, port, alpn), f"https://{host}:{port}", limit_s)

    def op_tls_kernel(self, name: str) -> KernelTls:
        """Return whether the kernel should encrypt for a server, and the number of sessions that it has encrypted."""
        return {"declared": self.spec(name)["tls"]["kernel"], "sessions": kernel_sessions()}

    def op_mail_prepare(self, name: str, password: str, messages: int = 0, page: str | None = None) -> None:
        """Empty a running mail server and create its users; see mail.prepare. `page`: body of the messages."""
        body = (self.root / "srv" / "vmtoll" / "sites" / page).read_text("utf-8") if page else None
        prepare(self.spec(name)["mail"], password, messages, body)

    def op_mail_drain(self, name: str, limit_s: float = 60.0) -> dict[str, float]:
        """Wait until a mail server's queue is empty; see mail.drain."""
        return drain(self.spec(name)["mail"], limit_s)

    def op_mail_delivered(self, name: str, tag: str) -> DeliveryCounts:
        """Count a load's messages in the mailboxes; see mail.count_delivered."""
        return count_delivered(self.spec(name)["mail"], tag)

    def op_tree_digest(self, path: str) -> str:
        return tree_digest(self.root / path)

    def answer(self, request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            reply["result"] = getattr(self, "op_" + request["op"])(**request["args"])
        except RuntimeError as error:
            reply["error"] = str(error)
        except Exception as error:  # whatever went wrong, the runner must hear of it
            reply["error"] = f"{type(error).__name__}: {error}"
        with self.output_lock, contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.exits.stop()
        self.domains.close()
        self.commands.close()
        for name in list(self.started_servers):
            with contextlib.suppress(Exception):
                self.server(name).stop(20)
        self.applied.close()


def retry_until_answer(ask: Callable[[], Answer], url: str, limit_s: float) -> Answer:
    """Ask a server until it answers. Raises RuntimeError when it does not in time."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{url} does not answer: {error!r}") from error
            time.sleep(0.02)


def wrong_bodies(host: str, port: int, files: Sequence[File], *, tls: bool = False) -> list[str]:
    """GET each file over one connection; describe those with a wrong status or SHA-256."""
    plain, secure = http.client.HTTPConnection, http.client.HTTPSConnection
    connection = secure(host, port, timeout=15, context=tls_context()) if tls else plain(host, port, timeout=15)
    wrong = []
    try:
        for entry in files:
            connection.request("GET", "/" + entry["path"])
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or hashlib.sha256(body).hexdigest() != entry["sha256"]:
                wrong.append(f"{entry['path']} (status {response.status}, {len(body)} bytes)")
    finally:
        connection.close()
    return wrong


def main() -> None:
    agent = Agent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for line in sys.stdin:
            threading.Thread(target=agent.answer, args=(json.loads(line),), daemon=True).start()
    finally:
        agent.close()
        os._exit(0)
