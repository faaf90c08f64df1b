"""Members trained in one program: ``fit``, with what it measures, how members share devices, and interventions."""

from icl_lab.training.fitting import Fit, Resume, fit
from icl_lab.training.model import Model
from icl_lab.training.plans import Training, training
from icl_lab.training.prefixes import curriculum, every_prefix, rising
from icl_lab.training.trained import Trained, train

__all__ = [
    "Fit",
    "Model",
    "Resume",
    "Trained",
    "Training",
    "curriculum",
    "every_prefix",
    "fit",
    "rising",
    "train",
    "training",
]
