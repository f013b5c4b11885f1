"""Bring machines into the state that a measurement needs: guests first, then everything else."""
