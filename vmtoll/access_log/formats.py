"""The formats of access logs, one entry each, and the SQL that parses a line by them.

The groups of a regex have these names: client, time (or date and time), request (or method, path and version), answer
(or status and bytes), agent. JSON formats have paths for each of these. The first format that fits a line counts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_CLF_TIME = r"[0-9]{1,2}/[A-Z][a-z]{2}/[0-9]{4}[: ][0-9:.]+(?: [+-][0-9]{4})?"
_ISO_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9:.,]+(?: ?[+-][0-9:]{4,6}|Z)?"
_ANSWER = r"(?P<answer>(?:[0-9]{3}|-) (?:[0-9]+|-))(?:[\" \r]|$)"
_ADDRESS = (  # never a time of the day
    r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F:]*::[0-9a-fA-F:]*|(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}"
)
_PORT = r"^([0-9.]+|\[.*\]):[0-9]+$"

_W3C_FIELDS = {
    "date": "date", "time": "time", "c-ip": "client", "cs-method": "method", "cs-uri-stem": "path",
    "cs-version": "version", "cs-protocol-version": "version", "sc-status": "status", "sc-bytes": "bytes",
    "cs(User-Agent)": "agent",
}  # fmt: skip
_W3C_SHAPES = {"date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "time": "[0-9:.]+", "status": "[0-9]{3}", "bytes": "[0-9]+|-"}
_W3C_OTHER = r"[^ \t]*"
_W3C_NEEDED = ("date", "time", "method", "path", "status", "bytes")


def quoted(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Format:
    """One format of a line, parsed by a regex or by JSON paths (`keys`; the first path that the line has counts)."""

    name: str
    regex: str = ""
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # `client` holds everything before the time, including prefixes of containers and syslog
    client_is_prefix: bool = False
    missing_fields: str = ""  # fields that a workload needs and this format does not have
    agent: str = "''"  # SQL for the agent if the regex has no such group
    only_if: str = "true"  # SQL, false for lines of another format that the regex matches too
    counts_headers: bool = False  # its sizes include the headers

    @property
    def groups(self) -> list[str]:
        """The names of the regex's groups, in order."""
        return list(re.compile(self.regex).groupindex) if self.regex else list(self.keys)


def w3c(fields: str, name: str, heading: int = 0) -> Format:
    """Return the format of a log with these fields (`#Fields:` of the W3C's Extended Log File Format).

    `heading`: the value of the column `heading` for lines below this heading; 0 for lines below none.
    """
    seen: set[str] = set()
    patterns = []
    for w3c_field in fields.split():
        group = _W3C_FIELDS.get(w3c_field)
        if group and group not in seen:
            seen.add(group)
            patterns.append(f"(?P<{group}>{_W3C_SHAPES.get(group, _W3C_OTHER)})")
        else:
            patterns.append(rf'(?:"[^"]*"|{_W3C_OTHER})')
    names = {group: w3c_field for w3c_field, group in reversed(_W3C_FIELDS.items())}
    missing_fields = ", ".join(names[group] for group in _W3C_NEEDED if group not in seen)
    regex = r"^" + r"[ \t]".join(patterns) + r"(?:[ \t\r]|$)"
    return Format(name, regex, missing_fields=missing_fields, only_if=f"heading = {heading}", counts_headers=True)


