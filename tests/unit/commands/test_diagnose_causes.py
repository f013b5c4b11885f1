"""What diagnose advises where virsh fails, by libvirt's own words."""

import pytest

from vmtoll.commands.diagnose import _way_out

SOCKET = "failed to connect socket to '/var/run/libvirt/libvirt-sock'"


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (f"{SOCKET}: No such file or directory", "start libvirtd"),
        (f"{SOCKET}: Connection refused", "start libvirtd"),
        (f"{SOCKET}: Permission denied", "group libvirt"),
        ("authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.monitor'",
         "group libvirt"),
        ("virsh: No such file or directory", "install libvirt-clients"),
        ("Cannot recv data: ssh: Could not resolve hostname kvm9: Connection reset by peer", "correct that, or give"),
        ("no connection driver available for foo:///x", "correct that, or give another --connect"),
    ],
)  # fmt: skip
def test_advice_follows_the_cause(cause: str, advice: str) -> None:
    assert advice in _way_out(cause)
