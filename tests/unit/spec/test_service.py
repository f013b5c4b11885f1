"""Experiments with `service:` as they are read, and the paths of access logs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.logs import Hit, write
from tests.support.machines import project
from vmtoll.access_log.requested import requested_paths
from vmtoll.model.errors import ExperimentError, LogError
from vmtoll.runner.run import plan
from vmtoll.runner.service import most_requests
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

__all__ = ["project"]

SERVICE: dict[str, Any] = {
    "name": "shop", "address": "http://127.0.0.1:1", "urls": ["/", "/", "/cart?id=1"], "at_most_rps": 50,
    "loads": {"steady": {"kind": "rate", "rate_rps": 20, "deadline_ms": 100}, "users": {"users": 2}},
}  # fmt: skip


def written(folder: Path, service: dict[str, Any], **keys: Any) -> Path:
    """An experiment with these keys of its service changed; a value of None drops the key."""
    service = {key: value for key, value in (SERVICE | service).items() if value is not None}
    document = {
        "question": "how fast?", "environments": ["old", "new"], "service": service, "blocks": 6, "warmup_s": 1,
        "duration_s": 2, "noise_floor": None, **keys,
    }  # fmt: skip
    file = folder / "shop.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_service_stands_in_place_of_servers_and_workloads(project: Registry, tmp_path: Path) -> None:
    resolved = load(written(tmp_path, {"address": {"old": "http://a:80/", "new": "http://b"}}), project)
    assert resolved.requests
    assert resolved.requests.addresses == {"old": "http://a:80", "new": "http://b"}
    assert resolved.requests.distinct == ["/", "/cart?id=1"]
    assert (resolved.servers, list(resolved.workloads), resolved.site) == (["shop"], ["steady", "users"], None)
    planned = plan(resolved)
    assert len(planned.trials) == 24
    loads, checks, start = 3 * (20 + 50), 2 * 2 * 2, 2 * 2 * 2
    assert most_requests(resolved, resolved.requests) == 6 * 2 * (loads + checks) + start


@pytest.mark.parametrize(
    ("service", "keys", "words"),
    [
        ({"at_most_rps": None}, {}, "service.at_most_rps: is missing"),
        ({"at_most_rps": 19}, {}, "service.loads.steady: rate_rps: 20 is above"),
        ({"loads": {"a": {"kind": "sweep", "rates_rps": [1, 60], "deadline_ms": 9}}}, {}, "rates_rps: 60 is above"),
        ({"loads": {"a": {"kind": "search", "between_rps": [1, 60], "deadline_ms": 9}}}, {}, "between_rps: 60 is"),
        ({"loads": {"a": {"kind": "mail"}}}, {}, "service.loads.a: kind: unknown kind 'mail'"),
        ({"loads": {"a": {"users": 2, "tool": "oha"}}}, {}, "service.loads.a: tool: a service sets it"),
        ({"loads": {"a": {"kind": "rate", "rate_rps": 9, "deadline_ms": 9, "arrivals": "poisson"}}}, {}, "arrivals"),
        ({"loads": {"a": {"users": 0}}}, {}, "service.loads.a: users: must lie between"),
        ({"access_log": "access.log"}, {}, "give one of urls and access_log"),
        ({"urls": "none.txt"}, {}, "service.urls: .*none.txt: No such file"),
        ({"urls": ["http://a/b"]}, {}, "number 1: give its path alone"),
        ({"urls": ["/a b"]}, {}, "number 1: a path begins with /"),
        ({"dynamic": ["/crat"]}, {}, "unknown URL '/crat'"),
        ({"headers": "none.txt"}, {}, "service.headers: .*none.txt: No such file"),
        ({"address": {"old": "http://a"}}, {}, "has none for the environment new"),
        ({"address": {"old": "http://a", "new": "https://a"}}, {}, "one scheme"),
        ({"address": "http://a/path"}, {}, "is not http"),
        ({"http": "2"}, {}, "needs an https address"),
        ({"ca": "ca.pem"}, {}, "only an https address"),
        ({"cpu": {"unit": "a", "process": "b"}}, {}, "give one of unit, cgroup, container and process"),
        ({}, {"servers": ["nginx"]}, "servers: `service` has its own"),
        ({}, {"tuning_steps": {"cumulative": ["old", "new"]}}, "tuning_steps: an experiment with `service` has none"),
    ],
)  # fmt: skip
def test_mistakes(project: Registry, tmp_path: Path, service: dict[str, Any], keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        load(written(tmp_path, service, **keys), project)


def test_the_paths_of_a_log(tmp_path: Path) -> None:
    """Each path has its share of the list; what was not answered with 200, and other methods, are not in it."""
    hits = [Hit(1_772_359_200 + i, f"/page?n={i % 4 and 1}") for i in range(400)]
    others = [
        Hit(1_772_359_900, "/gone", status=404), Hit(1_772_359_900, "/post", method="POST"),
        Hit(1_772_359_900, "/old", status=301),
    ]  # fmt: skip
    paths = requested_paths([write(tmp_path / "access.log", [*hits, *others])], lines=100)
    assert {path: paths.count(path) for path in paths} == {"/page?n=0": 25, "/page?n=1": 75}
    with pytest.raises(LogError, match="no GET request"):
        requested_paths([write(tmp_path / "other.log", others)])
