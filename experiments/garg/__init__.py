"""Garg et al. 2022, What can transformers learn in-context? A case study of simple function classes."""
