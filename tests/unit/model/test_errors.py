"""An error on a file knows the file and its sentence apart."""

from pathlib import Path

import pytest

from vmtoll.model.errors import ExperimentError

DRAFT, WORKLOAD = Path("/tmp/vmtoll-ab-x/metal-kvm.yml"), Path("workloads/mine.yml")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ExperimentError("blocks: is missing", DRAFT), "blocks: is missing"),
        (ExperimentError("tool: is missing", WORKLOAD), "workloads/mine.yml: tool: is missing"),
        (ExperimentError("servers: none is left"), "servers: none is left"),
    ],
)
def test_a_draft_is_not_named_and_a_users_file_is(error: ExperimentError, said: str) -> None:
    assert str(error.without(DRAFT)) == said


def test_the_message_names_the_file_first() -> None:
    assert str(ExperimentError("blocks: is missing", DRAFT)) == f"{DRAFT}: blocks: is missing"
