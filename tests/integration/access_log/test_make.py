"""A workload out of a log: what is true of the log is true of the workload, and nothing of its texts gets out."""

import json
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks import access_log
from tests.support.logs import BEGIN_S, Hit, day, make_workload, write
from tests.support.measured import run
from tests.support.program import vmtoll
from tests.support.records import assert_sound, primary, records_of
from vmtoll import sites
from vmtoll.access_log import Options, from_log
from vmtoll.access_log.files import Entry, draw
from vmtoll.access_log.make import LARGEST_SITE_BYTES
from vmtoll.model import site as described
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.workload import RateWorkload, SweepWorkload
from vmtoll.paths import PROJECT
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.workload import load_workloads


def connections(hits: list[Hit], idle_s: int) -> list[int]:
    """Requests of each estimated connection, said the long way."""
    runs = [1 for hit in hits if hit.version == "HTTP/1.0"]
    for client in {(hit.client, hit.agent) for hit in hits}:
        times = [hit.at_s for hit in hits if (hit.client, hit.agent) == client and hit.version != "HTTP/1.0"]
        run = 0
        for i, at_s in enumerate(times):
            if i and at_s - times[i - 1] > idle_s:
                runs.append(run)
                run = 0
            run += 1
        runs += [run] if run else []
    return runs


