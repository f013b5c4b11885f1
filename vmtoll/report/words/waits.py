"""Words for waits for a CPU (CPU ready)."""

from collections.abc import Mapping

from vmtoll.model.message import number

# A wait that is a smaller part of running and waiting together needs no sentence.
_WORTH_SAYING = 0.02


def wait_text(times_us: Mapping[str, float | None], arm: str) -> str:
    """`of 68 µs per request the vCPUs of kvm-default waited 21 for a CPU`; empty where neither they nor the server's
    threads waited for 2% of that time.

    `times_us`: column of trials.csv → µs per request, what they ran and waited. Of vCPUs and server, the one that
    waited for the larger part of its time.
    """
    subjects = (
        (f"the vCPUs of {arm}", times_us["host_vcpu_cpu_us_per_request"], times_us["host_vcpu_wait_us_per_request"]),
        (
            f"the server's threads on {arm}",
            times_us["server_cpu_us_per_request"],
            times_us["server_wait_us_per_request"],
        ),
    )
    parts = [
        (wait_us / (ran_us + wait_us), subject, ran_us + wait_us, wait_us)
        for subject, ran_us, wait_us in subjects
        if ran_us is not None and wait_us is not None and ran_us + wait_us > 0
    ]
    share, subject, wanted_us, wait_us = max(parts, default=(0.0, "", 0.0, 0.0))
    if share < _WORTH_SAYING:
        return ""
    return f"of {number(wanted_us)} µs per request {subject} waited {number(wait_us)} for a CPU"
