"""The network cards of a QEMU command line."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from vmtoll.hypervisors.command_line import CommandLine, Option
from vmtoll.hypervisors.elements import add, driver

# QEMU's backends → libvirt's types of an interface. A tap is a device of the host, made by QEMU or before it.
_TYPES = {"tap": "ethernet", "bridge": "bridge", "user": "user", "vhost-user": "vhostuser", "vhost-vdpa": "vdpa",
          "stream": "user", "passt": "user"}  # fmt: skip
_CARDS = ("virtio-net", "e1000", "rtl8139", "vmxnet3", "ne2k", "pcnet", "i82", "tulip", "igb", "usb-net")
_OFFLOADS = ("csum", "gso", "tso4", "tso6", "ecn", "ufo", "mrg_rxbuf")
_FIRST_MAC = 0x525400123456
# With any of these options, QEMU makes no default network.
NETWORK = ("netdev", "nic", "net")


@dataclass(frozen=True)
class Card:
    """A network card: its MAC address, its element of a definition, the options that make it, the backend first."""

    mac: str
    element: ET.Element
    options: tuple[Option, ...]


def cards(line: CommandLine) -> Iterator[Card]:
    """Yield option card; without its own MAC address it has the default of the n-th card."""
    for number, (backend, device, options) in enumerate(_pairs(line)):
        mac = device.get("mac", "macaddr") or mac_of(number)
        yield Card(mac, element(mac, backend, device), tuple(options))


def mac_of(number: int) -> str:
    """QEMU's default MAC address of the n-th card."""
    return (_FIRST_MAC + number).to_bytes(6, "big").hex(":")


def _pairs(line: CommandLine) -> Iterator[tuple[Option, Option, list[Option]]]:
    """Yield backend, card and the options that make them. -nic and the default network are both in one."""
    backends = {option.get("id"): option for option in line.all("netdev")}
    machine = line.merged("machine").get("type")
    default_model = "e1000e" if "q35" in machine else "e1000"
    for device in line.all("device"):
        if device.get("driver").startswith(_CARDS):
            backend = backends.get(device.get("netdev"))
            yield backend or Option("netdev"), device, [*([backend] if backend else []), device]
    for option in line.all("nic"):
        if option.get("type") != "none":
            yield option, option.with_values({"driver": option.get("model", default=default_model)}), [option]
    legacy_backends = [option for option in line.all("net") if option.get("type") not in ("nic", "none")]
    for option in line.all("net"):
        if option.get("type") == "nic":
            model = option.get("model", default=default_model)
            yield (
                (legacy_backends or [Option("net")])[0],
                option.with_values({"driver": model}),
                [*legacy_backends[:1], option],
            )
    if not line.has(*NETWORK, "nodefaults") and (not machine or machine.startswith(("pc", "q35"))):
        yield Option("nic", "", {"type": "user"}), Option("nic", "", {"driver": default_model}), []


def element(mac: str, backend: Option, device: Option) -> ET.Element:
    """The element of a definition."""
    kind, model = backend.get("type"), device.get("driver", "model")
    is_virtio = model.startswith("virtio")
    card = ET.Element("interface", type=_TYPES.get(kind, kind))
    add(card, "mac", address=mac)
    add(card, "model", type="virtio" if is_virtio else model)
    if kind == "passt" or (kind == "stream" and "passt" in backend.text):
        add(card, "backend", type="passt")
    if is_virtio:
        switches = driver(device)
        if kind == "tap":
            switches["name"] = "vhost" if _has_vhost(backend) else "qemu"
        if device.get("tx") == "timer":
            switches["txmode"] = "timer"
        driver_element = add(card, "driver", queues=str(queues(backend, device)), **switches)
        _offloads(driver_element, device)
    return card


def _has_vhost(backend: Option) -> bool:
    return backend.is_on("vhost") or bool(backend.get("vhostfd", "vhostfds")) or backend.is_on("vhostforce")


def queues(backend: Option, device: Option) -> int:
    """Number of queue pairs that the guest can use: the backend's, if the card has several too."""
    count = int(backend.get("queues") or len([fd for fd in backend.get("fds").split(":") if fd]) or 1)
    return count if device.is_on("mq") else 1


def _offloads(driver_element: ET.Element, device: Option) -> None:
    for side in ("host", "guest"):
        names = {name: device.get(f"{side}_{name}") for name in _OFFLOADS}
        if side == "host":  # switches that hold for both sides
            names |= {name: device.get(name) for name in ("csum", "gso", "mrg_rxbuf")}
        off_switches = {name: "off" for name, value in names.items() if value in ("off", "false", "no")}
        if off_switches:
            add(driver_element, side, **off_switches)
