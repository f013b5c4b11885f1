"""The vocabulary that every package shares; it imports no other package of vmtoll."""
