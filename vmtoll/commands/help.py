"""The text of `--help`: a command's description without line breaks, examples, exit codes; no value for a flag."""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

# Command → examples; of a group and of the program itself (no name), those to begin with.
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": ["vmtoll demo", "vmtoll list", "vmtoll run tails", "vmtoll show results/latest"],
    "lab": ["vmtoll lab up", "vmtoll lab status", "vmtoll lab down"],
    "workload": ["vmtoll workload from-log access.log --output workloads"],
    "demo": ["vmtoll demo", "vmtoll demo --suite bookworm"],
    "run": ["vmtoll run tails", "vmtoll run tails --inventory hosts.yml --until 2,60", "vmtoll run all --dry-run"],
    "list": ["vmtoll list", "vmtoll list --json"],
    "show": ["vmtoll show results/latest", "vmtoll show results/latest --metric throughput --server nginx"],
    "report": ["vmtoll report results/latest", "vmtoll report results/latest --json"],
    "notebook": ["vmtoll notebook capacity results/latest --set RATE_RPS=500"],
    "site": ["vmtoll site --output public --from bundles"],
    "replication": ["vmtoll replication", "vmtoll replication results/php-2006/* --output page.html"],
    "capacity": ["vmtoll capacity results/latest --rate 2000 --p99-ms 50"],
    "publish": ["vmtoll publish results/latest --output bundle --author 'Ada Example'"],
    "compare": ["vmtoll compare bundle results/latest", "vmtoll compare bundle results/latest --json"],
    "replay": ["vmtoll replay bundle --inventory hosts.yml"],
    "preflight": ["vmtoll preflight --inventory hosts.yml"],
    "provision": ["vmtoll provision --inventory hosts.yml --check"],
    "diagnose": ["vmtoll diagnose web1", "vmtoll diagnose web1 --inventory hosts.yml --on kvm1 --json"],
    "tune": ["vmtoll tune --inventory hosts.yml --check"],
    "untune": ["vmtoll untune --inventory hosts.yml"],
    "campaign": ["vmtoll campaign demo tails --inventory hosts.yml --dry-run"],
    "campaign-report": ["vmtoll campaign-report results/campaigns/demo_tails/data"],
    "partition": ["vmtoll partition results/latest --output data --campaign spring --testbed rack1"],
    "lab up": ["vmtoll lab up --link 1gbit", "vmtoll lab up --guests kvm-2009,kvm-default"],
    "lab image": ["vmtoll lab image --suite bookworm"],
    "lab down": ["vmtoll lab down"],
    "lab status": ["vmtoll lab status", "vmtoll lab status --json"],
    "workload from-log": ["vmtoll workload from-log access.log.gz --output workloads --name shop"],
}
EXITS: Mapping[int, str] = {
    0: "done",
    2: "usage or configuration error, one line on stderr says what to do",
    130: "interrupted (^C)",
    141: "broken pipe (`| head`)",
}
# Command → the exit codes that only it has.
OWN_EXITS: Mapping[str, Mapping[int, str]] = {
    "run": {1: "an experiment of `run all` failed"},
    "campaign": {1: "a run is missing"},
    "site": {1: "a run or bundle was refused"},
    "compare": {3: "not reproduced"},
    "replay": {3: "not reproduced"},
    "preflight": {1: "a check failed"},
    "lab status": {1: "the lab is not up"},
}


def epilog(command: str = "") -> str:
    """The examples as a paragraph and a code block of Markdown, which the terminal shows as lines; the exit codes."""
    examples = EXAMPLES[command]
    title = f"Example{'s' * (len(examples) > 1)}:"
    return "\n".join([title, "", *(f"    {example}" for example in examples), "", f"Exit codes: {_exits(command)}."])


def _exits(command: str) -> str:
    """`0 done; 1 a check failed; …`; of the program itself with the commands that a code belongs to."""
    owners: dict[tuple[int, str], list[str]] = {}
    for name, special in OWN_EXITS.items():
        for item in special.items() if command in ("", name) else ():
            owners.setdefault(item, []).append(name)
    texts = {code: [text] for code, text in EXITS.items()}
    for (code, text), names in owners.items():
        texts.setdefault(code, []).append(text if command else f"{text} ({', '.join(names)})")
    return "; ".join(f"{code} {', '.join(meanings)}" for code, meanings in sorted(texts.items()))


def _unwrapped(text: str | None) -> str:
    """Paragraphs of one line each: the terminal breaks them where it ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def _without_values(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""  # else Typer shows `--json <bool>`
    return params


class Command(TyperCommand):
    """A command as Typer has it, with the help of vmtoll."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = _unwrapped(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return (self.help or "").partition("\n")[0]


class Group(TyperGroup):
    """A group of commands as Typer has it, with the help of vmtoll."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_values(super().get_params(ctx))

    def get_short_help_str(self, limit: int = 0) -> str:
        return (self.help or "").partition("\n")[0]
