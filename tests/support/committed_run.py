"""The run of the demo that the repository carries."""

from vmtoll.paths import PROJECT

DEMO = PROJECT / "results" / "demo" / "20261121T060947Z-38bc"
