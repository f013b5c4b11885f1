"""CPU time that the physical machine spent on an arm: the same account for metal, container and guest."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MachineCpu:
    """CPU seconds of a physical machine during a load."""

    arm_s: float  # the server's processes on metal; a container's control group; QEMU and vhost threads of a guest
    kernel_threads_s: float  # the kernel's threads that handle packets and free sockets (ksoftirqd, RCU)
    # busy time that the kernel charged to no process: interrupts and softirqs outside of the threads
    interrupts_s: float

    @property
    def total_s(self) -> float:
        """The whole account, in seconds."""
        return self.arm_s + self.kernel_threads_s + self.interrupts_s
