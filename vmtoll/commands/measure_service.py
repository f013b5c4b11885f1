"""The command `measure-service`: measure a service that runs already, without an experiment file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtoll.builds import tools
from vmtoll.commands import image_service
from vmtoll.commands.answer import print_either
from vmtoll.commands.help import NOTHING_VALID, describe
from vmtoll.commands.measured import finish, measured
from vmtoll.commands.options import (
    ClientInventoryOption,
    DurationOption,
    JsonOption,
    LimitOption,
    ResultsOption,
    ResumeOption,
    UntilOption,
)
from vmtoll.commands.plans import service_cost, service_cost_text
from vmtoll.model.errors import UserError
from vmtoll.paths import RESULTS, STATE
from vmtoll.runner.run import Plan, on_machines, plan
from vmtoll.shell import say
from vmtoll.spec.documents import write
from vmtoll.spec.experiment import load
from vmtoll.spec.service import TOOL

FOLDER = "services"  # in the results folder: the experiments that the command wrote, and the inventory of this machine
DEADLINE_MS = 500.0

describe(
    "measure-service",
    "vmtoll measure-service https://shop.example --urls urls.txt --at-most-rps 50 --rate 20",
    "vmtoll measure-service old=http://10.0.0.5 new=http://10.0.0.6 --urls urls.txt --at-most-rps 200 --users 8",
    "vmtoll measure-service before=http://10.0.0.5:8000 --urls urls.txt --at-most-rps 200 --rate 100 -i lab.yml "
    "--unit shop.service --apply 'cp new.conf /etc/shop.conf && systemctl reload shop' "
    "--revert 'cp old.conf /etc/shop.conf && systemctl reload shop'",
    "vmtoll measure-service --image docker.io/library/nginx@sha256:DIGEST --runtimes runc,runsc-systrap --port 80 "
    "--urls urls.txt --at-most-rps 2000 --users 16",
    exits={NOTHING_VALID: "no trial is valid"},
)


def measure_service(
    at_most_rps: Annotated[float, typer.Option(help="Upper limit of the requests per second of any load.", min=0.1)],
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]ADDRESS...",
            help="http(s)://HOST:PORT of the service; name each of several; the first is the baseline.",
        ),
    ] = None,
    urls: Annotated[
        Path | None,
        typer.Option(
            help="File with one URL path per line (e.g. /cart?id=1); repeat a path to weight it.", exists=True
        ),
    ] = None,
    access_log: Annotated[
        list[Path] | None, typer.Option(help="Access log, instead of --urls (repeatable).", exists=True)
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Open loop: requests per second, whether or not the service keeps up (repeatable)."),
    ] = None,
    users: Annotated[
        list[int] | None, typer.Option(help="Closed loop: users who each wait for their answer (repeatable).", min=1)
    ] = None,
    deadline_ms: Annotated[
        float, typer.Option(help="With --rate: responses after this many ms do not count as good.", min=0.001)
    ] = DEADLINE_MS,
    headers: Annotated[
        Path | None,
        typer.Option(
            help="File with one header per line (`Name: value`), cookies too; vmtoll never stores them.", exists=True
        ),
    ] = None,
    dynamic: Annotated[list[str] | None, typer.Option(help="URL whose body may differ (repeatable).")] = None,
    http2: Annotated[bool, typer.Option("--http2", help="Send the load over HTTP/2.")] = False,
    ca: Annotated[
        Path | None, typer.Option(help="Authority that signed the certificate (PEM file).", exists=True)
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Accept any certificate.")] = False,
    unit: Annotated[
        str | None,
        typer.Option(help="systemd unit of the service on the inventory's machines, to measure its CPU time."),
    ] = None,
    cgroup: Annotated[str | None, typer.Option(help="Control group of the service, instead of --unit.")] = None,
    container: Annotated[
        str | None, typer.Option(help="Container of podman or Docker, by name or ID, instead of --unit.")
    ] = None,
    process: Annotated[str | None, typer.Option(help="Name of the service's processes, instead of --unit.")] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            help="Command on the service's machine that makes the side `after`; it is compared with the first."
        ),
    ] = None,
    revert: Annotated[str, typer.Option(help="Command that undoes --apply, between trials and at the end.")] = "",
    image: Annotated[
        str | None,
        typer.Option(
            help="Instead of ADDRESS: image with its digest (NAME@sha256:...) that podman on the service's machine "
            "has; vmtoll starts it there in each of --runtimes, and removes its containers."
        ),
    ] = None,
    runtimes: Annotated[
        str, typer.Option(help="With --image: container runtimes, separated by commas; the first is the baseline.")
    ] = "runc,runsc-systrap",
    port: Annotated[
        int, typer.Option(help="With --image: port of the image's HTTP, published as the same port.", min=1, max=65535)
    ] = 8080,
    run_option: Annotated[
        list[str] | None,
        typer.Option(help="With --image: further option of `podman run`, e.g. --cpuset-cpus=2-3 (repeatable)."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the service in results.")] = "service",
    blocks: Annotated[int, typer.Option(help="Number of trials of each load on each side.", min=6)] = 8,
    duration_s: DurationOption = 10.0,
    until: UntilOption = None,
    inventory: ClientInventoryOption = None,
    limit: LimitOption = None,
    resume: ResumeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print duration and request count; send nothing.")] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Measure a service that runs already, and compare its versions; vmtoll installs nothing on its machine.

    Writes an experiment with `service:` to the results folder and runs it. The load stops when more than 1 of the last
    100 requests fails. Without --inventory this machine sends the load, and starts the containers of --image; vmtoll
    then cannot see the CPU time of another service.
    """
    if bool(addresses) == bool(image):
        raise UserError("give ADDRESS of a service that runs, or --image")
    arms = _arms(addresses or [])
    if image and (apply or unit or cgroup or container or process):
        raise UserError("--image starts its containers itself; leave out --apply, --unit and the like")
    if bool(apply) != bool(revert):
        raise UserError("--apply and --revert go together: --revert restores the first side")
    loads = {f"rate-{value:g}": {"kind": "rate", "rate_rps": value, "deadline_ms": deadline_ms} for value in rate or []}
    loads |= {f"users-{count}": {"users": count} for count in users or []}
    if not loads:
        raise UserError("give a load: --rate REQUESTS_PER_SECOND, or --users NUMBER")
    given_cpu = {"unit": unit, "cgroup": cgroup, "container": container, "process": process}
    service: dict[str, Any] = {
        "name": name,
        "address": arms,
        "urls": str(urls.resolve()) if urls else None,
        "access_log": [str(log.resolve()) for log in access_log] if access_log else None,
        "headers": str(headers.resolve()) if headers else None,
        "dynamic": dynamic or [],
        "at_most_rps": at_most_rps,
        "http": "2" if http2 else "1.1",
        "ca": str(ca.resolve()) if ca else None,
        "verify": not insecure,
        "cpu": {key: value for key, value in given_cpu.items() if value} or None,
        "loads": loads,
    }
    first = next(iter(arms), "")
    change = {"changes": {"after": {"of": first, "apply": apply, "revert": revert}}} if apply else {}
    keys = {
        "question": f"how does {name} answer{' in each environment' if len(arms) > 1 or apply else ''}?",
        "environments": [*arms, *change.get("changes", {})],
        "baseline": first,
        "service": service,
        "blocks": blocks,
        "warmup_s": min(2.0, duration_s),
        "duration_s": duration_s,
        **change,
    }
    if image:
        inventory = inventory or image_service.this_machine(results / FOLDER)
        of_image = image_service.keys(image, runtimes, port, run_option or [], name, inventory, limit)
        keys |= {**of_image, "service": service | of_image["service"]}
        keys["question"] = f"what does each container runtime cost {name}?"
    resolved = load(write(results / FOLDER / f"{name}.yml", keys))
    planned = plan(resolved, inventory, limit, until=until, resume=resume)
    if dry_run:
        print_either(as_json, lambda: service_cost(planned), lambda: service_cost_text(planned))
    else:
        finish(measured_service(planned, results, resume, limit), as_json=as_json)


