"""What ``noisy_labels`` claims and shows: functions of its record."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments import panels
from experiments.statistics import of_record, place_of
from experiments.von_oswald.common import Task, law_sizes
from experiments.von_oswald.noisy_labels import CORRUPTED, NOISY, Config
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of, from_json
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid

PUBLISHED = {0: (0.2074, 0.2079), 2: (0.2577, 0.2590), 4: (0.3158, 0.3177), 6: (0.3844, 0.3875), 8: (0.4616, 0.4664)}
"""Losses of GD and of the trained layer at m, measured with the released code (seed 0, 10,000 tasks)."""


def exact(config: Task, eta: float, corrupted: ArrayLike, noise: ArrayLike) -> np.ndarray:
    """Loss of one GD step with so many labels replaced by N(0, 1) and noise on the others; they broadcast."""
    sizes = law_sizes(config)
    n, d, c = sizes["context_length"], sizes["input_size"], eta * sizes["input_variance"]
    m = np.asarray(corrupted, float)
    left = n - m
    signal = 1 - 2 * c * left / n + c**2 * left * (left + d - 0.2) / n**2
    return d * sizes["input_variance"] / 2 * signal + c**2 * d / (2 * n**2) * (m + left * np.square(noise))


@of_record
def _worst(record: Record, losses: Quantity, learner: str, shift: int = 0) -> np.ndarray:
    """(M,) largest distance of a learner's loss from the GD step's, relative, over all noisy contexts of a kind.

    With a shift the step is that of contexts with so much less noise, the least noisy ones left out.
    """
    learned, step = losses(record, learner=learner), losses(record, learner="gd")
    return np.abs(learned[:, shift:] / step[:, : step.shape[1] - shift] - 1).max(axis=1)


@of_record
def _at(record: Record, corrupted: int) -> np.ndarray:
    """(M,) loss of the trained layer at m."""
    at = place_of(record, "corrupted", corrupted, f"evaluation with {corrupted} replaced labels")
    return CORRUPTED(record, learner="trained")[:, at]


_WIDTH: dict[str, Any] = {
    "at_most": 0.0, "tolerance": 0.02, "reason": "2 % is a line's width on the notebook's axis (.2 to .5)",
}  # fmt: skip

claim = claims_of("von_oswald.noisy_labels", "von Oswald et al. 2022, released code (no figure)", presets=("lab",))

CLAIMS = (
    *(
        claim(
            f"trained_{m}",
            f"With {m} of 10 labels replaced the layer trained without noise has loss {loss} (control: with {other}).",
            _at(m), near=loss, control=_at(other), tolerance=round(0.028 * loss, 4),
            published=(loss, "released code, loss"),
            reason="two standard errors of the released code's mean over 10,000 tasks",
        )
        for m, (_, loss), other in zip(PUBLISHED, PUBLISHED.values(), (2, 4, 6, 8, 6))
    ),
    claim(
        "follows_gd",
        "The layer trained without noise follows the GD step at every m (largest relative distance; control: the "
        "step at the next smaller m).",
        _worst(CORRUPTED, "trained"), **_WIDTH, headline=1, control=_worst(CORRUPTED, "trained", 1),
        quick=Quick(0.02, "as at lab: 256 tasks a step in place of 2,048 give up to eight times the jitter of Adam, "
                          "which is .002; a layer on the plateau is .9 away"),
    ),
    claim(
        "interpolated",
        "The mean of both weights follows it too (largest relative distance; control: the step at the next smaller m).",
        _worst(CORRUPTED, "interpolated"), **_WIDTH, control=_worst(CORRUPTED, "interpolated", 1),
    ),
    claim(
        "follows_gd_noise",
        "Under Gaussian label noise of up to 1 the layer follows the GD step too (control: the step under less noise).",
        _worst(NOISY, "trained"), **_WIDTH, control=_worst(NOISY, "trained", 1), where=" (this lab)", headline=2,
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """Loss against the number of replaced labels and against the noise of all."""
    config, eta = from_json(Config, record.config), record.metrics["learning_rate"]
    figure, (row,) = axes_grid(2, 1, shape=0.58)
    shown = ((CORRUPTED, config.corrupted, "replaced labels of a context", "labels replaced"),
             (NOISY, config.noises, "standard deviation of label noise", "Gaussian noise"))  # fmt: skip
    for axes, (losses, at, label, title) in zip(row, shown):
        members = {learner: values.T for learner, values in losses(record).items()}
        grid = np.linspace(0, max(at), 50)
        theory = exact(config, eta, *((grid, 0.0) if losses is CORRUPTED else (0, grid)))
        panels.points_panel(axes, at, members, label, (grid, theory))
        axes.set_title(title)
    return {"noisy_labels": figure}
