"""Payloads of findings: typed beside their text, and read from the text of older records."""

import json
from dataclasses import replace

import pytest

from tests.support.records import make_record
from vmtoll.model.code import Code
from vmtoll.model.finding import Finding
from vmtoll.model.payload import (
    PAYLOADS,
    ClockSources,
    Difference,
    Fingerprint,
    HostedMachine,
    OfferedRate,
    Payload,
    Ports,
    Successes,
    Sysctls,
    TimesKind,
    Unsent,
    WrongBody,
)
from vmtoll.model.trial import from_json, to_json

EXAMPLES: dict[str, Payload] = {
    "unsent": Unsent(),
    "1e+10": OfferedRate(1e10),
    "response_time": TimesKind("response_time"),
    "51/100": Ports(51, 100),
    "metal": HostedMachine("metal"),
    "tsc -> hpet": ClockSources("tsc", "hpet"),
    "590/600": Successes(590, 600),
    "a.html (status 200, 3 bytes)": WrongBody("a.html (status 200, 3 bytes)"),
    "a: 1 -> 2; b: 4096\t87380 -> None": Sysctls((Difference("a", "1", "2"), Difference("b", "4096\t87380", "None"))),
    "config_sha256, workers": Fingerprint(("config_sha256", "workers")),
    "TLS kernel: True -> False": Fingerprint(differences=(Difference("TLS kernel", "True", "False"),)),
}  # fmt: skip


def test_every_payload_has_an_example() -> None:
    assert {type(payload) for payload in EXAMPLES.values()} == set(PAYLOADS.values())


@pytest.mark.parametrize(("detail", "payload"), EXAMPLES.items(), ids=lambda value: str(value)[:20])
def test_a_record_keeps_the_payload_and_an_older_one_gets_it_from_its_text(detail: str, payload: Payload) -> None:
    finding = Finding(payload.code, 3.0, 1.0, payload=payload)
    assert finding.detail == detail
    line = to_json(make_record(findings=(finding,)))
    assert from_json(line).findings == (finding,)
    older = json.loads(line)
    del older["findings"][0]["payload"]
    assert from_json(json.dumps(older)).findings == (finding,)


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (Code.PORTS_EXHAUSTED, "many"),
        (Code.FAILED_REQUESTS, "5"),
        (Code.MEAN_OVER_P99, "lateness"),
        (Code.CLIENT_SATURATED, "x"),
        (Code.SYSCTL, "a changed"),
        (Code.CLOCK_SOURCE, "hpet"),
        (Code.TOOL_FAILED, "exit status 1"),
    ],
)
def test_a_text_that_is_no_payload_stays_as_it_is(code: Code, detail: str) -> None:
    finding = Finding(code, detail=detail)
    assert (finding.payload, finding.detail) == (None, detail)


def test_a_changed_text_changes_the_payload() -> None:
    finding = Finding(Code.HOST_BACKGROUND_CPU, payload=HostedMachine("vm-vega"))
    assert replace(finding, detail="metal", payload=None).payload == HostedMachine("metal")
