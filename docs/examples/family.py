"""A new family for ``identify``: ridge regression applied twice, W = (S + k I)^-2 S b, a filter not in the list.

Without it the learner is named GD++ with steps of their own, which approximate almost any filter; with it the smaller
model, of one number, gets the name.

A family of spectral filters is a name, its parameters with bounds, and h(l) as numpy code that broadcasts. Units: the
mean eigenvalue of training is 1; ``eigenvalue=1`` says that k is reported times that unit.
"""

import numpy as np

from icl_lab.identify import FAMILIES, Parameter, filter_family, identify

damped = filter_family(
    "twice-shrunk ridge",
    [Parameter("strength", 1e-3, 1e2, eigenvalue=1)],
    lambda eigenvalue, steps, k: eigenvalue / (eigenvalue + k) ** 2,
    contains=["least squares"],
)


def learner(x: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """What a model of any library looks like to ``identify``: (B, N, D), (B, N, 1), (B, D) -> (B, 1)."""
    s, b = x.swapaxes(1, 2) @ x / x.shape[1], x.swapaxes(1, 2) @ y / x.shape[1]
    shrunk = np.linalg.inv(s + 0.5 * np.eye(x.shape[2]))
    return (x_query[:, None] @ shrunk @ shrunk @ s @ b)[:, 0]


def main() -> dict[str, str | None]:
    """The verdict without the family, and with it."""
    ours = identify(learner, context_length=8, input_size=3)
    with_it = identify(learner, context_length=8, input_size=3, families=FAMILIES | {damped.name: damped})
    return {"without": ours.family, "with": with_it.family}


if __name__ == "__main__":
    print(main())
