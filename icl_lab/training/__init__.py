"""Members trained in one program: ``fit``, with what it measures, how members share devices, and interventions."""

from icl_lab.training.fitting import Fit, Resume, fit

__all__ = ["Fit", "Resume", "fit"]
