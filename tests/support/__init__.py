"""Common parts of tests: synthetic runs, machines that are all this one, recorded outputs of tools."""
