"""Every guest profile that there is, as a libvirt domain for KVM and for emulation."""

import itertools
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from vmtoll.guests import profiles
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import ACCELERATORS
from vmtoll.model.architecture import AARCH64, ARCHITECTURES, Architecture
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.paths import VM_IMAGES

FILES = Files(
    "/i/vmlinuz", "/i/initrd.img", "/g/one.qcow2", "/g/one.log", {"ssh.authorized_keys.root": "a2V5Cg=="},
    {"vmtoll.ssh_host_key": "/g/one.host_key"},
)  # fmt: skip
TOGGLES = {"kvm-multiqueue", "kvm-pinned", "kvm-hugepages", "kvm-halt-poll"}


def guest(profile: str, accelerator: GuestAccelerator = "kvm", **fields: object) -> Guest:
    given = {"cpus": "2-5", "emulator_cpus": "6,7", "uplink": "eth9", "vf": "0000:3b:02.1", **fields}
    return Guest.model_validate({"name": "one", "profile": profile, "accelerator": accelerator, **given})


def domain(profile: str, accelerator: GuestAccelerator = "kvm", **fields: object) -> ET.Element:
    return ET.fromstring(render(profiles.load(profile), guest(profile, accelerator, **fields), FILES))


def attributes(tree: ET.Element, path: str) -> dict[str, str]:
    element = tree.find(path)
    return {} if element is None else element.attrib


