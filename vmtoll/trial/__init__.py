"""One trial: its load, what is observed meanwhile, and its record."""
