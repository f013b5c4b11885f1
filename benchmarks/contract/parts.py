"""What the contract asks: for each part, the command lines and the functions whose answers it keeps."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RATE = ("--rate", "500", "--p99-ms", "50")
NOTEBOOKS = ("metal_vs_kvm", "tails", "capacity", "replication")


@dataclass(frozen=True)
class Job:
    """A command line. `{out}` in its words is a folder that is kept with the answer."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a tree answers: its copy, the inputs, the working folder of its commands."""

    tree: Path
    inputs: Path
    work: Path
    commands: list[list[str]] = field(default_factory=list)  # of the program, by their words

    @property
    def committed(self) -> list[Path]:
        """The runs in results/ of the inputs."""
        return _runs(self.inputs / "results")

    @property
    def simulated(self) -> list[Path]:
        """The simulated runs, and those of the unit tests."""
        return [*_runs(self.inputs / "runs"), *_runs(self.inputs / "harvested")]


def _runs(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/*/run.json"))


def _pair(name: str, *words: object) -> Iterator[Job]:
    """The command as text and as JSON."""
    argv = tuple(map(str, words))
    yield Job(name, argv)
    yield Job(f"{name}-json", (*argv, "--json"))


def _of_runs(runs: Iterable[Path], *, published: bool) -> Iterator[Job]:
    for run in runs:
        name = f"{run.parent.name}"
        yield from _pair(f"{name}/show", "show", run)
        yield from _pair(f"{name}/show-all", "show", run, "--all")
        yield from _pair(f"{name}/explain", "explain", run)
        yield from _pair(f"{name}/capacity", "capacity", run, *RATE)
        yield from _pair(f"{name}/density", "capacity", run, "--guests", "20")
        yield Job(f"{name}/report", ("report", str(run), "--output", "{out}/run"))
        if published:
            publish = ("publish", str(run), "--output", "{out}/bundle", "--author", "Ada Example")
            yield Job(f"{name}/publish", publish)


def help_texts(place: Place) -> list[list[Job]]:
    """`--help` of every command, a misspelled option of each, and the lists."""
    asked = [Job("/".join(["vmtoll", *words]), (*words, "--help")) for words in place.commands]
    misused = [Job("/".join(["misused", *words]), (*words, "--no-such-option")) for words in place.commands]
    return [[*asked, *misused, *_pair("list", "list"), Job("version", ("--version",))]]


def committed(place: Place) -> list[list[Job]]:
    """What commands say of the committed runs."""
    return [list(_of_runs(place.committed, published=True))]


def simulated(place: Place) -> list[list[Job]]:
    """What they say of the simulated runs."""
    return [list(_of_runs(_runs(place.inputs / "runs"), published=True))]


def harvested(place: Place) -> list[list[Job]]:
    """The reports and tables of the runs that unit tests make."""
    jobs: list[Job] = []
    for run in _runs(place.inputs / "harvested"):
        jobs.append(Job(f"{run.parent.name}/show", ("show", str(run), "--all", "--json")))
        jobs.append(Job(f"{run.parent.name}/report", ("report", str(run), "--output", "{out}/run")))
    return [jobs]


def notebooks(place: Place) -> list[list[Job]]:
    """Notebooks, run on committed runs that have what they show."""
    names = {"metal-vs-kvm-2009": NOTEBOOKS[0], "tails": NOTEBOOKS[1], "rate-sweep-2006": NOTEBOOKS[2]}
    names["php-2006"] = NOTEBOOKS[3]
    chosen = {run.parent.name: run for run in place.committed}
    return [
        [
            Job(f"{name}/{notebook}", ("notebook", notebook, str(chosen[name]), "--output", "{out}/run"))
            for name, notebook in names.items()
            if name in chosen
        ]
    ]


def pages(place: Place) -> list[list[Job]]:
    """Pages over many runs: the explorer, replication; comparisons of two runs; rewritten old runs."""
    results, runs = place.inputs / "results", _runs(place.inputs / "runs")
    first = runs[0] if runs else results
    pairs = [job for run in runs for job in _pair(f"compare/{run.parent.name}", "compare", first, run)]
    kept = [Job("site", ("site", "--output", "{out}/site", "--results", str(results)))]
    return [[*kept, *pairs]]


def campaign(place: Place) -> list[list[Job]]:
    """A dataset of four test beds, its tables and its page."""
    data = str(place.work / "dataset")
    beds = _runs(place.inputs / "beds")
    partition = [
        [
            Job(f"partition/{run.parent.name}", (
                "partition", str(run), "--output", data, "--campaign", "spring", "--testbed", run.parent.name,
            ))
        ]
        for run in beds
    ]  # fmt: skip
    report = ("campaign", "report", data, "--output", "{out}/page")
    return [*partition, [Job("report", report), Job("report-json", (*report, "--json"))]]


def watch(place: Place) -> list[list[Job]]:
    """Histories: exit code, page, JUnit report and OpenMetrics."""
    jobs = []
    for nights in ("nights-level", "nights-slower"):
        for name, more in {"all": (), "cpu": ("--metric", "cpu"), "large": ("--at-least", "30")}.items():
            argv = ("watch", "synthetic", "--judge", "--results", str(place.inputs / nights), *more)
            files = ("--junit", "{out}/junit.xml", "--openmetrics", "{out}/metrics.prom")
            jobs += [Job(f"{nights}/{name}", (*argv, *files)), Job(f"{nights}/{name}-json", (*argv, "--json"))]
    return [[job] for job in jobs]  # one by one: each writes the page of its history


def dry_runs(place: Place) -> list[list[Job]]:
    """The schedule of each shipped experiment, at both sizes."""
    jobs: list[Job] = []
    for file in sorted((place.tree / "workloads" / "experiments").glob("*.yml")):
        for scale in ("small", "full"):
            jobs += _pair(f"{file.stem}/{scale}", "run", file.stem, "--dry-run", "--scale", scale)
    jobs += _pair("ab", "ab", "metal", "kvm-default", "--dry-run")
    return [jobs]


def preflight(place: Place) -> list[list[Job]]:
    """Inventories with faults: what preflight and a run say before they connect."""
    jobs: list[Job] = []
    for file in sorted((place.inputs / "inventories").glob("*.yml")):
        jobs += _pair(f"{file.stem}/run", "run", "smoke", "--dry-run", "--inventory", file)
        if _ends_before_it_connects(file):
            jobs += _pair(f"{file.stem}/preflight", "preflight", "--inventory", file)
    return [jobs]


def _ends_before_it_connects(file: Path) -> bool:
    """Whether none of the inventory's machines is this one; the commands run without a network."""
    return '"local"' not in file.read_text("utf-8")


PARTS = {
    "help": help_texts,
    "committed": committed,
    "simulated": simulated,
    "harvested": harvested,
    "notebooks": notebooks,
    "pages": pages,
    "campaign": campaign,
    "watch": watch,
    "dry-runs": dry_runs,
    "preflight": preflight,
}
FUNCTIONS = ("agent", "diagnosis", "outcomes", "schemas")  # parts that the probe or a module writes, not a command


def as_json(jobs: Sequence[Job], folder: Path) -> str:
    """The jobs as the probe reads them; makes the folders of their answers."""
    documents = []
    for job in jobs:
        out = folder / job.name
        out.mkdir(parents=True, exist_ok=True)
        argv = [word.replace("{out}", str(out)) for word in job.argv]
        files = {name: str(out / name) for name in ("stdout", "stderr", "exit", "families")}
        documents.append({"name": job.name, "argv": argv} | files)
    return json.dumps(documents)
