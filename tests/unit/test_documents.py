"""The documents: the machines of `lab.yml` and the commands on them are sound, and generated tables are up to date.

A generated table stands between `<!-- generated: NAME -->` and `<!-- end -->`; TABLES makes it.
"""

import importlib
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from tests.support.command_line import parse
from tests.support.committed_run import DEMO, committed_count, committed_runs
from vmtoll import cli, loadgen
from vmtoll.access_log.make import DEADLINE_MS, LARGEST_SITE_BYTES
from vmtoll.analysis.history import MOST_NIGHTS
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.commands.ab import ab
from vmtoll.commands.bisect import DEFAULT_UNTIL
from vmtoll.commands.campaign import run_campaign
from vmtoll.commands.watch import watch
from vmtoll.commands.workload import from_log
from vmtoll.counting.record import read as read_count
from vmtoll.guests import profiles
from vmtoll.model.experiment import Experiment
from vmtoll.model.finding import FINDINGS, Code, Influence, Validity
from vmtoll.model.first_answer import FirstAnswer
from vmtoll.model.hardware import Hardware
from vmtoll.model.inventory import HostVars
from vmtoll.model.message import ratio
from vmtoll.model.operation import Operation
from vmtoll.paths import PROJECT
from vmtoll.preflight import Lab
from vmtoll.preflight import inventory as inventory_check
from vmtoll.report.terminal import rows_of, summary
from vmtoll.report.words import GLOSSARY, MARGIN, percent
from vmtoll.runner.requirements import BOOT_BLOCKS, MOST_BOOTS
from vmtoll.spec.catalog import Registry
from vmtoll.spec.machines import load_inventory
from vmtoll.spec.server import read_servers
from vmtoll.spec.workload import load_workloads
from vmtoll.statistics import thresholds
from vmtoll.statistics.change_points import FEWEST_NIGHTS
from vmtoll.trial import gates

README, REAL_HOSTS, PLANNING = "README.md", "docs/real-hosts.md", "docs/planning.md"
DOCUMENTS = [README, *(str(file.relative_to(PROJECT)) for file in sorted((PROJECT / "docs").rglob("*.md")))]
ENVIRONMENTS = ["metal", "kvm-default"]


def text_of(document: str) -> str:
    return (PROJECT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of(document), re.DOTALL)


