"""One line of each format is the same request: /a.css at 14:00:01 UTC, answered 200 with 5,000 octets."""

# ruff: noqa: E501 (lines of logs are long)

from pathlib import Path

import pytest

from tests.support.logs import write
from vmtoll.access_log.read import Lines, database, read
from vmtoll.access_log.traffic import one_row
from vmtoll.model.errors import LogError

pytestmark = pytest.mark.slow

CLIENT = "192.0.2.1"
TIME, ISO = "03/Jun/2025:14:00:01 +0000", "2025-06-03T14:00:01"
TAIL = f'[{TIME}] "GET /a.css HTTP/1.1" 200 5000 "https://www.example/" "curl/8"'
COMBINED = f"{CLIENT} - - {TAIL}"
COMMON = "common or combined"
CADDY = (
    '{"level":"info","ts":1748959201.123,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":'
    '"192.0.2.1","proto":"HTTP/1.1","method":"GET","host":"www.example","uri":"/a.css","headers":{"User-Agent":'
    '["curl/8"]}},"bytes_read":0,"duration":0.001,"size":5000,"status":200}'
)
IIS = "2025-06-03 14:00:01 192.0.2.9 GET /a.css - 80 - 192.0.2.1 curl/8 - 200 0 0"
LINES = {
    COMMON: [
        COMBINED,
        COMBINED + ' "203.0.113.1, 10.0.0.1" 0.003',
        f'{CLIENT} - - [{TIME}] "GET /a.css HTTP/1.1" 200 5000',
        f"198.51.100.1, {CLIENT} - - {TAIL}",
        f"198.51.100.1,{CLIENT} - - {TAIL}",
        f"198.51.100.1, 10.0.0.1, unknown, {CLIENT} {TAIL}",
        f"www.example:443 {CLIENT} - - {TAIL}",
        f"www.example:443 198.51.100.1, {CLIENT} - - {TAIL}",
        f"{CLIENT} - Anna Maria Smith {TAIL}",
        f"{CLIENT} - CORP\\anna {TAIL}",
        f"2001:db8::1 - - {TAIL}",
        f"client.example - - {TAIL}",
        f'"{CLIENT}" - - {TAIL}',
        f'"{COMBINED}"',
        COMBINED.replace(TIME, f"{TIME[:20]}.123 +0000"),
        COMBINED.replace(TIME, TIME[:20]),
        COMBINED.replace(TIME, TIME[:20].replace(":14", " 14")),
        COMBINED.replace(TIME, "03/Jun/2025:16:00:01 +0200"),
        COMBINED.replace(TIME, "Tue Jun 03 14:00:01 2025"),
        *(COMBINED.replace(TIME, ISO + zone) for zone in ("Z", "+00:00", ".123Z", ".123456789+00:00", "")),
        COMBINED.replace(TIME, "2025-06-03 14:00:01,123"),
        COMBINED.replace(TIME, "1748959201.123"),
        COMBINED.replace(TIME, "1748959201123"),
        "web-1  | " + COMBINED,
        f"web-1  | {ISO}.123456789Z {COMBINED}",
        f"{ISO}.123456789Z {COMBINED}",
        f"{ISO}.123456789Z stdout F {COMBINED}",
        f"Jun  3 14:00:01 web1 nginx: {COMBINED}",
        f"<190>Jun  3 14:00:01 web1 nginx: {COMBINED}",
        f"{ISO}+00:00 web1 nginx: {COMBINED}",
        '{"log":"' + COMBINED.replace('"', '\\"') + f'\\n","stream":"stdout","time":"{ISO}.1Z"}}',
    ],
    "common with more fields": [
        f"Jun  3 14:00:01 web1 nginx[1234]: {COMBINED}",
        f"<190>1 {ISO}.123Z web1 nginx 123 - [x@1 a=\"b\"] {COMBINED}",
        f"2025-06-03T23:59:59+02:00 web1 nginx[1234]: {COMBINED}",
        f"[2025-06-03T23:59:59.123Z] [relay] {COMBINED}",
        f"[02/Jun/2025:23:59:59 +0000] relay [7]: {COMBINED}",
        f'<190>1 2025-06-03T23:59:59Z web1 nginx 123 - - {CLIENT} [7] {ISO}Z "GET /a.css HTTP/1.1" 200 5000',
        f'{CLIENT} - [-] [{TIME}] "GET /a.css?since=2024-01-02T03:04:05Z HTTP/1.1" 200 5000 "/?t=2024-01-02T03:04:05" "-"',
        f"[pod/nginx-5d5/nginx] {COMBINED}",
        f"[2001:db8::9]:443 {CLIENT} - - {TAIL}",
        f'[{TIME}] {CLIENT} - - "GET /a.css HTTP/1.1" 200 5000 "-" "curl/8"',
        f'{CLIENT} - - [{TIME}] 1234 "GET /a.css HTTP/1.1" 200 5000 "-" "curl/8"',
        f'{CLIENT} - - [{TIME}] "www.example.com" "GET /a.css HTTP/1.1" 200 5000 "-" "curl/8"',
        f'{CLIENT} - - [{TIME}] "GET /a.css?q="x y" HTTP/1.1" 200 5000 "-" "-"',
        f'{ISO}.123Z {CLIENT} "GET /a.css HTTP/1.1" 200 5000 "-" "curl/8"',
        f'{CLIENT} - - {ISO}Z "GET /a.css HTTP/1.1" 200 5000',
    ],
    "JSON of Caddy": [CADDY, f"caddy-1  | {CADDY}", f"Jun  3 14:00:01 web1 caddy[1]: {CADDY}",
                      CADDY.replace("1748959201.123", f'"{ISO}.123Z"')],
    "JSON of Traefik": [
        f'{{"ClientAddr":"{CLIENT}:51234","ClientHost":"{CLIENT}","DownstreamContentSize":5000,"DownstreamStatus":200,'
        f'"RequestMethod":"GET","RequestPath":"/a.css","RequestProtocol":"HTTP/2.0","StartUTC":"{ISO}.123456Z",'
        f'"level":"info","msg":"","time":"{ISO}Z"}}',
    ],
    "JSON by nginx's names": [
        f'{{"remote_addr":"{CLIENT}","time_iso8601":"{ISO}+00:00","request":"GET /a.css HTTP/1.1","status":"200",'
        '"body_bytes_sent":"5000","http_user_agent":"curl/8"}',
        f'{{ "time_local": "{TIME}", "request_method": "GET", "request_uri": "/a.css?x=1", "status": 200, '
        '"server_protocol": "HTTP/1.1", "body_bytes_sent": 5000, "bytes_sent": 5300 }',
        f'{{"msec":"1748959201.123","remote_addr":"{CLIENT}","method":"GET","uri":"/a.css","status":200,"bytes_sent":5000}}',
        f'{{"start_time":"{ISO}.123Z","method":"GET","path":"/a.css","protocol":"HTTP/1.1","response_code":200,'
        '"bytes_sent":5000,"user_agent":"curl/8"}',
        f'{{"start_time":"{ISO}.123Z","method":"GET","path":"/a.css","protocol":"HTTP/1.1","response_code":200,'
        f'"bytes_sent":5000,"user_agent":"curl/8","downstream_remote_address":"{CLIENT}:51234"}}',
    ],
    "Envoy": [
        f'[{ISO}.310Z] "GET /a.css HTTP/2" 200 - 0 5000 226 100 "{CLIENT}" "curl/8" "cc21" "x.example" "10.0.2.1:80"',
        f'envoy-1  | [{ISO}.310Z] "GET /a.css HTTP/1.1" 200 UF,URX 12 5000 226 - "-" "curl/8" "cc21" "x.example" "-"',
        f'[{ISO}.310Z] "GET /a.css HTTP/1.1" 200 - via_upstream - "-" 0 5000 3 2 "-" "curl/8" "cc21" "x:80" '
        '"127.0.0.1:80" inbound|80|| 127.0.0.6:1 10.0.0.1:80 10.0.0.2:2 outbound_.80 default',
    ],
    "S3": [
        f'79a59df900b949e5 bucket [{TIME}] {CLIENT} 79a5 3E57427F3EXAMPLE REST.GET.OBJECT a.css '
        '"GET /bucket/a.css HTTP/1.1" 200 - 5000 5000 7 - "-" "S3Console/0.4" -',
    ],
    "ALB": [
        f"http {ISO}.186641Z app/lb/50dc6c495c0c9188 {CLIENT}:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 5000 "
        '"GET https://www.example:443/a.css HTTP/1.1" "curl/7.46.0" - - arn:aws:elasticloadbalancing:x "Root=1" "-" "-"',
        f"{ISO}.945958Z my-loadbalancer {CLIENT}:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 5000 "
        '"GET http://www.example:80/a.css HTTP/1.1" "curl/7.38.0" - -',
    ],
    "HAProxy": [
        f"Jun  3 14:00:01 localhost haproxy[14389]: {CLIENT}:33317 [{TIME[:20]}.655] http-in static/srv1 10/0/30/69/109 "
        '200 5000 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /a.css HTTP/1.1"',
        f'{CLIENT}:33317 [{TIME[:20]}.655] https~ be/<NOSRV> 0/-1/-1/-1/+0 200 +5000 - - PR-- 1/1/0/0/3 0/0 "GET /a.css HTTP/1.1"',
        f'{CLIENT}:33317 [{TIME[:20]}.655] https~ be/s 0/0/1/1/2 200 5000 - - ---- 1/1/0/0/0 0/0 "GET /a.css HTTP/1.1" '
        "0/0000000000000000/0/0/0 www.example/TLSv1.3/TLS_AES_128_GCM_SHA256",
    ],
    "Squid": [
        f"1748959201.123    120 {CLIENT} TCP_MISS/200 5000 GET http://www.example/a.css - HIER_DIRECT/192.0.2.9 text/css",
        f"web-1  | 1748959201.123    0 {CLIENT} TCP_MEM_HIT/200 5000 GET http://www.example/a.css - HIER_NONE/- text/css",
    ],
    "CloudFront": [f"2025-06-03\t14:00:01\tFRA2\t5000\t{CLIENT}\tGET\td1.cloudfront.net\t/a.css\t200\t-\tcurl\t-\t-\tHit"],
    "IIS with sizes": [f"{IIS} 5000 321 15"],
}  # fmt: skip
CASES = [(name, line) for name, lines in LINES.items() for line in lines]


