"""A second opinion on verdicts: the cases for a program that is written from docs/statistics.md alone."""