_QUOTED = r'"(?P<request>(?:[^"\\]|\\.)*)"'
_IIS = (
    "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status "
    "sc-substatus sc-win32-status"
)
# Envoy's default, and Istio's, which has three more fields after the flags.
ENVOY = Format(
    "Envoy",
    rf'\[(?P<time>{_ISO_TIME})\] {_QUOTED} (?P<status>[0-9]{{1,3}}) [^ ]+ (?:[^ ]+ [^ ]+ "[^"]*" )?[0-9]+ '
    r'(?P<bytes>[0-9]+) [0-9]+ [-0-9]+ "(?P<client>[^"]*)" "(?P<agent>[^"]*)"',
)  # fmt: skip
# At most four groups in the first format: with more, RE2 leaves its fast path and takes three times as long. Lines of
# Envoy match too: where this format has the size, they have their flags, mostly "-".
CLF = Format(
    "common or combined",
    rf'^(?P<client>[^\[]*)\[(?P<time>[^\]]+)\] {_QUOTED} {_ANSWER}',
    client_is_prefix=True, agent="split_part(text, '\"', 6)",
    only_if=f"CASE WHEN ends_with(m.answer, ' -') THEN NOT regexp_matches(text, {quoted(ENVOY.regex)}) ELSE true END",
)  # fmt: skip
# Matches lines of some other formats too, so it comes last. Of several times it takes the last one before the request,
# because a relay writes its own in front.
LOOSE = Format(
    "common with more fields",
    rf'^(?P<client>(?:.*[^0-9A-Za-z])?)\[?(?P<time>{_CLF_TIME}|{_ISO_TIME})\]?(?P<between>.*?) ?'
    rf'"(?P<request>[A-Z]+ .*?|[^"]*)" {_ANSWER}',
    client_is_prefix=True, agent="regexp_extract(text, '\"([^\"]*)\"[^\"]*$', 1)",
)  # fmt: skip
FORMATS = (
    CLF,
    ENVOY,
    Format("JSON of Caddy", keys={
        "client": ["$.request.client_ip", "$.request.remote_ip", "$.request.remote_addr"], "time": ["$.ts"],
        "method": ["$.request.method"], "path": ["$.request.uri"], "version": ["$.request.proto"],
        "status": ["$.status"], "bytes": ["$.size"], "agent": ['$.request.headers."User-Agent"[0]'],
    }),
    Format("JSON of Traefik", keys={
        "client": ["$.ClientHost", "$.ClientAddr"], "time": ["$.StartUTC", "$.StartLocal", "$.time"],
        "method": ["$.RequestMethod"], "path": ["$.RequestPath"], "version": ["$.RequestProtocol"],
        "status": ["$.DownstreamStatus"], "bytes": ["$.DownstreamContentSize"],
        "agent": ['$."request_User-Agent"', '$."request_user-agent"'],
    }),
    Format("JSON by nginx's names", keys={
        "client": ["$.remote_addr", "$.http_x_forwarded_for", "$.client_ip", "$.clientip", "$.remote_ip", "$.client",
                   "$.x_forwarded_for", "$.downstream_remote_address"],
        "time": ["$.time_iso8601", "$.msec", "$.time_local", "$.timestamp", '$."@timestamp"', "$.time", "$.ts",
                 "$.start_time"],
        "request": ["$.request"], "method": ["$.request_method", "$.method"],
        "path": ["$.request_uri", "$.uri", "$.url", "$.path"],
        "version": ["$.server_protocol", "$.protocol", "$.proto"], "status": ["$.status", "$.response_code"],
        "bytes": ["$.body_bytes_sent", "$.bytes_sent", "$.size", "$.bytes"],
        "agent": ["$.http_user_agent", "$.user_agent", "$.agent"],
    }),
    Format("S3", rf'(?P<bucket>[^ ]+) \[(?P<time>{_CLF_TIME})\] (?P<client>[^ ]+) [^ ]+ [^ ]+ [A-Z0-9.]+\.[A-Z0-9._]+ '
           rf'[^ ]+ {_QUOTED} (?P<status>[0-9]{{3}}|-) [^ ]+ (?P<bytes>[0-9]+|-) '),
    Format("ALB", rf'(?:^| )(?P<time>{_ISO_TIME}) [^ ]+ (?P<client>[^ ]+):[0-9]+ [^ ]+ [-0-9.]+ [-0-9.]+ [-0-9.]+ '
           rf'(?P<status>[0-9]{{3}}|-) [^ ]+ [0-9]+ (?P<bytes>[0-9]+) {_QUOTED} "(?P<agent>[^"]*)"',
           counts_headers=True),
    Format("HAProxy", rf'(?P<client>[^ ]+):[0-9]+ \[(?P<time>{_CLF_TIME})\] [^ ]+ [^ ]+ [-+0-9/]+ '
           r'(?P<status>[0-9]{3}|-1) \+?(?P<bytes>[0-9]+) .* "(?P<request>[^"]+)"?(?: [^ "]+/[^ "]+/[^"]*)?\r?$',
           counts_headers=True),
    Format("Squid", r"(?:^| )(?P<time>[0-9]{9,}\.[0-9]{3}) +[-0-9]+ (?P<client>[^ ]+) [A-Z_]+/(?P<status>[0-9]{3}) "
           r"(?P<bytes>[0-9]+) (?P<method>[^ ]+) (?P<path>[^ ]+) ", counts_headers=True),
    w3c("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent)",
        "CloudFront"),
    w3c(f"{_IIS} sc-bytes cs-bytes time-taken", "IIS with sizes"),
    w3c(f"{_IIS} time-taken", "IIS without sizes"),
    LOOSE,
)  # fmt: skip

# Docker's json-file driver wraps each line.
_TEXT = """CASE WHEN starts_with(line, '{"log":"') THEN TRY(rtrim(json_extract_string(line, '$.log'), chr(10)))
                ELSE line END"""
# Text before the JSON is a prefix from a container's log or from syslog.
_IS_JSON = r"""regexp_matches(text, '^[^{"]*\{ *"')"""
_JSON = "text[position('{' IN text):]"
# Without `escape=json` in the format, nginx writes an octet as \x16, which is not JSON.
_NGINX_JSON = rf"regexp_replace({_JSON}, '\\x([0-9A-Fa-f]{{2}})', '\\u00\1', 'g')"


