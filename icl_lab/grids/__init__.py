"""Grids of settings: cells, one program for many of them, one record, one table and one figure form."""
