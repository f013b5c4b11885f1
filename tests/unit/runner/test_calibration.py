"""The closed loop that a capacity is measured with sends the requests of its workload."""

from typing import Any

import pytest

from vmtoll.model.workload import Capacity, ClosedWorkload, MailWorkload, Neighbour, RateWorkload, WebWorkload
from vmtoll.runner.calibration import closed_loop

WORKLOAD: dict[str, Any] = {
    "name": "orders", "description": "it", "site": "tiny", "tool": "vegeta", "crosscheck": "oha", "page": "a.html",
    "client": "localhost", "cores": 2,
}  # fmt: skip
RATE: dict[str, Any] = {"kind": "rate", "share": 0.5, "deadline_ms": 50.0}
UPLOAD: dict[str, Any] = {"keep_alive": True, "method": "POST", "body_bytes": 65_536, "tls": True, "http": "2"}
RESUMED: dict[str, Any] = {"keep_alive": False, "tls": True, "tls_resumption": True}


@pytest.mark.parametrize("keys", [UPLOAD, RESUMED])
def test_a_capacity_has_every_key_that_web_workloads_share(keys: dict[str, Any]) -> None:
    workload = RateWorkload(**WORKLOAD, **RATE, **keys, capacity=Capacity(tool="h2load", users=5))
    closed = closed_loop(workload)
    for key in set(WebWorkload.model_fields) - {"tool", "crosscheck"}:
        assert getattr(closed, key) == getattr(workload, key), key
    assert (closed.tool, closed.crosscheck, closed.users) == ("h2load", None, 5)


def test_the_cases_above_set_every_shared_key() -> None:
    """A key at its default would be equal even if it were left out."""
    plain = {key for key, field in WebWorkload.model_fields.items() if field.is_required()}
    assert set(WORKLOAD) | set(UPLOAD) | set(RESUMED) | plain == set(WebWorkload.model_fields)


def test_streams_and_users_are_those_of_the_capacity() -> None:
    neighbour = Neighbour(share=[0.5])
    workload = ClosedWorkload(
        **(WORKLOAD | {"client": "remote"}), **UPLOAD, users=[1, 2], streams=4, neighbour=neighbour,
        capacity=Capacity(tool="h2load", users=7, streams=9),
    )  # fmt: skip
    closed = closed_loop(workload)
    assert (closed.users, closed.streams, closed.neighbour, closed.capacity) == (7, 9, None, None)


def test_mail_and_rates_have_no_capacity() -> None:
    mail = MailWorkload(
        name="mail", description="it", site="tiny", tool="postal", kind="mail", protocol="smtp", users=1, page="a.html"
    )
    rate = RateWorkload(**WORKLOAD, kind="rate", rate_rps=5.0, deadline_ms=50.0, keep_alive=True)
    for workload in (mail, rate):
        with pytest.raises(TypeError, match="takes no shares"):
            closed_loop(workload)
