"""Zhang, Frei & Bartlett 2023: trained transformers learn linear models in-context, and the theory around it."""
