"""The run of the demo that the repository carries."""

from vmtoll.paths import PROJECT

DEMO = PROJECT / "results" / "demo" / "20261123T050551Z-9a22"