def inventories(folder: Path) -> tuple[Path, Path]:
    """The inventory of the documents as one file, and with one file for each machine, on disk."""
    for block in blocks(REAL_HOSTS, "yaml"):
        parts = re.split(r"^# (\S*(?:lab|host_vars/\S+)\.yml)\n", block, flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder / "lab.yml", folder / "my-lab" / "lab.yml"


def experiments(document: str) -> list[str]:
    """Those that a document's commands run on the machines of lab.yml."""
    commands = "\n".join(blocks(document, "sh"))
    named = re.findall(r"vmtoll (?:campaign )?run ((?:[a-z][\w-]* )+).*-i lab\.yml", commands)
    return list(dict.fromkeys(" ".join(named).split()))


def link_of(experiment: str, document: str) -> str:
    """The link that an experiment wants: one of the project's, or one that the document's commands write."""
    file = Registry().experiment_file(experiment)
    if file.is_file():
        text = file.read_text(encoding="utf-8")
    else:
        here = rf"^cat > workloads/experiments/{experiment}\.yml <<'END'\n(.*?)^END$"
        (text,) = re.findall(here, "\n".join(blocks(document, "sh")), re.DOTALL | re.MULTILINE)
    return str(yaml.safe_load(text).get("link", "unshaped"))


def rows_of_tables(document: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text_of(document).splitlines()
        if line.startswith("| ")
    ]


def test_the_evidence_has_every_profile_and_says_of_each_row_whether_it_was_run() -> None:
    rows = [row for row in rows_of_tables("docs/evidence.md") if row[1] != "min:s" and not re.match(r"\d", row[1])]
    assert {row[0].strip("`") for row in rows if row[0].startswith("`kvm-")} == set(profiles.names())
    states = {"run", "schema only", "not run"}
    headings = [row for row in rows if not states & set(row)]
    assert all("state" in row or row[0] == "profile" for row in headings), headings
    for row in (row for row in rows if "run" in row and row not in headings):
        assert row[0].startswith("`kvm-") or row[-1], f"{row}: what was run?"
    pairs = {(row[0], row[1]) for row in rows if row[0] in ("TCG", "KVM")}
    assert pairs == {(a, h.value) for a in ("TCG", "KVM") for h in Hardware if h is not Hardware.UNKNOWN}


def test_the_matrix_of_support_agrees_with_the_evidence() -> None:
    """KVM that nobody ran has no cell that claims otherwise, and profiles are run whole only if each was."""
    evidence = rows_of_tables("docs/evidence.md")
    ran = {(row[0], row[1]): row[2] == "run" for row in evidence if row[0] in ("TCG", "KVM")}
    rows = rows_of_tables("docs/support.md")
    heading = next(row for row in rows if "native KVM" in row)
    guests = rows[rows.index(heading) + 1 : next(n for n, row in enumerate(rows) if "state" in row)]
    columns = {"KVM on emulated hardware": "emulated", "nested KVM": "nested", "native KVM": "native"}
    for name, hardware in columns.items():
        cells = {row[heading.index(name)] for row in guests}
        assert cells <= {"yes", "in part", "not run", "no"}
        assert ran["KVM", hardware] or cells == {"not run"}, name
    by_profile = [row for row in evidence if row[0].startswith("`kvm-")]
    for column, name in ((1, "emulated guest (TCG)"), (2, "KVM on emulated hardware")):
        whole = {row[column] for row in by_profile} == {"run"}
        assert guests[0][heading.index(name)] == ("yes" if whole else "in part")
    assert len(rows) <= 30, "a matrix that one can read; evidence is on its own page"


def test_every_link_leads_to_a_file() -> None:
    pages = [PROJECT / name for name in DOCUMENTS]
    pages += [PROJECT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")]
    pages += sorted((PROJECT / "playbooks").glob("*roles/*/README.md"))
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load(text_of("mkdocs.yml"))["nav"]
    named = re.findall(r"'([^']+\.md)'", str(navigation))
    assert sorted(page for page in named if page.startswith("docs/")) == sorted(set(DOCUMENTS) - {README})


def test_the_stations_of_a_trial_exist() -> None:
    """Each names its module and what there does the work; there are twelve at most."""
    (diagram,) = [
        block for block in re.findall(r"```\n(.*?)```", text_of("docs/architecture.md"), re.DOTALL) if " 1  " in block
    ]
    stations = re.findall(r"^ *(\d+) .*? {2,}vmtoll/(\S+)\.py *(.*)$", diagram, re.MULTILINE)
    assert [int(number) for number, _, _ in stations] == list(range(1, len(diagram.splitlines()) + 1))
    assert len(stations) <= 12
    for _, path, names in stations:
        module = importlib.import_module(f"vmtoll.{path.replace('<tool>', 'siege').replace('/', '.')}")
        for name in filter(None, names.split(", ")):
            attrgetter(name)(module)


def test_one_file_and_one_file_per_machine_are_the_same_lab(tmp_path: Path) -> None:
    one, many = inventories(tmp_path)
    assert load_inventory(one, ENVIRONMENTS) == load_inventory(many, ENVIRONMENTS)
    assert {file.stem for file in (many.parent / "host_vars").iterdir()} == {"load1", "big1", "big1-metal", "guest1"}


@pytest.mark.parametrize("which", [0, 1])
def test_preflight_has_nothing_against_the_inventory(which: int, tmp_path: Path) -> None:
    lab = Lab.read(inventories(tmp_path)[which], None, print)
    assert [finding.level for finding in inventory_check(lab)] == ["ok"]


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if experiments(name)])
def test_the_inventorys_link_is_the_one_that_the_experiments_want(document: str, tmp_path: Path) -> None:
    variables = yaml.safe_load(inventories(tmp_path)[0].read_text())["all"]["vars"]
    link = variables.get("vmtoll_link", _key(HostVars, "link"))
    wanted = {experiment: link_of(experiment, document) for experiment in experiments(document)}
    assert set(wanted.values()) == {link}, wanted