def seen(log: Path, columns: str) -> tuple[Lines, tuple[object, ...]]:
    with database() as db:
        lines = read(db, [log], lambda said: None)
        return lines, one_row(db, f"SELECT {columns} FROM answers WHERE at_s IS NOT NULL")


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("ending", ["", "\r"])
def test_every_usual_format_is_recognized(tmp_path: Path, name: str, ending: str) -> None:
    log = write(tmp_path / "a.log", [line + ending for line in LINES[name]])
    with database() as db:
        lines = read(db, [log], lambda said: None)
        columns = "rowid, at_s, method, is_http, status, body_bytes, kind"
        rows = db.execute(f"SELECT {columns} FROM answers ORDER BY rowid").fetchall()
    assert rows == [(n, 1748959201, "GET", True, 200, 5000, "css") for n in range(len(LINES[name]))]
    assert dict(lines.formats) == {name: len(LINES[name])}


def test_a_log_may_mix_all_formats(tmp_path: Path) -> None:
    """As `docker compose logs` does with its services; the most frequent comes late in this one."""
    log = write(tmp_path / "a.log", [line for _, line in CASES] + [CADDY] * 2000)
    lines, row = seen(log, "count(*), count(DISTINCT at_s), sum(body_bytes)")
    assert lines.malformed == 0
    assert dict(lines.formats) == {name: len(each) for name, each in LINES.items()} | {
        "JSON of Caddy": len(LINES["JSON of Caddy"]) + 2000
    }
    assert row == (len(CASES) + 2000, 1, 5000 * (len(CASES) + 2000))


