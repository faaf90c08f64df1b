"""What is asked in context: prompts, samples, and the samplers ``(key, batch) -> Sample`` that draw them."""

from icl_lab.prompts.logistic import logistic_regression
from icl_lab.prompts.prompt import BatchLearner, Learner, Prompt, Sample, Sampler, same_tasks
from icl_lab.prompts.regression import INPUT_LAWS, input_variance, linear_regression
from icl_lab.prompts.sine import sine_regression

__all__ = [
    "INPUT_LAWS",
    "BatchLearner",
    "Learner",
    "Prompt",
    "Sample",
    "Sampler",
    "input_variance",
    "linear_regression",
    "logistic_regression",
    "same_tasks",
    "sine_regression",
]
