"""Looped and free layers of linear self-attention."""
