"""The vocabulary that every room shares; it imports nothing of vmtoll."""
