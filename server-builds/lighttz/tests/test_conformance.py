# ruff: noqa: E501 (a row is a line)
"""The conformance table: one row per rule of RFC 9110 and RFC 9112 that concerns an origin server.

A row is the section, the rule in short, what is sent, and what must come back: statuses, one per
response, and where there is more to it a check of the last response. Each row runs twice: with a client
that shuts its side after the request, and with one that keeps it open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import pytest
from wire import Response, Server

H = "Host: test\r\n"
MODIFIED = "Sun, 06 Nov 1994 08:49:37 GMT"
Check = Callable[[Response], object]


def get(path: str = "/ten.txt", *fields: str, method: str = "GET", version: str = "1.1", host: str = H) -> str:
    return f"{method} {path} HTTP/{version}\r\n{host}" + "".join(f + "\r\n" for f in fields) + "\r\n"


def has(name: str, value: str) -> Check:
    return lambda r: r[name] == value


def body(value: bytes) -> Check:
    return lambda r: r.body == value


def closes(r: Response) -> bool:
    return r["Connection"] == "close"


def stays(r: Response) -> bool:
    return r["Connection"] != "close"


def date_ok(r: Response) -> bool:
    return bool(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", r["Date"])) and bool(
        parsedate_to_datetime(r["Date"])
    )


CHUNKED = "Transfer-Encoding: chunked"
NEXT = get()
TEN = body(b"0123456789")
ALLOW = has("Allow", "GET, HEAD, OPTIONS")

ROWS: list[tuple[str, str, str, list[int], Check | None]] = [
    # Message format and parsing
    ("9112 2.2", "an empty line before the request is ignored", "\r\n" + get(), [200], TEN),
    ("9112 2.2", "a few empty lines before the request are ignored", "\r\n" * 4 + get(), [200], TEN),
    ("9112 2.2", "empty lines without end are no request", "\r\n" * 5 + get(), [400], closes),
    ("9112 2.2", "empty lines alone are nothing", get() + "\r\n\r\n", [200], TEN),
    ("9112 2.2", "an empty line behind the last request is ignored", get() + "\r\n", [200], TEN),
    ("9112 2.2", "an empty line behind a body is ignored", get("/", "Content-Length: 3", method="POST") + "abc\r\n" + NEXT, [405, 200], TEN),
    ("9112 2.2", "a bare LF does not end the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", [400], closes),
    ("9112 2.2", "a bare LF does not end a field line", "GET / HTTP/1.1\r\nHost: a\n\r\n", [400], closes),
    ("9112 2.2", "a bare LF does not end the head", "GET / HTTP/1.1\r\nHost: a\r\n\n", [400], closes),
    ("9112 2.2", "a bare CR in a field is refused", get("/", "X: a\rb"), [400], closes),
    ("9112 2.2", "a bare CR in the request line is refused", "GET /\r HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9112 2.2", "white space before the first field is refused", "GET / HTTP/1.1\r\n X: y\r\n" + H + "\r\n", [400], closes),
    ("9112 2.3", "a higher minor version is served as 1.1", get(version="1.9"), [200], stays),
    ("9110 15.6.6", "another major version: 505", get(version="2.0"), [505], None),
    ("9112 2.3", "version 0.9: 505", get(version="0.9"), [505], None),
    ("9112 2.3", "the version's name is case-sensitive", "GET / http/1.1\r\n" + H + "\r\n", [400], closes),
    ("9112 2.3", "a version has one digit each", get(version="1.10"), [400], closes),
    ("9112 2.3", "version 1.2 is served as 1.1", get(version="1.2"), [200], TEN),
    ("9113 3.4", "the preface of HTTP/2: 505", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505], closes),
    ("9112 2.3", "a response to 1.0 is of version 1.1", get(version="1.0"), [200], closes),
    ("9112 2.2", "a line of white space is no empty line", " \r\n" + get(), [400], closes),
    ("9112 3", "a tab does not separate", "GET\t/ HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9112 3", "a request line without a version", "GET /ten.txt \r\n\r\n", [400], closes),
    ("9112 3", "one space between method and target", "GET  / HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9112 3", "one space between target and version", "GET /  HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9112 3", "nothing after the version", "GET / HTTP/1.1 x\r\n" + H + "\r\n", [400], closes),
    ("9112 3", "a request line of two words is refused at once", "HELLO there\r\n", [400], closes),
    ("9112 3", "a request line of HTTP/0.9 is refused", "GET /\r\n\r\n", [400], closes),
    ("9112 3", "a target too long: 414", get("/" + "a" * 9000), [414], closes),
    ("9110 9.3.2", "HEAD of a target too long has no content", get("/" + "a" * 9000, method="HEAD"), [414], closes),
    ("9110 9.3.2", "HEAD behind an empty line, too", "\r\n" + get("/" + "a" * 9000, method="HEAD"), [414], closes),
    ("9110 9.3.2", "HEAD with fields too large has no content", get("/", "X: " + "a" * 20000, method="HEAD"), [431], closes),
    ("9110 9.3.2", "HEAD that is malformed has no content", "HEAD / HTTP/1.1\nHost: a\r\n\r\n", [400], closes),
    ("9110 9.3.2", "HEAD that is cut off has no content", "HEAD / HTTP/1.1\r\nHost: a\r\n", [400], closes),
    ("9110 7.4", "what is to be secured is not served: 421", get("https://test/ten.txt"), [421], closes),
    ("9112 3", "8000 octets of request line are taken", get("/ten.txt?" + "a" * 7900), [200], TEN),
    ("9110 9.1", "methods are case-sensitive", get(method="get"), [501], None),
    ("9110 9.1", "an unknown method: 501", get(method="BREW"), [501], stays),
    ("9110 9.1", "a method that is no token: 400", get(method="G(T"), [400], closes),
    ("9112 3", "a method longer than any: 501", get(method="A" * 9000), [501], closes),
    ("9110 9.1", "a method of odd token characters: 501", get(method="!#$%&'*+-.^_`|~9"), [501], stays),
    ("9110 15.5.6", "POST: 405 with Allow", get(method="POST"), [405], ALLOW),
    ("9110 15.5.6", "PUT: 405 with Allow", get("/x", method="PUT"), [405], ALLOW),
    ("9110 15.5.6", "DELETE: 405 with Allow", get(method="DELETE"), [405], ALLOW),
    ("9110 9.3.8", "TRACE: 405", get(method="TRACE"), [405], ALLOW),
    ("9110 9.3.8", "TRACE with a body: 405, in step", get("/", "Content-Length: 3", method="TRACE") + "abc" + NEXT, [405, 200], TEN),
    ("9110 9.3.6", "CONNECT to a path: 400", get(method="CONNECT"), [400], closes),
    ("9112 3.2.4", "OPTIONS of an authority alone is of the server", get("http://a", method="OPTIONS"), [200], ALLOW),
    ("9110 9.3.7", "OPTIONS with a body", get("*", "Content-Length: 3", method="OPTIONS") + "abc" + NEXT, [200, 200], TEN),
    ("9112 3.2.3", "authority-form is for CONNECT only", get("a:80"), [400], closes),
    ("9110 9.3.6", "CONNECT: 501, and nothing of the tunnel is read", "CONNECT a:80 HTTP/1.1\r\n" + H + "\r\n" + NEXT, [501], closes),
    ("9110 9.3.6", "CONNECT without a port: 400", "CONNECT a HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9110 9.3.6", "CONNECT with an empty port: 400", "CONNECT a: HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9110 9.3.6", "CONNECT without a host: 400", "CONNECT :80 HTTP/1.1\r\n" + H + "\r\n", [400], closes),
    ("9110 9.1", "framing is exact to the octet", get("/", "Content-Length: 3", method="POST") + "abcX" + NEXT, [405, 501], None),
    ("9110 9.1", "an unknown method with a body: 501, in step", get("/", "Content-Length: 3", method="PROPFIND") + "abc" + NEXT, [501, 200], TEN),
    ("9110 9.3.7", "OPTIONS names the methods", get(method="OPTIONS"), [200], ALLOW),
    ("9112 3.2.4", "OPTIONS * is of the server", get("*", method="OPTIONS"), [200], ALLOW),
    ("9110 9.3.7", "OPTIONS without content says so", get(method="OPTIONS"), [200], has("Content-Length", "0")),
    ("9112 3.2.4", "* is for OPTIONS only", get("*"), [400], closes),
    ("9112 3.2.2", "absolute-form is accepted", get("http://other:80/ten.txt"), [200], TEN),
    ("9112 3.2.2", "absolute-form wins over Host", get("http://a/ten.txt", host="Host: b\r\n"), [200], TEN),
    ("9112 3.2.2", "absolute-form with a query and no path", get("http://a?x"), [200], body(b"<h1>home</h1>\n")),
    ("9110 4.2.1", "absolute-form with a bad port is refused", get("http://a:b/ten.txt"), [400], closes),
    ("9112 3.2.2", "absolute-form with an IPv6 literal", get("http://[::1]:80/ten.txt"), [200], TEN),
    ("9112 3.2.2", "the scheme is case-insensitive", get("HTTP://other/ten.txt"), [200], TEN),
    ("9112 3.2.2", "absolute-form without a path means /", get("http://other"), [200], body(b"<h1>home</h1>\n")),
    ("9110 4.2.1", "an http URI without a host is refused", get("http:///ten.txt"), [400], closes),
    ("9110 4.2.4", "an http URI with a user is refused", get("http://u:p@h/ten.txt"), [400], closes),
    ("9112 3.2", "a target of another form is refused", get("ten.txt"), [400], closes),
    ("9112 3.2", "a fragment is refused", get("/ten.txt#x"), [400], closes),
    ("9112 3.2", "octets beyond ASCII in a target are refused", get("/t\xe9n.txt"), [400], closes),
    ("9112 3.2", "a control character in a target is refused", get("/t\x01"), [400], closes),
    ("9112 3.2", "no Host in 1.1: 400", get(host=""), [400], closes),
    ("9112 3.2", "two Hosts: 400", get(host=H + H), [400], closes),
    ("9112 3.2", "two Hosts in other case: 400", get(host=H + "HOST: b\r\n"), [400], closes),
    ("9112 3.2", "a Host that is none: 400", get(host="Host: a b\r\n"), [400], closes),
    ("9112 3.2", "a Host with a path: 400", get(host="Host: a/b\r\n"), [400], closes),
    ("9112 3.2", "a Host with a user: 400", get(host="Host: u@a\r\n"), [400], closes),
    ("9112 3.2", "a Host with a bad port: 400", get(host="Host: a:b\r\n"), [400], closes),
    ("9110 7.2", "Host may have an empty port", get(host="Host: a:\r\n"), [200], TEN),
    ("9110 7.2", "Host may be an IPv4 address", get(host="Host: 127.0.0.1:8080\r\n"), [200], TEN),
    ("9110 7.2", "a port beyond all ports: 400", get(host="Host: a:65536\r\n"), [400], closes),
    ("3986 3.2.2", "an IPv6 literal that is none: 400", get(host="Host: [::g]\r\n"), [400], closes),
    ("3986 3.2.2", "an IPv6 literal with too many groups: 400", get(host="Host: [1:2:3:4:5:6:7:8:9]\r\n"), [400], closes),
    ("3986 3.2.2", "an IPv6 literal with a tail: 400", get(host="Host: [::1]a\r\n"), [400], closes),
    ("3986 3.2.2", "an IPv6 address without brackets: 400", get(host="Host: ::1\r\n"), [400], closes),
    ("9112 3.2", "a Host with two values: 400", get(host="Host: a, b\r\n"), [400], closes),
    ("9112 3.2", "a Host with a scheme: 400", get(host="Host: http://a\r\n"), [400], closes),
    ("9112 3.2", "two Hosts in 1.0: 400", get(host=H + H, version="1.0"), [400], closes),
    ("9112 3.2", "a Host in 1.1 beside absolute-form is needed too", get("http://a/ten.txt", host=""), [400], closes),
    ("9110 7.2", "an http URI has a host: an empty one is refused", get(host="Host:\r\n"), [400], closes),
    ("9110 7.2", "a port alone is no host", get(host="Host: :80\r\n"), [400], closes),
    ("9110 7.2", "two ports: 400", get(host="Host: a:80:80\r\n"), [400], closes),
    ("9110 7.2", "a Host with a fragment: 400", get(host="Host: a#b\r\n"), [400], closes),
    ("9110 7.2", "a Host beyond ASCII: 400", get(host="Host: t\xe9st\r\n"), [400], closes),
    ("9110 7.2", "a Host with a bracket that stays open: 400", get(host="Host: [::1\r\n"), [400], closes),
    ("9110 4.2.1", "absolute-form with a bracket that stays open: 400", get("http://[::1/ten.txt"), [400], closes),
    ("9112 3.2.2", "absolute-form of another scheme: 400", get("ftp://test/ten.txt"), [400], closes),
    ("9112 3.2.2", "absolute-form with one slash: 400", get("http:/ten.txt"), [400], closes),
    ("9112 3.2.2", "absolute-form does not climb above the root", get("http://test/../secret.txt"), [400], None),
    ("9112 3.2.2", "absolute-form of a directory is redirected", get("http://test/dir"), [301], has("Location", "/dir/")),
    ("9110 7.2", "Host may be an IPv6 literal with a port", get(host="Host: [::1]:80\r\n"), [200], TEN),
    ("9112 3.2", "1.0 needs no Host", get(version="1.0", host=""), [200], TEN),
    # Fields
    ("9110 5.1", "field names are case-insensitive", get(host="hOST: test\r\n"), [200], TEN),
    ("9112 5.1", "no white space before the colon", get(host="Host : test\r\n"), [400], closes),
    ("9112 5.1", "white space around a value is not part of it", get(host="Host: \t test \t\r\n"), [200], TEN),
    ("9112 5.2", "obs-fold is refused", get("/", "X: a\r\n b"), [400], closes),
    ("9112 5.2", "obs-fold with a tab is refused", get("/", "X: a\r\n\tb"), [400], closes),
    ("9110 5.5", "NUL in a value is refused", get("/", "X: a\0b"), [400], closes),
    ("9110 5.5", "other controls in a value are refused", get("/", "X: a\x07b"), [400], closes),
    ("9110 5.5", "obs-text in a value is passed over", get("/ten.txt", "X: caf\xe9"), [200], TEN),
    ("9110 5.1", "a field without a name is refused", get("/", ": a"), [400], closes),
    ("9110 5.1", "a field name that is no token is refused", get("/", "X(y: a"), [400], closes),
    ("9112 5", "a line without a colon is refused", get("/", "nothing"), [400], closes),
    ("9110 5.5", "an empty value is a value", get("/ten.txt", "X:", "Y: \t "), [200], TEN),
    ("9110 5.6.2", "names of all token characters", get("/ten.txt", "!#$%&'*+-.^_`|~a9: b"), [200], TEN),
    ("9110 5.1", "a name with a blank inside is refused", get("/", "X y: a"), [400], closes),
    ("9110 5.1", "a name beyond ASCII is refused", get("/", "X\xe9: a"), [400], closes),
    ("9110 5.5", "DEL in a value is refused", get("/", "X: a\x7fb"), [400], closes),
    ("9110 5.5", "a bare CR at the end of a value is refused", get("/", "X: a\r"), [400], closes),
    ("9110 5.5", "a vertical tab is no white space", get("/", "X:\x0b a"), [400], closes),
    ("9110 5.4", "one field too large: 431", get("/", "X: " + "a" * 20000), [431], closes),
    ("9110 5.4", "fields too large: 431", get("/", *(f"X-{i}: " + "a" * 500 for i in range(50))), [431], closes),
    ("9110 5.4", "too many fields: 431", get("/", *(f"X-{i}: a" for i in range(200))), [431], closes),
    ("9110 5.4", "ninety fields are taken", get("/ten.txt", *(f"X-{i}: a" for i in range(90))), [200], TEN),
    # Framing
    ("9112 6.1", "Transfer-Encoding with Content-Length: 400", get("/", CHUNKED, "Content-Length: 5") + "0\r\n\r\n", [400], closes),
    ("9112 6.1", "Content-Length with Transfer-Encoding: 400", get("/", "Content-Length: 5", CHUNKED) + "0\r\n\r\n", [400], closes),
    ("9112 6.1", "a coding that is not understood: 501", get("/", "Transfer-Encoding: gzip, chunked"), [501], closes),
    ("9112 6.3", "chunked must be the last coding", get("/", "Transfer-Encoding: chunked, gzip"), [400], closes),
    ("9112 6.1", "chunked must not be applied twice", get("/", "Transfer-Encoding: chunked, chunked"), [400], closes),
    ("9112 6.3", "a coding without chunked: 400", get("/", "Transfer-Encoding: identity"), [400], closes),
    ("9112 6.1", "two Transfer-Encoding lines: 400", get("/", CHUNKED, CHUNKED), [400], closes),
    ("9112 6.1", "a disguised coding is refused", get("/", "Transfer-Encoding: \x0bchunked"), [400], closes),
    ("9112 6.1", "Transfer-Encoding in 1.0 is faulty", get("/", CHUNKED, version="1.0") + "0\r\n\r\n", [400], closes),
    ("9112 6.3", "two Content-Lengths: 400", get("/", "Content-Length: 5", "Content-Length: 6"), [400], closes),
    ("9112 6.3", "the same Content-Length twice: 400", get("/", "Content-Length: 5", "Content-Length: 5"), [400], closes),
    ("9112 6.3", "a list of lengths: 400", get("/", "Content-Length: 5, 5"), [400], closes),
    ("9110 8.6", "a signed length: 400", get("/", "Content-Length: +5"), [400], closes),
    ("9110 8.6", "a negative length: 400", get("/", "Content-Length: -5"), [400], closes),
    ("9110 8.6", "a hexadecimal length: 400", get("/", "Content-Length: 0x5"), [400], closes),
    ("9110 8.6", "an empty length: 400", get("/", "Content-Length:"), [400], closes),
    ("9110 8.6", "a length beyond all numbers: 400", get("/", "Content-Length: " + "9" * 40), [400], closes),
    ("9110 8.6", "a length beyond 32 bits is no small one", get("/", "Content-Length: 4294967301") + "hello" + NEXT, [413], closes),
    ("9110 8.6", "a length with an underscore: 400", get("/", "Content-Length: 1_0"), [400], closes),
    ("9110 8.6", "a negative zero: 400", get("/", "Content-Length: -0"), [400], closes),
    ("9110 8.6", "a length with a comma: 400", get("/", "Content-Length: 5,"), [400], closes),
    ("9112 6.1", "an empty element before chunked: 501", get("/", "Transfer-Encoding: , chunked"), [501], closes),
    ("9112 6.1", "white space around chunked", get("/", "Transfer-Encoding:\tchunked \t") + "0\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9110 5.1", "an underscore makes another field", get("/", "Transfer_Encoding: chunked", "Content-Length: 5") + "hello" + NEXT, [200, 200], TEN),
    ("9110 8.6", "a length with a blank inside: 400", get("/", "Content-Length: 1 1"), [400], closes),
    ("9110 8.6", "a length with a point: 400", get("/", "Content-Length: 1.0"), [400], closes),
    ("9110 8.6", "leading zeros are digits", get("/", "Content-Length: 005") + "hello" + NEXT, [200, 200], TEN),
    ("9112 5.1", "no white space between Content-Length and its colon", get("/", "Content-Length : 5") + "hello", [400], closes),
    ("9112 6.1", "two codings in two lines: 400", get("/", "Transfer-Encoding: gzip", CHUNKED), [400], closes),
    ("9112 6.1", "the name of a coding is case-insensitive", get("/", "Transfer-Encoding: Chunked") + "0\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9112 6.1", "a coding with a tail is another", get("/", "Transfer-Encoding: chunked;a"), [400], closes),
    ("9112 6.1", "a coding in quotes is another", get("/", 'Transfer-Encoding: "chunked"'), [400], closes),
    ("9112 6.1", "an empty Transfer-Encoding: 400", get("/", "Transfer-Encoding:"), [400], closes),
    ("9112 6.1", "a folded coding is refused", get("/", "Transfer-Encoding:\r\n chunked"), [400], closes),
    ("9112 6.3", "HEAD may have a body", get("/", "Content-Length: 5", method="HEAD") + "hello", [200], has("Content-Length", "14")),
    ("9110 15.5.14", "a body too large: 413", get("/", "Content-Length: 2000000"), [413], closes),
    ("9112 6.3", "a body is passed over", get("/", "Content-Length: 5") + "hello" + NEXT, [200, 200], TEN),
    ("9112 6.3", "a body that looks like a request is a body", get("/", f"Content-Length: {len(NEXT)}") + NEXT, [200], None),
    ("9112 7.1", "a chunked body is passed over", get("/", CHUNKED) + "5\r\nhello\r\n0\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9112 7.1.1", "chunk extensions are ignored", get("/", CHUNKED) + '5;a="b";c\r\nhello\r\n0;d\r\n\r\n' + NEXT, [200, 200], TEN),
    ("9112 7.1.1", "a quoted extension value", get("/", CHUNKED) + '5;a="b;\\"c";d\r\nhello\r\n0\r\n\r\n' + NEXT, [200, 200], TEN),
    ("9112 7.1.1", "a chunk extension without a name: 400", get("/", CHUNKED) + "5;\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "a chunk extension that is no token: 400", get("/", CHUNKED) + "5;bad[=x\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "an extension value that is no token: 400", get("/", CHUNKED) + "5;a=b@c\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "a quote that stays open: 400", get("/", CHUNKED) + '5;a="b\r\nhello\r\n0\r\n\r\n' + NEXT, [400], closes),
    ("9112 7.1.1", "a bare CR in an extension: 400", get("/", CHUNKED) + "5;a\rb\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "a bare LF ends no extension: 400", get("/", CHUNKED) + "5;a\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "an extension without end: 400", get("/", CHUNKED, method="POST") + "5;" + "a" * 17000 + "\r\n", [400], closes),
    ("9112 7.1.2", "a trailer without end: 400", get("/", CHUNKED, method="POST") + "0\r\nX: " + "a" * 17000 + "\r\n\r\n", [400], closes),
    ("9112 7.1", "a chunk size beyond 32 bits is no small one", get("/", CHUNKED) + "100000005\r\nhello\r\n0\r\n\r\n", [413], closes),
    ("9112 7.1", "a chunk size beyond 64 bits is no small one", get("/", CHUNKED) + "10000000000000005\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a chunk size with an underscore: 400", get("/", CHUNKED) + "5_0\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1.2", "trailers are passed over", get("/", CHUNKED) + "0\r\nX: y\r\nZ: w\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9110 6.5.1", "framing in trailers means nothing", get("/", CHUNKED) + "0\r\nContent-Length: 99\r\nHost: z\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9112 7.1.2", "a trailer without a colon: 400", get("/", CHUNKED) + "0\r\nX\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.2", "a trailer with a blank in its name: 400", get("/", CHUNKED) + "0\r\nX : y\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.2", "a folded trailer: 400", get("/", CHUNKED) + "0\r\nX: y\r\n z\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.2", "a bare LF after a trailer: 400", get("/", CHUNKED) + "0\r\nX: y\n\r\n" + NEXT, [400], closes),
    ("9112 7.1.1", "white space before a chunk extension", get("/", CHUNKED) + "5 \t; a = b\r\nhello\r\n0\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9112 7.1", "white space after a chunk size: 400", get("/", CHUNKED) + "5 \r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "white space before a chunk size: 400", get("/", CHUNKED) + " 5\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "chunk sizes in either case, with leading zeros", get("/", CHUNKED) + "00A\r\n0123456789\r\n0b\r\n01234567890\r\n000\r\n\r\n" + NEXT, [200, 200], TEN),
    ("9112 7.1", "a signed chunk size: 400", get("/", CHUNKED) + "-5\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a hexadecimal prefix: 400", get("/", CHUNKED) + "0x5\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a body in many small chunks", get("/", CHUNKED, method="POST") + "1\r\nx\r\n" * 20000 + "0\r\n\r\n" + NEXT, [405, 200], TEN),
    ("9112 7.1", "leading zeros without end: 400", get("/", CHUNKED, method="POST") + "0" * 20000 + "1\r\nx\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a chunk size that is empty: 400", get("/", CHUNKED) + "\r\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a bare LF after a chunk: 400", get("/", CHUNKED) + "5\r\nhello\n0\r\n\r\n", [400], closes),
    ("9112 7.1", "a chunk too large: 413", get("/", CHUNKED) + "fffffff\r\nhello", [413], closes),
    ("9112 8", "an incomplete chunked body: 400", get("/", CHUNKED) + "5\r\nhello\r\n", [400], closes),
    ("9112 7.1", "a malformed chunk size: 400", get("/", CHUNKED) + "5g\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1", "a chunk that is longer than it says: 400", get("/", CHUNKED) + "4\r\nhello\r\n0\r\n\r\n" + NEXT, [400], closes),
    ("9112 7.1", "a chunk size beyond all numbers: 400", get("/", CHUNKED) + "f" * 20 + "\r\n", [400], closes),
    ("9112 7.1", "a bare LF after a chunk size: 400", get("/", CHUNKED) + "5\nhello\r\n0\r\n\r\n", [400], closes),
    ("9112 6.3", "a body of POST does not desynchronize", get("/", "Content-Length: 5", method="POST") + "hello" + NEXT, [405, 200], TEN),
    ("9112 6.3", "a chunked body of PUT does not desynchronize", get("/", CHUNKED, method="PUT") + "1\r\nx\r\n0\r\n\r\n" + NEXT, [405, 200], TEN),
    ("9112 8", "an incomplete body: 400", get("/", "Content-Length: 5") + "hel", [400], closes),
    ("9112 8", "an incomplete head: 400", "GET / HTTP/1.1\r\nHost: te", [400], closes),
    # Connections
    ("9112 9.3", "1.1 persists", get() + get(), [200, 200], stays),
    ("9112 9.3", "1.0 does not", get(version="1.0") + get(), [200], closes),
    ("9112 9.3", "1.0 persists when asked to", get("/ten.txt", "Connection: keep-alive", version="1.0") + get(), [200, 200], TEN),
    ("9112 9.6", "close is honoured", get("/ten.txt", "Connection: close") + get(), [200], closes),
    ("9112 9.6", "close is found in a list and in any case", get("/ten.txt", "Connection: x, CLOSE") + get(), [200], closes),
    ("9112 9.6", "close wins over keep-alive", get("/ten.txt", "Connection: keep-alive", "Connection: close") + get(), [200], closes),
    ("9112 9.3.2", "pipelined requests are answered in order", get("/dir/") + get("/none") + get(), [200, 404, 200], TEN),
    ("9112 9.3.2", "errors that keep the framing keep the connection", get("/none") + get(), [404, 200], TEN),
    ("9110 7.8", "Upgrade may be ignored", get("/ten.txt", "Connection: upgrade", "Upgrade: h2c"), [200], TEN),
    ("9112 9.6", "close of 1.0 wins over keep-alive", get("/ten.txt", "Connection: keep-alive, close", version="1.0") + get(), [200], closes),
    ("9112 9.3", "1.0 that persists is told so", get("/ten.txt", "Connection: Keep-Alive", version="1.0"), [200], has("Connection", "keep-alive")),
    ("9112 9.3", "1.0 persists beyond an error too", get("/none", "Connection: keep-alive", version="1.0") + get(), [404, 200], TEN),
    ("9112 9.6", "nothing is answered after a refusal", get("/", "X : y") + get(), [400], closes),
    ("9112 9.6", "nothing is answered after close and a body", get("/", "Connection: close", "Content-Length: 5") + "hello" + get(), [200], closes),
    # Expect
    ("9110 10.1.1", "another expectation: 417", get("/ten.txt", "Expect: tea"), [417], None),
    ("9110 10.1.1", "two expectations: 417", get("/ten.txt", "Expect: 100-continue", "Expect: tea"), [417], None),
    ("9110 10.1.1", "the expectation is case-insensitive", get("/ten.txt", "Expect: 100-Continue", "Content-Length: 2") + "ab", [200], TEN),
    ("9110 10.1.1", "no 100 before a refused length", get("/", "Expect: 100-continue", "Content-Length: x"), [400], lambda r: closes(r) and not r.interim),
    ("9110 10.1.1", "no 100 before a length too large", get("/", "Expect: 100-continue", "Content-Length: 2000000"), [413], lambda r: closes(r) and not r.interim),
    ("9110 10.1.1", "100 is left out when the body has come", get("/ten.txt", "Expect: 100-continue", "Content-Length: 2") + "ab", [200], lambda r: not r.interim),
    ("9110 10.1.1", "100 is left out when there is no body", get("/ten.txt", "Expect: 100-continue"), [200], lambda r: not r.interim),
    ("9110 10.1.1", "Expect in 1.0 is ignored", get("/ten.txt", "Expect: 100-continue", "Content-Length: 2", version="1.0") + "ab", [200], lambda r: not r.interim),
    ("9110 5.6.1", "an empty element of an expectation", get("/ten.txt", "Expect: 100-continue,"), [200], TEN),
    ("9110 5.6.1", "an expectation of nothing", get("/ten.txt", "Expect:"), [200], TEN),
    ("9110 10.1.1", "another expectation in a list: 417", get("/ten.txt", "Expect: 100-continue, tea"), [417], None),
    ("9110 10.1.1", "another expectation in 1.0 is ignored", get("/ten.txt", "Expect: tea", version="1.0"), [200], TEN),
    ("9110 10.1.1", "an unknown method gets its answer at once", get("/", "Expect: 100-continue", "Content-Length: 2", method="BREW"), [501], lambda r: closes(r) and not r.interim),
    ("9110 10.1.1", "a refused method gets its answer at once", get("/", "Expect: 100-continue", "Content-Length: 2", method="PUT"), [405], closes),
    # Representation
    ("9110 6.6.1", "Date", get(), [200], date_ok),
    ("9110 6.6.1", "Date on an error", get("/none"), [404], date_ok),
    ("9110 6.6.1", "Date on a refusal", get(host=""), [400], date_ok),
    ("9110 6.6.1", "Date on 301, 304 and 206", get("/dir"), [301], date_ok),
    ("9110 6.6.1", "Date on 416", get("/ten.txt", "Range: bytes=10-"), [416], date_ok),
    ("9110 8.3", "Content-Type by extension", get("/page.css"), [200], has("Content-Type", "text/css; charset=utf-8")),
    ("9110 8.3", "Content-Type when unknown", get("/large.bin"), [200], has("Content-Type", "application/octet-stream")),
    ("9110 8.6", "Content-Length", get(), [200], has("Content-Length", "10")),
    ("9110 8.8.2", "Last-Modified", get(), [200], has("Last-Modified", MODIFIED)),
    ("9110 8.8.3", "ETag, strong and quoted", get(), [200], lambda r: re.fullmatch(r'"[!#-~]+"', r["ETag"])),
    ("9110 14.3", "Accept-Ranges", get(), [200], has("Accept-Ranges", "bytes")),
    ("9110 9.3.2", "HEAD has no content", get(method="HEAD"), [200], lambda r: not r.body),
    ("9110 9.3.2", "HEAD has the length of GET", get(method="HEAD"), [200], has("Content-Length", "10")),
    ("9110 9.3.2", "HEAD of what is missing has no content", get("/none", method="HEAD"), [404], lambda r: not r.body),
    ("9110 9.3.2", "HEAD of what is large has no content", get("/large.bin", method="HEAD"), [200], has("Content-Length", "300000")),
    ("9110 15.5.5", "404 with a body", get("/none"), [404], lambda r: b"404" in r.body),
    ("9110 8.6", "an empty file has length 0", get("/empty.txt"), [200], has("Content-Length", "0")),
    # Targets
    ("9110 4.2.3", "escapes are resolved", get("/%74en%2Etxt"), [200], TEN),
    ("9110 4.2.3", "an odd name", get("/a%20b&c.txt"), [200], body(b"odd name")),
    ("3986 2.1", "a malformed escape: 400", get("/ten%2"), [400], None),
    ("3986 2.1", "an escape that is not hexadecimal: 400", get("/ten%zz"), [400], None),
    ("3986 2.1", "an escaped NUL: 400", get("/ten.txt%00.css"), [400], None),
    ("3986 2.1", "an escape cut short: 400", get("/ten.txt%"), [400], None),
    ("3986 2.1", "escapes are resolved once", get("/%2574en.txt"), [404], None),
    ("9112 3.2", "a backslash is refused", get("/dir\\..\\ten.txt"), [400], closes),
    ("9110 17.3", "an escaped backslash is no slash", get("/dir%5c..%5cten.txt"), [404], None),
    ("9110 17.3", "no way above the root through a directory", get("/dir/../../secret.txt"), [400], None),
    ("9110 17.3", "dots at the end climb too", get("/.."), [400], None),
    ("3986 5.2.4", "more dots are a name", get("/.../ten.txt"), [404], None),
    ("9110 4.2.3", "doubled slashes are one", get("//dir///index.html"), [200], body(b"<h1>dir</h1>\n")),
    ("3986 5.2.4", "dots in a query stay there", get("/dir?/../.."), [301], has("Location", "/dir/?/../..")),
    ("9110 15.5.5", "a path longer than a file's", get("/" + "a/" * 3000), [404], None),
    ("9112 3", "8000 octets of path are taken", get("/" + "a" * 7900) + NEXT, [404, 200], TEN),
    ("9110 17.3", "half escaped dots climb too", get("/.%2e/secret.txt"), [400], None),
    ("9110 17.3", "dots with a parameter are a name", get("/..;/secret.txt"), [404], None),
    ("9110 17.3", "overlong UTF-8 is no dot", get("/%c0%ae%c0%ae/secret.txt"), [404], None),
    ("9110 4.2.3", "an escaped slash is none", get("/dir%2findex.html"), [404], None),
    ("9110 4.2.3", "paths are case-sensitive", get("/TEN.TXT"), [404], None),
    ("9110 15.5.5", "a name longer than a file's", get("/" + "a" * 300), [404], None),
    ("3986 5.2.4", "dot segments are removed", get("/dir/.././ten.txt"), [200], TEN),
    ("3986 5.2.4", "escaped dot segments are removed", get("/dir/%2e%2E/ten.txt"), [200], TEN),
    ("9110 17.3", "no way above the root", get("/../secret.txt"), [400], None),
    ("9110 17.3", "no escaped way above the root", get("/%2e%2e/secret.txt"), [400], None),
    ("9110 17.3", "no way above the root by an escaped slash", get("/..%2fsecret.txt"), [400], None),
    ("9110 17.3", "no way out by a symlink", get("/out.txt"), [403], None),
    ("9110 17.3", "no way out by an absolute symlink", get("/absolute.txt"), [403], None),
    ("9110 17.3", "no way out by a symlink to a directory", get("/outdir/secret.txt"), [403], None),
    ("9110 17.3", "a symlink within the root is served", get("/in.txt"), [200], TEN),
    ("9110 17.3", "a symlink to itself", get("/loop"), [403], None),
    ("9110 17.3", "a FIFO is not opened to be read", get("/fifo"), [403], None),
    ("9110 15.4.2", "a directory without its slash is redirected", get("/dir"), [301], has("Location", "/dir/")),
    ("9110 15.4.2", "the redirect keeps the query", get("/dir?a=b"), [301], has("Location", "/dir/?a=b")),
    ("9110 17.4", "a redirect cannot leave the server", get("//dir"), [301], has("Location", "/dir/")),
    ("9110 15.4.2", "the index of a directory", get("/dir/"), [200], body(b"<h1>dir</h1>\n")),
    ("9110 15.5.4", "a directory without index is not listed", get("/bare/"), [403], None),
    ("9110 15.5.5", "a file is no directory", get("/ten.txt/"), [404], None),
    ("9110 4.2.3", "a query does not change the file", get("/ten.txt?x=/../"), [200], TEN),
    # Conditions
    ("9110 13.1.3", "not modified since", get("/ten.txt", f"If-Modified-Since: {MODIFIED}"), [304], lambda r: not r.body),
    ("9110 15.4.5", "304 carries the validators", get("/ten.txt", f"If-Modified-Since: {MODIFIED}"), [304], lambda r: r["ETag"] and r["Date"]),
    ("9110 13.1.3", "modified since", get("/ten.txt", "If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT"), [200], TEN),
    ("9110 13.1.3", "a date that is none is ignored", get("/ten.txt", "If-Modified-Since: yesterday"), [200], TEN),
    ("9110 5.6.7", "RFC 850 dates are read", get("/ten.txt", "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT"), [304], None),
    ("9110 5.6.7", "asctime dates are read", get("/ten.txt", "If-Modified-Since: Sun Nov  6 08:49:37 1994"), [304], None),
    ("9110 13.1.2", "If-None-Match: *", get("/ten.txt", "If-None-Match: *"), [304], None),
    ("9110 13.1.2", "If-None-Match of another", get("/ten.txt", 'If-None-Match: "x"'), [200], TEN),
    ("9110 13.2.2", "If-None-Match wins over If-Modified-Since", get("/ten.txt", 'If-None-Match: "x"', f"If-Modified-Since: {MODIFIED}"), [200], TEN),
    ("9110 13.1.1", "If-Match of another: 412", get("/ten.txt", 'If-Match: "x"'), [412], None),
    ("9110 13.1.1", "If-Match: *", get("/ten.txt", "If-Match: *"), [200], TEN),
    ("9110 13.1.4", "unmodified since", get("/ten.txt", f"If-Unmodified-Since: {MODIFIED}"), [200], TEN),
    ("9110 13.1.3", "a date in the future is a date", get("/ten.txt", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"), [304], None),
    ("9110 13.1.3", "two dates are none", get("/ten.txt", f"If-Modified-Since: {MODIFIED}", f"If-Modified-Since: {MODIFIED}"), [200], TEN),
    ("9110 13.1.3", "a day that does not exist is no date", get("/ten.txt", "If-Modified-Since: Sun, 31 Feb 2010 08:49:37 GMT"), [200], TEN),
    ("9110 5.6.7", "a date of one digit is none", get("/ten.txt", "If-Modified-Since: Sun, 6 Nov 1994 8:49:37 GMT"), [200], TEN),
    ("9110 5.6.7", "a date of a short year is none", get("/ten.txt", "If-Unmodified-Since: Sun, 06 Nov 94 08:49:37 GMT"), [200], TEN),
    ("9110 13.1.4", "a date that is none is ignored there too", get("/ten.txt", "If-Unmodified-Since: yesterday"), [200], TEN),
    ("9110 13.1.2", "an empty If-None-Match beside a date", get("/ten.txt", "If-None-Match:", f"If-Modified-Since: {MODIFIED}"), [200], TEN),
    ("9110 13.2.2", "If-Match and If-None-Match of anything", get("/ten.txt", "If-Match: *", "If-None-Match: *"), [304], None),
    ("9110 13.1.1", "HEAD with another tag has no content", get("/ten.txt", 'If-Match: "x"', method="HEAD"), [412], lambda r: not r.body),
    ("9110 13.2.1", "no condition on a redirect", get("/dir", 'If-Match: "x"'), [301], None),
    ("9110 13.2.1", "no condition on OPTIONS", get("/ten.txt", "If-None-Match: *", method="OPTIONS"), [200], ALLOW),
    ("9110 13.1.4", "nor is it one for If-Unmodified-Since", get("/ten.txt", "If-Unmodified-Since: Tue, 31 Jun 1970 08:49:37 GMT"), [200], TEN),
    ("9110 14.1.2", "the last octets of an empty file are no range", get("/empty.txt", "Range: bytes=-5"), [200], has("Content-Length", "0")),
    ("9110 13.1.3", "HEAD has conditions too", get("/ten.txt", f"If-Modified-Since: {MODIFIED}", method="HEAD"), [304], None),
    ("9110 13.2.2", "If-Match wins over If-Unmodified-Since", get("/ten.txt", "If-Match: *", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT"), [200], TEN),
    ("9110 13.2.2", "If-Unmodified-Since comes before If-None-Match", get("/ten.txt", "If-None-Match: *", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT"), [412], None),
    ("9110 13.2.2", "conditions come before Range", get("/ten.txt", "If-None-Match: *", "Range: bytes=0-1"), [304], None),
    ("9110 13.2.2", "a failed If-Match comes before Range", get("/ten.txt", 'If-Match: "x"', "Range: bytes=0-1"), [412], None),
    ("9110 8.8.3", "a tag without quotes is none", get("/ten.txt", "If-None-Match: x"), [200], TEN),
    ("9110 5.6.1", "empty list elements are passed over", get("/ten.txt", 'If-Match: , "x",, '), [412], None),
    ("9110 15.4.5", "304 has no content and no type", get("/ten.txt", "If-None-Match: *"), [304], lambda r: not r["Content-Type"] and r["Content-Length"] in ("", "10")),
    ("9110 13.1.4", "not unmodified since: 412", get("/ten.txt", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT"), [412], None),
    ("9110 13.2.1", "no condition on what is missing", get("/none", "If-None-Match: *"), [404], None),
    # Ranges
    ("9110 14.2", "a range", get("/ten.txt", "Range: bytes=2-4"), [206], body(b"234")),
    ("9110 15.3.7", "206 says which", get("/ten.txt", "Range: bytes=2-4"), [206], has("Content-Range", "bytes 2-4/10")),
    ("9110 15.3.7", "206 carries the validators", get("/ten.txt", "Range: bytes=2-4"), [206], lambda r: r["ETag"] and r["Last-Modified"] and r["Date"]),
    ("9110 14.1.2", "a range to the end", get("/ten.txt", "Range: bytes=7-"), [206], body(b"789")),
    ("9110 14.1.2", "a suffix", get("/ten.txt", "Range: bytes=-2"), [206], body(b"89")),
    ("9110 14.1.2", "a suffix longer than the file", get("/ten.txt", "Range: bytes=-20"), [206], TEN),
    ("9110 14.1.2", "a range that ends beyond the file", get("/ten.txt", "Range: bytes=8-100"), [206], body(b"89")),
    ("9110 15.5.17", "no satisfiable range: 416", get("/ten.txt", "Range: bytes=10-"), [416], has("Content-Range", "bytes */10")),
    ("9110 15.5.17", "a suffix of nothing: 416", get("/ten.txt", "Range: bytes=-0"), [416], None),
    ("9110 15.5.17", "nor is there one in an empty file", get("/empty.txt", "Range: bytes=-0"), [416], None),
    ("9110 14.6", "ranges come in the order asked for", get("/ten.txt", "Range: bytes=8-9,0-1"), [206], lambda r: r.body.index(b"\r\n89\r\n") < r.body.index(b"\r\n01\r\n")),
    ("9110 14.1.2", "leading zeros of a range", get("/ten.txt", "Range: bytes=00002-000004"), [206], body(b"234")),
    ("9110 14.2", "one malformed range spoils them all", get("/ten.txt", "Range: bytes=0-1,x"), [200], TEN),
    ("9110 13.1.5", "If-Range of another comes before 416", get("/ten.txt", "Range: bytes=50-", 'If-Range: "x"'), [200], TEN),
    ("9110 14.2", "HEAD ignores a range beyond the end", get("/ten.txt", "Range: bytes=50-", method="HEAD"), [200], None),
    ("9110 14.2", "a malformed range is ignored", get("/ten.txt", "Range: bytes=4-2"), [200], TEN),
    ("9110 14.1.2", "a range beyond all numbers", get("/ten.txt", "Range: bytes=" + "9" * 40 + "-"), [416], None),
    ("9110 14.1.2", "an end beyond all numbers", get("/ten.txt", "Range: bytes=8-" + "9" * 40), [206], body(b"89")),
    ("9110 14.1.2", "a suffix beyond all numbers", get("/ten.txt", "Range: bytes=-" + "9" * 40), [206], TEN),
    ("9110 14.1.2", "the unit is case-insensitive", get("/ten.txt", "Range: BYTES=0-0"), [206], body(b"0")),
    ("9110 14.2", "no range at all is ignored", get("/ten.txt", "Range: bytes="), [200], TEN),
    ("9110 14.2", "a negative range is ignored", get("/ten.txt", "Range: bytes=--5"), [200], TEN),
    ("9110 14.2", "two Range fields are ignored", get("/ten.txt", "Range: bytes=0-0", "Range: bytes=1-1"), [200], TEN),
    ("9110 14.2", "a range of an error is ignored", get("/none", "Range: bytes=0-0"), [404], None),
    ("9110 5.6.1", "empty elements between ranges", get("/ten.txt", "Range: bytes=,0-1,, ,"), [206], body(b"01")),
    ("9110 15.3.7", "206 has the length of its part", get("/ten.txt", "Range: bytes=2-4"), [206], has("Content-Length", "3")),
    ("9110 15.5.17", "no range of an empty file: 416", get("/empty.txt", "Range: bytes=0-"), [416], has("Content-Range", "bytes */0")),
    ("9110 14.2", "another unit is ignored", get("/ten.txt", "Range: lines=1-2"), [200], TEN),
    ("9110 14.2", "HEAD ignores Range", get("/ten.txt", "Range: bytes=2-4", method="HEAD"), [200], has("Content-Length", "10")),
    ("9110 14.2", "a range of a large file", get("/large.bin", "Range: bytes=299999-"), [206], lambda r: len(r.body) == 1),
    ("9110 14.2", "overlapping ranges in number are ignored", get("/ten.txt", "Range: bytes=" + ",".join(["0-"] * 30)), [200], TEN),
    ("9110 14.6", "several ranges: multipart/byteranges", get("/ten.txt", "Range: bytes=0-1,5-6"), [206], lambda r: r["Content-Type"].startswith("multipart/byteranges; boundary=")),
    ("9110 15.3.7.2", "of several ranges one satisfiable: no multipart", get("/ten.txt", "Range: bytes=0-1,50-"), [206], body(b"01")),
    ("9110 13.1.5", "If-Range by date", get("/ten.txt", "Range: bytes=2-4", f"If-Range: {MODIFIED}"), [206], body(b"234")),
    ("9110 13.1.5", "If-Range by an older date: all", get("/ten.txt", "Range: bytes=2-4", "If-Range: Sun, 06 Nov 1994 08:49:36 GMT"), [200], TEN),
    ("9110 13.1.5", "If-Range by a weak tag: all", get("/ten.txt", "Range: bytes=2-4", 'If-Range: W/"x"'), [200], TEN),
    ("9110 13.1.5", "If-Range by a later date: all", get("/ten.txt", "Range: bytes=2-4", "If-Range: Sun, 06 Nov 1994 08:49:38 GMT"), [200], TEN),
    ("9110 13.1.5", "If-Range without Range means nothing", get("/ten.txt", 'If-Range: "x"'), [200], TEN),
    # Content codings
    ("9110 12.5.3", "a neighbour that is accepted", get("/page.css", "Accept-Encoding: gzip"), [200], has("Content-Encoding", "gzip")),
    ("9110 8.3", "its type is the file's", get("/page.css", "Accept-Encoding: gzip"), [200], has("Content-Type", "text/css; charset=utf-8")),
    ("9110 12.5.3", "of several the smallest", get("/page.css", "Accept-Encoding: gzip, br"), [200], body(b"stands for brotli")),
    ("9110 12.4.2", "weights decide", get("/page.css", "Accept-Encoding: gzip, br;q=0.5"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.4.2", "a weight of 0 forbids", get("/page.css", "Accept-Encoding: gzip;q=0, br;q=0"), [200], has("Content-Encoding", "")),
    ("9110 12.5.3", "* means the best", get("/page.css", "Accept-Encoding: *"), [200], has("Content-Encoding", "br")),
    ("9110 12.5.3", "* of weight 0 forbids the rest", get("/page.css", "Accept-Encoding: gzip, *;q=0"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.5.3", "identity forbidden, a coding accepted", get("/page.css", "Accept-Encoding: identity;q=0, gzip;q=0.1"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.5.3", "* weighs identity too", get("/page.css", "Accept-Encoding: *;q=0.5, gzip;q=0.1, br;q=0.1"), [200], has("Content-Encoding", "")),
    ("9110 12.5.3", "identity preferred", get("/page.css", "Accept-Encoding: gzip;q=0.5, identity"), [200], has("Content-Encoding", "")),
    ("9110 12.5.3", "an empty field means identity", get("/page.css", "Accept-Encoding:"), [200], has("Content-Encoding", "")),
    ("9110 12.5.3", "an unknown coding is passed over", get("/page.css", "Accept-Encoding: rot13, gzip"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.4.2", "white space around a weight", get("/page.css", "Accept-Encoding: br ; q=0 , gzip ; q=1"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.4.2", "a weight that is malformed is no consent", get("/page.css", "Accept-Encoding: gzip;q =0"), [200], has("Content-Encoding", "")),
    ("9110 12.4.2", "an empty weight is no consent", get("/page.css", "Accept-Encoding: gzip;q="), [200], has("Content-Encoding", "")),
    ("9110 12.4.2", "a weight beyond 1 is no consent", get("/page.css", "Accept-Encoding: gzip;q=1.001"), [200], has("Content-Encoding", "")),
    ("9110 5.3", "a list over two lines", get("/page.css", "Accept-Encoding: gzip", "Accept-Encoding: br;q=0"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.5.3", "a neighbour by its own name is a file", get("/page.css.gz"), [200], lambda r: not r["Content-Encoding"] and not r["Vary"]),
    ("9110 8.4.1.3", "x-gzip is gzip", get("/page.css", "Accept-Encoding: x-gzip"), [200], has("Content-Encoding", "gzip")),
    ("9110 12.5.3", "without the field the plain file", get("/page.css"), [200], has("Content-Encoding", "")),
    ("9110 12.5.5", "Vary on the coded response", get("/page.css", "Accept-Encoding: gzip"), [200], has("Vary", "Accept-Encoding")),
    ("9110 12.5.5", "Vary on the plain response too", get("/page.css"), [200], has("Vary", "Accept-Encoding")),
    ("9110 12.5.5", "Vary on 206 too", get("/page.css", "Range: bytes=0-1"), [206], has("Vary", "Accept-Encoding")),
    ("9110 14.2", "a range of the coded file", get("/page.css", "Accept-Encoding: br", "Range: bytes=0-5"), [206], body(b"stands")),
    ("9110 12.5.5", "no Vary where nothing varies", get(), [200], has("Vary", "")),
    ("9110 15.4.5", "Vary on 304 too", get("/page.css", f"If-Modified-Since: {MODIFIED}"), [304], has("Vary", "Accept-Encoding")),
]  # fmt: skip


ONLY_AT_THE_END = {
    "HEAD that is cut off has no content",
    "an incomplete chunked body: 400",
    "an incomplete body: 400",
    "an incomplete head: 400",
}


@pytest.mark.parametrize("row", ROWS, ids=[f"{section}: {rule}" for section, rule, *_ in ROWS])
def test_rule(server: Server, row: tuple[str, str, str, list[int], Check | None]) -> None:
    _, _, request, statuses, check = row
    method = request.lstrip("\r\n").split(" ", 1)[0]
    responses = server.ask(request.encode("latin-1"), method)
    assert [r.status for r in responses] == statuses
    assert check is None or check(responses[-1]), responses[-1]


@pytest.mark.parametrize("row", [r for r in ROWS if r[1] not in ONLY_AT_THE_END], ids=lambda r: f"{r[0]}: {r[1]}")
def test_rule_without_half_close(server: Server, row: tuple[str, str, str, list[int], Check | None]) -> None:
    """No answer may wait for the end of the client's side."""
    _, _, request, statuses, check = row
    method = request.lstrip("\r\n").split(" ", 1)[0]
    responses = server.converse(request.encode("latin-1"), method, len(statuses))
    assert [r.status for r in responses] == statuses
    assert check is None or check(responses[-1]), responses[-1]


@pytest.mark.parametrize("rule", sorted(ONLY_AT_THE_END))
def test_an_incomplete_request_is_waited_for(server: Server, rule: str) -> None:
    (request,) = (r[2] for r in ROWS if r[1] == rule)
    with server.connect(timeout=0.2) as s:
        s.sendall(request.encode("latin-1"))
        with pytest.raises(TimeoutError):
            s.recv(1)
