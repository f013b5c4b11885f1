"""Programs that checks run on a machine: standard-library Python 3.9; each prints one line of JSON."""
