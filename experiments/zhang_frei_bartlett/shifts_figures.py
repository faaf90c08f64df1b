"""Figures of ``shifts``. Errors are over that of predicting 0."""

import numpy as np
from numpy.typing import ArrayLike

from experiments import panels
from experiments.zhang_frei_bartlett.shift_families import Config, closed_form, points, training_config
from icl_lab.lab import Record, from_json
from icl_lab.lab.style import THEORY, Axes, Figure
from icl_lab.lab.style import panels as axes_grid
from icl_lab.theory import isotropic_risk, optimum, orthant_risk, subspace_risk

_ERROR = "error / error of predicting 0"
_SPECTRUM = {"color": "#0072B2", "marker": "o"}
_ISOTROPIC = {"color": "#D55E00", "marker": "s"}
_OTHER = {"color": "#009E73", "marker": "^"}
_PUBLISHED = {  # Garg et al. 2022: M and the error of a 12-layer GPT-2 at D = 20
    "training distribution": ((20, 40), (0.02, 0.0006)),
    "orthants": ((20, 40), (0.062, 0.004)),
    "half subspace": ((10, 20, 40), (0.036, 0.0014, 0.00057)),
}


def figures(record: Record) -> dict[str, Figure]:
    """One panel a family, and the best layer beside the transformer of Garg et al."""
    figure, ((inputs, along, orthants), (subspace, orthogonal, published)) = axes_grid(3, 2, width=3.3, height=2.9)
    config = from_json(Config, record.config)
    for training, look in (("spectrum", _SPECTRUM), ("isotropic", _ISOTROPIC)):
        _family(inputs, record, training, "inputs", look, f"inputs, {training}", fine=_scales(config.input_scales))
        _family(orthants, record, training, "orthants", look, training, fine=_lengths(config))
        _family(orthogonal, record, training, "orthogonal", look, training)
    _family(inputs, record, "spectrum", "weights", _OTHER, "weights, spectrum", fine=_scales(config.weight_scales))
    for family, look in (("subspace", _ISOTROPIC), ("rescaled", _OTHER)):
        _family(subspace, record, "isotropic", family, look, f"isotropic, {family}", fine=_lengths(config))
    for family, look in (("query", _SPECTRUM), ("task", _OTHER)):
        _family(along, record, "spectrum", family, look, family, at=config.spectrum)
    _least_squares(inputs, record, "isotropic/inputs", config.input_scales)
    _least_squares(orthants, record, "isotropic/orthants", config.test_lengths)
    _least_squares(subspace, record, "isotropic/subspace", config.test_lengths)
    _least_squares(orthogonal, record, "isotropic/orthogonal", points(config, "orthogonal"))
    inputs.set(xlabel="factor c of the inputs or weights", ylabel=_ERROR, xscale="log")
    inputs.set_yscale("symlog", linthresh=1)
    inputs.set_xticks(config.input_scales, [f"{c:.2g}" for c in config.input_scales])
    inputs.minorticks_off()
    along.set(xlabel="eigenvalue whose eigenvector it is along", ylabel=_ERROR, ylim=(0, None))
    for axes, title in ((orthants, "context in one orthant"), (subspace, f"subspaces of {config.subspace_size}")):
        axes.set(xlabel=f"examples in the test prompt M\n{title}", ylabel=_ERROR, xscale="log", ylim=(0, None))
        axes.set_xticks(config.test_lengths, [str(m) for m in config.test_lengths])
        axes.minorticks_off()
    orthogonal.set(xlabel="examples in the test prompt M\nquery orthogonal to them", ylabel=r"E $\hat{y}^2$ / E $y^2$")
    orthogonal.set_xticks(points(config, "orthogonal"))
    _published(published)
    for axes in (inputs, along, orthants, subspace, orthogonal):
        axes.plot([], [], **THEORY, label="theory")
        axes.legend(ncols=2, **panels.ABOVE)
    return {"shifts": figure}


def _family(
    axes: Axes, record: Record, training: str, family: str, look: dict, label: str, *, at=None, fine=None
) -> None:
    """Members as median with bars from the 10th to the 90th percentile, the best layer's closed form as a line."""
    config = training_config(from_json(Config, record.config), training)
    best = optimum(np.diag(config.spectrum), config.context_length)
    where = np.array(points(config, family), float)
    x = where if at is None else np.asarray(at)
    panels.bars(axes, x, record[f"{training}/{family}/trained"], label, look)
    line = where if fine is None else fine
    axes.plot(x if fine is None else fine, [closed_form(config, family, point, best) for point in line], **THEORY)


def _scales(scales: ArrayLike) -> np.ndarray:
    return np.geomspace(np.min(scales), np.max(scales), 60)


def _lengths(config: Config) -> np.ndarray:
    return np.geomspace(min(config.test_lengths), max(config.test_lengths), 60)


def _least_squares(axes: Axes, record: Record, name: str, x: ArrayLike) -> None:
    found = np.median(record[f"{name}/least_squares"], axis=0)
    axes.plot(np.asarray(x), found, "kx", clip_on=False, label="least squares")


def _published(axes: Axes) -> None:
    """The best isotropic layer at D = 20 and M = N (lines) beside a transformer's published errors (markers)."""
    d, lengths = 20, np.arange(10, 41)
    layers = [(int(n), n / (n + d + 1) * np.eye(d)) for n in lengths]
    lines: dict[str, ArrayLike] = {
        "training distribution": isotropic_risk(d, lengths, lengths),
        "orthants": [orthant_risk(a, test_length=n, covariance=np.eye(d)) / d for n, a in layers],
        "half subspace": [  # rescaled, so that the inputs keep their mean square D
            subspace_risk(a, test_length=n, subspace_size=d // 2, input_scale=2**0.5) / d for n, a in layers
        ],
    }
    dashes = ("-", "--", "-.")
    for look, dash, (name, line) in zip((_SPECTRUM, _ISOTROPIC, _OTHER), dashes, lines.items()):
        axes.plot(lengths, np.asarray(line), color=look["color"], linestyle=dash, label=name)
        axes.plot(*_PUBLISHED[name], linestyle="", color=look["color"], marker=look["marker"])
    axes.plot([], [], "ko", label="GPT-2, published")
    axes.set(xlabel="examples M = N, D = 20\nlines: best linear attention", ylabel=_ERROR, yscale="log")
    axes.legend(ncols=2, **panels.ABOVE)
