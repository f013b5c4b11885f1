"""A real TLS handshake with a server, and what both sides agreed on."""

from __future__ import annotations

import hashlib
import socket
import ssl

from vmtoll.agent.machine import read
from vmtoll.agent.protocol import Handshake

# Bytes that make a server answer: reading the answer also reads the session tickets sent with it.
_FIRST_WORDS = {
    "http/1.1": b"HEAD / HTTP/1.1\r\nHost: vmtoll\r\n\r\n",
    "h2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"),  # an empty SETTINGS frame
}
_LIMIT_S = 5.0


def tls_context() -> ssl.SSLContext:
    """TLS context of a client that accepts the lab's certificate, which no authority has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def handshake(host: str, port: int, alpn: str) -> Handshake:
    """Connect, and again with the first session; return what was agreed on. Raises OSError without an answer."""
    client = tls_context()
    client.set_alpn_protocols([alpn])
    parameters, session = _connect(client, host, port, alpn, None)
    second_parameters, _ = _connect(client, host, port, alpn, session)
    return {**parameters, "resumption": second_parameters["resumption"]}


def _connect(
    client: ssl.SSLContext, host: str, port: int, alpn: str, session: ssl.SSLSession | None
) -> tuple[Handshake, ssl.SSLSession | None]:
    with client.wrap_socket(socket.create_connection((host, port), timeout=_LIMIT_S), session=session) as secure:
        secure.sendall(_FIRST_WORDS[alpn])
        secure.recv(1)
        cipher = secure.cipher()
        parameters: Handshake = {
            "protocol": str(secure.version()),
            "cipher": cipher[0] if cipher else "none",
            "alpn": secure.selected_alpn_protocol() or "none",
            "certificate_sha256": hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest(),
            "resumption": bool(secure.session_reused),
        }
        return parameters, secure.session


def kernel_sessions() -> int | None:
    """Number of TLS sessions that the kernel has encrypted since it booted; None if it cannot encrypt."""
    counts = dict(line.split() for line in read("/proc/net/tls_stat").splitlines())
    return int(counts["TlsTxSw"]) + int(counts.get("TlsTxDevice", 0)) if "TlsTxSw" in counts else None