def test_the_experiments_of_the_documents_are_found() -> None:
    assert experiments(REAL_HOSTS) == ["demo"]
    assert experiments(PLANNING) == ["shop"]
    assert experiments("docs/campaigns.md") == ["demo", "tails"]


def _gates(*, injected: bool) -> str:
    rows = [
        f"| {kind.fault} | `{code}` | {kind.severity} |" for code, kind in FINDINGS.items() if kind.injected is injected
    ]
    return "\n".join(["| fault | finding | the trial is |", "|---|---|---|", *rows])


def _links() -> str:
    """The experiments that prescribe the rate of the client's link."""
    links = {name: link_of(name, PLANNING) for name in Registry().experiments()}
    rows = [
        f"| `{link}` | {', '.join(f'`{name}`' for name in sorted(links) if links[name] == link)} |"
        for link in sorted(set(links.values()) - {"unshaped"})
    ]
    return "\n".join(["| `link` | experiments |", "|---|---|", *rows])


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _tls_tools() -> str:
    """The load tools for pages: which loop each is for, and what it can send."""
    adapters = {name: loadgen.get(name) for name in loadgen.names()}
    rows = [
        f"| {name} | {_yes(tool.closed_loop)} | {_yes(tool.open_loop and not tool.refused_for_tails)} | "
        f"{_yes(tool.tls)} | {_yes(tool.http2)} | {_yes(tool.resumes)} |"
        for name, tool in adapters.items()
        if not tool.mail_protocols
    ]
    head = "| tool | closed loop | open loop with tails | TLS 1.3 | HTTP/2 | resumes sessions |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def _tls_servers() -> str:
    """The servers that speak TLS."""
    rows = [
        f"| `{name}` | {', '.join(tls.http)} | {_yes(tls.resumption)} | {_yes(tls.kernel)} |"
        for name, tls in ((server.name, server.tls) for server in read_servers())
        if tls
    ]
    head = "| server | HTTP over TLS | resumes sessions | the kernel encrypts |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def _uploads() -> str:
    """What can take part in a workload with `method: POST`."""
    tools = [name for name in loadgen.names() if loadgen.get(name).sends_bodies]
    rows = [f"| tools that send bodies | {', '.join(f'`{name}`' for name in tools)} |"]
    for page in sorted({server.uploads for server in read_servers() if server.uploads}):
        able = ", ".join(f"`{server.name}`" for server in read_servers() if server.uploads == page)
        rows.append(f"| servers that read bodies for `{page}` | {able} |")
    return "\n".join(["| uploads | |", "|---|---|", *rows])


