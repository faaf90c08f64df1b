"""Imported by a process that others are forked from: its sources and its commit are those of their records."""

from icl_lab.lab.provenance import checked_out, loaded

loaded()
checked_out()
