"""Each gate fires on its injected fault and stays quiet on a clean trial."""

import pytest

from vmtoll.model.finding import FINDINGS, Code, Finding, Role, Validity, validity
from vmtoll.model.transport import CIPHER, PROTOCOL, Transport
from vmtoll.model.trial import Measurement, Times
from vmtoll.trial import gates

PRINT = {"binary_sha256": "a", "config_sha256": "b", "workers": 1, "version": "1.22"}
HTTP2, RESUMED = Transport(tls=True, http="2"), Transport(tls=True, resumption=True)
AGREED = {
    "protocol": PROTOCOL, "cipher": CIPHER, "alpn": "h2", "certificate_sha256": "d", "resumption": False,
    "kernel": False,
}  # fmt: skip
PRIMARY, CROSSCHECK = Role.PRIMARY, Role.CROSSCHECK


@pytest.mark.parametrize(
    ("quiet", "loud", "expected"),
    [
        (
            gates.client_saturated(0.85, PRIMARY, "siege", "client"),
            gates.client_saturated(0.86, PRIMARY, "siege", "client"),
            Finding(Code.CLIENT_SATURATED, 0.86, 0.85, PRIMARY, "siege", "client"),
        ),
        (
            gates.client_saturated(None, CROSSCHECK, "h2load", "client")
            + gates.client_saturated(0.99, CROSSCHECK, "h2load", "client", in_flight=1),
            gates.client_saturated(0.99, CROSSCHECK, "h2load", "client", in_flight=2),
            Finding(Code.CLIENT_SATURATED, 0.99, 0.85, CROSSCHECK, "h2load", "client"),
        ),
        (
            gates.unsent(0, 100, "httperf"),
            gates.unsent(7, 100, "httperf"),
            Finding(Code.CLIENT_SATURATED, 7, 100, PRIMARY, "httperf", detail="unsent"),
        ),
        (
            gates.link_bound(90.0, "client"),
            gates.link_bound(94.2, "client"),
            Finding(Code.LINK_BOUND, 94.2, 90.0, machine="client"),
        ),
        (
            gates.littles_law(9.6, 10, 1000, 2, 0.01, "siege", "c"),
            gates.littles_law(8.0, 10, 1000, 2, 0.01, "siege", "c"),
            Finding(Code.LITTLES_LAW, 8.0, 10, PRIMARY, "siege", "c"),
        ),
        (
            gates.littles_law(8.0, 10, 1000, 0.01, 0.01, "siege", "c"),
            gates.littles_law(11, 10, 1000, 9, 0.01, "siege", "c"),
            Finding(Code.LITTLES_LAW, 11, 10, PRIMARY, "siege", "c"),
        ),
        (
            gates.littles_law(None, 10, 1000, 2, 0, "x", "c"),
            gates.littles_law(9.4, 10, 1000, 2, 0, "h2load", "c"),
            Finding(Code.LITTLES_LAW, 9.4, 10, PRIMARY, "h2load", "c"),
        ),
        (  # 4 µs of a user's 42.5 µs; in a loop of 80 µs they do not explain it
            gates.littles_law(0.93, 1, 23_500, 1, 0, "h2load", "c"),
            gates.littles_law(0.93, 1, 12_500, 1, 0, "h2load", "c"),
            Finding(Code.LITTLES_LAW, 0.93, 1, PRIMARY, "h2load", "c"),
        ),
        (  # no more than a tenth is its own work
            gates.littles_law(0.91, 1, 50_000, 1, 0, "h2load", "c"),
            gates.littles_law(0.89, 1, 50_000, 1, 0, "h2load", "c"),
            Finding(Code.LITTLES_LAW, 0.89, 1, PRIMARY, "h2load", "c"),
        ),
        (
            gates.littles_law(1.04, 1, 23_500, 1, 0, "h2load", "c"),
            gates.littles_law(1.07, 1, 23_500, 1, 0, "h2load", "c"),
            Finding(Code.LITTLES_LAW, 1.07, 1, PRIMARY, "h2load", "c"),
        ),
        (gates.steal(0.5, "metal"), gates.steal(0.6, "metal"), Finding(Code.STEAL, 0.6, 0.5, machine="metal")),
        (
            gates.failed_requests(600, 600, 600, 0, PRIMARY, "siege"),
            gates.failed_requests(600, 600, 599, 1, PRIMARY, "siege"),
            Finding(Code.FAILED_REQUESTS, 1, 0, PRIMARY, "siege", detail="599/600"),
        ),
        (
            gates.failed_requests(600, 600, 600, 0, CROSSCHECK, "h2load"),
            gates.failed_requests(600, 590, 590, 0, CROSSCHECK, "h2load"),
            Finding(Code.FAILED_REQUESTS, 10, 0, CROSSCHECK, "h2load", detail="590/600"),
        ),
        (
            gates.not_cold(9.5, 10.0, "metal") + gates.not_cold(None, 10.0, "host"),
            gates.not_cold(9.4, 10.0, "metal"),
            Finding(Code.NOT_COLD, 9.4, 9.5, machine="metal"),
        ),
        (
            gates.wrong_bodies([]),
            gates.wrong_bodies(["a.html (status 200, 3 bytes)", "b.html"]),
            Finding(Code.WRONG_BODY, 2, 0, detail="a.html (status 200, 3 bytes)"),
        ),
        (
            gates.fingerprint(PRINT, PRINT, "nginx", "kvm"),
            gates.fingerprint(PRINT, {**PRINT, "workers": 2, "config_sha256": "c"}, "nginx", "kvm"),
            Finding(Code.FINGERPRINT, machine="kvm", process="nginx", detail="config_sha256, workers"),
        ),
        (
            gates.fingerprint(PRINT, {**PRINT, "version": "1.22-1"}, "nginx", "kvm"),
            gates.fingerprint(PRINT, {**PRINT, "binary_sha256": "c"}, "nginx", "kvm"),
            Finding(Code.FINGERPRINT, machine="kvm", process="nginx", detail="binary_sha256"),
        ),
        (
            gates.tls(HTTP2, kernel=False, certificate="d", observed=AGREED, server="nginx", machine="kvm"),
            gates.tls(
                HTTP2,
                kernel=True,
                certificate="d",
                observed={**AGREED, "cipher": "TLS_CHACHA20_POLY1305_SHA256"},
                server="nginx",
                machine="kvm",
            ),
            Finding(
                Code.FINGERPRINT,
                machine="kvm",
                process="nginx",
                detail=f"TLS cipher: {CIPHER} -> TLS_CHACHA20_POLY1305_SHA256; TLS kernel: True -> False",
            ),
        ),
        (
            gates.tls(HTTP2, kernel=False, certificate=None, observed=AGREED, server="nginx", machine="kvm"),
            gates.tls(HTTP2, kernel=False, certificate="e" * 64, observed=AGREED, server="nginx", machine="kvm"),
            Finding(Code.FINGERPRINT, machine="kvm", process="nginx", detail="TLS certificate: eeeeeeeeeeee -> d"),
        ),
        (
            gates.tls(
                RESUMED,
                kernel=False,
                certificate=None,
                observed={**AGREED, "alpn": "http/1.1", "resumption": True},
                server="nginx",
                machine="kvm",
            ),
            gates.tls(
                RESUMED,
                kernel=False,
                certificate=None,
                observed={**AGREED, "protocol": "TLSv1.2", "alpn": "none"},
                server="nginx",
                machine="kvm",
            ),
            Finding(
                Code.FINGERPRINT,
                machine="kvm",
                process="nginx",
                detail="TLS protocol: TLSv1.3 -> TLSv1.2; TLS alpn: http/1.1 -> none; TLS resumption: True -> False",
            ),
        ),
        (
            gates.content("abc", "abc", "kvm"),
            gates.content("abc", None, "kvm"),
            Finding(Code.FINGERPRINT, machine="kvm", detail="content_digest: abc -> None"),
        ),
    ],
)
def test_gate(quiet: list[Finding], loud: list[Finding], expected: Finding) -> None:
    assert quiet == []
    assert loud == [expected]
    assert validity(loud) is FINDINGS[expected.code].severity


def test_a_mean_over_p99_is_detected_in_any_measurement_with_both() -> None:
    service = Measurement(role=CROSSCHECK, tool="h2load", service_time=Times(mean_us=5.0, p99_us=4.0))
    response = Measurement(role=PRIMARY, tool="oha", response_time=Times(mean_us=5.0, p99_us=4.0))
    assert gates.mean_over_p99(service) == [
        Finding(Code.MEAN_OVER_P99, 5.0, 4.0, CROSSCHECK, "h2load", detail="service_time")
    ]
    assert gates.mean_over_p99(response) == [
        Finding(Code.MEAN_OVER_P99, 5.0, 4.0, PRIMARY, "oha", detail="response_time")
    ]
    assert gates.mean_over_p99(Measurement(role=PRIMARY, tool="ab", service_time=Times(p99_us=4.0))) == []


def test_the_worst_finding_decides() -> None:
    weak, strong = Finding(Code.STEAL), Finding(Code.WRONG_BODY)
    assert validity([]) is Validity.VALID
    assert validity([weak]) is Validity.SUSPECT
    assert validity([weak, strong]) is Validity.INVALID