def _load_tools() -> str:
    """What each tool can send, and why it gives no tails."""
    rows = []
    for name in loadgen.names():
        tool = loadgen.get(name)
        loops = [
            loop
            for loop, able in (("closed", tool.closed_loop or tool.mail_protocols), ("open", tool.open_loop))
            if able
        ]
        pages = (
            "mail" if tool.mail_protocols else "one" if tool.one_page else "all, at random" if tool.at_random else "all"
        )
        arrivals = ("even, random" if tool.schedules else "even") if tool.open_loop else ""
        tails = f"no: {tool.refused_for_tails}" if tool.refused_for_tails else "yes"
        rows.append(
            f"| {name} | {', '.join(loops)} | {arrivals} | {pages} | {_yes(tool.can_close)} | "
            f"{_TICKS[tool.tick_s]} | {tails} |"
        )
    head = "| tool | loop | arrivals | pages | can do without keep-alive | resolution | tails |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _open_loop_tools() -> str:
    """Workloads with tails, by the tool that measures them."""
    registry = Registry()
    workloads = {name: one for file in registry.workloads() for name, one in load_workloads(file, registry).items()}
    open_loops = {name: one for name, one in workloads.items() if one.kind in ("rate", "sweep", "search")}
    rows = []
    for tool in sorted({workload.tool for workload in open_loops.values()}):
        names = {name: workload.crosscheck for name, workload in open_loops.items() if workload.tool == tool}
        alone = ", ".join(f"`{name}`" for name in names if not names[name])
        checked = ", ".join(f"`{name}` ({names[name]})" for name in names if names[name])
        rows.append(f"| {tool} | {alone} | {checked} |")
    head = "| tool | workloads without a cross-check | workloads with a cross-check (by) |"
    return "\n".join([head, "|---|---|---|", *rows])


def _glossary() -> str:
    """Each term by its heading, with the anchor that it has on every page of a run."""
    terms = sorted(GLOSSARY.items(), key=lambda term: term[1][0].casefold())
    rows = [f'| <a id="term-{name}"></a>{heading} | {meaning} |' for name, (heading, meaning) in terms]
    return "\n".join(["| term | meaning |", "|---|---|", *rows]).replace("{margin}", percent(MARGIN))


_TICKS = {1.0: "1 s", 1e-2: "10 ms", 1e-3: "1 ms", 1e-6: "1 µs", 1e-9: "1 ns"}
# When a gate fires, with the limits of vmtoll/trial/gates.py.
_FIRES: Mapping[Code, str] = {
    Code.CLIENT_SATURATED: f"the tool used more than {thresholds.BUSY:.0%} of the CPU time that its threads could "
    "have had (never for a single user). `ramp`: a request found no free descriptor or port",
    Code.CLIENT_STARVED: f"background processes used more than {gates.CLIENT_BACKGROUND_PCT:g}% of the client's CPUs "
    f"and more than {gates.AT_REST_S * 1e3:g} ms, and less than {gates.CLIENT_IDLE_PCT:g}% was idle",
    Code.RATE_NOT_REACHED: f"the client kept to less than {thresholds.RATE_REACHED:.0%} of the rate when it was "
    "furthest behind",
    Code.CLIENT_LATE: f"the p99 of the client's delay is more than {gates.LATE_SHARE:.0%} of the p99 of the response "
    "times",
    Code.START_SPREAD: f"the clients' first requests are more than {gates.SPREAD_S * 1e3:g} ms and more than "
    f"{gates.SPREAD_SHARE:.0%} of the load's time apart",
    Code.LITTLES_LAW: f"requests in flight differ from the users by more than {gates.LITTLE_TOLERANCE:.0%}. With a "
    "coarse clock, two standard deviations of its ticks where that is more. A shortfall may also reach "
    f"{gates.OWN_WORK_S * 1e6:g} µs per request, at most {gates.MAX_OWN_WORK:.0%}",
    Code.MEAN_OVER_P99: "mean above p99",
    Code.LINK_BOUND: f"more than {gates.LINK_PCT:g}% of the line's rate",
    Code.RETRANSMITS: f"more than {gates.RETRANSMITTED_PCT:g}% of the segments",
    Code.LISTEN_DROPS: "one connection or more",
    Code.PORTS_EXHAUSTED: f"more than {gates.PORTS_PCT:g}% of the local ports",
    Code.STEAL: f"more than {thresholds.STEAL_PCT:g}% of the CPU time",
    Code.BACKGROUND_CPU: f"more than {thresholds.BACKGROUND_PCT:g}% of the CPU time and more than "
    f"{gates.AT_REST_S * 1e3:g} ms",
    Code.HOST_BACKGROUND_CPU: "the same of the host's CPUs that the machine under test runs on",
    Code.FREQUENCY_SPREAD: f"the slowest second is more than {gates.SPREAD_PCT:g}% below the fastest",
    Code.CLOCK_SOURCE: "another clock source than at the run's beginning",
    Code.CLOCK_STEPPED: f"the clock moved by more than {thresholds.CLOCK_STEP_S * 1e3:g} ms against the monotonic one",
    Code.WARMUP_DRIFT: f"the first third was more than {gates.SLOWER_PCT:g}% slower than the rest",
    Code.NOT_COLD: f"less than {thresholds.COLD_SHARE:.0%} of the served bytes was read from the disk",
    Code.STALLED: f"no response for {gates.STALL_S:g} s, or for the time of {gates.STALL_RESPONSES} responses where "
    "that is longer",
    Code.SYSCTL: "any difference",
    Code.FAILED_REQUESTS: f"one failed request; above {gates.FAILED_SHARE:.1%} of those planned, invalid",
    Code.WRONG_BODY: "one body or more",
    Code.LOST_MAIL: "one message or more",
    Code.CAPACITY_UNKNOWN: "no usable capacity trial",
    Code.FINGERPRINT: "any difference",
    Code.TIMED_OUT: "the tool's time limit",
    Code.TOOL_FAILED: "any failure",
    Code.SERVER_FAILED: "any failure",
    Code.HOST_LOST: "any loss",
}
_INFLUENCES = {
    Influence.EXCLUDES: "excludes", Influence.BOUNDS: "bounds", Influence.DISTORTS: "distorts",
    Influence.SYMPTOM: "is a symptom",
}  # fmt: skip