ADDRESSES = [
    "192.0.2.{n}", "2001:db8::{n}", "::{n}", "2001:db8:1:2:3:4:5:{n}", "192.0.2.{n}, 10.0.0.1",
    "198.51.100.1, 192.0.2.{n}",
]  # fmt: skip


@pytest.mark.parametrize(
    "prefix",
    ["", "web-1  | ", "Jun  3 14:00:0{i} web1 nginx: ", "Jun  3 14:00:0{i} 10.0.0.9 nginx[{i}]: ", "www.example:443 "],
)
def test_clients_are_told_apart_behind_any_prefix(tmp_path: Path, prefix: str) -> None:
    """Three clients of each kind of address, with three requests each."""
    heads = [
        (prefix + address + " - - ").format(n=n, i=i) for i in range(3) for n in range(1, 4) for address in ADDRESSES
    ]
    _, row = seen(write(tmp_path / "a.log", [head + TAIL for head in heads]), "count(DISTINCT client), count(*)")
    assert row == (3 * len(ADDRESSES), 9 * len(ADDRESSES))


IIS_FIELDS = (
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status "
    "sc-substatus sc-win32-status{sizes} time-taken"
)


def test_the_fields_of_a_w3c_log_are_those_of_its_heading(tmp_path: Path) -> None:
    """IIS after a change of its fields, and CloudFront: the columns by their names."""
    head = ["#Software: Microsoft Internet Information Services 10.0", "#Version: 1.0", "#Date: 2025-06-03 14:00:01"]
    iis = "2025-06-03 14:00:01 192.0.2.9 GET /a.css x=1 443 CORP\\anna 192.0.2.1 curl/8 200 0 0"
    cloudfront = "#Fields: date time sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs-protocol-version"
    log = write(
        tmp_path / "a.log",
        [*head, IIS_FIELDS.format(sizes=" sc-bytes cs-bytes"), f"{iis} 5000 321 15", *head,
         "#Fields: sc-bytes sc-status date time cs-method cs-uri-stem", "5000 200 2025-06-03 14:00:01 GET /a.css",
         cloudfront, "2025-06-03\t14:00:01\t5000\t192.0.2.1\tGET\tx.net\t/a.css\t200\tHTTP/2.0"],
    )  # fmt: skip
    lines, row = seen(
        log, "count(*), min(at_s), max(at_s), sum(body_bytes), min(kind), sum(status), count_if(is_http2)"
    )
    assert (lines.total, lines.malformed, dict(lines.formats)) == (3, 0, {"W3C extended": 3})
    assert row == (3, 1748959201, 1748959201, 15000, "css", 600, 1)


