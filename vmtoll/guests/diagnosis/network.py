"""Network cards: who carries the packets, which card the guest sees, and the switches of its fast path."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from vmtoll.guests.diagnosis.definition import attribute, cards, disks, is_kvm, put, shown, vcpus, virtio_cards
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

_MOST_QUEUES = 256  # MAX_TAP_QUEUES in the kernel's drivers/net/tap.c and tun.c
# Where vhost can carry the packets: a card that is a tap or macvtap device of the host.
_OF_THE_HOST = ("bridge", "network", "direct", "ethernet")
PASST = "passt"
_OF_A_PROCESS = ("backend", "source", "ip", "driver", "portForward")  # not allowed in a card on a bridge


def kind_of(card: ET.Element) -> str:
    """The type of a card's network, with the program behind it, if any: `user (passt)`."""
    kind = card.get("type", "")
    return f"{kind} ({PASST})" if _is_passt(card) else kind


def _is_passt(card: ET.Element) -> bool:
    return attribute(card, "backend", "type") == PASST


def backend(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Packets of the type `user` pass through a TCP stack in a process, QEMU's or passt's."""
    for card, path, mac in cards(domain):
        lacking = card.get("type") == "user" or _is_passt(card)
        if not lacking:
            yield Step(Tuning.NETWORK, State.TAKEN, mac, kind_of(card))
            continue
        bridges = facts.get("bridges", ["br0"])
        changes = [Edit(f"{path}/{part.tag}") for part in card if part.tag in _OF_A_PROCESS]
        changes += [Edit(f"{path}/@type", "bridge"), Edit(f"{path}/source/@bridge", (bridges or [""])[0])]
        taken = tuple(changes) if bridges else ()
        xml = shown(domain, taken) if taken else ""
        host = {"bridges": len(bridges)}
        yield Step(Tuning.NETWORK, State.LACKING, mac, kind_of(card), xml, host, taken)


def card_model(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    for card, path, mac in cards(domain):
        model = attribute(card, "model", "type") or "rtl8139"  # QEMU's choice where none is asked for
        if card.get("type") == "hostdev":
            yield Step(Tuning.CARD, State.INAPPLICABLE, mac, "hostdev")
        elif model.startswith("virtio"):
            yield Step(Tuning.CARD, State.TAKEN, mac, model)
        else:
            changes = put(f"{path}/model", {"type": "virtio"})
            yield Step(Tuning.CARD, State.LACKING, mac, model, shown(domain, changes), changes=changes)


def vhost(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Judge by the definition; if that leaves it to libvirt, by the running guest's threads, else by the host."""
    for card, path, mac in virtio_cards(domain):
        driver = attribute(card, "driver", "name")
        if not is_kvm(domain) or card.get("type") not in _OF_THE_HOST:
            yield Step(Tuning.VHOST, State.INAPPLICABLE, mac, driver or kind_of(card))
            continue
        threads = facts.get("vhost_threads")
        if driver == "vhost":
            state = State.TAKEN
        elif driver:
            state = State.LACKING
        elif threads is not None:
            state = State.TAKEN if threads else State.LACKING
        else:  # libvirt takes vhost where it can
            state = State.UNKNOWN if facts["vhost_net"] else State.LACKING
        changes = put(f"{path}/driver", {"name": "vhost"}) if state is State.LACKING else ()
        current = driver or {State.TAKEN: "vhost", State.LACKING: "qemu"}.get(state, "")
        host = {"vhost_net": int(facts["vhost_net"])}
        yield Step(Tuning.VHOST, state, mac, current, shown(domain, changes), host, changes)


def iommu(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Devices behind a virtual IOMMU: each of their accesses to the guest's memory is looked up, vhost's in QEMU."""
    needed = domain.find("launchSecurity") is not None
    for element, path, name in _virtio_devices(domain):
        behind = attribute(element, "driver", "iommu") == "on"
        if behind and not needed:
            names = [n for n in ("iommu", "ats") if attribute(element, "driver", n)]
            changes = tuple(Edit(f"{path}/driver/@{n}") for n in names)
            yield Step(Tuning.IOMMU, State.LACKING, name, "iommu='on'", changes=changes)
        else:
            yield Step(Tuning.IOMMU, State.INAPPLICABLE if behind else State.TAKEN, name)


def notifications(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """How guest and host notify each other of work: by an event of the kernel, and only if the other side waits."""
    for element, path, name in _virtio_devices(domain):
        slow = {"ioeventfd": "off", "event_idx": "off", "txmode": "timer"}
        found = {n: value for n, value in slow.items() if attribute(element, "driver", n) == value}
        changes = tuple(Edit(f"{path}/driver/@{n}") for n in found)
        state = State.LACKING if found else State.TAKEN
        yield Step(Tuning.NOTIFICATIONS, state, name, " ".join(f"{n}='{v}'" for n, v in found.items()), changes=changes)


def offloads(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Checksums and large segments: without them each packet of 1.5 kB goes through the whole path by itself."""
    for card, path, mac in virtio_cards(domain):
        off, changes = [], list[Edit]()
        for side in ("host", "guest"):
            element = card.find(f"driver/{side}")
            given = {} if element is None else element.attrib
            names = [name for name, value in given.items() if value == "off"]
            if names:
                off.append(f"{side} {' '.join(names)}")
                whole = len(names) == len(given)
                changes += [Edit(f"{path}/driver/{side}/@{name}") for name in names if not whole]
                changes += [Edit(f"{path}/driver/{side}")] * whole
        state = State.LACKING if off else State.TAKEN
        yield Step(Tuning.OFFLOADS, state, mac, ", ".join(off), changes=tuple(changes))


def multiqueue(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    queues_needed = min(vcpus(domain), _MOST_QUEUES)
    for card, path, mac in virtio_cards(domain):
        queues = int(attribute(card, "driver", "queues") or 1)
        if queues_needed == 1 or card.get("type") == "user" or _is_passt(card):
            yield Step(Tuning.MULTIQUEUE, State.INAPPLICABLE, mac, str(queues))
        elif queues >= queues_needed:
            yield Step(Tuning.MULTIQUEUE, State.TAKEN, mac, str(queues))
        else:
            name = attribute(card, "driver", "name") or ("vhost" if is_kvm(domain) else "qemu")
            given = {} if card.get("type") == "vhostuser" else {"name": name}
            changes = put(f"{path}/driver", {**given, "queues": str(queues_needed)})
            yield Step(Tuning.MULTIQUEUE, State.LACKING, mac, str(queues), shown(domain, changes), changes=changes)


def _virtio_devices(domain: ET.Element) -> Iterator[tuple[ET.Element, str, str]]:
    """virtio's cards and disks, each with its path and name."""
    yield from virtio_cards(domain)
    for disk, path, target in disks(domain):
        if attribute(disk, "target", "bus") == "virtio":
            yield disk, path, target
