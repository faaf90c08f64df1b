"""Gradient descent and GD++ on in-context linear regression: best steps, spectra, what finite data costs."""
