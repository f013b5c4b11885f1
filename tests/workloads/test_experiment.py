"""Whatever is wrong with an experiment is said in one sentence, before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from workloads.runner.errors import ExperimentError
from workloads.runner.experiment import load
from workloads.runner.registry import PROJECT, Registry
from workloads.runner.schedule import scenarios

Rewrite = Callable[..., Path]


def test_a_good_experiment_names_all_it_needs(project: Registry) -> None:
    resolved = load(project.experiment_file("tiny"), project)
    assert resolved.workloads["tiny"].twin == "h2load"
    assert resolved.site.name == "tiny"
    assert resolved.experiment.twin_s == resolved.experiment.duration_s


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"servers": ["lightzt"]},
            r"servers\[0\]: unknown server 'lightzt' \(did you mean 'lighttz'\?\); allowed: apache-p",
        ),
        ({"servers": ["lighttz", "lighttz"]}, r"servers\[1\]: 'lighttz' is named twice"),
        ({"servers": []}, r"servers: \[\]: list should have at least 1 item"),
        (
            {"environments": ["metal", "metal-tow"]},
            r"environments\[1\]: unknown environment .* allowed: metal, metal-two",
        ),
        ({"workloads": ["tinyy"]}, r"workloads\[0\]: unknown workload 'tinyy' \(did you mean 'tiny'\?\)"),
        ({"blocks": -2}, r"blocks: -2: input should be greater than 0"),
        ({"blocks": 2.5}, r"blocks: 2.5: "),
        ({"blocks": 3, "purpose": "measure"}, r"blocks: 3 is below 6.*purpose: smoke"),
        ({"duration_s": -1.0}, r"duration_s: -1.0: input should be greater than 0"),
        ({"duration_s": "1"}, r"duration_s: '1': input should be a valid number"),
        ({"duration_s": float("inf")}, r"duration_s: inf: input should be a finite number"),
        ({"warmup_s": None}, r"warmup_s: is missing; keys: question,"),
        (
            {"duratoin_s": 1.0},
            r"duratoin_s: unknown key 'duratoin_s' \(did you mean 'duration_s'\?\); allowed: question",
        ),
        ({"purpose": "fun"}, r"purpose: 'fun': input should be 'measure' or 'smoke'"),
        ({"margin_pct": 0}, r"margin_pct: 0: input should be greater than 0"),
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
            {"declared_differences": ["kernl"]},
            r"declared_differences\[0\]: unknown fact 'kernl' \(did you mean 'kernel'",
        ),
        ({"name": "other"}, r"name: must not be given"),
    ],
)
def test_every_mistake_is_named(project: Registry, rewrite: Rewrite, change: dict[str, Any], said: str) -> None:
    path = rewrite(**change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, project)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


CLAIM = {
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
        ({"published": [1]}, r"claims\[0\]: .*published: one figure for each side"),
        ({"published": [1, 1]}, r"claims\[0\]: .*equal figures give no direction; say within_pct"),
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
        ({"scales": SCALES, "scale": "small"}, r"scale: is chosen when it is run"),
    ],
)
def test_mistakes_in_scales_are_named(rewrite: Rewrite, project: Registry, change: dict[str, Any], said: str) -> None:
    path = rewrite(**change)
    with pytest.raises(ExperimentError, match=said) as caught:
        load(path, project)
    assert str(caught.value).startswith(f"{path}: ")


def test_an_unknown_experiment_is_answered_with_those_there_are(project: Registry) -> None:
    with pytest.raises(ExperimentError, match=r"unknown experiment 'tinyy' \(did you mean 'tiny'\?\); allowed: tiny"):
        load(project.experiment_file("tinyy"), project)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "1: 2", ""])
def test_what_is_no_mapping_is_refused(project: Registry, text: str) -> None:
    path = project.experiment_file("tiny")
    path.write_text(text)
    with pytest.raises(ExperimentError, match=r"(not YAML|must be a mapping)"):
        load(path, project)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tool": "sige"}, r"tool: unknown tool 'sige' \(did you mean 'siege'\?\); allowed: ab, h2load, httperf"),
        ({"twin": "wrk"}, r"twin: unknown tool 'wrk'"),
        ({"tool": "ab"}, r"page: ab asks for one page only; name a file of the site tiny"),
        ({"page": "idnex.html"}, r"page: unknown page 'idnex.html' \(did you mean 'index.html'\?\)"),
        ({"site": "shop"}, r"site: unknown site 'shop'"),
        ({"users": 0}, r"users: 0: "),
        ({"keep_alive": False}, r"twin: h2load cannot do keep_alive: false"),
        ({"keep_alive": "yes"}, r"keep_alive: 'yes': "),
    ],
)
def test_mistakes_in_a_workload_name_its_file(project: Registry, change: dict[str, Any], said: str) -> None:
    path = project.workload_file("tiny")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    with pytest.raises(ExperimentError, match=said) as caught:
        load(project.experiment_file("tiny"), project)
    assert str(path) in str(caught.value)


RATE = {"kind": "rate", "tool": "vegeta", "twin": "oha", "users": None, "rate_rps": 100, "deadline_ms": 50}
SHARE = {**RATE, "rate_rps": None, "share": 0.5, "capacity": {"tool": "h2load", "users": 2}}
SWEEP = {**SHARE, "kind": "sweep", "share": None, "shares": [0.3, 0.6]}
SEARCH = {**SHARE, "kind": "search", "share": None, "between_shares": [0.2, 0.9]}
RAMP = {**RATE, "kind": "ramp", "rate_rps": None, "rates_rps": [10, 20], "tool": "httperf", "twin": None}


def with_workload(project: Registry, change: dict[str, Any]) -> Path:
    """The workload `tiny` with some keys changed; a value of None drops the key."""
    path = project.workload_file("tiny")
    data = {**yaml.safe_load(path.read_text()), **change}
    path.write_text(yaml.safe_dump({k: v for k, v in data.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("change", "offers"),
    [
        ({}, ["closed:2"]),
        (RATE, ["rate:100"]),
        (SHARE, ["share:0.5"]),
        (SWEEP, ["share:0.3", "share:0.6"]),
        ({**SWEEP, "shares": None, "capacity": None, "rates_rps": [10, 2000.5]}, ["rate:10", "rate:2000.5"]),
        (RAMP, ["rate:10", "rate:20"]),
        (SEARCH, ["search:50"]),
        ({**SEARCH, "between_shares": None, "capacity": None, "between_rps": [10, 2000.5]}, ["search:50"]),
    ],
)
def test_each_kind_of_workload_offers_its_loads(project: Registry, change: dict[str, Any], offers: list[str]) -> None:
    with_workload(project, change)
    resolved = load(project.experiment_file("tiny"), project)
    assert [str(offer) for offer in resolved.workloads["tiny"].offers] == offers
    assert {str(cell.offer) for cell in scenarios(resolved)} == set(offers)
    assert len(scenarios(resolved)) == 3 * len(offers)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "rates"}, r"kind: unknown kind 'rates' \(did you mean 'rate'\?\); allowed: closed, rate, sweep"),
        ({**RATE, "rate_rps": None}, r"give either rate_rps or share"),
        ({**RATE, "share": 0.5}, r"give either rate_rps or share"),
        ({**SHARE, "capacity": None}, r"capacity: share needs it"),
        ({**SHARE, "capacity": {"tool": "vegeta", "users": 2}}, r"capacity.tool: vegeta knows rates only, not users"),
        ({**RATE, "rate_rps": 0}, r"rate_rps: 0: input should be greater than 0"),
        ({**RATE, "deadline_ms": None}, r"deadline_ms: is missing"),
        ({**RATE, "users": 3}, r"users: unknown key 'users'"),
        ({"deadline_ms": 3.0}, r"deadline_ms: unknown key 'deadline_ms'"),
        ({**SWEEP, "shares": [0.5]}, r"shares: \[0.5\]: list should have at least 2 items"),
        ({**SWEEP, "shares": [0.5, 0.3]}, r"shares: must be above 0 and rise from rung to rung"),
        (
            {"tool": "vegeta", "twin": None},
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
        ({**SEARCH, "availability_pct": 100}, r"availability_pct: 100: input should be less than 100"),
        ({**SEARCH, "tool": "h2load"}, r"tool: h2load is refused for tails"),
        ({**RAMP, "tool": "h2load"}, r"tool: h2load knows users only, not rates; allowed: httperf, oha, vegeta"),
        ({**RAMP, "twin": "oha"}, r"twin: a ramp has none"),
        ({**RATE, "tool": "httperf"}, r"tool: httperf is refused for tails: it prints means and no percentiles"),
        ({**RATE, "twin": "siege"}, r"twin: siege is refused for tails: it knows users, not rates"),
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
    (root / "server-builds" / "caddy" / "server.yml").write_text("description: one more\n")
    (root / "vm-images/guests/kvm-tuned.yml").write_text("description: one more\n")
    (root / "workloads/tools/hammer.py").write_text((root / "workloads/tools/siege.py").read_text())
    site = (root / "workloads/sites/tiny.yml").read_text()
    (root / "workloads/sites/shop.yml").write_text(site)
    workload = yaml.safe_load((root / "workloads/tiny.yml").read_text())
    (root / "workloads/shop-hammer.yml").write_text(yaml.safe_dump({**workload, "site": "shop", "tool": "hammer"}))
    path = rewrite(servers=["caddy"], environments=["kvm-tuned"], workloads=["shop-hammer"], noise_floor=None)
    resolved = load(path, project)
    assert resolved.site.name == "shop"
    assert resolved.workloads["shop-hammer"].tool == "hammer"


@pytest.mark.parametrize("path", sorted((PROJECT / "workloads" / "experiments").glob("*.yml")), ids=lambda p: p.stem)
def test_the_experiments_here_are_sound(path: Path) -> None:
    load(path)


@pytest.mark.parametrize("name", Registry().workloads())
def test_the_workloads_here_are_sound(project: Registry, rewrite: Rewrite, name: str) -> None:
    registry = Registry()
    text = registry.workload_file(name).read_text()
    project.workload_file(name).write_text(text)
    for site in registry.sites():
        project.site_file(site).write_text(registry.site_file(site).read_text())
    if "kind: mail" not in text:
        load(rewrite(workloads=[name]), project)
        return
    with pytest.raises(ExperimentError, match=f"servers: lighttz serves pages, the workload {name} is for mail"):
        load(rewrite(workloads=[name]), project)
    (project.root / "server-builds" / "lighttz" / "server.yml").write_text("description: a server\nmail: {}\n")
    load(rewrite(workloads=[name]), project)
