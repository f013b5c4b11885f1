"""Turn trial records into verdicts: pair, test, judge."""
