"""TLS and HTTP/2 in workloads, servers and experiments: what is not possible is refused in one sentence."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tests.support.machines import SERVER, WORKLOAD
from tests.support.snapshots import assert_snapshot
from vmtoll.model.errors import ExperimentError
from vmtoll.model.experiment import Scale
from vmtoll.model.percentiles import fewest_requests
from vmtoll.model.transport import Transport
from vmtoll.model.workload import ClosedWorkload
from vmtoll.runner.plan import combinations
from vmtoll.sites import site_files
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.server import read_server, read_servers
from vmtoll.spec.workload import load_workloads

SNAPSHOT = Path(__file__).with_name("snapshots") / "transport.txt"
Rewrite = Callable[..., Path]
H2LOAD = {"tool": "h2load", "crosscheck": None}
RATE = {"kind": "rate", "users": None, "rate_rps": 50.0, "deadline_ms": 20.0, "tool": "vegeta", "crosscheck": None}


@pytest.fixture
def workload(project: Registry) -> Callable[..., Transport]:
    """Write the workload `tiny` with these keys and load it; None drops a key."""

    def write(name: str = "tiny", **keys: Any) -> Transport:
        data = {key: value for key, value in {**WORKLOAD, **keys}.items() if value is not None}
        project.workload_file(name).write_text(yaml.safe_dump(data))
        return load_workloads(name, project)[name].transport

    return write


def test_a_workload_is_plain_http_1_1_unless_it_says_more(workload: Callable[..., Transport]) -> None:
    assert workload() == Transport(tls=False, http="1.1", resumption=False)
    assert workload(tls=True) == Transport(tls=True)
    assert workload(tls=True, http="2", streams=100, **H2LOAD) == Transport(tls=True, http="2")
    resumed = workload(tls=True, tls_resumption=True, keep_alive=False, **RATE)
    assert resumed == Transport(tls=True, resumption=True)


def test_ab_sends_over_tls(workload: Callable[..., Transport]) -> None:
    assert workload(tls=True, tool="ab", page="index.html", crosscheck=None) == Transport(tls=True)


def test_a_transport_has_its_own_scheme_port_and_alpn() -> None:
    plain, secure, resumed = Transport(), Transport(tls=True, http="2"), Transport(tls=True, resumption=True)
    assert [(t.scheme, t.port(8080), t.alpn) for t in (plain, secure, resumed)] == [
        ("http", 8080, "http/1.1"),
        ("https", 8081, "h2"),
        ("https", 8082, "http/1.1"),
    ]
    assert [t.name for t in (secure, resumed)] == ["HTTP/2", "HTTP/1.1 resumed"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"http": "3"}, r"tiny.yml: http: '3': must be '1.1' or '2'"),
        ({"http": 2}, r"tiny.yml: http: 2: must be '1.1' or '2'"),
        ({"tls": "yes"}, r"tiny.yml: tls: 'yes': must be a valid boolean"),
        ({"http": "2", **H2LOAD}, r"tiny.yml: http: '2' needs `tls: true`, as in browsers$"),
        (
            {"http": "2", "tls": True, "keep_alive": False},
            r"tiny.yml: http: '2' needs `keep_alive: true`: its requests",
        ),
        ({"tls": True, "tls_resumption": True}, r"tiny.yml: tls_resumption: needs `tls: true` and `keep_alive: false`"),
        ({"tls_resumption": True, "keep_alive": False}, r"tiny.yml: tls_resumption: needs `tls: true` and"),
        ({"streams": 5}, r"tiny.yml: streams: 5 need `http: '2'`; HTTP/1.1 has one request at a time"),
        ({"streams": 101}, r"tiny.yml: streams: 101: must be less than or equal to 100"),
        (
            {**RATE, "rate_rps": None, "share": 0.5, "capacity": {"tool": "h2load", "users": 2, "streams": 5}},
            r"tiny.yml: capacity.streams: 5 need `http: '2'`",
        ),
        (
            {"tls": True, "http": "2"},
            r"tiny.yml: tool: siege does not speak HTTP/2; allowed: h2load, oha$",
        ),
        (
            {"tls": True, "http": "2", "tool": "ab", "page": "index.html", "crosscheck": None},
            r"tiny.yml: tool: ab does not speak HTTP/2; allowed: h2load, oha$",
        ),
        (
            {**RATE, "kind": "ramp", "rate_rps": None, "rates_rps": [1.0, 2.0], "tool": "httperf", "tls": True},
            r"tiny.yml: tool: httperf is refused over TLS: it stalls on replies of 8 to 16 KB; allowed: oha, vegeta$",
        ),
        (
            {**RATE, "tool": "oha", "tls": True, "tls_resumption": True, "keep_alive": False},
            r"tiny.yml: tool: oha does not resume TLS sessions; allowed: vegeta$",
        ),
        (
            {"crosscheck": None, "tls": True, "tls_resumption": True, "keep_alive": False},
            r"tiny.yml: tool: siege does not resume TLS sessions; allowed: none$",
        ),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    workload: Callable[..., Transport], keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(ExperimentError, match=said):
        workload(**keys)


def test_a_mail_workload_knows_none_of_it(project: Registry) -> None:
    mail = {
        "description": "mail", "kind": "mail", "site": "tiny", "tool": "mailer", "protocol": "imap", "users": 1,
        "page": "index.html", "tls": True,
    }  # fmt: skip
    project.workload_file("mail").write_text(yaml.safe_dump(mail))
    with pytest.raises(ExperimentError, match=r"mail.yml: tls: .* 'tls'"):
        load_workloads("mail", project)


def speaking(project: Registry, server: str, tls: str) -> None:
    (project.server_file(server)).write_text(f"{SERVER}tls: {tls}\n")


def test_a_server_without_tls_is_skipped_and_its_row_says_why(
    project: Registry, workload: Callable[..., Transport], rewrite: Rewrite
) -> None:
    speaking(project, "apache-prefork", "{http: ['1.1']}")
    workload(tls=True)
    resolved = load(rewrite(servers=["lighttz", "apache-prefork"], noise_floor=None), project)
    assert resolved.servers == ["apache-prefork"]
    ((server, why),) = ((skip.name, skip.why) for skip in resolved.skipped)
    assert (server, "TLS" in why) == ("lighttz", True)


@pytest.mark.parametrize(
    ("tls", "keys", "said"),
    [
        (None, {"tls": True}, "does not speak TLS"),
        ("{http: ['1.1']}", {"tls": True, "http": "2", **H2LOAD}, "does not speak HTTP/2 over TLS"),
        (
            "{http: ['1.1'], resumption: false}",
            {**RATE, "tls": True, "tls_resumption": True, "keep_alive": False},
            "does not resume TLS sessions",
        ),
    ],
)
def test_an_experiment_is_refused_where_no_server_can(
    project: Registry, workload: Callable[..., Transport], rewrite: Rewrite, tls: str | None, keys: dict[str, Any],
    said: str,
) -> None:  # fmt: skip
    if tls:
        speaking(project, "lighttz", tls)
    workload(**keys)
    with pytest.raises(ExperimentError, match=f"tiny.yml: servers: .*: lighttz: {said}$"):
        load(rewrite(), project)


def test_a_server_that_can_do_some_of_the_workloads_skips_the_others(
    project: Registry, workload: Callable[..., Transport], rewrite: Rewrite
) -> None:
    speaking(project, "apache-prefork", "{http: ['1.1'], resumption: false}")
    workload("tiny-tls", tls=True)
    workload("tiny-resumed", tls=True, tls_resumption=True, keep_alive=False, **RATE)
    names = ["tiny", "tiny-tls", "tiny-resumed"]
    resolved = load(rewrite(servers=["lighttz", "apache-prefork"], workloads=names), project)
    assert {skip.name: "resume" in skip.why for skip in resolved.skipped} == {
        "lighttz, tiny-tls": False, "lighttz, tiny-resumed": False, "apache-prefork, tiny-resumed": True,
    }  # fmt: skip
    assert resolved.servers == ["lighttz", "apache-prefork"]
    assert {(str(arm), scenario.server, scenario.workload) for arm, scenario in combinations(resolved)} == {
        *((arm, "lighttz", "tiny") for arm in ("metal", "metal#2", "metal-two")),
        *((arm, "apache-prefork", name) for arm in ("metal", "metal-two") for name in names[:2]),
    }


@pytest.mark.parametrize(
    ("most", "keys"),
    [
        (5, {**H2LOAD, "streams": 6}),
        (
            7,
            {**RATE, "rate_rps": None, "share": 0.5, "capacity": {"tool": "h2load", "users": 2, "streams": 8}},
        ),
    ],
)
def test_a_workload_with_more_streams_than_a_server_takes_skips_it(
    project: Registry, workload: Callable[..., Transport], rewrite: Rewrite, most: int, keys: dict[str, Any]
) -> None:
    speaking(project, "lighttz", f"{{http: ['2'], streams: {most}}}")
    speaking(project, "apache-prefork", f"{{http: ['2'], streams: {most + 1}}}")
    workload(tls=True, http="2", **keys)
    resolved = load(rewrite(servers=["lighttz", "apache-prefork"], noise_floor=None), project)
    ((server, why),) = ((skip.name, skip.why) for skip in resolved.skipped)
    assert (server, re.findall(r"\d+", why)) == ("lighttz", [str(most), str(most + 1)])


def test_servers_that_can_do_none_of_the_workloads_for_several_reasons_leave_nothing(
    project: Registry, workload: Callable[..., Transport], rewrite: Rewrite
) -> None:
    speaking(project, "lighttz", "{http: ['1.1'], resumption: false}")
    workload("tiny-h2", tls=True, http="2", **H2LOAD)
    workload("tiny-resumed", tls=True, tls_resumption=True, keep_alive=False, **RATE)
    said = (
        "tiny.yml: servers: none is left to measure: lighttz, tiny-h2: does not speak HTTP/2 over TLS; "
        "lighttz, tiny-resumed: does not resume TLS sessions$"
    )
    with pytest.raises(ExperimentError, match=said):
        load(rewrite(workloads=["tiny-h2", "tiny-resumed"]), project)


@pytest.mark.parametrize("scale", ["small", "full"])
def test_resumed_handshakes_suffice_for_a_p99(scale: Scale) -> None:
    registry = Registry()
    resolved = load(registry.experiment_file("tls-handshakes"), registry, scale)
    (rate,) = resolved.workloads["tls-resumed"].single_machine_loads
    assert rate.value * resolved.experiment.duration_s >= fewest_requests(0.99)


@pytest.mark.parametrize("workload", ["large-transport-plain-rate", "large-transport-tls-rate"])
def test_half_a_gigabit_of_the_large_files_suffices_for_a_p99(workload: str) -> None:
    registry = Registry()
    resolved = load(registry.experiment_file("tls-bulk"), registry, "full")
    loaded = resolved.workloads[workload]
    assert resolved.site
    (file,) = [file for file in site_files(resolved.site)["files"] if file["path"] == loaded.page]
    requests = loaded.single_machine_loads[0].value * 1e9 / 8 / file["size_bytes"] * resolved.experiment.duration_s
    assert loaded.single_machine_loads[0].value == 0.5 and requests > 2 * fewest_requests(0.99)


def test_the_experiments_over_tls_name_what_each_server_cannot() -> None:
    registry, scales = Registry(), get_args(Scale)

    def skipped(name: str, scale: Scale) -> list[str]:
        file = registry.experiment_file(name)
        return [f"{skip.name}: {skip.why}" for skip in load(file, registry, scale).skipped]

    names = ("tls-handshakes", "tls-bulk", "http2-site", "http2-home-2025")
    assert_snapshot(
        SNAPSHOT, {f"Skipped by {name}": {scale: skipped(name, scale) for scale in scales} for name in names}
    )


def test_tls_is_not_taken_over_from_another_server() -> None:
    """What repeats a published configuration stays as it is, with one listener."""
    speak = {server.name for server in read_servers() if server.tls}
    assert speak == {"apache-event", "caddy", "h2o", "lighttpd", "nginx", "nginx-ktls"}
    assert read_server("lighttpd-tuned-2009").tls is None
    ktls = read_server("nginx-ktls").tls
    assert ktls is not None and ktls.kernel


def test_streams_are_kept_by_a_closed_loop(project: Registry, workload: Callable[..., Transport]) -> None:
    workload(tls=True, http="2", streams=7, **H2LOAD)
    loaded = load_workloads("tiny", project)["tiny"]
    assert isinstance(loaded, ClosedWorkload)
    assert loaded.streams == 7
