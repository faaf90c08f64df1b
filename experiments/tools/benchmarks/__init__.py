"""The parts of ``experiments.benchmark``, each ``Config -> rows``."""
