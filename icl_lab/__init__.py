"""icl_lab: a JAX/Flax toy-model laboratory for in-context learning.

A learner is a function ``Prompt -> prediction``; trained networks, hand-built weights and classical solvers all have
that one type, so any two of them can be compared.
"""
