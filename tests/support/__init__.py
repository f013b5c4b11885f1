"""Common parts of tests: synthetic runs, machines that all run on this one, recorded outputs of tools."""
