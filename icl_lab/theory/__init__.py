"""Closed forms in float64, and minima of them."""

from icl_lab.theory.attention_blocks import block_loss, spurious_curvature, spurious_point
from icl_lab.theory.finite_sets import overfitting_coefficient
from icl_lab.theory.gd_plus_plus import (
    condition_number,
    eigenvalue_density,
    gd_plus_plus_condition_number,
    gd_plus_plus_eigenvalues,
    gd_plus_plus_peak,
    residual_factor,
)
from icl_lab.theory.linear_attention import (
    gamma,
    isotropic_risk,
    optimal_loss,
    optimum,
    population_loss,
    principal_components_loss,
    risk,
    spurious_loss,
)
from icl_lab.theory.linear_regression import (
    centred_step_optimum,
    input_kurtosis,
    one_step_loss,
    one_step_loss_out_of_distribution,
    one_step_optimum,
)
from icl_lab.theory.random_covariance import (
    expected_variance,
    failure_law,
    initial_scale_bound,
    random_covariance_loss,
    random_covariance_optimum,
    random_covariance_risk,
    random_covariance_scale,
    regression_slope,
    variance_moments,
)

__all__ = [
    "block_loss",
    "centred_step_optimum",
    "condition_number",
    "eigenvalue_density",
    "expected_variance",
    "failure_law",
    "gamma",
    "gd_plus_plus_condition_number",
    "gd_plus_plus_eigenvalues",
    "gd_plus_plus_peak",
    "initial_scale_bound",
    "input_kurtosis",
    "isotropic_risk",
    "one_step_loss",
    "one_step_loss_out_of_distribution",
    "one_step_optimum",
    "optimal_loss",
    "optimum",
    "overfitting_coefficient",
    "population_loss",
    "principal_components_loss",
    "random_covariance_loss",
    "random_covariance_optimum",
    "random_covariance_risk",
    "random_covariance_scale",
    "regression_slope",
    "residual_factor",
    "risk",
    "spurious_curvature",
    "spurious_loss",
    "spurious_point",
    "variance_moments",
]
