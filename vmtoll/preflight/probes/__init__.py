"""Programs that are run on a machine: standard-library Python 3.9, one line of JSON."""
