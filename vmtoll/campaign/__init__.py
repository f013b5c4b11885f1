"""Campaigns: experiments on many test beds at the same time, and what virtualization costs across them."""
