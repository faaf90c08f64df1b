"""Experiments that are computed in the page, on the reader's own input."""