def _committed_runs() -> str:
    """Each experiment of the committed runs: its trials by validity, and the findings that most of them have."""
    rows = []
    for folder in committed_runs():
        run = load_run(folder)
        accelerators = sorted({run.accelerator(guest).upper() for guest in run.guests})
        trials = Counter(record.validity for record in run.trials)
        findings = Counter(code for record in run.trials for code in sorted({found.code for found in record.findings}))
        common = ", ".join(f"`{code}`" for code, _ in findings.most_common(2))
        link = f"[{folder.parent.name}](../{folder.relative_to(PROJECT)}/)"
        rows.append(
            f"| {link} | {', '.join(accelerators)} | {trials[Validity.VALID]}, {trials[Validity.SUSPECT]} | {common} |"
        )
    head = "| run | guest | trials valid, suspect | most frequent findings |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def _demo() -> str:
    """What `vmtoll show` prints of the committed demo."""
    run = load_run(DEMO)
    analysis = analyse(run)
    return summary(run, analysis, rows_of(analysis)).plain


TABLES: dict[str, Callable[[], str]] = {
    "faults in the lab": lambda: _gates(injected=True),
    "faults in readings": lambda: _gates(injected=False),
    "meanings of findings": lambda: "\n".join(
        ["| finding | the trial is | it | meaning | limit |", "|---|---|---|---|---|"]
        + [
            f"| `{code}` | {kind.severity} | {_INFLUENCES[kind.influence]} | {kind.meaning} | {_FIRES[code]} |"
            for code, kind in FINDINGS.items()
        ]
    ),
    "committed runs": _committed_runs,
    "glossary": _glossary,
    "links": _links,
    "what load tools can do": _load_tools,
    "tools of open loops": _open_loop_tools,
    "TLS of load tools": _tls_tools,
    "TLS of servers": _tls_servers,
    "uploads": _uploads,
    "the demo on a terminal": lambda: f"```\n$ vmtoll show {DEMO.relative_to(PROJECT)}\n{_demo()}\n```",
}


def test_the_reference_is_up_to_date(tmp_path: Path) -> None:
    subprocess.run([PROJECT / "scripts" / "reference", tmp_path], check=True)
    written = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    kept = {name: (PROJECT / "docs" / "reference" / name).read_text(encoding="utf-8") for name in written}
    assert written == kept, "run scripts/reference"


