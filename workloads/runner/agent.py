"""The runner's hands on a machine: one file of standard-library Python, piped to `python3` over SSH.

It reads one JSON request a line, `{"id", "op", "args"}`, and answers `{"id", "result"}` or `{"id", "error"}`,
in any order. When its input ends (the runner is gone) it kills what it started, stops the servers it started
and lets go of its lock. It must run on Python 3.9 and import nothing that a minimal machine lacks.
"""

import base64
import contextlib
import fcntl
import glob
import gzip
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
PIECE = 1 << 20


def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip()
    except OSError:
        return default


def output_of(*argv, timeout_s=30):
    """What a command prints, or an empty string: an absent tool is an absent fact."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def sha256_file(path, total=None):
    total = total or hashlib.sha256()
    with open(path, "rb") as handle:
        while piece := handle.read(PIECE):
            total.update(piece)
    return total.hexdigest()


# --- processes and their CPU time -------------------------------------------------------------------------


def stat_fields(pid):
    """/proc/PID/stat after the command's name: index 0 is the state."""
    return read("/proc/%s/stat" % pid).rpartition(")")[2].split()


def tasks_ns(pid):
    """Nanoseconds on a CPU of all threads of a process that live now."""
    total = 0
    for path in glob.glob("/proc/%s/task/*/schedstat" % pid):
        fields = read(path).split()
        total += int(fields[0]) if fields else 0
    return total


def processes_cpu(pids):
    """Seconds of CPU of these processes, their threads and the children they have waited for."""
    total, user, system = 0.0, 0.0, 0.0
    for pid in pids:
        fields = stat_fields(pid)
        if len(fields) < 15:
            continue
        ticks = [int(f) / TICKS for f in fields[11:15]]  # utime stime cutime cstime
        total += tasks_ns(pid) / 1e9 + ticks[2] + ticks[3]
        user += ticks[0] + ticks[2]
        system += ticks[1] + ticks[3]
    return {"total_s": total, "user_s": user, "system_s": system, "method": "schedstat"}


def pss_kib(pids):
    total = 0
    for pid in pids:
        for line in read("/proc/%s/smaps_rollup" % pid).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
                break
    return total


class UnitServer:
    """A server that systemd starts and stops."""

    def __init__(self, spec):
        self.unit = spec["unit"]
        self._group = None

    def start(self, timeout_s):
        self._systemctl("start", timeout_s)

    def stop(self, timeout_s):
        self._systemctl("stop", timeout_s)

    def _systemctl(self, verb, timeout_s):
        done = subprocess.run(
            ["systemctl", verb, self.unit], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            log = output_of("journalctl", "-u", self.unit, "-n", "5", "-o", "cat", "--no-pager")
            raise RuntimeError("systemctl %s %s: %s %s" % (verb, self.unit, done.stderr.strip(), log))

    def folders(self):
        """The unit's control-group folders that exist; version 2 first, also on hybrid machines."""
        if self._group is None:
            self._group = output_of("systemctl", "show", "-p", "ControlGroup", "--value", self.unit) or None
        group = self._group or "/system.slice/" + self.unit
        bases = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd")
        return [base + group for base in bases if os.path.exists(base + group + "/cgroup.procs")]

    def pids(self):
        for folder in self.folders():
            pids = read(folder + "/cgroup.procs").split()
            if pids:
                return pids
        return []

    def cpu(self, pids):
        for folder in self.folders():
            stat = dict(line.split() for line in read(folder + "/cpu.stat").splitlines())
            if int(stat.get("usage_usec", 0)) and read(folder + "/cgroup.procs"):
                return {
                    "total_s": int(stat["usage_usec"]) / 1e6,
                    "user_s": int(stat["user_usec"]) / 1e6,
                    "system_s": int(stat["system_usec"]) / 1e6,
                    "method": "cgroup",
                }
        return processes_cpu(pids)


class CommandServer:
    """A server that is a command of our own, for machines without systemd; it must stay in the foreground."""

    def __init__(self, spec):
        self.command = spec["command"]
        self.process = None

    def start(self, timeout_s):
        del timeout_s
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self, timeout_s):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def pids(self):
        if self.process is None:
            return []
        session = str(self.process.pid)
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            fields = stat_fields(pid)
            if len(fields) > 3 and fields[3] == session and fields[0] != "Z":
                found.append(pid)
        return found

    def cpu(self, pids):
        return processes_cpu(pids)


