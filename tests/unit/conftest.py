"""Fixtures that need no process, and the guard of what is a user's."""

from collections.abc import Generator

import pytest

from tests.support.machines import project, rewrite
from tests.support.users_state import KEPT, guarded

__all__ = ["project", "rewrite"]


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write pages without charts, for tests of their words: to draw the charts takes most of a page's time."""
    monkeypatch.setattr("vmtoll.report.charts.draw_all", lambda run, analysis, only=(): [])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import the modules of tests without reading what is a user's."""
    with guarded(KEPT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Run each test so."""
    with guarded(KEPT):
        return (yield)
