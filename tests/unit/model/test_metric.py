"""What a metric takes from a measurement."""

import pytest

from vmtoll.model.finding import Role
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import Measurement


@pytest.mark.parametrize(("answered", "has"), [(1000, True), (900, True), (899, False), (1, False)])
def test_cpu_of_an_answer_needs_most_requests_answered(answered: int, has: bool) -> None:
    """Of a guest that answered one of a thousand requests in time, all the CPU time would be that one's."""
    measured = Measurement(
        role=Role.PRIMARY, tool="httperf", requests=1000, transactions=answered, throughput_rps=float(answered),
        server_cpu_us_per_request=50.0, host_cpu_us_per_request=70.0,
    )  # fmt: skip
    values = {name: metric.of(measured, guest=True) for name, metric in METRICS.items()}
    assert (values["cpu"], values["host_cpu"]) == ((50.0, 70.0) if has else (None, None))
    assert values["throughput"] == answered
