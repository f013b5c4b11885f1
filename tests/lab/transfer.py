"""Send bytes over connections that begin at once: `transfer.py PORT CONNECTIONS BYTES` on the sender waits for them,
`transfer.py ADDRESS PORT CONNECTIONS BYTES` opens them. The sender prints what TCP says of them (getsockopt, as `ss`).
"""

import json
import select
import socket
import struct
import sys
import time

RTT, RETRANSMITTED = 68, 100  # offsets in struct tcp_info, both u32


def tcp_info(connection: socket.socket) -> tuple[int, int]:
    """Smoothed round-trip time in µs, and segments sent again."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return struct.unpack_from("=I", info, RTT)[0], struct.unpack_from("=I", info, RETRANSMITTED)[0]


def send(port: int, connections: int, size: int) -> dict[str, float]:
    """Send `size` bytes over each of the next connections; return round trip, segments sent again, rate."""
    with socket.create_server(("", port), backlog=connections) as server:
        print("waiting", flush=True)
        accepted = [server.accept()[0] for _ in range(connections)]
    began, longest_rtt_us, data = time.monotonic(), 0, bytes(1 << 16)
    left = dict.fromkeys(accepted, size)
    for connection in accepted:
        connection.setblocking(False)
    while left:
        ready, writable, _ = select.select(left, [connection for connection in left if left[connection]], [], 0.01)
        for connection in writable:
            left[connection] -= connection.send(data[: left[connection]])
        longest_rtt_us = max(longest_rtt_us, *(tcp_info(connection)[0] for connection in left))
        for connection in ready:  # its receiver has all, and closed
            del left[connection]
    seconds = time.monotonic() - began
    again = sum(tcp_info(connection)[1] for connection in accepted)
    mbit = connections * size * 8 / seconds / 1e6
    return {"longest_rtt_ms": longest_rtt_us / 1e3, "sent_again": again, "mbit_per_s": mbit}


def receive(address: str, port: int, connections: int, size: int) -> None:
    """Open the connections and read until each has `size` bytes."""
    left = {socket.create_connection((address, port)): size for _ in range(connections)}
    while left:
        for connection in select.select(left, [], [])[0]:
            left[connection] -= len(connection.recv(1 << 16))
            if not left[connection]:
                connection.close()
                del left[connection]


if __name__ == "__main__":
    *address, port, connections, size = sys.argv[1:]
    if address:
        receive(address[0], int(port), int(connections), int(size))
    else:
        print(json.dumps(send(int(port), int(connections), int(size))))
