"""Sweeps: every cell of a grid as a run of its own, in worker processes or as jobs of a cluster."""