def test_generated_tables_are_up_to_date() -> None:
    marked = re.compile(r"<!-- generated: (.*?) -->\n(.*?)\n?<!-- end -->", re.DOTALL)
    found = [(document, *match) for document in DOCUMENTS for match in marked.findall(text_of(document))]
    assert {name for _, name, _ in found} == set(TABLES)
    for document, name, table in found:
        assert table == TABLES[name](), f"{document}: write the table {name!r} anew"


def minutes() -> dict[str, int]:
    """Command → the whole minutes that it took when it was last measured, rounded."""
    rows = [row for row in rows_of_tables("docs/evidence.md") if len(row) == 3 and re.fullmatch(r"\d+:\d\d", row[1])]
    taken = {row[0].strip("`"): row[1].split(":") for row in rows}
    return {command: round(int(whole) + int(seconds) / 60) for command, (whole, seconds) in taken.items()}


def test_minutes_beside_commands_were_measured() -> None:
    (commands,) = [block for block in blocks(README, "sh") if "make demo" in block]
    shown = dict(re.findall(r"^sudo (make \S+) .*?(\d+) minutes", commands, re.MULTILINE))
    assert {command: int(number) for command, number in shown.items()} == minutes()


def test_the_readme_fits_on_a_page_and_begins_with_what_the_how_to_shows() -> None:
    assert len(text_of(README).splitlines()) <= 100
    ratios = re.findall(r"[0-9.]+× \([^)]*\)", blocks(README, "")[0])
    assert len(ratios) == 4
    page, (run,) = (
        text_of("docs/how-to/container-runtimes.md"),
        [each for each in committed_runs() if each.parent.name == "runtimes"],
    )
    report = (run / "report.html").read_text(encoding="utf-8")
    assert all(ratio in page and ratio.partition(" ")[0] in report for ratio in ratios)


def test_the_instructions_in_documents_are_those_of_the_committed_count() -> None:
    record, page = read_count(committed_count()), text_of("docs/how-to/count-instructions.md")
    compared = record.judged()
    assert compared
    (guest,) = [each.judged.estimate for each in compared.gates if each.subject.side == "guest"]
    assert guest
    toll = f"{ratio(guest.value)}× ({ratio(guest.low or 0)} to {ratio(guest.high or 0)})"
    assert toll in page
    assert f"[{toll} the instructions]" in text_of(README)
    counts = [side["per_request"]["instructions"] for side in record.document["sides"].values()]
    assert [count for count in counts if f"{count:,.0f}" not in page] == []


def test_pages_use_one_inventory_and_one_style_of_commands() -> None:
    """`vmtoll … -i lab.yml`, as `make setup` puts it on the PATH."""
    for document in [*DOCUMENTS, "results/README.md"]:
        text = text_of(document)
        assert not re.search(r"hosts\.yml|my-lab\.yml|INVENTORY=|\.venv/bin/vmtoll|<.*address.*>", text), document
        assert not re.search(r"vmtoll [a-z-]+ [^\n`]*--inventory", text) or "reference/" in document, document


def test_there_is_one_tagline() -> None:
    tagline = re.search(r'^description = "(.*)"$', text_of("pyproject.toml"), re.MULTILINE)
    assert tagline
    assert f'title: "vmtoll: {tagline[1][0].lower()}{tagline[1][1:]}"' in text_of("CITATION.cff")
    assert f"site_description: {tagline[1]}\n" in text_of("mkdocs.yml")
    assert f"vmtoll {tagline[1][0].lower()}{tagline[1][1:]}:" in text_of(README)
    assert cli.__doc__ == f"{tagline[1]}."


def _default(command: Callable[..., object], option: str) -> Any:
    """The value of an option that is not given."""
    return signature(command).parameters[option].default


def _key(model: type[BaseModel], name: str) -> Any:
    """The default of a key."""
    return model.model_fields[name].default


