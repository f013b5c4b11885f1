"""When machines agree in a fact."""

from typing import Any

import pytest

from vmtoll.machines.differences import differences
from vmtoll.model.facts import agree


@pytest.mark.parametrize(
    ("name", "values", "do_agree"),
    [
        ("memory_kib", [988_540, 988_536], True),  # two emulated guests of one definition but for QEMU's name
        ("memory_kib", ["988540", "988536"], True),
        ("memory_kib", [988_540, 990_156], False),
        ("memory_kib", [988_540, None], False),
        ("memory_kib", [None, None], True),
        ("microcode", [1, 2], False),
        ("smt", ["off", "off"], True),
    ],
)
def test_memory_may_differ_by_some_pages(name: str, values: list[Any], do_agree: bool) -> None:
    assert agree(name, values) is do_agree
    assert (not differences({str(n): {name: value} for n, value in enumerate(values)}, []).undeclared) is do_agree
