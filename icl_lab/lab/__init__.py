"""An experiment and what surrounds it."""
