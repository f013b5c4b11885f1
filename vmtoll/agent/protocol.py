"""Types of the agent's JSON answers and of its server descriptions, shared by both ends of the connection."""

from __future__ import annotations

from typing import Any, TypedDict

# The facts of a machine, as in hosts.json; vmtoll.model.facts lists the ones that vmtoll compares.
Facts = dict[str, Any]
Counters = dict[str, float]


class Hypervisor(TypedDict):
    """Signs of a hypervisor under a machine; None, or empty, if the source cannot be read.

    `cpuid_bit`: CPUID leaf 1, ECX bit 31; `cpuid_signature`: leaf 0x40000000; `cpuinfo_flag`: `hypervisor` in
    /proc/cpuinfo; `dmi_…`: /sys/class/dmi/id.
    """

    cpuid_bit: bool | None
    cpuid_signature: str
    cpuinfo_flag: bool | None
    dmi_sys_vendor: str
    dmi_product_name: str


class GuestAddress(TypedDict, total=False):
    """How a host finds a guest. `kind`: what runs it (libvirt, qemu, proxmox, process); `name`: libvirt's, else the
    inventory's; `uri`: libvirt's; `vmid`: Proxmox'; `socket`: path of QEMU's QMP socket; `unit`: of systemd;
    `pid_file`: a file with its PID; `vcpus`: the threads of its virtual CPUs, where known.
    """

    kind: str
    name: str
    uri: str
    socket: str
    unit: str
    pid_file: str
    vmid: str
    vcpus: list[int]


class System(TypedDict):
    """The distribution, by /etc/os-release. `systemd`: its version; `booted`: whether it started the machine."""

    id: str
    version: str
    apt: bool
    systemd: int | None
    booted: bool


class SpeedSettings(TypedDict):
    """Settings that let a machine's speed vary. `smt`: the kernel's text, such as `on`; empty if it has none."""

    governors: list[str]
    turbo: bool
    smt: str
    irqbalance: bool


class Space(TypedDict):
    """Free room: `free_mib`: folder → what root can still write there; `memory_mib`: available memory."""

    free_mib: dict[str, int]
    memory_mib: int


class Route(TypedDict, total=False):
    """How a machine reaches an IPv4 address. With an error the rest may be missing."""

    error: str
    remote: str
    address: str
    interface: str
    mtu: int
    mac: str
    speed_mbit: int | None
    on_link: bool
    gateway: str | None
    neighbour: str | None


class KvmAnswer(TypedDict):
    """`why`, `advice`: why KVM does not work, and what to do; both empty if it works. `booted`: the kernel that was
    booted, empty without one. `kvm_modules`: kvm_…; `kvm_flags`: vmx or svm.
    """

    why: str
    advice: str
    booted: str
    kvm_modules: list[str]
    kvm_flags: list[str]


class Thread(TypedDict):
    """A thread: seconds on a CPU and seconds it waited for one, since its start; `cpus`: the CPUs it may use."""

    tid: int
    name: str
    cpu_s: float
    wait_s: float
    cpus: list[int]


class Process(TypedDict):
    """The process of a guest. `kvm`: whether it has a virtual machine of KVM, None if unknown;
    `online`: the CPUs of the machine; `time_s`: time of the reading on the machine's monotonic clock.
    """

    pid: int
    time_s: float
    online: list[int]
    argv: list[str]
    kvm: bool | None
    threads: list[Thread]


class FoundGuest(TypedDict):
    """A guest of this machine. `kind` and `name` as in its address; `program`: what runs it; `unit`: of systemd;
    `process`: None if it is off; `config`: text of its configuration file, empty without one; `session`: where its
    libvirt runs, empty for the machine's own.
    """

    kind: str
    name: str
    program: str
    unit: str
    config: str
    process: Process | None
    session: str


class MailSpec(TypedDict):
    """A mail server's accounts, queue, mailboxes and log; `greets`: the ports whose servers speak first."""

    domain: str
    users: int
    owner: str
    greets: list[int]
    configuration: str
    accounts: str
    mailboxes: str
    queue: str
    log: str


class MetricsSpec(TypedDict):
    """Address of a server's metrics, on the loopback of its machine."""

    port: int
    path: str


class TlsSpec(TypedDict):
    """Ports on which a server speaks TLS, and whether the kernel is to encrypt for it."""

    ports: list[int]
    kernel: bool


class Handshake(TypedDict):
    """Parameters that client and server agreed on. `resumption`: a second connection resumed the first's session."""

    protocol: str
    cipher: str
    alpn: str
    certificate_sha256: str
    resumption: bool


class KernelTls(TypedDict):
    """`declared`: the kernel should encrypt for this server; `sessions`: that it has encrypted, None if it cannot."""

    declared: bool
    sessions: int | None


class ServerSpec(TypedDict, total=False):
    """A server as provisioning left it on the machine: `unit`, or `command` where there is no systemd. `argv`,
    `environment` and `user`: what the unit starts, for a sandbox.
    """

    name: str
    argv: list[str]
    environment: dict[str, str]
    user: str | None
    unit: str
    command: list[str]
    binary: str
    configs: list[str]
    port: int
    ports: list[int]
    workers: int
    packages: list[str]
    mail: MailSpec
    metrics: MetricsSpec
    tls: TlsSpec


class SandboxOptions(TypedDict):
    """An environment whose servers this machine runs in a container runtime, or as plain processes: the inventory's
    variables and the runtime's file.
    """

    name: str
    runtime: str
    runtime_path: str | None
    platform: str | None
    stack: str
    flags: list[str] | None
    seccomp: bool | None
    user_namespace: bool | None
    content: str | None
    rootfs: str | None
    image: str | None
    network: str
    network_namespace: str | None
    address: str
    prefix: int | None
    cpus: str
    memory_mib: int | None


