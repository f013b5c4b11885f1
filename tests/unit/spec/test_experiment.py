"""Each error of an experiment is reported in one sentence, before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import MAIL_SERVER, SERVER, WORKLOAD
from vmtoll.model.errors import ExperimentError
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.workload import ClosedWorkload
from vmtoll.paths import PROJECT
from vmtoll.runner.plan import combinations
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.workload import file_of, load_workloads, names

Rewrite = Callable[..., Path]


def test_a_good_experiment_names_all_it_needs(project: Registry) -> None:
    resolved = load(project.experiment_file("tiny"), project)
    assert resolved.workloads["tiny"].crosscheck == "h2load"
    assert resolved.site
    assert resolved.site.name == "tiny"
    assert resolved.experiment.crosscheck_s == resolved.experiment.duration_s


def test_a_file_in_place_of_a_name_is_one_sentence(project: Registry) -> None:
    with pytest.raises(ExperimentError, match=r"/tiny\.yml: an experiment is given by its name, tiny, "):
        load(project.experiment_file("tiny.yml"), project)


@pytest.mark.parametrize(
    ("change", "servers"),
    [({}, ["lighttz"]), ({"noise_floor": None}, []), ({"environments": ["metal"]}, []), ({"purpose": "smoke"}, [])],
)
def test_a_comparison_has_a_control_unless_it_says_otherwise(
    project: Registry, change: dict[str, Any], servers: list[str]
) -> None:
    path = project.experiment_file("tiny")
    keys = {key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "noise_floor"}
    path.write_text(yaml.safe_dump(keys | {"purpose": "measure", "blocks": 8} | change))
    control = load(path, project).experiment.noise_floor
    assert (control.servers if control else []) == servers


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"servers": ["lightzt"]},
            r"servers\[0\]: unknown server 'lightzt' \(did you mean 'lighttz'\?\); allowed: apache-p",
        ),
        ({"servers": ["lighttz", "lighttz"]}, r"servers\[1\]: 'lighttz' is named twice"),
        ({"servers": []}, r"servers: must have at least 1 item, and has 0"),
        (
            {"environments": ["metal", "metal-tow"]},
            r"environments\[1\]: unknown environment .* allowed: metal, container, container-host-network, metal-two",
        ),
        ({"first_answer": "boot"}, r"first_answer: 'boot': must be a mapping"),
        ({"workloads": ["tinyy"]}, r"workloads\[0\]: unknown workload 'tinyy' \(did you mean 'tiny'\?\)"),
        ({"blocks": -2}, r"blocks: -2: must be greater than 0"),
        ({"blocks": 2.5}, r"blocks: 2.5: "),
        ({"blocks": 3, "purpose": "measure"}, r"blocks: 3 is below 6.*purpose: smoke"),
        ({"duration_s": -1.0}, r"duration_s: -1.0: must be greater than 0"),
        ({"duration_s": "1"}, r"duration_s: '1': must be a valid number"),
        ({"duration_s": float("inf")}, r"duration_s: inf: must be a finite number"),
        ({"warmup_s": None}, r"warmup_s: is missing; keys: question,"),
        (
            {"duratoin_s": 1.0},
            r"duratoin_s: unknown key 'duratoin_s' \(did you mean 'duration_s'\?\); allowed: question",
        ),
        ({"purpose": "fun"}, r"purpose: 'fun': must be 'measure' or 'smoke'"),
        ({"margin_pct": 0}, r"margin_pct: 0: must be greater than 0"),
        ({"noise_floor": {"environment": "metal", "server": "lighttz"}}, r"noise_floor.server: unknown key.*servers"),
        (
            {"noise_floor": {"environment": "kvm", "servers": ["lighttz"]}},
            r"noise_floor.environment: unknown environment",
        ),
        (
            {"noise_floor": {"environment": "metal", "servers": ["apache-prefork"]}},
            r"noise_floor.servers\[0\]: unknown",
        ),
        (
            {"environments": ["metal", "a"], "changes": {"a": {"apply": "x", "differs_in": ["binry"]}}},
            r"changes.a.differs_in: unknown fact 'binry' \(did you mean 'binary'\?\); allowed: binary, config, ",
        ),
        (
            {"declared_differences": ["kernl"]},
            r"declared_differences\[0\]: unknown fact 'kernl' \(did you mean 'kernel'",
        ),
        ({"name": "other"}, r"name: remove it; the file's name is the name"),
    ],
)
def test_every_mistake_is_named(project: Registry, rewrite: Rewrite, change: dict[str, Any], said: str) -> None:
    path = rewrite(**change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, project)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


CLAIM: dict[str, Any] = {
    "says": "it is faster",
    "metric": "throughput_rps",
    "of": {"server": "lighttz", "environment": "metal", "workload": "tiny"},
    "over": {"environment": "metal-two"},
    "published": [2, 1.5],
}
LEVEL = {"over": None, "published": [10], "at_least": 10}


def with_claim(rewrite: Rewrite, change: dict[str, Any]) -> Path:
    """The experiment with one claim, some of its keys changed; a value of None drops the key."""
    return rewrite(claims=[{k: v for k, v in {**CLAIM, **change}.items() if v is not None}])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metric": "troughput_rps"}, r"claims\[0\].metric: unknown metric 'troughput_rps' .*'throughput_rps'"),
        ({"metric": "server"}, r"claims\[0\].metric: unknown metric 'server'"),
        ({"of": {**CLAIM["of"], "server": "nginx"}}, r"claims\[0\].of.server: unknown server 'nginx'.*: lighttz$"),
        ({"over": {"workload": "tinyy"}}, r"claims\[0\].over.workload: unknown workload 'tinyy'"),
        ({"of": {"server": "lighttz", "environment": "metal"}}, r"claims\[0\].of.workload: is missing"),
        ({"over": {"tool": "ab"}}, r"claims\[0\].over.tool: unknown key 'tool'"),
        ({"over": None}, r"claims\[0\]: .*give either over, or one of at_least and at_most"),
        ({"at_least": 3}, r"claims\[0\]: .*give either over, or one of at_least and at_most"),
        ({**LEVEL, "within_pct": 5}, r"claims\[0\]: .*within_pct: needs over"),
        ({"published": [1]}, r"claims\[0\]: .*published: one value for each side"),
        ({"published": [1, 1]}, r"claims\[0\]: .*equal values give no direction; give within_pct"),
    ],
)
def test_mistakes_in_a_claim_are_named(rewrite: Rewrite, project: Registry, change: dict[str, Any], said: str) -> None:
    path = with_claim(rewrite, change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, project)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("change", [{}, {"published": None}, {"within_pct": 5, "published": [1, 1]}, LEVEL])
def test_each_kind_of_claim_can_be_made(rewrite: Rewrite, project: Registry, change: dict[str, Any]) -> None:
    (claim,) = load(with_claim(rewrite, change), project).experiment.claims
    if claim.over:
        assert (claim.over.server, claim.over.environment) == ("lighttz", "metal-two"), "the rest is that of `of`"


SCALES = {"full": {"blocks": 6, "purpose": "measure"}, "small": {"blocks": 3, "duration_s": 0.2}}


def test_a_scale_is_laid_over_the_other_keys(rewrite: Rewrite, project: Registry) -> None:
    path = rewrite(scales=SCALES)
    small, full = (load(path, project, scale).experiment for scale in (None, "full"))
    assert (small.scale, small.blocks, small.duration_s, small.purpose) == ("small", 3, 0.2, "smoke")
    assert (full.scale, full.blocks, full.duration_s, full.purpose) == ("full", 6, 0.1, "measure")
    path.write_text(yaml.safe_dump(small.model_dump(mode="json", exclude={"name"}, exclude_none=True)))
    assert load(path, project).experiment == small, "what run.json records can be run again"


def test_an_experiment_without_scales_has_one_size(project: Registry) -> None:
    assert load(project.experiment_file("tiny"), project, "full").experiment.scale is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scales": []}, r"scales: must be a mapping of full and small"),
        ({"scales": {"small": 3}}, r"scales: must be a mapping of full and small"),
        ({"scales": {"smal": {}}}, r"scales: unknown scale 'smal' \(did you mean 'small'\?\)"),
        ({"scales": {"full": {}}}, r"scales.small: is missing; there is: full"),
        ({"scales": {"small": {"block": 3}}}, r"block: unknown key 'block' \(did you mean 'blocks'\?\)"),
        ({"scales": SCALES, "scale": "small"}, r"`scale` is a command-line option \(--scale\); define `scales:`"),
    ],
)
def test_mistakes_in_scales_are_named(rewrite: Rewrite, project: Registry, change: dict[str, Any], said: str) -> None:
    path = rewrite(**change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, project)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_error_for_an_unknown_experiment_lists_the_known_ones(project: Registry) -> None:
    with pytest.raises(ExperimentError, match=r"experiment 'tinyy' .*'tiny'.*; allowed: tiny"):
        load(project.experiment_file("tinyy"), project)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "1: 2", ""])
def test_a_document_that_is_no_mapping_is_refused(project: Registry, text: str) -> None:
    path = project.experiment_file("tiny")
    path.write_text(text)
    with pytest.raises(ExperimentError, match=r"(not YAML|must be a mapping)"):
        load(path, project)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tool": "sige"}, r"tool: unknown tool 'sige' \(did you mean 'siege'\?\); allowed: ab, h2load, httperf"),
        ({"crosscheck": "wrk"}, r"crosscheck: unknown tool 'wrk'"),
        ({"tool": "ab"}, r"page: ab asks for one page only; name a file of the site tiny"),
        ({"page": "idnex.html"}, r"page: unknown page 'idnex.html' \(did you mean 'index.html'\?\)"),
        ({"site": "shop"}, r"site: unknown site 'shop'"),
        ({"users": 0}, r"users: must lie between 1 and 1000 and rise"),
        ({"users": [1, 1]}, r"users: must lie between 1 and 1000 and rise"),
        ({"users": [10, 2000]}, r"users: must lie between 1 and 1000 and rise"),
        ({"users": []}, r"users: must lie between 1 and 1000 and rise"),
        ({"users": [2, 3], "requests": 10}, r"requests: 10 is not a multiple of 3, the users who share them"),
        ({"keep_alive": False}, r"crosscheck: h2load cannot do keep_alive: false"),
        ({"keep_alive": "yes"}, r"keep_alive: 'yes': "),
        ({"method": "PUT"}, r"method: 'PUT': must be 'GET' or 'POST'"),
        ({"method": "POST", "page": "index.html"}, r"body_bytes: method POST needs it, method GET sends no body"),
        ({"body_bytes": 10}, r"body_bytes: method POST needs it, method GET sends no body"),
        ({"method": "POST", "body_bytes": 0, "page": "index.html"}, r"body_bytes: 0: must be greater than 0"),
        ({"method": "POST", "body_bytes": 10}, r"page: method POST needs it: the page that answers the uploads"),
    ],
)
def test_mistakes_in_a_workload_name_its_file(project: Registry, change: dict[str, Any], said: str) -> None:
    path = project.workload_file("tiny")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    with pytest.raises(ExperimentError, match=said) as caught:
        load(project.experiment_file("tiny"), project)
    assert str(path) in str(caught.value)


def test_bodies_go_to_servers_that_read_them(project: Registry) -> None:
    post = {"method": "POST", "body_bytes": 10, "page": "index.html"}
    with_workload(project, post)
    path = project.experiment_file("tiny")
    reads_none = r"servers: lighttz reads no bodies sent to tiny/index.html, as the workload tiny does; allowed: "
    with pytest.raises(ExperimentError, match=f"{reads_none}none"):
        load(path, project)
    project.server_file("apache-prefork").write_text(f"{SERVER}uploads: tiny/index.html\n")
    with pytest.raises(ExperimentError, match=f"{reads_none}apache-prefork"):
        load(path, project)
    project.server_file("lighttz").write_text(f"{SERVER}uploads: tiny/other.html\n")
    with pytest.raises(ExperimentError, match=f"{reads_none}apache-prefork"):
        load(path, project)
    project.server_file("lighttz").write_text(f"{SERVER}uploads: tiny/index.html\n")
    assert load(path, project).workloads["tiny"].body_bytes == 10


def test_bodies_are_sent_by_tools_that_can(project: Registry) -> None:
    ramp = {"kind": "ramp", "tool": "httperf", "crosscheck": None, "rates_rps": [10, 20], "deadline_ms": 5}
    with_workload(project, {**ramp, "users": None, "method": "POST", "body_bytes": 10, "page": "index.html"})
    with pytest.raises(ExperimentError, match=r"tool: httperf .*: ab, h2load, oha, siege, vegeta"):
        load(project.experiment_file("tiny"), project)


RATE = {"kind": "rate", "tool": "vegeta", "crosscheck": "oha", "users": None, "rate_rps": 100, "deadline_ms": 50}
SHARE = {**RATE, "rate_rps": None, "share": 0.5, "capacity": {"tool": "h2load", "users": 2}}
SWEEP = {**SHARE, "kind": "sweep", "share": None, "shares": [0.3, 0.6]}
SEARCH = {**SHARE, "kind": "search", "share": None, "between_shares": [0.2, 0.9]}
RAMP = {**RATE, "kind": "ramp", "rate_rps": None, "rates_rps": [10, 20], "tool": "httperf", "crosscheck": None}


def with_workload(project: Registry, change: dict[str, Any]) -> Path:
    """The workload `tiny` with some keys changed; a value of None drops the key."""
    path = project.workload_file("tiny")
    data = {**yaml.safe_load(path.read_text()), **change}
    path.write_text(yaml.safe_dump({k: v for k, v in data.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("change", "kind", "values"),
    [
        ({}, LoadKind.CLOSED, [2]),
        ({"users": [1, 2, 5]}, LoadKind.CLOSED, [1, 2, 5]),
        (RATE, LoadKind.RATE, [100]),
        (SHARE, LoadKind.SHARE, [0.5]),
        (SWEEP, LoadKind.SHARE, [0.3, 0.6]),
        ({**SWEEP, "shares": None, "capacity": None, "rates_rps": [10, 2000.5]}, LoadKind.RATE, [10, 2000.5]),
        (RAMP, LoadKind.RATE, [10, 20]),
        (SEARCH, LoadKind.SEARCH, [50]),
        ({**SEARCH, "between_shares": None, "capacity": None, "between_rps": [10, 2000.5]}, LoadKind.SEARCH, [50]),
    ],
)
def test_each_kind_of_workload_offers_its_loads(
    project: Registry, change: dict[str, Any], kind: LoadKind, values: list[float]
) -> None:
    with_workload(project, change)
    resolved = load(project.experiment_file("tiny"), project)
    loads = [Load(kind, value) for value in values]
    assert resolved.workloads["tiny"].loads == loads
    assert {scenario.load for _, scenario in combinations(resolved)} == set(loads)
    assert len(combinations(resolved)) == 3 * len(loads)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "rates"}, r"kind: unknown kind 'rates' \(did you mean 'rate'\?\); allowed: closed, rate, sweep"),
        ({**RATE, "rate_rps": None}, r"give either rate_rps or share"),
        ({**RATE, "share": 0.5}, r"give either rate_rps or share"),
        ({**SHARE, "capacity": None}, r"capacity: share needs it"),
        ({**SHARE, "capacity": {"tool": "vegeta", "users": 2}}, r"capacity.tool: vegeta knows rates only, not users"),
        ({**RATE, "rate_rps": 0}, r"rate_rps: 0: must be greater than 0"),
        ({**RATE, "deadline_ms": None}, r"deadline_ms: is missing"),
        ({**RATE, "users": 3}, r"users: unknown key 'users'"),
        ({"deadline_ms": 3.0}, r"deadline_ms: unknown key 'deadline_ms'"),
        ({**SWEEP, "shares": [0.5]}, "shares: must have at least 2 items, and has 1"),
        ({**SWEEP, "shares": [0.5, 0.3]}, r"shares: must be above 0 and rise from step to step"),
        (
            {"tool": "vegeta", "crosscheck": None},
            r"tool: vegeta knows rates only, not users; allowed: ab, h2load, oha, siege",
        ),
        (
            {**RATE, "tool": "h2load"},
            r"tool: h2load is refused for tails: it failed the stall test: .*; allowed: oha, vegeta$",
        ),
        ({**SEARCH, "between_shares": None}, r"give either between_rps or between_shares"),
        ({**SEARCH, "capacity": None}, r"capacity: between_shares needs it"),
        ({**SEARCH, "between_shares": [0.5, 0.2]}, r"between_shares: must be above 0 and rise"),
        ({**SEARCH, "between_shares": [0.2, 0.5, 0.9]}, r"between_shares: .* at most 2 items"),
        ({**SEARCH, "availability_pct": 100}, r"availability_pct: 100: must be less than 100"),
        ({**SEARCH, "tool": "h2load"}, r"tool: h2load is refused for tails"),
        ({**RAMP, "tool": "h2load"}, r"tool: h2load knows users only, not rates; allowed: httperf, oha, vegeta"),
        ({**RAMP, "crosscheck": "oha"}, r"crosscheck: a ramp has none"),
        ({**RATE, "tool": "httperf"}, r"tool: httperf is refused for tails: it prints means and no percentiles"),
        ({**RATE, "crosscheck": "siege"}, r"crosscheck: siege is refused for tails: it knows users, not rates"),
    ],
)
def test_mistakes_in_an_open_loop_are_named(project: Registry, change: dict[str, Any], said: str) -> None:
    path = with_workload(project, change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(project.experiment_file("tiny"), project)
    assert str(caught.value).startswith(f"{path}: ")


def test_adding_one_file_adds_one_of_each(project: Registry, rewrite: Rewrite) -> None:
    root = project.root
    (root / "server-builds" / "caddy").mkdir()
    (root / "server-builds" / "caddy" / "server.yml").write_text(SERVER)
    (root / "vm-images/guests/kvm-tuned.yml").write_text("description: one more\n")
    (root / "vmtoll/loadgen/hammer.py").write_text((root / "vmtoll/loadgen/siege.py").read_text())
    site = (root / "workloads/sites/tiny.yml").read_text()
    (root / "workloads/sites/shop.yml").write_text(site)
    workload = yaml.safe_load((root / "workloads/tiny.yml").read_text())
    (root / "workloads/shop-hammer.yml").write_text(yaml.safe_dump({**workload, "site": "shop", "tool": "hammer"}))
    path = rewrite(servers=["caddy"], environments=["kvm-tuned"], workloads=["shop-hammer"], noise_floor=None)
    resolved = load(path, project)
    assert resolved.site
    assert resolved.site.name == "shop"
    assert resolved.workloads["shop-hammer"].tool == "hammer"


@pytest.mark.parametrize("path", sorted((PROJECT / "workloads" / "experiments").glob("*.yml")), ids=lambda p: p.stem)
def test_the_experiments_here_are_sound(path: Path) -> None:
    load(path)


@pytest.mark.parametrize("name", names(Registry()))
def test_the_workloads_here_are_sound(project: Registry, rewrite: Rewrite, name: str) -> None:
    registry = Registry()
    path = file_of(name, registry)
    assert path
    project.workload_file(path.stem).write_text(path.read_text())
    for site in registry.sites():
        project.site_file(site).write_text(registry.site_file(site).read_text())
    if "method: POST" in path.read_text():
        with pytest.raises(ExperimentError, match=r"servers: lighttz .*upload/received\.html"):
            load(rewrite(workloads=[name]), project)
        project.server_file("lighttz").write_text(f"{SERVER}uploads: upload/received.html\n")
    if "tls: true" in path.read_text():
        project.server_file("lighttz").write_text(f"{SERVER}tls: {{http: ['1.1', '2']}}\n")
    if "kind: mail" not in path.read_text():
        load(rewrite(workloads=[name]), project)
        return
    with pytest.raises(ExperimentError, match=f"servers: lighttz .* {name} is for mail"):
        load(rewrite(workloads=[name]), project)
    project.server_file("lighttz").write_text(MAIL_SERVER)
    load(rewrite(workloads=[name]), project)


@pytest.mark.parametrize(
    ("file", "key", "new"),
    [
        ("experiment", {"twin_duration_s": 1.0}, "crosscheck_duration_s"),
        ("experiment", {"ladder": {"cumulative": ["a", "b"]}}, "tuning_steps"),
        ("workload", {"twin": "oha"}, "crosscheck"),
    ],
)
def test_a_key_that_was_renamed_is_refused_with_its_new_name(
    project: Registry, rewrite: Rewrite, file: str, key: dict[str, Any], new: str
) -> None:
    path = rewrite(**key) if file == "experiment" else with_workload(project, key)
    (old,) = key
    with pytest.raises(ExperimentError, match=f"^{path}: {old}: .* {new}; rename"):
        load(project.experiment_file("tiny"), project)


VARIANTS = {
    "description": "a user asks",
    "users": [1, 2],
    "variants": [
        {"siege": {"crosscheck": None}, "ab": {"description": "with ab", "tool": "ab", "page": "index.html"}},
        {"close": {"keep_alive": False}, "keep": {"description": "persistently", "keep_alive": True}},
    ],
    "crosscheck": None,
}
TABLE = ["table-siege-close", "table-siege-keep", "table-ab-close", "table-ab-keep"]


@pytest.fixture
def table(project: Registry) -> Registry:
    """The project with a workload of two axes."""
    project.workload_file("table").write_text(yaml.safe_dump({**WORKLOAD, **VARIANTS}, sort_keys=False))
    return project


def test_a_file_of_variants_is_a_workload_for_each(table: Registry, rewrite: Rewrite) -> None:
    assert names(table) == [*TABLE, "tiny"]
    resolved = load(rewrite(workloads=["tiny", "table"]), table)
    assert resolved.experiment.workloads == list(resolved.workloads) == ["tiny", *TABLE]
    workload = resolved.workloads["table-ab-keep"]
    assert isinstance(workload, ClosedWorkload)
    assert (workload.name, workload.tool, workload.keep_alive) == ("table-ab-keep", "ab", True)
    assert workload.description == "a user asks, with ab, persistently"
    assert resolved.workloads["table-siege-close"].description == "a user asks"
    assert list(load(rewrite(workloads=["table-ab-close"]), table).workloads) == ["table-ab-close"]
    assert load_workloads("table-ab", table) == {}


def test_an_experiment_chooses_numbers_of_users(table: Registry, rewrite: Rewrite) -> None:
    path = rewrite(workloads=["table-ab-keep", "table-ab-close"], users={"table-ab-keep": 2})
    resolved = load(path, table)
    assert [load.value for load in resolved.workloads["table-ab-keep"].loads] == [2]
    assert [load.value for load in resolved.workloads["table-ab-close"].loads] == [1, 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workloads": ["table-ab"]}, r"workloads\[0\]: unknown workload 'table-ab' \(did you mean 'table-ab-"),
        ({"workloads": ["table", "table-ab-keep"]}, r"workloads\[1\]: 'table-ab-keep' is named twice"),
        ({"users": {"tiny": 2}, "workloads": ["table"]}, r"users: unknown workload 'tiny'"),
        ({"users": {"table-ab-keep": 3}, "workloads": ["table"]}, r"users.table-ab-keep: 3: .* has 1, 2$"),
    ],
)
def test_mistakes_in_the_choice_of_workloads_are_named(
    table: Registry, rewrite: Rewrite, change: dict[str, Any], said: str
) -> None:
    path = rewrite(**change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, table)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ({"a": {}}, r"variants: must be a list of mappings"),
        ([], r"variants: must be a list of mappings"),
        ([{4: {}}], r"variants\[0\]: 4 must be lower-case letters, digits and hyphens"),
        ([{"a": 3}], r"variants\[0\].a: must be a mapping"),
        ([{"a": {"usrs": 3}}], r"usrs: unknown key 'usrs' \(did you mean 'users'\?\)"),
        ([{"a": {}, "a-b": {}}, {"b-c": {}, "c": {}}], r"variants: there are two workloads table-a-b-c; rename one"),
    ],
)
def test_mistakes_in_variants_are_named(table: Registry, rewrite: Rewrite, variants: Any, said: str) -> None:
    path = table.workload_file("table")
    path.write_text(yaml.safe_dump({**WORKLOAD, "variants": variants}))
    with pytest.raises(ExperimentError, match=said) as caught:
        load(rewrite(workloads=["table"]), table)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_claim_names_the_users_that_it_is_about(table: Registry, rewrite: Rewrite) -> None:
    side = {"server": "lighttz", "environment": "metal", "workload": "table-ab-keep"}
    claim = {"says": "more users, more requests", "metric": "throughput_rps", "of": {**side, "users": 2}}

    def loaded(users: int) -> Any:
        return load(rewrite(workloads=["table"], claims=[{**claim, "over": {"users": users}}]), table)

    (checked,) = loaded(1).experiment.claims
    assert (checked.of.users, checked.over.users) == (2, 1)
    with pytest.raises(ExperimentError, match=r"claims\[0\].over.users: 7: .*table-ab-keep has 1, 2$"):
        loaded(7)
