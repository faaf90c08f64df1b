"""What is asked in context: prompts, samples, and the samplers ``(key, batch) -> Sample`` that draw them."""

from icl_lab.prompts.prompt import Learner, Prompt, Sample, Sampler
from icl_lab.prompts.regression import INPUT_LAWS, input_variance, linear_regression

__all__ = ["INPUT_LAWS", "Learner", "Prompt", "Sample", "Sampler", "input_variance", "linear_regression"]
