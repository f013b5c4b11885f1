"""The codes of findings."""

from enum import StrEnum


class Code(StrEnum):
    """Code of a gate's finding. `FINDINGS` of `vmtoll.model.finding` has each code's severity, meaning and how a test
    injects the fault.
    """

    CLIENT_SATURATED = "client-saturated"
    CLIENT_STARVED = "client-starved"
    RATE_NOT_REACHED = "rate-not-reached"
    CLIENT_LATE = "client-late"
    START_SPREAD = "start-spread"
    LITTLES_LAW = "littles-law"
    MEAN_OVER_P99 = "mean-over-p99"
    LINK_BOUND = "link-bound"
    RETRANSMITS = "retransmits"
    LISTEN_DROPS = "listen-drops"
    PORTS_EXHAUSTED = "ports-exhausted"
    STEAL = "steal"
    BACKGROUND_CPU = "background-cpu"
    HOST_BACKGROUND_CPU = "host-background-cpu"
    FREQUENCY_SPREAD = "frequency-spread"
    CLOCK_SOURCE = "clock-source"
    CLOCK_STEPPED = "clock-stepped"
    WARMUP_DRIFT = "warmup-drift"
    NOT_COLD = "not-cold"
    STALLED = "stalled"
    SYSCTL = "sysctl"
    FAILED_REQUESTS = "failed-requests"
    WRONG_BODY = "wrong-body"
    LOST_MAIL = "lost-mail"
    CAPACITY_UNKNOWN = "capacity-unknown"
    FINGERPRINT = "fingerprint"
    TIMED_OUT = "timed-out"
    TOOL_FAILED = "tool-failed"
    SERVER_FAILED = "server-failed"
    HOST_LOST = "host-lost"
