"""Members trained in one program: ``fit``, with what it measures, how members share devices, and interventions."""

from icl_lab.training.fitting import Fit, Progress, Resume, fit

__all__ = ["Fit", "Progress", "Resume", "fit"]
