"""From trial records to verdicts: pair, test, judge."""
