"""Dai et al. 2022/2023: Why can GPT learn in-context? (arXiv 2212.10559): attention as implicit fine-tuning."""
