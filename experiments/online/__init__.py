"""Layers that learn online, one example after the other: beyond the four papers."""