class PageAnswer(TypedDict):
    """What a service answered to a URL: status, length and digest of the body, and the seconds it took."""

    status: int
    length: int
    sha256: str
    took_s: float


class Probed(TypedDict):
    """What a prober saw, on this machine's wall clock: `answered_at`: the end of the first whole answer; `reached_at`:
    the first connection, or the first that was refused; None without any. `gap_s`: the longest time between two of its
    requests.
    """

    answered_at: float | None
    reached_at: float | None
    requests: int
    gap_s: float


class Fingerprint(TypedDict):
    """Facts that must be equal on two machines."""

    binary_sha256: str
    config_sha256: str
    workers: int


class ServerFacts(Fingerprint):
    """`version`: the server's packages with their versions; None for a build of our own."""

    version: str | None


class StartedSandbox(TypedDict):
    """A server that was started in a container runtime, or as its plain process. Times are of this machine's clock:
    `started_at`, and begin and end of each call of the runtime by its engine; None where the engine hides them.
    """

    started_at: float
    wall_s: float
    calls: list[tuple[float, float]] | None


class StartedServer(Fingerprint):
    """A server that was started; `cores`: how many it may use. `answers`: whether its ports were seen to answer, which
    is not so where a sandbox has its own TCP. `sysctls`: empty where they are not visible.
    """

    answers: bool
    sysctls: dict[str, str]
    cores: int


class Done(TypedDict):
    """A command that has ended. `files`: name → content, gzip in base64."""

    exit_status: int
    timed_out: bool
    stdout: str
    stderr: str
    wall_s: float
    started_at: float
    cpu_s: float
    cpus: int
    files: dict[str, str]


class Clock(TypedDict):
    """Seconds that the wall clock is ahead of the monotonic one, and the clock source."""

    ahead_s: float
    source: str


class Ports(TypedDict):
    """Ephemeral ports in use toward one address, and all ephemeral ports; see conditions.ports."""

    used: int
    available: int


class Survey(TypedDict):
    """Processes that have used a CPU; see conditions.survey."""

    time_s: float
    idle_s: Counters
    steal_s: Counters
    cpus: int
    namespace: str
    processes: dict[str, tuple[str, float, int, str, bool]]


class CpuTimes(TypedDict):
    """CPU seconds; `method`: cgroup or cpu-clock (of the processes)."""

    total_s: float
    user_s: float
    system_s: float
    method: str


class ServerUsage(CpuTimes):
    """Resources that a server has used, and its memory now; `cpus`: bit mask of the CPUs that it may use.

    `waits_ns`: time that each thread has waited for a CPU, by thread ID; None if the kernel keeps no such figure.
    """

    pss_kib: int
    processes: int
    cpus: int
    waits_ns: dict[str, int] | None


class ContainerUsage(CpuTimes):
    """CPU seconds of a container's control group (`method`: cgroup, cpuacct or cpu-clock); `cpus`: a bit mask."""

    cpus: int


class DomainUsage(TypedDict, total=False):
    """Resources that a guest has used on its host; `cpus`: a bit mask. `waits_ns`: kind of thread → as a server's."""

    total_s: float
    threads_s: Counters
    waits_ns: dict[str, dict[str, int]] | None
    cpus: int
    kvm: dict[str, int]
    rss_kib: int


class Reading(TypedDict, total=False):
    """A reading of one machine; it has `ports` if a remote end was given, `server` if a server was."""

    machine: Counters
    clock: Clock
    network: dict[str, int]
    energy: dict[str, list[int]]
    read_kib: int
    ports: Ports
    server: ServerUsage
    domains: dict[str, DomainUsage]
    containers: dict[str, ContainerUsage]
    interrupts: dict[str, int]
    survey: Survey
    memory: dict[str, int]


class ExitCount(TypedDict):
    """Exits for one reason, by the kernel's name. `ns`: the time from each to the next entry, in all; `away_ns`: in
    which the thread was on no CPU. Both modulo 2⁶⁴.
    """

    reason: str
    count: int
    ns: int
    away_ns: int


class ExitPrice(TypedDict):
    """Time of an exit of one kind, ns: the median of several rounds, the fastest and the slowest round; `exits`: how
    many were timed in all.
    """

    kind: str
    ns: float
    low_ns: float
    high_ns: float
    exits: int


class Samples(TypedDict):
    """Samples, oldest first. `mhz`: time in s, clock rate in MHz, if the kernel governs it; `pulse`: time in s, bytes
    received so far; `cpu_s`: CPU time of the sampling thread.
    """

    counters: list[Counters]
    mhz: list[tuple[float, float]]
    pulse: list[tuple[float, float]]
    cpu_s: float


class File(TypedDict):
    """A file of the site, and the SHA-256 that its body must have."""

    path: str
    sha256: str


class BodyCheck(TypedDict):
    """Number of bodies compared, and a description of each wrong one."""

    wrong: list[str]
    checked: int


class DeliveryCounts(TypedDict):
    """A load's messages: files, different messages, and the server's delay of each; see mail.count_delivered."""

    found: int
    distinct: int
    delays_us: list[int]


class ProvisioningChanges(TypedDict):
    """What provisioning changed since `since` (UTC): `packages` installed, `files` written, active `units` masked."""

    since: str
    packages: list[str]
    files: list[str]
    sysctls: list[str]
    units: list[str]


class MachineChanges(TypedDict):
    """What vmtoll changed on a machine and has not undone; `servers`: units that run; `change`: the one that is in
    place, by name; `traces`: of exits; `held_by`: a run in progress.
    """

    provisioned: ProvisioningChanges | None
    tuned: list[str]
    guests: list[str]
    paused: list[str]
    servers: list[str]
    change: str | None
    traces: list[str]
    held_by: str | None
