"""The checks, one per file: each has `ORDER`, and `check(lab)`, which yields results."""
