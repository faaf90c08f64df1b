"""von Oswald et al. 2022/2023: Transformers learn in-context by gradient descent (arXiv 2212.07677)."""
