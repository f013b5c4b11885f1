"""CPU time that the physical machine spent on an arm between two readings, softirqs and kernel threads included."""

from vmtoll.agent.conditions import NETWORK_THREADS
from vmtoll.agent.protocol import Survey
from vmtoll.model.machine_cpu import MachineCpu


def machine_cpu(arm_s: float, before: Survey, after: Survey) -> MachineCpu:
    """The account of an arm by two surveys of the physical machine that it ran on. `arm_s`: as in MachineCpu.

    Kernels differ in whether they charge an interrupt to the process that it interrupted. What no process was charged
    with is the CPUs' busy time less that of all processes, so each interrupt counts once on either kind of kernel.
    """
    elapsed_s = after["time_s"] - before["time_s"]
    cpus = after["idle_s"].keys() & before["idle_s"].keys()
    idle_s = sum(min(max(0.0, after["idle_s"][cpu] - before["idle_s"][cpu]), elapsed_s) for cpu in cpus)
    charged_s = threads_s = 0.0
    for pid, (name, cpu_s, *_) in {**before["processes"], **after["processes"]}.items():
        old_s = before["processes"][pid][1] if pid in before["processes"] else 0.0
        # The CPU time of a process that has ended is now in its parent's count.
        spent_s = (cpu_s if pid in after["processes"] else 0.0) - old_s
        charged_s += spent_s
        threads_s += spent_s if name.startswith(NETWORK_THREADS) else 0.0
    # A process that ended unseen by its parent has taken its time along, so charged_s may be below zero.
    interrupts_s = elapsed_s * len(cpus) - idle_s - max(0.0, charged_s)
    return MachineCpu(arm_s=arm_s, kernel_threads_s=max(0.0, threads_s), interrupts_s=max(0.0, interrupts_s))
