"""Imported by a process that others are forked from: the sources that it has loaded are those of their records."""

from icl_lab.lab.provenance import loaded

loaded()
