"""A profile by symbol: the host's kallsyms, the guest's modules."""

from vmtoll.counting.profile import Symbols, guest_symbols, kernel_symbols, read_profile

KALLSYMS = (
    "ffffffff81000000 t __pfx_tcp_ack\nffffffff81000010 t tcp_ack\nffffffff81000100 T tcp_sendmsg\n"
    "ffffffffc0200000 t handle_tx\t[vhost_net]\n"
)
CONSOLE = (
    "GUEST virtio_net 4096 0 - Live 0xffffffffc0100000\r\n"
    "GUEST failover 4096 1 net_failover, Live 0xffffffffc0000000\r\n"
)


def test_instructions_belong_to_the_symbol_of_their_level() -> None:
    host, guest = Symbols.of(kernel_symbols(KALLSYMS)), Symbols.of(guest_symbols(KALLSYMS, CONSOLE))
    found = read_profile(
        "0 ffffffff81000010 5\n0 ffffffff810000f0 7\n0 ffffffffc0200020 11\n0 400000 13\n"
        "1 ffffffff81000120 17\n1 ffffffffc0100040 19\n1 ffffffffc0000000 23\n1 ffffffffc0101000 29\n",
        host,
        guest,
    )
    assert found == {
        ("host", "tcp_ack"): 12, ("host", "handle_tx [vhost_net]"): 11, ("host", "user code"): 13,
        ("guest", "tcp_sendmsg"): 17, ("guest", "[virtio_net]"): 19, ("guest", "[failover]"): 23,
        ("guest", "unknown"): 29,
    }  # fmt: skip


def test_what_lies_before_every_symbol_is_unknown() -> None:
    host = Symbols.of(kernel_symbols(KALLSYMS))
    assert read_profile("0 ffffffff80000000 3\n", host, host) == {("host", "unknown"): 3}
