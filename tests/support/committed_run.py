"""The run of the demo that the repository carries."""

from vmtoll.paths import PROJECT

DEMO = PROJECT / "results" / "demo" / "20261126T022209Z-9a1e"
