"""Tools over all binaries: their runs, the committed records, times. Nothing that decides a number is here."""
