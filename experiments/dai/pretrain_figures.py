"""Figures of ``pretrain``."""
def figures(record): return {}