def _arms(addresses: Sequence[str]) -> dict[str, str]:
    """Name of the arm → its address. Raises UserError for several without names."""
    arms: dict[str, str] = {}
    for address in addresses:
        name, equals, rest = address.partition("=")
        is_named = bool(equals) and "/" not in name
        if not is_named and len(addresses) > 1:
            raise UserError(f"{address}: give each of several addresses a name: old=http://10.0.0.5")
        arms[name if is_named else "service"] = rest if is_named else address
        if "@" in address:  # no file gets a password
            raise UserError(
                f"{address.rpartition('@')[2]}: leave user and password out of the address; write "
                "an `authorization` header in a file, and give it with --headers"
            )
    if len(arms) < len(addresses):
        raise UserError("two addresses have the same name; give each its own")
    return arms


def measured_service(planned: Plan, results: Path, resume: Path | None, limit: str | None = None) -> Path:
    """Say what a plan will ask of its service, then measure it; without an inventory this machine sends the load. A
    client that is this machine gets the load tool of the cache, which is built if it is not there.
    """
    say(service_cost_text(planned))
    if planned.inventory is None:
        planned = on_machines(planned, _this_machine(results), limit)
    if planned.inventory and any(client.is_local for client in planned.inventory.clients):
        tools.put_on_path({TOOL})
    return measured(planned, results, resume)


def _this_machine(results: Path) -> Path:
    """An inventory whose only machine is this one, as client."""
    root = "/" if os.geteuid() == 0 else str(STATE / "client")
    hosts = {"this-machine": {"ansible_connection": "local", "vmtoll_root": root}}
    content = {"all": {"children": {"clients": {"hosts": hosts}}}}
    return write(results / FOLDER / "this-machine.inventory.yml", content)
