"""The embedded lab: its image, its topology, its machines."""
