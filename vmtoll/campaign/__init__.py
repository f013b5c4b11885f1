"""Campaigns: run experiments on many test beds in parallel, and judge what virtualization costs across them."""
