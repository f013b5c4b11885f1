"""Arguments and options that several commands share."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vmtoll.commands import values
from vmtoll.files import parse_yaml
from vmtoll.model.errors import UserError
from vmtoll.model.experiment import Scale
from vmtoll.model.metric import METRICS
from vmtoll.model.release import Suite
from vmtoll.model.until import Until
from vmtoll.paths import FOLDER_FILE, user_folder


def _until_of(text: str) -> Until:
    """Parse `2,60`: half-width of the interval in percent, and minutes."""
    try:
        half_width, at_most_min = text.split(",")
        return Until(half_width_pct=percent(half_width), at_most_min=float(at_most_min))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not PERCENT,MINUTES; give the half-width in percent (at most 50) and the minutes: 2,60"
        ) from None


def percent(text: str | float, least: float = 0.0, most: float = math.inf) -> float:
    """Parse `5` or `5%`. A bare number between 0 and 1 may be a fraction, so it needs the sign.

    Raises BadParameter, also for a number that is not within the limits.
    """
    number = str(text).removesuffix("%")
    try:
        value = float(number)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a percentage; write 5 or 5%") from None
    if 0 < value < 1 and number == text:
        raise typer.BadParameter(f"{text}: write {100 * value:.6g}% if this is a fraction, or {text}% if you mean it")
    if not least <= value <= most:
        limits = f"at least {least:g}%" if math.isinf(most) else f"from {least:g}% to {most:g}%"
        raise typer.BadParameter(f"{text} is not within the limits: {limits}")
    return value


def outside_bundles(output: Path | None) -> Path | None:
    """Option callback: raise LoadError for an output path in a bundle, which is read-only."""
    from vmtoll.publish.seal import check_writable  # noqa: PLC0415 (few commands need it)

    if output:
        check_writable(output, "write elsewhere, with another --output")
    return output


def _resumable(folder: Path | None) -> Path | None:
    from vmtoll.publish.seal import check_writable  # noqa: PLC0415 (few commands need it)

    if folder:
        check_writable(folder, "resume the run that it was published from, or measure again: vmtoll replay")
    return folder


def own_inventory() -> Path | None:
    """The lab.yml of the user's folder; None without one, and where it names no machine: that is the embedded lab."""
    folder = user_folder()
    file = folder / FOLDER_FILE if folder else None
    return file if file and _has_hosts(file) else None


def _has_hosts(file: Path) -> bool:
    """Return whether an inventory may name machines; only an empty one, or an empty `all`, certainly does not."""
    import yaml  # noqa: PLC0415 (few commands need it)

    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return True  # who reads it says what is wrong
    return bool(content.get("all") if isinstance(content, dict) and content.keys() == {"all"} else content)


def _or_own(inventory: Path | None) -> Path | None:
    return inventory or own_inventory()


DIFFERS_IN = (
    "What --apply changes (repeatable): binary, config or version of the servers, a kernel parameter, a fact. Other "
    "differences are findings."
)


def _inventory(default: str) -> Any:
    """The option for an inventory. `default`: what vmtoll takes without one, and without a folder's lab.yml."""
    return typer.Option(
        "--inventory",
        "-i",
        help="Ansible inventory of real machines, a file or a folder (default: lab.yml of your folder, else "
        f"{default}).",
        exists=True,
        callback=_or_own,
    )


InventoryOption = Annotated[Path | None, _inventory("the embedded lab")]
ClientInventoryOption = Annotated[Path | None, _inventory("only this machine, as client")]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "--limit",
        help="Only these machines of the inventory (Ansible's host pattern).",
        autocompletion=values.hosts_and_groups,
    ),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Change nothing; print what would change.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before changing machines.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ScaleOption = Annotated[
    Scale | None,
    typer.Option(help="Published size or a size for the embedded lab (default: small there, full with --inventory)."),
]
UntilOption = Annotated[
    Until | None,
    typer.Option(
        metavar="PERCENT,MINUTES",
        parser=_until_of,
        help="Stop when every comparison is decided or known within ±PERCENT, or after MINUTES (e.g. 2,60).",
    ),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(help=f"Metric that counts (repeatable): {', '.join(METRICS)}. Default: the main one of each load."),
]
DurationOption = Annotated[float, typer.Option(help="Seconds of load in a trial.", min=0.1)]
AtMostOption = Annotated[
    float | None, typer.Option(help="Refuse to start if it would take more than this many minutes.", min=0)
]
OnOption = Annotated[
    Literal["machine", "host"], typer.Option(help="Where --apply and --revert run: the machine, or its KVM host.")
]
LinkOption = Annotated[str, typer.Option(help="Rate of the client's link: unshaped, 100mbit, …")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the schedule and how long it takes; measure nothing.")
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of an interrupted run to resume.",
        exists=True,
        file_okay=False,
        callback=_resumable,
        autocompletion=values.runs,
    ),
]
ResultsOption = Annotated[
    Path, typer.Option(help="Folder that holds the results (default: results/ of your folder).", show_default=False)
]
RunArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder of a run: results/<experiment>/<run-id>.",
        exists=True,
        file_okay=False,
        autocompletion=values.runs,
    ),
]
RunOutputOption = Annotated[
    Path | None,
    typer.Option(help="Folder to write to (default: the run's; required for a bundle, which is read-only)."),
]
BundleArgument = Annotated[Path, typer.Argument(help="Folder of a bundle.", exists=True, file_okay=False)]


SuiteOption = Annotated[
    Suite | None,
    typer.Option(
        "--suite",
        help="Debian release of the image (default: VMTOLL_SUITE, else the newest).",
    ),
]
GuestSuiteOption = Annotated[
    Suite | None,
    typer.Option(
        "--suite",
        help="Debian release of the guests that vmtoll makes (default: the inventory's vmtoll_suite, else "
        "VMTOLL_SUITE, else this machine's release).",
    ),
]


def check_metrics(names: Iterable[str]) -> None:
    """Raise UserError for the name of a --metric that vmtoll does not have."""
    for name in names:
        if name not in METRICS:
            raise UserError(f"--metric {name}: unknown metric; allowed: {', '.join(METRICS)}")


def size_of(scale: Scale | None, inventory: Path | None) -> Scale:
    """The scale; by default full with an inventory, small without one."""
    return scale or ("full" if inventory else "small")
