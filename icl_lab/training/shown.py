"""What is shown of trained members: a line, tidy rows, a picture."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from icl_lab import notebook
from icl_lab.prompts.naming import shortened, sizes

if TYPE_CHECKING:
    from icl_lab.training.fitting import Fit


def line(fit: "Fit") -> str:
    """Members, steps and the last loss: its median over members that did not diverge, and the range."""
    stopped = fit.diverged_at >= 0
    text = f"{stopped.size} member{'s' * (stopped.size != 1)}, {int(fit.steps[-1])} steps"
    name = "loss" if "loss" in fit.metrics else "train_loss"
    last = np.asarray(fit.metrics[name][:, -1])[~stopped] if name in fit.metrics else np.zeros(0)
    if last.ndim == 1 and last.size:
        several = f" ({last.min():.3g} to {last.max():.3g})" if last.size > 1 else ""
        text += f", {name} {np.median(last):.3g}{several}"
    return text + (f", {stopped.sum()} diverged" if stopped.any() else "")


def parts(fit: "Fit") -> str:
    """``line``, what was measured, and the parameters by shape; at most 280 characters."""
    leaves = jax.tree_util.tree_leaves_with_path(fit.params)
    params = ", ".join(f"{jax.tree_util.keystr(path[-1:], simple=True)} {sizes(leaf)}" for path, leaf in leaves)
    measured = shortened(", ".join(fit.metrics), 80)
    return f"{line(fit)}; {len(fit.steps)} measurements of {measured}; params {shortened(params, 80)}"


def rows(fit: "Fit") -> Iterator[dict[str, Any]]:
    """One row for every measured number; an axis beside member and step is ``axis 2``, .."""
    axes = max((values.ndim for values in fit.metrics.values()), default=2)
    for name, values in fit.metrics.items():
        for index in np.ndindex(values.shape):
            more = {f"axis {axis}": index[axis] if axis < len(index) else None for axis in range(2, axes)}
            start = {"quantity": name, "member": index[0], "step": int(fit.steps[index[1]])}
            yield {**start, **more, "value": values[index].item()}


def last(fit: "Fit") -> list[dict[str, Any]]:
    """Of every scalar measurement at the end: median over members, least and largest."""
    rows = []
    for name, values in fit.metrics.items():
        if values.ndim == 2:
            end = np.asarray(values[:, -1], float)
            rows.append(
                {"at the end": name, "median": float(np.median(end)), "least": float(end.min()),
                 "largest": float(end.max())}
            )  # fmt: skip
    return rows


def figure(fit: "Fit", names: Sequence[str] | None = None) -> Any:
    """A matplotlib ``Figure`` of losses over training steps: one line a member, references dashed.

    Args:
      fit: what was measured.
      names: of metrics; None means ``loss`` and the loss of every reference and variant.
    """
    if names is None:
        main = "loss" if "loss" in fit.metrics else "train_loss"
        names = [main, *(name for name in fit.metrics if name.endswith("_loss") and name not in ("train_loss", main))]
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ValueError(f"names must be a list of names of what was measured, got {names!r}")
    if unknown := [name for name in names if name not in fit.metrics or fit.metrics[name].ndim != 2]:
        scalar = ", ".join(name for name, values in fit.metrics.items() if values.ndim == 2)
        raise ValueError(f"names must be of numbers that were measured, {scalar}; got {unknown[0]!r}")
    drawn = notebook.figure(figsize=(6, 4), layout="constrained")
    axes = drawn.subplots()
    for k, name in enumerate(names):
        values = np.asarray(fit.metrics[name], float)
        style = f"C{k}{'-' if k == 0 else '--'}"
        axes.plot(fit.steps, values.T, style, lw=0.6, alpha=0.4)
        axes.plot(fit.steps, np.median(values, axis=0), style, lw=1.8, label=f"{name}, median of {len(values)}")
    axes.set(xlabel="training step", ylabel=names[0] if len(names) == 1 else "loss")
    if all((np.asarray(fit.metrics[name])[:, 1:] > 0).all() for name in names):
        axes.set_yscale("log")
    axes.legend()
    return drawn