_NUMERALS = ("zero", "one", "two", "three", "four", "five", "six")
# Document → sentences or parts of them, with the numbers that the program has.
CLAIMS: Mapping[str, Sequence[str]] = {
    README: (
        f"the whole interval lies within ±{_key(Experiment, 'margin_pct'):g}%",
        f"The aim is at most 1 report in {1 / thresholds.ALPHA:g}",
        f"At full scale vmtoll therefore measures {_NUMERALS[MOST_BOOTS]} boots",
    ),
    "docs/method.md": (
        f"An experiment has {_key(Experiment, 'blocks')} blocks by default, `vmtoll ab` {_default(ab, 'blocks')}.",
        f"The aim is at most 1 report in {1 / thresholds.ALPHA:g}",
        f"show with {thresholds.POWER:.0%} power",
    ),
    "docs/statistics.md": (
        f'"equal" means that it lies within ±{thresholds.MARGIN:.0%}',
        f"at most {thresholds.ALPHA:.0%} of reports",
        f"| α | {thresholds.ALPHA:g} |",
        f"| power | {thresholds.POWER:g} |",
        f"| fewest units | {thresholds.MIN_BLOCKS} and {thresholds.MIN_EQUIVALENT_BLOCKS} blocks; "
        f"{thresholds.MIN_BOOTS} and {thresholds.MIN_EQUIVALENT_BOOTS} boots |",
        f"**{_NUMERALS[MOST_BOOTS].capitalize()} boots of {_NUMERALS[BOOT_BLOCKS]} blocks** (`boots: {MOST_BOOTS}`, "
        f"`blocks: {MOST_BOOTS * BOOT_BLOCKS}`) is the default at full scale.",
    ),
    "docs/how-to/watch-every-night.md": (
        f"worse by `--at-least` percent or more ({_default(watch, 'at_least'):g} by default)",
        f"has fewer than {FEWEST_NIGHTS} nights",
        f"The newest {MOST_NIGHTS} nights count.",
    ),
    "docs/how-to/find-what-made-it-slower.md": (
        f"(default: `{DEFAULT_UNTIL.half_width_pct:g},{DEFAULT_UNTIL.at_most_min:g}`)",
    ),
    "docs/how-to/what-an-operation-costs.md": (f"its `limit_s` ({_key(Operation, 'limit_s'):g} s)",),
    "docs/how-to/how-long-until-it-serves.md": (
        f"a request every {_key(FirstAnswer, 'every_ms'):g} ms",
        f"within `limit_s` ({_key(FirstAnswer, 'limit_s'):g} s)",
    ),
    "docs/how-to/run-a-campaign.md": (f"measured in parallel (default: {_default(run_campaign, 'forks')})",),
    "docs/campaigns.md": (f"measured in parallel (default: {_default(run_campaign, 'forks')})",),
    PLANNING: (
        f"`deadline_ms` (default: {DEADLINE_MS:g})",
        f"(`--lines`, default {_default(from_log, 'lines'):,})",
        f"above `--idle-s` ({_default(from_log, 'idle_s')} s)",
        f"exceed {LARGEST_SITE_BYTES // 2**20} MiB",
    ),
    "docs/troubleshooting.md": (f"waits for the machine ({_key(HostVars, 'back_s'):g} s",),
}


@pytest.mark.parametrize("document", CLAIMS)
def test_numbers_in_sentences_are_those_of_the_program(document: str) -> None:
    text = text_of(document)
    assert [claim for claim in CLAIMS[document] if claim not in text] == []


def test_lists_of_topologies_and_profiles_are_complete() -> None:
    topologies = sorted(file.stem for file in (PROJECT / "playbooks" / "topologies").glob("*.yml"))
    table = text_of("docs/reference/embedded-lab.md").partition("| topology | machines |\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)) == topologies
    (line,) = re.findall(r"^lab-up:.*$", text_of("Makefile"), re.MULTILINE)
    named = re.findall(r"TOPOLOGY=(.*?), GUESTS", line)[0]
    assert sorted(re.split(r", | or ", named)) == topologies
    assert f"in {('no', 'one', 'two', 'three', 'four', 'five', 'six', 'seven')[len(topologies)]} topologies" in text_of(
        "CHANGELOG.md"
    )
    shipped = {file.stem for file in (PROJECT / "vm-images" / "guests").glob("*.yml")}
    table = text_of("docs/guests.md").partition("| profile | what it is |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(kvm-[\w-]+)`", re.sub(r"(?m)^(\|[^|]*\|).*$", r"\1", table))) == shipped


