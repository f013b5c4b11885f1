"""A profile by symbol: the host's kallsyms, the guest's modules, the server."""

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from vmtoll.builds.counting import CLIENT_AT
from vmtoll.counting import profile
from vmtoll.counting.profile import (
    Maps,
    Symbols,
    guest_symbols,
    kernel_symbols,
    read_boot,
    read_profile,
    server_symbols,
)

KALLSYMS = (
    "ffffffff81000000 t __pfx_tcp_ack\nffffffff81000010 t tcp_ack\nffffffff81000100 T tcp_sendmsg\n"
    "ffffffffc0200000 t handle_tx\t[vhost_net]\n"
)
CONSOLE = (
    "GUEST virtio_net 4096 0 - Live 0xffffffffc0100000\r\n"
    "GUEST failover 4096 1 net_failover, Live 0xffffffffc0000000\r\n"
)


SERVER = Symbols.of([(0x400000, "main (server)"), (0x400100, "send_text (server)")])
MAPS = Maps((Symbols.of(kernel_symbols(KALLSYMS)), Symbols.of(guest_symbols(KALLSYMS, CONSOLE))), SERVER)
PROFILE = (
    "0 ffffffff81000010 5\n0 ffffffff810000f0 7\n0 ffffffffc0200020 11\n0 400110 13\n"
    f"0 {CLIENT_AT[0]:x} 31\n0 7f0000000000 37\n"
    "1 ffffffff81000120 17\n1 ffffffffc0100040 19\n1 ffffffffc0000000 23\n1 ffffffffc0101000 29\n1 400000 41\n"
)
FOUND = {
    ("host", "tcp_ack"): 12, ("host", "handle_tx [vhost_net]"): 11, ("host", "send_text (server)"): 13,
    ("host", "client"): 31, ("host", "other user code"): 37, ("guest", "tcp_sendmsg"): 17,
    ("guest", "[virtio_net]"): 19, ("guest", "[failover]"): 23, ("guest", "unknown"): 29,
    ("guest", "main (server)"): 41,
}  # fmt: skip


def test_instructions_belong_to_the_symbol_of_their_level() -> None:
    assert read_profile(PROFILE, MAPS) == FOUND


def test_what_lies_before_every_symbol_is_unknown() -> None:
    assert read_profile("0 ffffffff80000000 3\n", MAPS) == {("host", "unknown"): 3}


def test_a_boots_profile_is_the_sum_of_its_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "server_symbols", lambda _: zip(SERVER.addresses, SERVER.names, strict=True))
    with tarfile.open(tmp_path / "job.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("lighttz"), io.BytesIO())
    (tmp_path / "console.log").write_text(CONSOLE)
    (tmp_path / "symbols").write_bytes(gzip.compress(KALLSYMS.encode()).ljust(1 << 16, b"\0"))  # a disk
    for number in (3, 4):
        (tmp_path / f"profile.{number}").write_text(PROFILE)
    assert read_boot(tmp_path)(range(3, 5)) == {key: 2 * number for key, number in FOUND.items()}


def test_the_servers_functions_are_named(tmp_path: Path) -> None:
    words = ["gcc", "-no-pie", "-x", "c", "-", "-o", str(tmp_path / "program")]
    subprocess.run(
        words,
        input="static int kept; int spin(void) { return kept; } int main(void) { return spin(); }",
        text=True,
        check=True,
    )
    names = {name: address for address, name in server_symbols((tmp_path / "program").read_bytes())}
    assert {"main (server)", "spin (server)"} <= set(names)
    assert "kept (server)" not in names
    assert 0x400000 <= names["spin (server)"] < names["main (server)"]
