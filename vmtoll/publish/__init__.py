"""Bundles: a run as a data set that others can read, check, cite and re-run."""
