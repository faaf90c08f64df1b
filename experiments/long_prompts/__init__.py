"""Softmax attention on long prompts: one head, two heads, and the law of each."""