def qemu_pid(domain):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        words = read(path).split("\0")
        if "qemu" in words[0] and any(
            w == "guest=" + domain or w.startswith("guest=%s," % domain) for w in words
        ):
            return path.split("/")[2]
    return None


def other_vhost_threads(pid):
    """vhost threads that older kernels keep outside the QEMU process."""
    name = "vhost-" + pid
    return [
        path.split("/")[2]
        for path in glob.glob("/proc/[0-9]*/comm")
        if read(path) == name and path.split("/")[2] != pid
    ]


def cpu_ticks():
    """user+nice, system+irq, idle+iowait and steal of the CPUs that this process may use, in seconds."""
    allowed = {"cpu%d" % n for n in os.sched_getaffinity(0)}
    sums = [0.0] * 8
    for line in read("/proc/stat").splitlines():
        fields = line.split()
        if fields and fields[0] in allowed:
            sums = [a + int(b) / TICKS for a, b in zip(sums, fields[1:9])]
    user, nice, system, idle, iowait, irq, softirq, steal = sums
    return {
        "user_s": user + nice,
        "system_s": system + irq + softirq,
        "idle_s": idle + iowait,
        "steal_s": steal,
    }


def net_bytes():
    """Bytes received and sent by every interface but the loopback."""
    received = sent = 0
    for line in read("/proc/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            fields = rest.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return {"rx_bytes": received, "tx_bytes": sent}


def pressure_us():
    """Microseconds in which some task waited for a CPU."""
    some = read("/proc/pressure/cpu").partition("\n")[0]
    return int(some.rpartition("total=")[2] or 0)


def counters():
    sample = {"time_s": time.time(), "load1": float(read("/proc/loadavg", "0").split()[0])}
    sample.update(cpu_ticks(), **net_bytes(), pressure_us=pressure_us())
    return sample


# --- facts ------------------------------------------------------------------------------------------------

SYSCTLS = (
    "net.core.somaxconn net.ipv4.tcp_max_syn_backlog net.ipv4.ip_local_port_range net.ipv4.tcp_fin_timeout "
    "net.ipv4.tcp_tw_reuse net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem net.ipv4.tcp_wmem "
    "net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_timestamps net.ipv4.tcp_sack"
).split()


def cpuinfo(*keys):
    for line in read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys:
            return value.strip()
    return ""


def nic():
    """Driver and MTU of every interface but the loopback."""
    found = []
    for name in sorted(os.listdir("/sys/class/net")):
        if name != "lo":
            driver = os.path.basename(os.path.realpath("/sys/class/net/%s/device/driver" % name))
            real = driver if os.path.exists("/sys/class/net/%s/device/driver" % name) else "virtual"
            found.append("%s mtu=%s" % (real, read("/sys/class/net/%s/mtu" % name)))
    return ", ".join(found)


def fingerprint(spec):
    """What must be alike on two machines: binary, configuration, workers, version."""
    total = hashlib.sha256()
    for path in spec["configs"]:
        sha256_file(path, total)
    return {
        "binary_sha256": sha256_file(spec["binary"]),
        "config_sha256": total.hexdigest(),
        "workers": spec["workers"],
        "version": spec["version"],
    }


def tree_digest(path):
    """SHA-256 of the lines `sha256  path` of all files below a folder, sorted by path."""
    root = os.path.realpath(path)
    lines = []
    for folder, _, names in os.walk(root):
        for name in names:
            full = os.path.join(folder, name)
            lines.append((os.path.relpath(full, root), sha256_file(full)))
    total = hashlib.sha256()
    for name, digest in sorted(lines):
        total.update(("%s  %s\n" % (digest, name)).encode())
    return total.hexdigest()


def machine_facts():
    vulnerabilities = "/sys/devices/system/cpu/vulnerabilities/"
    memory = [line.split()[1] for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    facts = {
        "kernel": os.uname().release,
        "cmdline": read("/proc/cmdline"),
        "cpu_model": cpuinfo("model name", "Model"),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "microcode": cpuinfo("microcode"),
        "mitigations": {os.path.basename(p): read(p) for p in sorted(glob.glob(vulnerabilities + "*"))},
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "smt": read("/sys/devices/system/cpu/smt/control"),
        "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "clock_source": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "memory_kib": int(memory[0]) if memory else 0,
        "virtualization": output_of("systemd-detect-virt", "--vm") or "none",
        "container": output_of("systemd-detect-virt", "--container") or "none",
        "nic": nic(),
        "sysctls": {
            name: " ".join(read("/proc/sys/" + name.replace(".", "/")).split())
            for name in SYSCTLS
            if os.path.exists("/proc/sys/" + name.replace(".", "/"))
        },
    }
    packages = output_of("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\\n")
    rows = [line.split() for line in packages.splitlines()]
    facts["packages"] = {row[1]: row[2] for row in rows if len(row) == 3 and row[0].startswith("ii")}
    return facts


# --- the agent --------------------------------------------------------------------------------------------


class Agent:
    """One method `op_<name>` an operation; arguments and results are JSON."""

    def __init__(self):
        self.root = "/"
        self.lock = None
        self.servers = {}
        self.started = set()
        self.running = set()
        self.samples = []
        self.sampling = threading.Event()
        self.sampler = None
        self.say = threading.Lock()
        self.guard = threading.Lock()
        self.qemu = {}

    def op_hello(self, root="/"):
        self.root = root
        return {"pid": os.getpid(), "python": sys.version.split()[0]}

    def op_lock(self, owner):
        """Hold the machine for one run; None when held, else who holds it. The kernel frees it when we die."""
        if self.lock is None:
            path = self.path("run/vmtoll.lock")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle = open(path, "a+", encoding="utf-8")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                holder = handle.read().strip() or "an unknown run"
                handle.close()
                return {"held_by": holder}
            handle.truncate(0)
            handle.write(owner)
            handle.flush()
            self.lock = handle
        return {"held_by": None}

    def path(self, relative):
        return os.path.join(self.root, relative)

    def spec(self, name):
        with open(self.path("etc/vmtoll/servers/%s.json" % name), encoding="utf-8") as handle:
            return json.load(handle)

    def server(self, name):
        with self.guard:
            if name not in self.servers:
                spec = self.spec(name)
                self.servers[name] = CommandServer(spec) if "command" in spec else UnitServer(spec)
            return self.servers[name]

    def op_facts(self, uri=None, domains=(), sut=False):
        facts = machine_facts()
        if sut:
            names = [os.path.basename(p)[:-5] for p in glob.glob(self.path("etc/vmtoll/servers/*.json"))]
            facts["servers"] = {name: fingerprint(self.spec(name)) for name in sorted(names)}
            facts["content_digest"] = tree_digest(self.path("srv/vmtoll/sites/current"))
        if uri:
            version = output_of("virsh", "-c", uri, "version")
            for line in version.splitlines():
                key, _, value = line.partition(":")
                if key.startswith("Running hypervisor"):
                    facts["qemu_version"] = value.strip()
                elif key.startswith("Using library"):
                    facts["libvirt_version"] = value.strip()
            facts["domains"] = {name: output_of("virsh", "-c", uri, "dumpxml", name) for name in domains}
        return facts

    def op_exec(self, argv, files=None, outputs=(), env=None, limit_s=60.0):
        """Run a command in a fresh folder; the whole process group dies at the bound. CPU time by rusage."""
        folder = tempfile.mkdtemp(prefix="vmtoll-")
        try:
            for name, text in (files or {}).items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as handle:
                    handle.write(text)
            return self._exec(argv, folder, outputs, env or {}, limit_s)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _exec(self, argv, folder, outputs, env, limit_s):
        with (
            open(os.path.join(folder, ".out"), "w+b") as out,
            open(os.path.join(folder, ".err"), "w+b") as err,
        ):
            started_at, begin = time.time(), time.monotonic()
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=dict(os.environ, **env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            self.running.add(process.pid)
            expired = threading.Event()

            def kill():
                expired.set()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

            bound = threading.Timer(limit_s, kill)
            bound.daemon = True
            bound.start()
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
            bound.cancel()
            self.running.discard(process.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it left behind
            process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            texts = []
            for handle in (out, err):
                handle.seek(0)
                texts.append(handle.read().decode("utf-8", "replace"))
        made = {}
        for name in outputs:
            with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as handle:
                made[name] = base64.b64encode(gzip.compress(handle.read(), 1)).decode()
        return {
            "exit_status": process.returncode,
            "timed_out": expired.is_set(),
            "stdout": texts[0],
            "stderr": texts[1],
            "files": made,
            "wall_s": wall_s,
            "started_at": started_at,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "cpus": len(os.sched_getaffinity(0)),
        }

    def op_kill(self):
        """End what `exec` is running now."""
        for pid in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def op_server_start(self, name, limit_s=60.0):
        """Start a server and wait until its port answers here; its fingerprint."""
        spec, server = self.spec(name), self.server(name)
        if listens(spec["port"]):
            raise RuntimeError("port %d is already in use before %s is started" % (spec["port"], name))
        self.started.add(name)
        server.start(limit_s)
        until(lambda: listens(spec["port"]), limit_s, "%s does not listen on port %d" % (name, spec["port"]))
        return fingerprint(spec)

    def op_server_stop(self, name, limit_s=60.0):
        """Stop a server; wait until its port is closed and none of its processes is left."""
        spec, server = self.spec(name), self.server(name)
        server.stop(limit_s)
        until(lambda: not listens(spec["port"]) and not server.pids(), limit_s, "%s does not stop" % name)
        self.started.discard(name)

    def op_stop_all(self, names, limit_s=60.0):
        """Stop whatever a dead run may have left running."""
        for name in names:
            self.op_server_stop(name, limit_s)

    def op_usage(self, server=None, domain=None):
        """CPU, memory and processes of a server, or CPU of a domain's QEMU; the machine's counters."""
        usage = {"machine": counters()}
        if server:
            pids = self.server(server).pids()
            usage["server"] = dict(self.server(server).cpu(pids), pss_kib=pss_kib(pids), processes=len(pids))
        if domain:
            pid = self.qemu.get(domain)
            if pid is None or ("guest=" + domain) not in read("/proc/%s/cmdline" % pid):
                pid = self.qemu[domain] = qemu_pid(domain)
            if pid is None:
                raise RuntimeError("no QEMU process of the domain %s" % domain)
            usage["domain"] = {"total_s": sum(tasks_ns(p) for p in [pid, *other_vhost_threads(pid)]) / 1e9}
        return usage

    def op_sample_start(self, interval_s=1.0):
        self.op_sample_stop()
        self.samples = [counters()]
        self.sampling.clear()

        def loop():
            while not self.sampling.wait(interval_s):
                self.samples.append(counters())

        self.sampler = threading.Thread(target=loop, daemon=True)
        self.sampler.start()

    def op_sample_stop(self):
        if self.sampler is None:
            return []
        self.sampling.set()
        self.sampler.join()
        self.sampler = None
        return [*self.samples, counters()]

    def op_http_check(self, host, port, files, limit_s=30.0):
        """Poll until the first file answers 200, then compare the digest of each; the wrong ones by path."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return {"wrong": wrong_bodies(host, port, files), "checked": len(files)}
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    raise RuntimeError("http://%s:%d does not answer: %r" % (host, port, error)) from error
                time.sleep(0.02)

    def op_tree_digest(self, path):
        return tree_digest(self.path(path))

    def answer(self, request):
        reply = {"id": request["id"]}
        try:
            reply["result"] = getattr(self, "op_" + request["op"])(**request["args"])
        except Exception as error:  # whatever went wrong, the runner must hear of it
            reply["error"] = (
                "%s: %s" % (type(error).__name__, error)
                if not isinstance(error, RuntimeError)
                else str(error)
            )
        line = json.dumps(reply) + "\n"
        with self.say, contextlib.suppress(OSError):
            sys.stdout.write(line)
            sys.stdout.flush()

    def close(self):
        self.op_kill()
        for name in list(self.started):
            with contextlib.suppress(Exception):
                self.server(name).stop(20)


def listens(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(condition, timeout_s, complaint):
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("%s within %g s" % (complaint, timeout_s))
        time.sleep(0.01)


def wrong_bodies(host, port, files):
    connection = http.client.HTTPConnection(host, port, timeout=15)
    wrong = []
    try:
        for entry in files:
            connection.request("GET", "/" + entry["path"])
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or hashlib.sha256(body).hexdigest() != entry["sha256"]:
                wrong.append("%s (status %d, %d bytes)" % (entry["path"], response.status, len(body)))
    finally:
        connection.close()
    return wrong


def main():
    agent = Agent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for line in sys.stdin:
            request = json.loads(line)
            threading.Thread(target=agent.answer, args=(request,), daemon=True).start()
    finally:
        agent.close()
        os._exit(0)


if __name__ == "__main__":
    main()
