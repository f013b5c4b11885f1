"""The checks, one a file: `ORDER`, and `check(lab)` that gives findings."""
