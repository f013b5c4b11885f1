"""Sentences with blanks, words of codes, and values with their intervals."""

import re
from typing import Any

import pytest

from vmtoll.model.claim import ReasonCode
from vmtoll.model.finding import FINDINGS, Code
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import blanks, digits, message, spread
from vmtoll.model.runtime import runtime_text
from vmtoll.model.verdict import Kind


@pytest.mark.parametrize(
    ("sentence", "values", "text"),
    [
        ("used {share:percent}[ (limit {limit:percent})]", {"share": 0.861, "limit": 0.85}, "used 86.1% (limit 85%)"),
        ("used {share:percent}[ (limit {limit:percent})]", {"share": 0.861}, "used 86.1%"),
        ("{count:plural request} failed[ of {planned}]", {"count": 1200, "planned": 0}, "1,200 requests failed"),
        ("{count:plural process}, {other:plural process}", {"count": 1, "other": 2}, "1 process, 2 processes"),
        ("{count:plural message} lost in {time:.1f} s", {}, "unknown messages lost in unknown s"),
        ("{kind:words}[: {names:list}]", {"kind": "service_time", "names": ["a[1]", "b"]}, "service time: a[1], b"),
        ("{size:ratio}× or {small:number}", {"size": 1.0071, "small": 0.01234}, "1.007× or 0.0123"),
    ],
)
def test_a_part_in_brackets_needs_its_values(sentence: str, values: dict[str, Any], text: str) -> None:
    assert message(sentence, values) == text


def test_a_code_has_words_or_reads_as_itself() -> None:
    assert (Kind.EQUIVALENT.value, Kind.EQUIVALENT.text, Kind("equivalent")) == ("equivalent", "equal", Kind.EQUIVALENT)
    assert (Kind.NOT_JUDGED.text, f"{Hardware.NESTED}") == ("not judged", "nested")


def test_a_value_has_its_interval_behind_its_unit() -> None:
    assert spread(1.2, (1.1, 1.3), digits, "×") == "1.20× (1.10 to 1.30)"
    assert spread(1.2, None, digits, "×") == "1.20×"


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        ({}, ""),
        ({"runtime": "process", "network": "host"}, "a plain process of the host, without a container"),
        (
            {"runtime": "runc", "version": "1.1.5", "stack": "host"},
            "a runc container on the host's kernel, version 1.1.5",
        ),
        (
            {"runtime": "runsc", "version": "20260101.0", "platform": "systrap", "stack": "host"},
            "a gVisor sandbox (runsc), whose own kernel answers the system calls, version 20260101.0, by systrap, with "
            "the host's TCP stack",
        ),
        ({"runtime": "kata", "platform": None}, "a Kata container in a virtual machine"),
    ],
)
def test_a_runtime_has_its_own_words(recorded: dict[str, Any], text: str) -> None:
    assert runtime_text(recorded) == text


@pytest.mark.parametrize("code", [*FINDINGS, *ReasonCode])
def test_no_sentence_writes_a_number_in_powers_of_ten(code: Code | ReasonCode) -> None:
    sentence = FINDINGS[code].sentence if isinstance(code, Code) else code.text
    values: dict[str, Any] = dict.fromkeys(blanks(sentence), 12345.678)
    for names in re.findall(r"{(\w+):list}", sentence):
        values[names] = ()
    assert not re.search(r"[0-9]e[+-]?[0-9]", message(sentence, values))
