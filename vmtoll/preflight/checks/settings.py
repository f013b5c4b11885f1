"""Settings that let a machine's speed vary: clock rate, turbo, SMT siblings, moving interrupts."""

from collections.abc import Iterator

from vmtoll.agent.protocol import SpeedSettings
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, ok, warn

ORDER = 95


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check metal and KVM hosts; containers and guests have their host's settings."""
    hosts = [host for host in lab.answering_hosts("metal", "kvm_host") if not host.vars.container_host]
    yield from lab.on_each(hosts, lambda host: [judge(host, lab.ask(host, "speed_settings"))])


def judge(host: Host, settings: SpeedSettings) -> CheckResult:
    """Return one result that names every setting that lets the speed vary."""
    variable_settings = []
    governors = set(settings["governors"]) - {"performance"}
    if governors:
        variable_settings.append(f"governor {', '.join(sorted(governors))}")
    if settings["turbo"]:
        variable_settings.append("turbo on")
    if settings["smt"] == "on":
        variable_settings.append("SMT on")
    if settings["irqbalance"]:
        variable_settings.append("irqbalance runs")
    if not variable_settings:
        clock_text = "" if settings["governors"] else "; its clock rate is not its own to govern"
        return ok(host.name, f"no setting varies by itself{clock_text}")
    advice = "Run `vmtoll tune`." if host.vars.tuning else "Set vmtoll_tuning (docs/real-hosts.md), then tune."
    return warn(host.name, ", ".join(variable_settings), advice)
