"""Each gate fires on its planted fault and stays quiet on a clean trial."""

import pytest

from workloads.runner import gates

PRINT = {"binary_sha256": "a", "config_sha256": "b", "workers": 1, "version": "1.22"}


@pytest.mark.parametrize(
    ("quiet", "loud", "code"),
    [
        (gates.client_saturated(0.85, "siege"), gates.client_saturated(0.86, "siege"), "client-saturated"),
        (
            gates.client_saturated(0.5, "h2load", twin=True),
            gates.client_saturated(0.99, "h2load", twin=True),
            "twin-client-saturated",
        ),
        (gates.link_bound(90.0, "c"), gates.link_bound(94.2, "c"), "link-bound"),
        (gates.littles_law(9.6, 10, 2, 0.01, "siege"), gates.littles_law(8.0, 10, 2, 0.01, "siege"), "littles-law"),
        (gates.littles_law(8.0, 10, 0.01, 0.01, "siege"), gates.littles_law(11, 10, 9, 0.01, "siege"), "littles-law"),
        (gates.littles_law(None, 10, 2, 0, "x"), gates.littles_law(9.4, 10, 2, 0, "h2load"), "littles-law"),
        (gates.steal(0.5), gates.steal(0.6), "steal"),
        (
            gates.failed_requests(600, 600, 600, 0, "siege"),
            gates.failed_requests(600, 600, 599, 1, "siege"),
            "failed-requests",
        ),
        (
            gates.failed_requests(600, 600, 600, 0, "siege"),
            gates.failed_requests(600, 590, 590, 0, "siege"),
            "failed-requests",
        ),
        (gates.wrong_bodies([]), gates.wrong_bodies(["a.html (status 200, 3 bytes)"]), "wrong-body"),
        (
            gates.fingerprint(PRINT, PRINT, "nginx"),
            gates.fingerprint(PRINT, {**PRINT, "workers": 2}, "nginx"),
            "fingerprint",
        ),
        (
            gates.fingerprint(PRINT, {**PRINT, "version": "1.22-1"}, "nginx"),
            gates.fingerprint(PRINT, {**PRINT, "binary_sha256": "c"}, "nginx"),
            "fingerprint",
        ),
        (gates.content("abc", "abc"), gates.content("abc", None), "fingerprint"),
    ],
)
def test_gate(quiet: list[gates.Reason], loud: list[gates.Reason], code: str) -> None:
    assert quiet == []
    assert [r.code for r in loud] == [code]
    assert gates.verdict(loud) == gates.GATES[code]


def test_the_worst_reason_decides() -> None:
    weak, strong = gates.Reason("steal", "a"), gates.Reason("wrong-body", "b")
    assert gates.verdict([]) == "valid"
    assert gates.verdict([weak]) == "suspect"
    assert gates.verdict([weak, strong]) == "invalid"
    with pytest.raises(ValueError, match="no such gate"):
        gates.verdict([gates.Reason("nonsense", "")])


def test_reasons_stay_one_cell() -> None:
    joined = gates.join([gates.Reason("steal", "a | b\nc"), gates.Reason("link-bound", "d")])
    assert joined == "steal: a / b c | link-bound: d"
