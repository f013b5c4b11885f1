"""Transport of requests: plain TCP or TLS 1.3, HTTP/1.1 or HTTP/2; the same for all servers of a lab."""

from dataclasses import dataclass
from typing import Literal

HttpVersion = Literal["1.1", "2"]

# The configuration of every server; a server that cannot be configured must negotiate the same with any client.
PROTOCOL = "TLSv1.3"
CIPHER = "TLS_AES_128_GCM_SHA256"
GROUP = "X25519"

# HTTP version → the protocol that a client asks for by ALPN (RFC 7301).
ALPN: dict[HttpVersion, str] = {"1.1": "http/1.1", "2": "h2"}


def tls_port(http_port: int, *, resumption: bool) -> int:
    """Return the TLS port of a server: plain port + 1 without session tickets, + 2 with them (resumption)."""
    return http_port + (2 if resumption else 1)


@dataclass(frozen=True)
class Transport:
    """Transport of a workload's requests."""

    tls: bool = False
    http: HttpVersion = "1.1"
    resumption: bool = False  # each new connection resumes the session of an earlier one

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def name(self) -> str:
        """Name of the transport in the facts of a machine."""
        return f"HTTP/{self.http}" + (" resumed" if self.resumption else "")

    @property
    def alpn(self) -> str:
        return ALPN[self.http]

    def port(self, http_port: int) -> int:
        """The port of a server whose plain port is `http_port`."""
        return tls_port(http_port, resumption=self.resumption) if self.tls else http_port
