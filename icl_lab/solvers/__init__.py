"""Learners that are algorithms: each constructor returns a function ``Prompt -> (O,) prediction``."""

from icl_lab.solvers.gradient import gd_plus_plus, gradient_descent
from icl_lab.solvers.least_squares import least_squares, ridge

__all__ = ["gd_plus_plus", "gradient_descent", "least_squares", "ridge"]
