"""What is asked in context: prompts, samples, and the samplers ``(key, batch) -> Sample`` that draw them."""

from icl_lab.prompts.gaussian import VARIANCE_LAWS, gaussian_regression, random_covariance_regression
from icl_lab.prompts.item_label import (
    NOVEL_CLASSES,
    ItemLabelLaw,
    burstiness_values,
    copies_without_bursts,
    evaluation_laws,
    item_label_classification,
    item_label_law,
)
from icl_lab.prompts.logistic import logistic_regression
from icl_lab.prompts.prompt import (
    BatchLearner,
    Learner,
    Members,
    Prompt,
    Sample,
    Sampler,
    ShapeError,
    one_prompt,
    same_tasks,
)
from icl_lab.prompts.regression import INPUT_LAWS, input_variance, linear_regression
from icl_lab.prompts.shifts import context_in_an_orthant, correlated_context, in_a_subspace, with_orthogonal_query
from icl_lab.prompts.sine import sine_regression

__all__ = [
    "INPUT_LAWS",
    "NOVEL_CLASSES",
    "VARIANCE_LAWS",
    "BatchLearner",
    "ItemLabelLaw",
    "Learner",
    "Members",
    "Prompt",
    "Sample",
    "Sampler",
    "ShapeError",
    "burstiness_values",
    "context_in_an_orthant",
    "copies_without_bursts",
    "correlated_context",
    "evaluation_laws",
    "gaussian_regression",
    "in_a_subspace",
    "input_variance",
    "item_label_classification",
    "item_label_law",
    "linear_regression",
    "logistic_regression",
    "one_prompt",
    "random_covariance_regression",
    "same_tasks",
    "sine_regression",
    "with_orthogonal_query",
]