@pytest.mark.skipif(not shutil.which("virt-xml-validate"), reason="libvirt-clients is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("profile", profiles.names())
def test_it_is_a_domain_by_libvirts_schema(
    profile: str, accelerator: GuestAccelerator, architecture: Architecture, tmp_path: Path
) -> None:
    file = tmp_path / "domain.xml"
    file.write_text(render(profiles.load(profile), guest(profile, accelerator), FILES, architecture=architecture))
    done = subprocess.run(["virt-xml-validate", file, "domain"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert attributes(ET.parse(file).getroot(), ".")["type"] == {"kvm": "kvm", "tcg": "qemu"}[accelerator]
    assert profiles.load(profile).description


@pytest.mark.skipif(not shutil.which("virt-xml-validate"), reason="libvirt-clients is not installed")
def test_the_schema_rejects_text_that_is_no_domain(tmp_path: Path) -> None:
    file = tmp_path / "domain.xml"
    file.write_text(render(profiles.load("kvm-default"), guest("kvm-default"), FILES).replace("<disk ", "<dsik ", 1))
    assert subprocess.run(["virt-xml-validate", file, "domain"], capture_output=True, check=False).returncode != 0


def test_the_template_is_a_straight_line() -> None:
    assert "{% if" not in (VM_IMAGES / "domain.xml.j2").read_text()


def test_a_guest_of_2009_has_the_hardware_of_2009() -> None:
    for accelerator, cpu in (("kvm", "kvm64"), ("tcg", "qemu64")):
        tree = domain("kvm-2009", accelerator)  # type: ignore[arg-type]
        assert tree.findtext("cpu/model") == cpu
        assert attributes(tree, "devices/interface/model") == {"type": "e1000"}
        assert attributes(tree, "devices/disk/target")["bus"] == "ide"
        assert attributes(tree, "os/type")["machine"] == "pc"


def test_vhost_carries_packets_unless_emulated_or_disabled_by_the_profile() -> None:
    def backend(profile: str, accelerator: GuestAccelerator) -> str:
        return attributes(domain(profile, accelerator), "devices/interface/driver")["name"]

    assert backend("kvm-default", "kvm") == "vhost"
    assert {backend("kvm-default", "tcg"), backend("kvm-virtio-nvhost", "kvm")} == {"qemu"}


def test_only_pinning_gives_a_virtual_cpu_a_dedicated_cpu() -> None:
    def pins(profile: str) -> list[str]:
        return [element.attrib["cpuset"] for element in domain(profile).findall("cputune/*")]

    assert pins("kvm-default") == ["2-5"] * 5
    assert pins("kvm-pinned") == ["2", "3", "4", "5", "6,7"]
    shared = domain("kvm-pinned", emulator_cpus="")
    assert attributes(shared, "cputune/emulatorpin") == {"cpuset": "2-5"}


def test_one_queue_per_virtual_cpu() -> None:
    assert attributes(domain("kvm-default"), "devices/interface/driver")["queues"] == "1"
    assert attributes(domain("kvm-multiqueue"), "devices/interface/driver")["queues"] == "4"
    assert attributes(domain("kvm-multiqueue", vcpus=2), "devices/interface/driver")["queues"] == "2"


def test_each_tuning_step_adds_one_toggle() -> None:
    steps = ("kvm-default", "kvm-step-multiqueue", "kvm-step-pinned", "kvm-step-hugepages", "kvm-tuned")
    values = [dict(profiles.load(name).values) for name in steps]
    changed = [{key for key in after if after[key] != before[key]} for before, after in itertools.pairwise(values)]
    assert changed == [{"nic_queues"}, {"cputune", "needs"}, {"memory_backing", "needs"}, {"cmdline"}]
    for name in TOGGLES:
        alone, base = profiles.load(name).values, values[0]
        assert all(values[-1][key] == alone[key] for key in alone if alone[key] != base[key] and key != "needs"), name
    assert set(values[-1]["needs"]) == {need for name in TOGGLES for need in profiles.load(name).needs}


def test_a_virtual_function_is_handed_over_by_its_address() -> None:
    address = attributes(domain("kvm-sriov"), "devices/interface/source/address")
    assert address == {"type": "pci", "domain": "0x0000", "bus": "0x3b", "slot": "0x02", "function": "0x1"}
    with pytest.raises(UserError, match=r"one: .* kvm-sriov "):
        domain("kvm-sriov", vf="")


def test_memory_of_the_inventory_overrides_the_profiles() -> None:
    assert domain("kvm-default").findtext("memory") == "1024"
    assert domain("kvm-default", memory_mib=4096).findtext("memory") == "4096"


def test_the_kernel_command_line_identifies_the_guest() -> None:
    words = (
        domain("kvm-default", address="198.18.0.30", prefix=15, gateway="198.18.0.1").findtext("os/cmdline") or ""
    ).split()
    assert "ip=198.18.0.30::198.18.0.1:255.254.0.0:one:eth0:off" in words
    assert {"root=LABEL=vmtoll", "systemd.hostname=one"} <= set(words)
    assert "ip=eth0:dhcp" in (domain("kvm-default").findtext("os/cmdline") or "").split()


def test_virtual_cpus_poll_with_kvm_only() -> None:
    told = {
        accelerator: domain("kvm-halt-poll", accelerator).findtext("os/cmdline") or "" for accelerator in ACCELERATORS
    }
    assert told["kvm"].split()[-1] == "idle=poll"
    assert "idle=poll" not in told["tcg"]


def test_an_emulated_kernel_is_told_the_rate_of_its_clock() -> None:
    told = {
        kind: (
            ET.fromstring(
                render(profiles.load("kvm-default"), guest("kvm-default", kind), FILES, tsc_khz=2_596_000)
            ).findtext("os/cmdline")
            or ""
        ).split()
        for kind in ACCELERATORS
    }
    assert "tsc_early_khz=2596000" in told["tcg"]
    assert not [word for word in told["kvm"] if word.startswith("tsc")]


def test_an_emulated_kernel_keeps_the_only_clock_that_does_not_wrap() -> None:
    told = {kind: domain("kvm-default", kind).findtext("os/cmdline") or "" for kind in ACCELERATORS}
    assert "tsc=reliable" in told["tcg"].split()
    assert told["kvm"].split() == [word for word in told["tcg"].split() if word != "tsc=reliable"]


def test_a_guest_has_the_hardware_of_its_hosts_architecture() -> None:
    text = render(profiles.load("kvm-tuned"), guest("kvm-tuned"), FILES, architecture=AARCH64)
    tree = ET.fromstring(text)
    assert attributes(tree, "os/type") == {"arch": "aarch64", "machine": "virt"}
    assert attributes(tree, "os") == {"firmware": "efi"}, "without UEFI libvirt refuses ACPI there"
    assert tree.findtext("devices/emulator") == "/usr/bin/qemu-system-aarch64"
    assert {"console=ttyAMA0", "nohlt"} <= set((tree.findtext("os/cmdline") or "").split())
    assert "hpet" not in text and "idle=poll" not in text


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of profiles to spoil: defaults, and the profile kvm-default."""
    (tmp_path / "guests").mkdir()
    for file in ("defaults.yml", "domain.xml.j2", "guests/kvm-default.yml"):
        shutil.copy(VM_IMAGES / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nic_quues: 2\n", r"new.yml: unknown key 'nic_quues' \(did you mean 'nic_queues'\?\)"),
        ("of: [kvm-defualt]\n", r"new.yml: of: unknown guest profile 'kvm-defualt' \(did you mean 'kvm-default'\?\)"),
        ("of: [new]\n", r"new.yml: of: unknown guest profile 'new'"),
        ("cpu: {kvm: a}\n", r"new.yml: cpu: a value, or for some keys a mapping with the keys kvm and tcg"),
        ("needs: hugepages\n", r"new.yml: needs: 'hugepages' is not a list of texts"),
        ("machine: 35\n", r"new.yml: machine: 35 is not a text"),
        ("of: [kvm-default, other]\n", r"new.yml: nic_backend: the profiles that it is made of disagree; say it here"),
        ("- a\n", r"new.yml: must be a mapping"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(images: Path, text: str, said: str) -> None:
    (images / "guests/other.yml").write_text("description: another\nnic_backend: qemu\n")
    (images / "guests/new.yml").write_text(text)
    with pytest.raises(Exception, match=said):
        profiles.load("new", images)


def test_a_new_profile_is_one_file(images: Path) -> None:
    (images / "guests/new.yml").write_text("description: a guest\nof: [kvm-default]\nmemory_mib: 2048\n")
    text = render(profiles.load("new", images), guest("new"), FILES, images)
    assert ET.fromstring(text).findtext("memory") == "2048"
    assert ET.fromstring(text).findtext("description") == "vmtoll guest profile new: a guest"
