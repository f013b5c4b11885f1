"""The one root filesystem of the lab's machines, cached under a key of everything that it depends on."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from vmtoll.builds import archives, servers
from vmtoll.builds.booted_tree import booted
from vmtoll.files import lock, parse_yaml, replacing, write_durably
from vmtoll.model.architecture import here
from vmtoll.model.errors import UserError
from vmtoll.model.release import Release
from vmtoll.paths import CACHE, LAB, PACKAGE, PLAYBOOKS, PROJECT, VM_IMAGES
from vmtoll.shell import play, run

IMAGES = CACHE / "images"
KEPT_IMAGES = 2
DISK = "guest.qcow2"
BOOT_FILES = ("vmlinuz", "initrd.img")
SUMS = "SHA256SUMS"
# systemd copies this ID into an empty /etc/machine-id: all machines of an image would get the same ID, and the same MAC
# address on their bridges, which systemd derives from it.
DBUS_ID = "var/lib/dbus/machine-id"
# Parts of playbooks/ that run around the machines, not in them.
_NOT_IN_IMAGE = {"embedded_lab", "kvm_guest", "host_tuning", "__pycache__"}

Say = Callable[[str], None]


def ensure(say: Say, release: Release, kernels: Collection[str] = ()) -> Path:
    """Build the image of a release from this checkout unless the cache has it; return its folder.

    It holds root/, guest.qcow2, vmlinuz and initrd.img; for each package of `kernels`, also vmlinuz-PACKAGE and
    initrd.img-PACKAGE. Raises UserError for a package that the release does not have.
    """
    with lock("image"):
        variables = archives.variables(servers.Policy(), [release])
        key = image_key(variables, release, kernels)
        folder = IMAGES / key
        if folder.is_dir():
            folder.touch()
            say(f"image {key} is in the cache")
            return folder
        _build(folder, release, variables, sorted(kernels), say)
        _remove_old_images()
        return folder


def files(folder: Path) -> list[str]:
    """The files of an image that a KVM host needs."""
    return sorted(path.name for path in folder.iterdir() if re.match(r"guest\.qcow2$|vmlinuz|initrd\.img", path.name))


def files_for(kernels: Iterable[str]) -> list[str]:
    """The files of an image with these packages of kernels beside its own."""
    return sorted([DISK, *(f"{name}{suffix}" for suffix in _suffixes(kernels) for name in BOOT_FILES)])


def export(folder: Path, output: Path) -> str:
    """Copy the files of an image that a KVM host needs, with their digests in SHA256SUMS, for hosts to fetch by HTTP.

    Returns the SHA-256 of SHA256SUMS, which comes last.
    """
    output.mkdir(parents=True, exist_ok=True)
    lines = list[str]()
    for name in files(folder):
        with replacing(output / name) as draft:
            shutil.copyfile(folder / name, draft)
        with (output / name).open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {name}\n")
    content = "".join(lines).encode()
    write_durably(output / SUMS, content)
    return hashlib.sha256(content).hexdigest()


def _suffixes(kernels: Iterable[str]) -> list[str]:
    """What the names of a kernel's files end with: nothing for the image's own kernel, else its package."""
    return ["", *(f"-{package}" for package in kernels)]


def make_disk(root: Path, disk: Path, size_gib: int, log: Path) -> None:
    """Make a qcow2 disk with an ext4 filesystem of this content, labeled as the kernel's command line names it."""
    raw = disk.with_suffix(".raw")
    run(["mkfs.ext4", "-q", "-d", root, "-L", "vmtoll", raw, f"{size_gib}G"], log=log)
    run(["qemu-img", "convert", "-O", "qcow2", raw, disk], log=log)
    raw.unlink()


def recipe_files(playbooks: Path) -> list[Path]:
    """The files that decide what is in the image, without a linter's cache in the same folder."""
    files = [VM_IMAGES / "image.yml", Path(__file__), playbooks / "image.yml", playbooks / "site.yml"]
    files += [file for folder in ("group_vars", "roles") for file in (playbooks / folder).rglob("*")]
    return sorted(
        file for file in files if file.is_file() and file.suffix != ".md" and not _NOT_IN_IMAGE.intersection(file.parts)
    )