W3C_LINES = {"sc-bytes sc-status": "5000 200", "sc-status sc-bytes": "200 5000"}


@pytest.mark.parametrize("quiet", [0, 1500])
def test_fields_are_those_of_the_heading_above(tmp_path: Path, quiet: int) -> None:
    """Two orders of two numbers, in two files and in turn in one, however far down; and a file without any heading."""
    logs = []
    for n, (fields, numbers) in enumerate(W3C_LINES.items()):
        heading = f"#Fields: date time cs-method cs-uri-stem {fields}"
        logs.append(write(tmp_path / f"{n}.log", [heading, f"2025-06-03 14:00:01 GET /a.css {numbers}"]))
    both = [line for log in logs for line in log.read_text().splitlines()]
    logs += [write(tmp_path / "both.log", [COMBINED] * quiet + both), write(tmp_path / "clf.log", [COMBINED] * 7)]
    with database() as db:
        lines = read(db, logs, lambda said: None)
        rows = db.execute("SELECT status, body_bytes, count(*) FROM answers WHERE at_s IS NOT NULL GROUP BY ALL")
        assert rows.fetchall() == [(200, 5000, 4 + quiet + 7)]
    assert lines.formats == {COMMON: quiet + 7, "W3C extended": 4}


@pytest.mark.parametrize("lacking", ["date", "time", "cs-method", "cs-uri-stem", "sc-status", "sc-bytes"])
def test_a_heading_without_a_field_that_is_needed_is_said(tmp_path: Path, lacking: str) -> None:
    fields = {"date": "2025-06-03", "time": "14:00:01", "cs-method": "GET", "cs-uri-stem": "/", "sc-status": "200",
              "sc-bytes": "5"}  # fmt: skip
    del fields[lacking]
    log = write(tmp_path / "a.log", ["#Fields: " + " ".join(fields), " ".join(fields.values())])
    with pytest.raises(LogError, match=rf"a\.log: {lacking}: missing .*\(W3C extended\); "):
        seen(log, "count(*)")


@pytest.mark.parametrize("head", [[], [IIS_FIELDS.format(sizes="").replace("sc-status", "cs(Referer) sc-status")]])
def test_a_log_without_sizes_says_which_field_it_lacks(tmp_path: Path, head: list[str]) -> None:
    log = write(tmp_path / "a.log", [*head, f"{IIS} 15"])
    with pytest.raises(LogError, match=r"a\.log: sc-bytes: missing .*\(.*\); .*: .*server log it"):
        seen(log, "count(*)")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (COMBINED.replace("200 5000", "200 -"), (200, 0)),
        (COMBINED.replace("200 5000", "- -"), (0, 0)),
        (COMBINED.replace("200 5000", "000 0"), (0, 0)),
        (LINES["HAProxy"][1].replace("200 +5000", "-1 0"), (0, 0)),
        (LINES["S3"][0].replace("200 - 5000", "304 - -"), (304, 0)),
        (LINES["ALB"][0].replace("200 200 34", "- - 34"), (0, 5000)),
    ],
)  # fmt: skip
def test_an_answer_without_status_or_size_is_a_request(tmp_path: Path, line: str, expected: tuple[int, int]) -> None:
    lines, row = seen(write(tmp_path / "a.log", [line]), "status, body_bytes")
    assert (lines.malformed, row) == (0, expected)


def test_a_leap_second_is_a_second(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", [COMBINED.replace(TIME, "31/Dec/2016:23:59:60 +0000")])
    assert seen(log, "at_s")[1] == (1483228799,)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['INFO:     127.0.0.1:51234 - "GET /a.css HTTP/1.1" 200 OK'],
         'line 1 is in no known format (a:     9.9.9.9:9 - "a /a.a a/9.9" 9 a), and so are 1 of 1 lines; each line needs'),
        ([COMBINED] * 7 + ['{"request": "GET /secret", "status": 200}'] * 3,
         'line 8 is in no known format ({"a": "a /a", "a": 9}), and so are 3 of 10 lines;'),
    ],
)  # fmt: skip
def test_a_fifth_of_malformed_lines_is_an_error_that_shows_one(tmp_path: Path, lines: list[str], said: str) -> None:
    log = write(tmp_path / "a.log", lines)
    with pytest.raises(LogError) as caught:
        seen(log, "count(*)")
    assert str(caught.value).startswith(f"{log}: {said}")
    assert "secret" not in str(caught.value)