def test_the_truth_of_a_log_is_recovered(tmp_path: Path) -> None:
    hits = day(20_000)
    seen, _ = make_workload([write(tmp_path / "access.log", hits)], tmp_path / "out")
    assert (seen["lines"], seen["requests"], seen["malformed"]["lines"]) == (20_000, 20_000, 0)
    assert seen["not_modified_share"] == sum(hit.status == 304 for hit in hits) / 20_000
    assert seen["status"] == {str(k): n for k, n in sorted(Counter(hit.status for hit in hits).items())}
    by_hour = Counter((hit.at_s - BEGIN_S) // 3600 for hit in hits)
    assert [(h["start"], h["requests"]) for h in seen["hours"]] == [
        (f"2026-03-01T{10 + hour}:00:00Z", by_hour[hour]) for hour in range(3)
    ]
    assert seen["hours"][1]["rate_rps"] == by_hour[1] / 3600
    by_second = Counter(hit.at_s for hit in hits)
    for window_s, key in ((1, "peak_second"), (60, "peak_minute")):
        most = max(sum(by_second[s + i] for i in range(window_s)) for s in by_second)
        assert (seen[key]["requests"], seen[key]["rate_rps"]) == (most, most / window_s)
    full = [hit.body_bytes for hit in hits if hit.method == "GET" and hit.status in {200, 206}]
    assert seen["body_bytes"]["answers"] == len(full)
    assert seen["body_bytes"]["mean"] == pytest.approx(np.mean(full))
    for p in (1, 50, 99, 100):
        assert seen["body_bytes"][f"p{p}"] == np.percentile(full, p, method="inverted_cdf")
    runs = connections(hits, 5)
    assert seen["connections"]["requests_per_connection_mean"] == pytest.approx(len(hits) / len(runs))
    assert seen["connections"]["keep_alive_share"] == pytest.approx(1 - len(runs) / len(hits))
    assert seen["connections"]["http_1_0_share"] == sum(hit.version == "HTTP/1.0" for hit in hits) / 20_000
    assert seen["connections"]["http_2_share"] == sum(hit.version == "HTTP/2.0" for hit in hits) / 20_000
    assert seen["connections"]["requests_per_connection_p90"] == np.percentile(runs, 90, method="inverted_cdf")


def test_the_site_has_the_weights_and_sizes_of_the_log(tmp_path: Path) -> None:
    hits = day(20_000)
    seen, manifest = make_workload([write(tmp_path / "access.log", hits)], tmp_path / "out", lines=500)
    full = [hit for hit in hits if hit.method == "GET" and hit.status in {200, 206}]
    empty = [hit for hit in hits if hit.method != "POST" and (hit.status == 304 or hit.method == "HEAD")]
    empty = [hit for hit in empty if hit.status in {200, 206, 304}]
    total = len(full) + len(empty)
    lines = Counter({f["path"]: f["weight"] for f in manifest["files"]})
    assert lines.total() == seen["site"]["lines"] == 500
    assert len(manifest["files"]) == seen["site"]["files"] < 500
    assert seen["site"]["of"]["requests"] == total == seen["requests"] - sum(seen["site"]["of"]["left_out"].values())
    sizes = {f["path"]: f["size_bytes"] for f in manifest["files"]}
    kinds = {"png": "gif", "jpg": "jpeg", "zip": "doc", "pdf": "pdf", "css": "css"}
    for path, n in Counter(hit.path.partition("?")[0] for hit in full).most_common(20):
        (size,) = {hit.body_bytes for hit in full if hit.path.startswith(path)}
        (ours,) = (name for name in sizes if sizes[name] == size)
        assert lines[ours] == pytest.approx(n / total * 500, abs=1)
        assert described.kind_of(ours) == kinds.get(path.rpartition(".")[2], "html")
    assert lines["f0001.html"] == pytest.approx(len(empty) / total * 500, abs=1)
    assert sizes["f0001.html"] == 1
    truth = sum(hit.body_bytes for hit in full) / total
    assert seen["site"]["of"]["body_bytes_mean"] == pytest.approx(truth)
    assert seen["site"]["body_bytes_mean"] == pytest.approx(truth, rel=0.01)
    spelt_out = sorted(size for path, size in sizes.items() for _ in range(lines[path]))
    true_sizes = sorted([hit.body_bytes for hit in full] + [1] * len(empty))
    for p in (30, 50, 70, 90):
        assert np.percentile(spelt_out, p) == pytest.approx(np.percentile(true_sizes, p), rel=0.1)


@pytest.mark.parametrize(
    ("version", "http2_lines", "tls", "expected"),
    [
        ("HTTP/2.0", 0, False, (False, "1.1", False)),
        ("HTTP/2.0", 0, True, (True, "1.1", False)),
        ("HTTP/2.0", 1, False, (True, "1.1", False)),
        ("HTTP/2.0", 4, True, (True, "1.1", False)),
        ("HTTP/2.0", 5, False, (True, "2", True)),
        ("HTTP/2.0", 10, True, (True, "2", True)),
        *((version, 5, False, (True, "2", True)) for version in ("HTTP/2", "HTTP/3.0", "HTTP/3")),
    ],
)
def test_a_log_of_http2_or_tls_gives_such_workloads(
    tmp_path: Path, project: Registry, version: str, http2_lines: int, tls: bool, expected: tuple[bool, str, bool]
) -> None:
    """One request of each client, so that connections are not used again but for HTTP/2."""
    versions = [version] * http2_lines + ["HTTP/1.1"] * (10 - http2_lines)
    hits = [Hit(BEGIN_S + n, client=f"192.0.2.{n}", version=version) for n, version in enumerate(versions)]
    seen, _ = make_workload([write(tmp_path / "access.log", hits)], project.root / "workloads", tls=tls)
    seen_share = {key: seen["connections"][f"http_{key}_share"] for key in ("2", "3")}
    assert seen_share == {"2": 0, "3": 0} | {version[5]: http2_lines / 10}
    for name in ("from-log", "from-log-sweep"):
        workload = load_workloads(name, project)[name]
        assert (workload.transport.tls, workload.transport.http, workload.keep_alive) == expected


def test_http2_that_a_plain_listener_refused_shows_no_tls(tmp_path: Path, project: Registry) -> None:
    preface = [Hit(BEGIN_S, path="*", method="PRI", version="HTTP/2.0", status=400) for _ in range(9)]
    seen, _ = make_workload([write(tmp_path / "a.log", [*preface, Hit(BEGIN_S)])], project.root / "workloads")
    assert seen["connections"]["shows_tls"] is False
    assert load_workloads("from-log", project)["from-log"].transport.tls is False


@pytest.mark.parametrize("lines", [1, 7, 100, 999])
def test_any_mix_is_drawn_to_the_line(lines: int) -> None:
    rng = random.Random(lines)
    mix = []
    for _ in range(300):
        requests = int(rng.paretovariate(0.7))
        mix.append(Entry("html", requests, requests * rng.randrange(1, 100_000), requests * lines >= 3000))
    files = draw(mix, lines)
    assert sum(file.weight for file in files) == lines
    assert [file.size_bytes for file in files] == sorted(file.size_bytes for file in files)
    mean = sum(e.total_bytes for e in mix) / sum(e.requests for e in mix)
    assert sum(f.size_bytes * f.weight for f in files) / lines == pytest.approx(mean, abs=0.5)


def test_a_short_log_is_kept_as_it_is(tmp_path: Path) -> None:
    hits = [Hit(BEGIN_S + i, path=f"/{i % 3}", body_bytes=100 * (i % 3 + 1)) for i in range(6)]
    seen, manifest = make_workload([write(tmp_path / "a.log", [*hits, Hit(BEGIN_S, status=304)])], tmp_path / "out")
    assert [(f["size_bytes"], f["weight"]) for f in manifest["files"]] == [(1, 1), (100, 2), (200, 2), (300, 2)]
    assert seen["site"]["lines"] == 7


def test_each_kind_of_a_log_is_that_kind_of_a_site(tmp_path: Path) -> None:
    suffixes = {
        "html": "html", "php": "html", "gif": "gif", "png": "gif", "JPG": "jpeg", "jpeg": "jpeg", "pdf": "pdf",
        "zip": "doc", "css": "css", "js": "js", "mjs": "js", "svg": "svg", "webp": "webp", "woff2": "woff2",
    }  # fmt: skip
    hits = [Hit(BEGIN_S, path=f"/a.{suffix}", body_bytes=1_000 + n) for n, suffix in enumerate(suffixes)]
    seen, manifest = make_workload([write(tmp_path / "a.log", hits)], tmp_path / "out")
    assert [described.kind_of(file["path"]) for file in manifest["files"]] == list(suffixes.values())
    assert set(seen["body_bytes"]["kinds"]) == set(described.KINDS)


def few_are_large() -> list[Hit]:
    """10,000 requests, 44 of them for archives of 25 to 69 MB: these are most of the bytes."""
    rng = random.Random(3)
    sizes = [rng.randrange(25, 70) * 10**6 for _ in range(15)]
    small = [Hit(BEGIN_S + i, path=f"/{rng.randrange(900)}", body_bytes=rng.randrange(120_000)) for i in range(9_956)]
    return small + [Hit(BEGIN_S + i, path=f"/{i % 15}.jar", body_bytes=sizes[i % 15]) for i in range(44)]


LARGE = {
    "few bodies are most of the bytes": few_are_large(),
    "a large file fills a line and a half of the list": [
        *(Hit(BEGIN_S + i, path=f"/{i}", body_bytes=5_000) for i in range(9_985)),
        *(Hit(BEGIN_S + i, path="/image.iso", body_bytes=60_000_000) for i in range(15)),
    ],
    "large bodies of rare paths": [
        *(Hit(BEGIN_S + i, path=f"/{i % 50}.html", body_bytes=1_000 + i % 50) for i in range(9_956)),
        *(Hit(BEGIN_S + i, path=f"/rare/{i}.iso", body_bytes=60_000_000) for i in range(44)),
    ],
    "every body is large": [Hit(BEGIN_S + i, path=f"/{i}.iso", body_bytes=40_000_000) for i in range(3_000)],
    "many large files": [Hit(BEGIN_S + i, path=f"/{i % 60}.iso", body_bytes=10**6 * (i % 60)) for i in range(10_000)],
}


@pytest.mark.parametrize("lines", [7, 1000, *(pytest.param(lines, marks=pytest.mark.long) for lines in (200, 4000))])
@pytest.mark.parametrize("hits", LARGE.values(), ids=LARGE)
def test_the_site_keeps_the_bytes_of_the_log(tmp_path: Path, hits: list[Hit], lines: int) -> None:
    summary, manifest = make_workload([write(tmp_path / "a.log", hits)], tmp_path / "out", lines=lines)
    site, mean = summary["site"], sum(hit.body_bytes for hit in hits) / len(hits)
    assert site["of"]["body_bytes_mean"] == pytest.approx(mean)
    assert site["of"]["cut"] == 0
    assert site["body_bytes_mean"] == pytest.approx(mean, rel=0.001)
    assert (site["mean_body_deviates"], site["misjudged"]) == (False, None)
    assert site["total_bytes"] == sum(file["size_bytes"] for file in manifest["files"]) <= LARGEST_SITE_BYTES
    assert site["has_fewer_lines"] is (site["lines"] < min(lines, len(hits)))
    if site["has_fewer_lines"]:
        assert site["total_bytes"] > 0.9 * LARGEST_SITE_BYTES, "more lines would have fit"


@pytest.mark.parametrize(
    ("size_bytes", "words", "cut", "advice"),
    [(600_000_000, [], 40, ""), (6_000_000, ["--largest-kib", "1000"], 40, "; leave out --largest-kib")],
    ids=["a body is larger than a site may be", "the user cuts"],
)
def test_a_site_that_cannot_keep_the_bytes_says_what_it_misjudges(
    tmp_path: Path, size_bytes: int, words: list[str], cut: int, advice: str
) -> None:
    hits = [Hit(BEGIN_S + i, path=f"/{i}", body_bytes=size_bytes) for i in range(40)]
    done = vmtoll("workload", "from-log", write(tmp_path / "a.log", hits), *words, "--output", tmp_path / "out")
    site = json.loads((tmp_path / "out/from-log.summary.json").read_text())["site"]
    assert (site["of"]["cut"], site["mean_body_deviates"]) == (cut, True)
    kept_bytes = site["body_bytes_mean"]
    assert kept_bytes == pytest.approx(1000 * 1024 if words else LARGEST_SITE_BYTES, abs=2)
    misjudged = site["misjudged"]
    assert misjudged == {
        "link_mbit": 1000, "log_rps": pytest.approx(125e6 / size_bytes),
        "site_rps": pytest.approx(125e6 / kept_bytes), "is_kept_without_largest_kib": bool(advice),
    }  # fmt: skip
    assert (
        f"warning:      the mean body is {kept_bytes / size_bytes:.0%} of the log's, so this site misjudges links: "
        f"1 Gbit/s carries {misjudged['log_rps']:.3g} requests/s of the log, but {misjudged['site_rps']:.3g} of the "
        f"site{advice}\n"
    ) in done.stdout
    if advice:
        uncut = vmtoll("workload", "from-log", tmp_path / "a.log", "--output", tmp_path / "uncut")
        assert uncut.returncode == 0, uncut.stderr
        assert "misjudges" not in uncut.stdout, "the advice is true"


@pytest.mark.parametrize(
    ("seconds", "said", "rate_rps"),
    [
        (10, ["on average; the busiest second 5 (", "warning:      the log covers 10 s, and no whole minute;"], 5),
        (120, ["the busiest minute 5 (60 s from 2026", "plan for:     5 requests/s, the busiest minute;"], 5),
    ],
)
def test_the_rate_to_plan_for_is_said_with_its_window(
    tmp_path: Path, seconds: int, said: list[str], rate_rps: float
) -> None:
    log = write(tmp_path / "a.log", [Hit(BEGIN_S + 25 + i // 5) for i in range(5 * seconds)])
    printed = vmtoll("workload", "from-log", log, "--output", tmp_path / "out").stdout
    assert [text for text in said if text not in printed] == []
    assert yaml.safe_load((tmp_path / "out/from-log.yml").read_text())["rate_rps"] == rate_rps


@pytest.mark.parametrize("kind", described.KINDS)
def test_a_file_of_any_size_can_be_made(kind: described.Kind) -> None:
    for size in [*range(1, 700), 65_535, 65_536, 120_001]:
        site = described.ListedSite(
            name="x", description="", seed=1, pages={f"f.{kind}": described.Page(size_bytes=size, weight=2)}
        )
        (file,) = sites.site_files(site)["files"]
        assert (file["size_bytes"], file["weight"]) == (size, 2)


@pytest.mark.long
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peaks_mb = []
    for lines in (50_000, 500_000):
        *_, peak_mb, read_lines = access_log.run(lines, ".gz")
        assert read_lines == lines
        peaks_mb.append(peak_mb)
    assert peaks_mb[1] / peaks_mb[0] < 1.8, "of ten times the lines"


@pytest.mark.parametrize(
    ("cpu_s", "peaks_mb", "figures"),
    [
        ((14.0, 28.0), (359.0, 388.0), None),
        ((0.1, 0.2), (3.0, 3.3), None),
        ((14.0, 35.0), (300.0, 300.0), ["2.50", "1.00", "2.3", "1.3"]),
        ((14.0, 28.0), (200.0, 300.0), ["2.00", "1.50", "2.3", "1.3"]),
    ],
)
def test_the_benchmark_bounds_ratios(
    cpu_s: tuple[float, float], peaks_mb: tuple[float, float], figures: list[str] | None
) -> None:
    found = access_log.excess(cpu_s, peaks_mb)
    assert (found and re.findall(r"\d+\.\d+", found)) == figures


def test_without_keep_alive_the_tools_close_too(project: Registry, tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", [Hit(BEGIN_S + i, version="HTTP/1.0") for i in range(9)])
    from_log([log], project.root / "workloads", Options(name="old"), lambda said: None)
    for name in ("old", "old-sweep"):
        assert load_workloads(name, project)[name].keep_alive is False


@pytest.mark.parametrize(("words", "deadline_ms"), [((), 50), (("--deadline-ms", "200"), 200)])
def test_the_objective_of_the_user_is_that_of_the_workloads(
    project: Registry, tmp_path: Path, words: tuple[str, ...], deadline_ms: float
) -> None:
    log = write(tmp_path / "a.log", day(50))
    printed = vmtoll("workload", "from-log", log, "--output", project.root / "workloads", *words).stdout
    for name in ("from-log", "from-log-sweep"):
        workload = load_workloads(name, project)[name]
        assert isinstance(workload, RateWorkload | SweepWorkload)
        assert workload.deadline_ms == deadline_ms
        assert ("but for deadline_ms" in (project.root / f"workloads/{name}.yml").read_text()) is (not words)
    assert ("deadline_ms (50 ms) in from-log.yml and from-log-sweep.yml" in printed) is (not words)


@pytest.mark.parametrize(
    ("page", "heading"),
    [("planning", "From a log to a decision"), ("tutorials/log-to-hosts", "A workload like yours")],
)
def test_the_experiment_of_a_page_fits_what_is_made_of_a_log(
    project: Registry, tmp_path: Path, page: str, heading: str
) -> None:
    """The page's own commands: the workload gets the name that one gives, the shell writes what the next one says."""
    text = (PROJECT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", text.partition(f"## {heading}\n")[2], re.DOTALL))
    name, *_ = re.findall(r"workload from-log .* --name (\S+)", commands)
    (document,) = re.findall(r"^cat .*?^END$", commands, re.DOTALL | re.MULTILINE)
    for folder in ("server-builds", "vm-images"):
        shutil.rmtree(project.root / folder)
        (project.root / folder).symlink_to(PROJECT / folder)
    from_log([write(tmp_path / "a.log", day(500))], project.root / "workloads", Options(name=name), lambda said: None)
    subprocess.run(["sh", "-c", document], cwd=project.root, check=True)
    resolved = load(project.experiment_file(name), project)
    assert set(resolved.workloads) == {f"{name}-sweep"}
    assert resolved.site
    assert (resolved.site.name, resolved.experiment.purpose) == (name, "measure")
    assert (resolved.experiment.blocks, resolved.experiment.shares_of) == (8, "own"), "the pages show one experiment"
    assert f"vmtoll run {name} " in commands


def test_the_workload_runs(project: Registry, inventory: Path, tmp_path: Path, load_tools: None) -> None:
    """What was made of a log, through the loader and the runner, with real tools against a real server."""
    hits = [Hit(hit.at_s // 40, hit.path, hit.status, hit.body_bytes, hit.client) for hit in day(5_000)]
    done = from_log(
        [write(tmp_path / "access.log.gz", hits)], project.root / "workloads", Options(name="shop"), lambda said: None
    )
    rate, sweep = (load_workloads(name, project)[name] for name in ("shop", "shop-sweep"))
    assert isinstance(rate, RateWorkload) and isinstance(sweep, SweepWorkload)
    assert rate.rate_rps == pytest.approx(done.summary["plan"]["rate_rps"], rel=1e-3)
    assert rate.keep_alive is (done.summary["connections"]["keep_alive_share"] >= 0.5) is True
    experiment = {
        "question": "does it run?", "purpose": "smoke", "environments": ["metal"], "servers": ["lighttz"],
        "workloads": ["shop"], "blocks": 1, "warmup_s": 0.05, "duration_s": 1.0, "seed": 7,
    }  # fmt: skip
    project.experiment_file("shop").write_text(yaml.safe_dump(experiment))
    assert set(load(project.experiment_file("shop"), project).workloads) == {"shop"}
    for name in ("metal", "metal-two"):
        sites.build(project.site_file("shop"), tmp_path / name / "srv/vmtoll/sites")
    (record,) = records_of(run(project.experiment_file("shop"), inventory, tmp_path / "results", registry=project))
    assert_sound([record])
    assert record.scenario.load == Load(LoadKind.RATE, rate.rate_rps or 0)
    assert primary(record).requests == primary(record).successful == round(rate.rate_rps or 0)