def test_servers_without_a_package_are_named() -> None:
    (sentence,) = re.findall(r"^(.*) appear in published experiments", text_of("docs/extending.md"), re.MULTILINE)
    sources = {server.name for server in read_servers() if server.source}
    assert set(re.split(r", | and ", sentence)) == sources
    assert f"**These {('five', 'six', 'seven')[len(sources) - 5]} are not verified here**" in text_of(
        "docs/extending.md"
    )


def test_published_experiments_are_listed() -> None:
    registry = Registry()
    files = {name: registry.experiment_file(name).read_text(encoding="utf-8") for name in registry.experiments()}
    published = {name for name, text in files.items() if yaml.safe_load(text).get("source")}
    assert set(re.findall(r"^\|.*?\[`([\w-]+)`\]", text_of("docs/published-experiments.md"), re.MULTILINE)) == published


def test_the_demo_has_no_cross_check() -> None:
    registry = Registry()
    demo = yaml.safe_load(registry.experiment_file("demo").read_text(encoding="utf-8"))
    workloads = [one for name in demo["workloads"] for one in load_workloads(name, registry).values()]
    assert "that of `vmtoll demo` has none" in text_of("docs/method.md")
    assert not any(workload.crosscheck for workload in workloads)


def test_only_the_readme_has_minutes_of_commands() -> None:
    """Every other place would have to be measured again, too."""
    for document in ["Makefile", "CONTRIBUTING.md", *(set(DOCUMENTS) - {README, "docs/evidence.md"})]:
        for command in minutes():
            lines = re.findall(rf"^.*{command}\b.*$|^{command.split()[1]}:.*$", text_of(document), re.MULTILINE)
            assert not [line for line in lines if re.search(r"\d+ (s|min|minutes)\b", line)], f"{document}: {command}"


def test_the_readme_claims_nothing_that_was_not_run() -> None:
    native = next(row for row in rows_of_tables("docs/evidence.md") if row[:2] == ["KVM", "native"])
    assert (native[2] == "not run") == ("Nobody has measured native KVM" in text_of(README))
    accelerators = {run.accelerator(guest) for run in map(load_run, committed_runs()) for guest in run.guests}
    assert (accelerators == {"tcg"}) == ("committed-runs.md) were emulated" in text_of(README))
    python = re.search(r'^requires-python = ">=(.*)"$', text_of("pyproject.toml"), re.MULTILINE)
    assert python
    assert f"Python {python[1]} or later" in text_of("docs/support.md")
    assert f"Python {python[1]} or later" in text_of("docs/how-to/install.md")


def commands_of(document: str) -> list[list[str]]:
    """What follows `vmtoll` in the shell blocks of a document, without commands that leave something out."""
    text = "\n".join(blocks(document, "sh")).replace("\\\n", " ")
    text = re.sub(r"^ *cat > .*?^ *END$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        ends = [n for n, word in enumerate(words) if word in ("&&", "|")]
        for start, end in pairwise([-1, *ends, len(words)]):
            command = words[start + 1 : end]
            if "vmtoll" in command[:4] and "…" not in command:
                found.append(command[command.index("vmtoll") + 1 :])
    return found


@pytest.mark.parametrize("document", [name for name in [*DOCUMENTS, "results/README.md"] if commands_of(name)])
def test_commands_of_the_documents_are_ones_that_the_program_takes(document: str) -> None:
    for words in commands_of(document):
        parse(words)
