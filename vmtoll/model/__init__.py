"""The vocabulary that every package shares; it imports nothing of vmtoll."""
