"""A new solver: Newton's method on the loss of ridge regression, compared with gradient descent and ridge itself.

A solver is a function that returns a learner ``Prompt -> (O,)``, so ``compare`` takes it beside any other learner.
The loss is quadratic, so one full Newton step from zero is ridge regression, and after k damped steps the prediction is
1 - (1 - damping)^k of it. Gradient descent comes near it only after many steps.
"""

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.compare import compare
from icl_lab.prompts import Learner, Prompt, linear_regression
from icl_lab.prompts.prompt import check_prompt
from icl_lab.solvers import gradient_descent, ridge


def newton(strength: float, steps: int = 1, damping: float = 1.0) -> Learner:
    """Newton's method on L(W) = 1/2 sum_i |W^T x_i - y_i|^2 + lambda/2 |W|^2 from zero; predicts W^T x_q.

    W <- W - damping H^-1 grad L(W), with the Hessian H by automatic differentiation.

    Args:
      strength: lambda > 0, as in ``ridge``.
      steps: k.
      damping: factor on every step, 1 for the full step.

    Raises:
      ValueError: for a strength of 0 or below (the Hessian may be singular), or steps below 1.
    """
    if strength <= 0 or steps < 1:
        raise ValueError(f"strength must be above 0 and steps at least 1, got {strength} and {steps}")

    def predict(prompt: Prompt) -> Array:
        _, d, o = check_prompt(prompt)  # (N, D, O); refuses a batch

        def loss(flat: Array) -> Array:
            w = flat.reshape(d, o)
            return 0.5 * jnp.sum((prompt.x @ w - prompt.y) ** 2) + 0.5 * strength * jnp.sum(w**2)

        flat = jnp.zeros(d * o, prompt.y.dtype)
        hessian = jax.hessian(loss)(flat)  # the same everywhere: the loss is quadratic
        for _ in range(steps):
            flat = flat - damping * jnp.linalg.solve(hessian, jax.grad(loss)(flat))
        return prompt.x_query @ flat.reshape(d, o)

    return predict


def main(strength: float = 0.5, batch: int = 200) -> dict[str, dict[str, float]]:
    """Every learner against ridge regression on the same tasks: the metrics of ``compare`` by learner."""
    samples = linear_regression(context_length=6, input_size=3, input_range=2.0)(jax.random.key(0), batch)
    learners = {
        "GD, 1 step": gradient_descent(1.5, steps=1),
        "GD, 10 steps": gradient_descent(1.5, steps=10),
        "Newton, 2 steps damped by 1/2": newton(strength, steps=2, damping=0.5),
        "Newton, 1 step": newton(strength),
    }
    against = jax.jit(lambda: {name: compare(one, ridge(strength), samples) for name, one in learners.items()})
    return jax.tree.map(float, against())


if __name__ == "__main__":
    differences = {name: metrics["prediction_difference"] for name, metrics in main().items()}
    print("mean distance from ridge:", "; ".join(f"{name} {value:.1e}" for name, value in differences.items()))