def image_key(variables: archives.ProvisioningVariables, release: Release, kernels: Collection[str] = ()) -> str:
    """Digest of the release, the recipe, its further kernels, and everything that site.yml would do or copy there."""
    digest = hashlib.sha256(f"{release.suite}\n".encode())
    release_servers = variables["web_servers_by_suite"][release.suite]
    for file in recipe_files(PLAYBOOKS):
        name = file.relative_to(PROJECT if file.is_relative_to(PROJECT) else PACKAGE.parent)
        digest.update(f"{name}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    digest.update(Path(release_servers["archive"]).read_bytes())
    digest.update(json.dumps(release_servers["servers"], sort_keys=True).encode())
    for site in variables["site_content_sites"]:
        digest.update(f"{site['name']} {site['digest']}\n".encode())
    digest.update(json.dumps([variables["load_tools_packages"], variables["load_tools_masked_units"]]).encode())
    if kernels:
        digest.update(json.dumps(sorted(kernels)).encode())
    return digest.hexdigest()[:16]


def _build(
    folder: Path, release: Release, variables: archives.ProvisioningVariables, kernels: Sequence[str], say: Say
) -> None:
    recipe = parse_yaml((VM_IMAGES / "image.yml").read_text())
    partial = IMAGES / f".partial-{folder.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    root, log = partial / "root", CACHE / "logs" / f"image-{folder.name}.log"
    log.unlink(missing_ok=True)

    include = ",".join(recipe["include"])
    say(f"image {folder.name}: base system ({release.name}, {release.suite}) by mmdebstrap")
    run(["mmdebstrap", "--variant=minbase", f"--include={include}", release.suite, root], log=log)
    say(f"image {folder.name}: provisioning by playbooks/image.yml and site.yml")
    _provision(partial, root, variables, kernels, release)
    say(f"image {folder.name}: disk of the guest")
    _strip(root)
    for package, suffix in zip([here().kernel, *kernels], _suffixes(kernels), strict=True):
        version = _kernel_version(root, package)
        for name in BOOT_FILES:
            shutil.copyfile(root / f"boot/{name}-{version}", partial / f"{name}{suffix}")
    make_disk(root, partial / DISK, recipe["disk_gib"], log)
    packages = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"])
    (partial / "image.json").write_text(
        json.dumps(
            {
                "key": folder.name,
                "suite": release.suite,
                "packages": dict(line.split() for line in packages.splitlines()),
            },
            indent=1,
        )
    )
    partial.rename(folder)


def _kernel_version(root: Path, package: str) -> str:
    """The version of the kernel that a package installs, itself or by the package that it depends on."""
    if (root / f"boot/vmlinuz-{package.removeprefix('linux-image-')}").exists():
        return package.removeprefix("linux-image-")
    depends = run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Depends}", package])
    if (found := re.search(r"linux-image-(\S+)", depends)) is None:
        raise UserError(f"{package}: is not a kernel package (it depends on {depends or 'nothing'}); correct `kernel`")
    return found[1]


def _provision(
    partial: Path, root: Path, variables: archives.ProvisioningVariables, kernels: Sequence[str], release: Release
) -> None:
    """Boot the tree with this machine's network; run image.yml and site.yml against it over SSH, as on every host.

    The lab's machines get the compiled load tools later (`embedded.equip`), because compiling takes minutes.
    """
    with booted(root, partial, "image", ("lab_machines", "clients", "metal_hosts")) as machine:
        run([*machine.ssh_command, "apt-get", "update", "-q"])
        for kernel in kernels:
            if not run([*machine.ssh_command, "apt-cache", "madison", kernel]).strip():
                raise UserError(
                    f"kernel: {release.name} has no package {kernel}; `apt-cache search ^linux-image` there lists them"
                )
        extra = partial / "variables.json"
        extra.write_text(json.dumps(variables | {"load_tools_binaries": []}))
        packages = json.dumps({"bootable_image_kernels": list(dict.fromkeys([here().kernel, *kernels]))})
        play("image.yml", "-e", packages, inventory=machine.inventory, quiet=True)
        play("site.yml", "-e", f"@{extra}", inventory=machine.inventory, quiet=True)
        run([*machine.ssh_command, "apt-get", "clean"])
    extra.unlink()


def _strip(root: Path) -> None:
    """Remove files that machines must not share or do not need."""
    for pattern in (
        "etc/ssh/ssh_host_*",
        "root/.ssh",
        "var/lib/apt/lists/*",
        "var/log/*",
        "etc/hostname",
        "etc/resolv.conf",
        "etc/apt/apt.conf.d/99mmdebstrap",
        DBUS_ID,
    ):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc/machine-id").write_text("")


def _remove_old_images() -> None:
    folders = [folder for folder in IMAGES.iterdir() if not folder.name.startswith(".")]
    folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    built = LAB / "built.json"
    in_use = Path("/proc/self/mounts").read_text() + (built.read_text() if built.exists() else "")
    for folder in folders[KEPT_IMAGES:]:
        if f"{folder}/" not in in_use and f'"{folder}"' not in in_use:
            shutil.rmtree(folder)
