"""Make the guests that an inventory describes by a profile, before provisioning the machines."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vmtoll.agent import console
from vmtoll.builds import image
from vmtoll.guests import needs, profiles
from vmtoll.guests.domain import files_of_role, render
from vmtoll.guests.inventory import Guest, guest
from vmtoll.machines.panics import Watch
from vmtoll.model.architecture import Architecture, here
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.model.release import Release
from vmtoll.paths import STATE
from vmtoll.shell import Changes, play, run, say
from vmtoll.spec.inventory import hosts_by_role

NO_IMAGES: Mapping[str, str] = MappingProxyType({})


def guests_with_profile(data: Mapping[str, Any], source: Path) -> list[Guest]:
    """The guests of an inventory (`ansible-inventory --list`) that have a profile.

    Raises InventoryError for a guest that is not fully described, UserError if its profile or KVM host does not exist.
    """
    by_role = hosts_by_role(data, str(source))
    guests = [guest(host) for host in by_role["kvm_guest"] if host.vars.profile]
    for vm in guests:
        profiles.load(vm.profile)
        if vm.kvm_host not in [host.name for host in by_role["kvm_host"]]:
            raise UserError(f"{source}: {vm.name}: vmtoll_kvm_host {vm.kvm_host!r} is not in the group `kvm_hosts`")
    return guests


def _images_of(guests: Iterable[Guest], release: Release) -> dict[Release, list[str]]:
    """Release → the packages of kernels that the image of these guests needs beside its own."""
    return profiles.kernels_by_release((profiles.load(vm.profile) for vm in guests), release)


def role_entry(
    vm: Guest,
    kind: profiles.Kind = "guests",
    *,
    tsc_khz: int | None = None,
    images: Mapping[str, str] = NO_IMAGES,
    architecture: Architecture | None = None,
) -> dict[str, Any]:
    """An element of the role's kvm_guest_list. A guest to remove gets no XML: its profile may no longer fit it.

    Guests have this machine's architecture, because their image is made on it; `architecture`: the same with another
    QEMU. `tsc_khz`: see render. `images`: suite → folder of its image, where the guest's is not the host's only one.
    """
    entry = vm.model_dump(include={"name", "state", "domain", "public_key"})
    if vm.state == "absent":
        return entry | {"xml": ""}
    profile = profiles.load(vm.profile, kind=kind)
    files = files_of_role(vm.name, profile.kernel)
    xml = render(profile, vm, files, architecture=architecture or here(), tsc_khz=tsc_khz)
    folder = images.get(str(profile.values["release"]))
    return entry | {"xml": xml, "boot_files": profile.kernel.files} | ({"image": folder} if folder else {})


def make_guests(
    data: Mapping[str, Any],
    inventory: Path,
    options: Sequence[str],
    release: Release,
    *,
    quiet: bool = False,
    changes: Changes | None = None,
) -> list[str]:
    """Make guests of this release that have a profile, remove those that are `absent` (playbooks/guests.yml); return
    the names of the removed ones.

    Raises UserError, before it changes anything, if a KVM host lacks what its guests need.
    """
    guests = guests_with_profile(data, inventory)
    present = [vm for vm in guests if vm.state == "present"]
    for vm in present:
        if not Path(vm.public_key).expanduser().exists():
            raise UserError(
                f"{vm.name}: {vm.public_key} does not exist; make a key with ssh-keygen, or name the public half "
                "of yours in vmtoll_public_key"
            )
    fetched = _fetched_images(data, inventory)
    copied_to = [vm for vm in present if vm.kvm_host not in fetched]
    if copied_to and os.geteuid() != 0:
        raise UserError(f"{inventory}: the image of {copied_to[0].name} needs root; run vmtoll as root or with sudo")
    rates_khz = _check_needs(present, inventory) if present else {}
    images: dict[str, list[dict[str, Any]]] = {
        host: [{**fetched[host], "files": image.files_for(_of_one_image(host, present, release))}]
        for host in _kvm_hosts(present)
        if host in fetched
    }
    built = {each: image.ensure(say, each, kernels) for each, kernels in _images_of(copied_to, release).items()}
    for host in _kvm_hosts(copied_to):
        its = _images_of((vm for vm in copied_to if vm.kvm_host == host), release)
        images[host] = [{"source": str(built[each]), "files": image.files(built[each])} for each in its]
    folders = {"" if each == release else each.suite: folder.name for each, folder in built.items()}
    if release in built:
        folders[release.suite] = folders[""]
    lists = {
        host: [
            role_entry(vm, tsc_khz=rates_khz.get(host), images=folders if len(images.get(host, ())) > 1 else NO_IMAGES)
            for vm in guests
            if vm.kvm_host == host
        ]
        for host in _kvm_hosts(guests)
    }
    variables: dict[str, object] = {"kvm_guest_lists": lists, "kvm_guest_images": images}
    if present:
        variables |= {
            "kvm_guest_host_key": str(host_key()),
            "kvm_guest_emulator": list(here().qemu),
            "kvm_guest_console_program": console.__file__,
        }
    if guests:
        pattern = ",".join([*lists, *(vm.name for vm in present)])
        with watching(data, inventory) as watch:
            play(
                "guests.yml", "-e", json.dumps(variables), "--limit", pattern, *options,
                inventory=inventory, quiet=quiet, changes=changes, watch=watch,
            )  # fmt: skip
    return [vm.name for vm in guests if vm.state == "absent"]


@contextmanager
def watching(data: Mapping[str, Any], inventory: Path) -> Iterator[Callable[[], str]]:
    """Watch the guests that vmtoll makes; yields what stops one whose kernel has panicked, and says so (Watch.look)."""
    by_role = hosts_by_role(data, str(inventory))
    hosts = {host.name: host for host in by_role["kvm_host"]}
    guests = [host for host in by_role["kvm_guest"] if host.vars.profile and host.vars.kvm_host in hosts]
    watch = Watch({each.name: (each, hosts[each.vars.kvm_host]) for each in guests if each.vars.kvm_host})
    try:
        yield watch.look
    finally:
        watch.close()


def _of_one_image(host: str, guests: Sequence[Guest], release: Release) -> list[str]:
    """The packages of further kernels in the image that a host fetches. Raises UserError for guests of two releases."""
    images = _images_of((vm for vm in guests if vm.kvm_host == host), release)
    if len(images) > 1:
        releases = " and ".join(each.name for each in images)
        raise UserError(
            f"{host}: vmtoll_image_url is one image, and its guests have {releases}; leave the URL out, and vmtoll "
            "copies both"
        )
    return next(iter(images.values()))


def _fetched_images(data: Mapping[str, Any], inventory: Path) -> dict[str, dict[str, str]]:
    """KVM host → `url` and `sha256` of the image that it fetches by itself. Raises InventoryError for one without the
    other.
    """
    images: dict[str, dict[str, str]] = {}
    for host in hosts_by_role(data, str(inventory))["kvm_host"]:
        url, digest = host.vars.image_url, host.vars.image_sha256
        if url and not digest:
            raise InventoryError(
                f"{inventory}: {host.name}: vmtoll_image_url needs vmtoll_image_sha256, which `vmtoll lab image "
                "--output` prints"
            )
        if digest and not url:
            raise InventoryError(f"{inventory}: {host.name}: vmtoll_image_sha256 needs vmtoll_image_url")
        if url and digest:
            images[host.name] = {"url": url, "sha256": digest}
    return images


def _kvm_hosts(guests: Sequence[Guest]) -> list[str]:
    return list(dict.fromkeys(vm.kvm_host for vm in guests))


def _check_needs(guests: Sequence[Guest], inventory: Path) -> dict[str, int | None]:
    """The rate of each KVM host's time stamp counter, in kHz. Raises UserError naming everything that they lack."""
    missing: list[str] = []
    rates_khz: dict[str, int | None] = {}
    with tempfile.TemporaryDirectory(prefix="vmtoll-kvm-hosts-") as folder:
        variables = {"kvm_guest_probe": str(needs.PROBE), "kvm_guest_facts_folder": folder}
        hosts = _kvm_hosts(guests)
        play(
            "kvm-hosts.yml", "-e", json.dumps(variables), "--limit", ",".join(hosts), inventory=inventory, quiet=True
        )  # fmt: skip
        for host in hosts:
            report = json.loads((Path(folder) / f"{host}.json").read_text())
            rates_khz[host] = report["facts"]["tsc_khz"]
            if (theirs := report["facts"]["architecture"]) != here().name:
                missing.append(f"{host}: it is {theirs}, and the guests' image is made on this machine, {here().name}")
                continue
            guests_of_host = [vm for vm in guests if vm.kvm_host == host]
            missing += [f"{host}: {lack}" for lack in needs.lacking(guests_of_host, report["facts"], report["running"])]
    if missing:
        raise UserError("; ".join(missing))
    return rates_khz


def host_key() -> Path:
    """The guests' SSH host key, shared by all guests; created on first use."""
    key = STATE / "guests" / "host_key"
    if not key.exists():
        key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vmtoll-guests", "-f", key])
    return key
