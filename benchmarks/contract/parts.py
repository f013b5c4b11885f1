"""What the contract asks: for each part, the command lines and the functions of the probe whose answers it keeps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

RATE = ("--rate", "500", "--p99-ms", "50")
NOTEBOOKS = {
    "metal-vs-kvm-2009": "metal_vs_kvm", "tails": "tails", "rate-sweep-2006": "capacity", "php-2006": "replication",
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A command line, or `@` and a function of the probe. `{out}` in its words is a folder that is kept."""

    name: str
    argv: tuple[str, ...]


Chain = list[Job]  # runs in this order, alone: one of its jobs needs what another wrote


@dataclass(frozen=True)
class Place:
    """Where a tree answers: its copy, the inputs, the working folder of its commands."""

    tree: Path
    inputs: Path
    work: Path

    @property
    def simulated(self) -> list[Path]:
        """The simulated runs that the probe makes."""
        return runs(self.inputs / "runs")


def runs(folder: Path) -> list[Path]:
    """The runs two levels below the folder."""
    return sorted(file.parent for file in folder.glob("*/*/run.json"))


def _job(name: str, *words: object) -> Chain:
    return [Job(name, tuple(map(str, words)))]


def _pair(name: str, *words: object) -> Iterator[Chain]:
    """The command as text and as JSON."""
    yield _job(name, *words)
    yield _job(f"{name}-json", *words, "--json")


def help_texts(place: Place, commands: list[list[str]]) -> Iterator[Chain]:
    """`--help` of every command, a misspelled option of each, the lists, a new folder."""
    for words in commands:
        yield _job("/".join(["vmtoll", *words]), *words, "--help")
        yield _job("/".join(["misused", *words]), *words, "--no-such-option")
    yield _job("version", "--version")
    yield _job("init", "init", "{out}/folder", "--embedded")
    yield from _pair("list", "list")


def _of_runs(folders: list[Path]) -> Iterator[Chain]:
    for run in folders:
        name = run.parent.name
        yield from _pair(f"{name}/show", "show", run)
        yield _job(f"{name}/show-all", "show", run, "--all")
        yield from _pair(f"{name}/explain", "explain", run)
        yield from _pair(f"{name}/capacity", "capacity", run, *RATE)
        yield from _pair(f"{name}/density", "capacity", run, "--guests", "20")
        yield _job(f"{name}/report", "report", run, "--output", "{out}/run")
        yield _job(f"{name}/publish", "publish", run, "--output", "{out}/bundle", "--author", "Ada Example")


def committed(place: Place) -> Iterator[Chain]:
    """What commands say of the committed runs."""
    yield from _of_runs(runs(place.inputs / "results"))


def simulated(place: Place) -> Iterator[Chain]:
    """What they say of the simulated runs."""
    yield from _of_runs(place.simulated)


def harvested(place: Place) -> Iterator[Chain]:
    """The reports and tables of the runs that unit tests make; report and --json show what `show --all` does."""
    for run in runs(place.inputs / "harvested"):
        yield _job(run.parent.name, "report", run, "--output", "{out}/run", "--json")


def outcomes(place: Place) -> Iterator[Chain]:
    """Exit code and JUnit report of `vmtoll ab` for each run."""
    for folder in ("results", "runs", "harvested"):
        for run in runs(place.inputs / folder):
            yield _job(run.parent.name, "@outcomes", run, "{out}")


def notebooks(place: Place) -> Iterator[Chain]:
    """Notebooks, run on committed runs that have what they show."""
    for run in runs(place.inputs / "results"):
        if notebook := NOTEBOOKS.get(run.parent.name):
            yield _job(notebook, "notebook", notebook, run, "--output", "{out}/run")


def pages(place: Place) -> Iterator[Chain]:
    """Pages over many runs: explorer, replication; comparisons of two runs; a run of an older schema, rewritten."""
    results, older = place.inputs / "results", place.inputs / "older"
    yield from _pair("site", "site", "--output", "{out}/site", "--results", results)
    yield from _pair("replication", "replication", *runs(results), "--output", "{out}/page.html")
    for run in place.simulated:
        yield from _pair(f"compare/{run.parent.name}", "compare", place.simulated[0], run)
    show = _job("older/show", "show", *runs(older), "--all", "--json")
    yield [*_job("older/before", *show[0].argv), *_job("older/migrate", "migrate", older / "schema-2"), *show]
    yield from _pair("from-log", "workload", "from-log", place.inputs / "access.log", "--output", "{out}/workload")


def campaign(place: Place) -> Iterator[Chain]:
    """A dataset of four test beds, its tables and its page."""
    data = place.work / "dataset"
    chain: Chain = []
    for run in runs(place.inputs / "beds"):
        bed = run.parent.name
        chain += _job(f"partition/{bed}", "partition", run, "--output", data, "--campaign", "spring", "--testbed", bed)
    for pair in _pair("report", "campaign", "report", data, "--output", "{out}/page"):
        chain += pair
    yield chain


def watch(place: Place) -> Iterator[Chain]:
    """Histories: exit code, page, JUnit report and OpenMetrics."""
    for nights in ("nights-level", "nights-slower"):
        chain: Chain = []  # each writes the page of its history
        for name, more in {"all": (), "cpu": ("--metric", "cpu"), "large": ("--at-least", "30")}.items():
            argv = ("watch", "synthetic", "--judge", "--results", place.inputs / nights, *more)
            files = ("--junit", "{out}/junit.xml", "--openmetrics", "{out}/metrics.prom")
            chain += [*_job(f"{nights}/{name}", *argv, *files), *_job(f"{nights}/{name}-json", *argv, "--json")]
        yield chain


def dry_runs(place: Place) -> Iterator[Chain]:
    """The schedule of each shipped experiment, at both sizes."""
    for file in sorted((place.tree / "workloads" / "experiments").glob("*.yml")):
        for scale in ("small", "full"):
            yield from _pair(f"{file.stem}/{scale}", "run", file.stem, "--dry-run", "--scale", scale)
    yield from _pair("ab", "ab", "metal", "kvm-default", "--dry-run")


def preflight(place: Place) -> Iterator[Chain]:
    """Inventories with faults: what a run and preflight say before they connect."""
    for file in sorted((place.inputs / "inventories").glob("*.yml")):
        yield from _pair(f"{file.stem}/run", "run", "smoke", "--dry-run", "--inventory", file)
        if '"local"' not in file.read_text("utf-8"):  # else it looks at this machine
            yield from _pair(f"{file.stem}/preflight", "preflight", "--inventory", file)


def functions(name: str, *words: str) -> Callable[[Place], Iterator[Chain]]:
    """A part that a function of the probe writes."""

    def jobs(place: Place) -> Iterator[Chain]:
        yield _job(name, f"@{name}", *(str(place.inputs / word) for word in words), "{out}")

    return jobs


PARTS: dict[str, Callable[..., Iterator[Chain]]] = {
    "help": help_texts,
    "agent": functions("agent"),
    "diagnosis": functions("diagnosis", "guests"),
    "schemas": functions("schemas"),
    "dry-runs": dry_runs,
    "preflight": preflight,
    "campaign": campaign,
    "watch": watch,
    "pages": pages,
    "notebooks": notebooks,
    "simulated": simulated,
    "committed": committed,
    "outcomes": outcomes,
    "harvested": harvested,
}
