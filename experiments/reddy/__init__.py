"""Reddy 2023, The mechanistic basis of data dependence and abrupt learning in an in-context classification task."""