def parse_sql(source: str, formats: Sequence[Format]) -> str:
    """Return SQL that parses `source` (columns filename, number, line, heading).

    It gives filename, number, text, `format` (the position in `formats`, null if none fits) and these parts as texts:
    client, time, request, answer, agent. Only lines that the first format does not fit are tried with the others.
    """
    others = ", ".join(_other(each, i) for i, each in enumerate(formats) if i)
    own_parts = ", ".join(f"{sql} AS own_{part}" for part, sql in _parts(formats[0]).items())
    parts = ", ".join(f"CASE WHEN fits THEN own_{part} ELSE others.{part} END AS {part}" for part in _PARTS)
    return f"""
        WITH texts AS (SELECT *, {_TEXT} AS text FROM {source}),
        matched AS (SELECT *, {_match(formats[0])} AS m FROM texts),
        first AS (
            SELECT * EXCLUDE (m), coalesce(m.time, '') <> '' AND {formats[0].only_if} AS fits, {own_parts} FROM matched
        ),
        tried AS (SELECT *, CASE WHEN NOT fits THEN coalesce({others}) END AS others FROM first)
        SELECT filename, number, text, CASE WHEN fits THEN 0 ELSE others.format END AS format, {parts} FROM tried
    """


def _other(line_format: Format, position: int) -> str:
    """SQL of a struct of the parts, null if the format does not fit; with the lambda, the regex runs once."""
    parts = ", ".join(f"{part} := {sql}" for part, sql in _parts(line_format).items())
    struct = f"CASE WHEN m.time <> '' AND {line_format.only_if} THEN struct_pack(format := {position}, {parts}) END"
    return f"list_transform([{_match(line_format)}], lambda m: {struct})[1]"


def _parts(line_format: Format) -> dict[str, str]:
    """SQL of each part; all are empty if the format lacks fields."""
    return {part: "''" if line_format.missing_fields else of(line_format) for part, of in _PARTS.items()}


def _match(line_format: Format) -> str:
    """SQL of a struct with the groups of a line; its `time` is empty or null if the format does not fit.

    JSON fits with a time and a request or path.
    """
    if line_format.missing_fields:
        return f"struct_pack(time := if(regexp_matches(text, {quoted(line_format.regex)}), '-', ''))"
    if line_format.regex:
        return f"regexp_extract(text, {quoted(line_format.regex)}, {line_format.groups})"
    paths = [path for alternatives in line_format.keys.values() for path in alternatives]
    parts = {
        group: f"coalesce({', '.join(f'v[{paths.index(path) + 1}]' for path in alternatives)}, '')"
        for group, alternatives in line_format.keys.items()
    }
    wanted = " || ".join(parts[group] for group in ("request", "path") if group in parts)
    parts["time"] = f"if({wanted} = '', '', {parts['time']})"
    struct = f"struct_pack({', '.join(f'{group} := {value}' for group, value in parts.items())})"
    json_values = "TRY(json_extract_string({}, [" + ", ".join(map(quoted, paths)) + "]))"
    values = f"coalesce({json_values.format(_JSON)}, {json_values.format(_NGINX_JSON)})"
    return f"CASE WHEN {_IS_JSON} THEN list_transform([{values}], lambda v: {struct})[1] END"


def _client(line_format: Format) -> str:
    """SQL of the text that identifies a client.

    With `client_is_prefix`: what precedes identity and user. It is only the addresses if a time precedes
    them too, or if the format has text between time and request (the addresses there included).
    """
    if not line_format.client_is_prefix:
        client = "m.client" if "client" in line_format.groups else "''"
        return client if line_format.regex else f"regexp_replace({client}, {quoted(_PORT)}, '\\1')"
    prefix = "m.client || m.between" if "between" in line_format.groups else "m.client"
    addresses = f"array_to_string(regexp_extract_all({prefix}, {quoted(_ADDRESS)}), ' ')"
    if "between" in line_format.groups:
        return addresses
    return (
        f"CASE WHEN contains({prefix}, ':') AND regexp_matches({prefix}, '[0-9]:[0-9][0-9]:[0-9][0-9]') "
        f"THEN {addresses} "
        f"WHEN ends_with({prefix}, ' - - ') THEN {prefix} ELSE regexp_replace({prefix}, '[^ ]+ [^ ]+ $', '- - ') END"
    )


def _time(line_format: Format) -> str:
    return "m.date || ' ' || m.time" if "date" in line_format.groups else "m.time"


def _request(line_format: Format) -> str:
    """SQL of method, path and version; HTTP/1.1 where the format has no version."""
    if "method" not in line_format.groups:
        return "m.request"
    version = "if(m.version IN ('', '-'), 'HTTP/1.1', m.version)" if "version" in line_format.groups else "'HTTP/1.1'"
    pieces = f"m.method || ' ' || m.path || ' ' || {version}"
    return f"if(m.request <> '', m.request, {pieces})" if "request" in line_format.groups else pieces


def _answer(line_format: Format) -> str:
    return "m.answer" if "answer" in line_format.groups else "m.status || ' ' || m.bytes"


def _agent(line_format: Format) -> str:
    return "m.agent" if "agent" in line_format.groups else line_format.agent


_PARTS = {"client": _client, "time": _time, "request": _request, "answer": _answer, "agent": _agent}
