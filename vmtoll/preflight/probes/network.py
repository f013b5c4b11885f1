"""Usage: network.py ADDRESS — prints how this machine reaches an IPv4 address: interface, MTU, router, neighbour."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_DISCARD = 9
_COMPLETE = 0x2
_PATIENCE_S = 2.0


def own_address(remote: str) -> str:
    """The address that this machine sends from; the packet makes the kernel look up the neighbour's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((remote, _DISCARD))
        with contextlib.suppress(OSError):
            probe.send(b"")
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """The interface that has this address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    raise OSError(f"no interface has {address}")


def gateway(remote: str, interface: str) -> str | None:
    """The router on the way; None when the address is on the interface's own network."""
    destination, best = struct.unpack("=I", socket.inet_aton(remote))[0], (-1, 0)
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        name, network, router, _, _, _, _, mask = line.split()[:8]
        if name == interface and destination & int(mask, 16) == int(network, 16):
            best = max(best, (bin(int(mask, 16)).count("1"), int(router, 16)))
    return socket.inet_ntoa(struct.pack("=I", best[1])) if best[1] else None


def neighbour(remote: str) -> str | None:
    """The hardware address that answers for this IP address; None when none does in time."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for line in Path("/proc/net/arp").read_text().splitlines()[1:]:
            address, _, flags, mac = line.split()[:4]
            if address == remote and int(flags, 16) & _COMPLETE:
                return mac
        own_address(remote)
        time.sleep(0.05)
    return None


def describe_route(name: str) -> dict[str, Any]:
    """The route to a machine, by its name or address."""
    try:
        remote = socket.gethostbyname(name)
        address = own_address(remote)
        interface = interface_of(address)
        folder = Path("/sys/class/net") / interface
        router = gateway(remote, interface)
        own_mac = (folder / "address").read_text().strip()
        mac = own_mac if address == remote else None if router else neighbour(remote)
        error = f"no machine answers at {remote}" if not router and not mac else ""
    except OSError as problem:
        return {"error": str(problem)}
    try:
        speed_mbit = int((folder / "speed").read_text()) if (folder / "device").exists() else -1
    except (OSError, ValueError):
        speed_mbit = -1
    return {
        "error": error,
        "remote": remote,
        "address": address,
        "interface": interface,
        "mtu": int((folder / "mtu").read_text()),
        "mac": own_mac,
        "speed_mbit": speed_mbit if speed_mbit > 0 else None,
        "on_link": router is None,
        "gateway": router,
        "neighbour": mac,
    }


print(json.dumps(describe_route(sys.argv[1])))
