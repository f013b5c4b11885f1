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
        ({"urls": ["/", "http://u:secret@a/b"]}, {}, "number 2, 'http://…@a/b': is not at .*; give its path alone"),
        ({"urls": ["/a b"]}, {}, "number 1, '/a b': write a blank as %20"),
        ({"urls": ["/", "a?b=2"]}, {}, r"number 2, 'a\?b=2': a path begins with /"),
        ({"address": "http://u:secret@a"}, {}, r"^[^\n]*shop.yml: service: .*'a' is not http.*authorization"),
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
    with pytest.raises(ExperimentError, match=words) as error:
        load(written(tmp_path, service, **keys), project)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ("\ufeff/\n/a\n".encode(), ["/", "/a"]),
        ("\ufeff/\r\n\r\n# a note\r\n/a\r\n".encode("utf-16-le"), ["/", "/a"]),
        ("/büro?q=ä\n".encode(), ["/b%C3%BCro?q=%C3%A4"]),
        (b"/100%25\n /blank \n", ["/100%25", "/blank"]),
        (
            b"http://127.0.0.1:1/\nhttp://127.0.0.1:1/a\nhttp://127.0.0.1:1\nhttp://127.0.0.1:1?b=1",
            ["/", "/a", "/", "/?b=1"],
        ),
    ],
)
def test_lists_of_urls_as_editors_save_them(project: Registry, tmp_path: Path, data: bytes, paths: list[str]) -> None:
    (tmp_path / "urls.txt").write_bytes(data)
    requests = load(written(tmp_path, {"urls": "urls.txt"}), project).requests
    assert requests
    assert requests.paths == paths


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"# shop\n\n/\nproducts\n", "line 4, 'products': a path begins with /"),
        (b"/\n/b\xfcro\n", "line 2 is not UTF-8"),
        (b"http://127.0.0.1:10/\n", "line 1, 'http://127.0.0.1:10/': is not at http://127.0.0.1:1;"),
    ],
)
def test_a_line_that_is_no_url_is_named(project: Registry, tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "urls.txt").write_bytes(data)
    with pytest.raises(ExperimentError, match=words):
        load(written(tmp_path, {"urls": "urls.txt"}), project)


def test_the_paths_of_a_log(tmp_path: Path) -> None:
    """Each path has its share of the list; what was not answered with 200, and other methods, are not in it."""
    hits = [Hit(1_772_359_200 + i, f"/page?n={i % 4 and 1}") for i in range(400)]
    others = [
        Hit(1_772_359_900, "/gone", status=404), Hit(1_772_359_900, "/post", method="POST"),
        Hit(1_772_359_900, "/old", status=301),
    ]  # fmt: skip
    paths, left_out, of = requested_paths([write(tmp_path / "access.log", [*hits, *others])], lines=100)
    assert (left_out, of) == (0, 400)
    assert {path: paths.count(path) for path in paths} == {"/page?n=0": 25, "/page?n=1": 75}
    with pytest.raises(LogError, match="no GET request"):
        requested_paths([write(tmp_path / "other.log", others)])


@pytest.mark.parametrize(
    ("asked", "paths", "left_out"),
    [
        (["/", "/a", "http://other.example/", "/"], {"/", "/a"}, 1),  # a search for an open proxy
        (["/", "/a", "*", "-", "other.example:443"], {"/", "/a"}, 3),
        (
            ["http://shop.example/", "http://SHOP.example/a", "http://shop.example?b", "http://x/"],
            {"/", "/a", "/?b"},
            1,
        ),
        ([r"/b\xC3\xBCro", r"/a\"b", "/"], {"/b%C3%BCro", "/a%22b", "/"}, 0),
        (["/büro", "/日本", "/"], {"/b%C3%BCro", "/%E6%97%A5%E6%9C%AC", "/"}, 0),
    ],
)
def test_odd_requests_of_a_log_are_left_out(tmp_path: Path, asked: list[str], paths: set[str], left_out: int) -> None:
    log = write(tmp_path / "access.log", [Hit(1_772_359_200 + n, path) for n, path in enumerate(asked)])
    found, left, of = requested_paths([log])
    assert (set(found), left, of) == (paths, left_out, len(asked))
