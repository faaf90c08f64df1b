"""Figures of ``one_step``: Fig. 2, and when the loss of a member drops."""

import numpy as np

from experiments import panels
from experiments.von_oswald.one_step_claims import best_loss, onset_times, plateau_loss, scaled_onsets
from experiments.von_oswald.panels import loss_lines, mark_above
from icl_lab.lab import Record
from icl_lab.lab.style import Figure
from icl_lab.lab.style import panels as axes_grid

LEARNERS = ("trained", "gd", "interpolated")


def figures(record: Record) -> dict[str, Figure]:
    """Fig. 2, and the ensembles."""
    a, config = record.arrays, record.config
    best = record.metrics["closed_form"]
    figure, ((loss, agreement), (sizes, ranges)) = axes_grid(2, 2, width=3.6)
    title = f"one layer, N = {config['context_length']}, D = {config['input_size']}"
    loss_lines(loss, a["steps"], {"trained": a["loss"], "gd": a["gd_loss"]}, title, best)
    panels.alignment_panel(agreement, a["steps"], a, "gd")
    grid = np.arange(min(config["sizes"]), max(config["sizes"]) + 1)
    finals = {n: np.stack([record[f"size_{d}/{n}"] for d in config["sizes"]]) for n in LEARNERS}
    theory = (grid, np.array([best_loss(config, d) for d in grid]))
    panels.points_panel(sizes, config["sizes"], finals, "N = D", theory=theory)
    sizes.set_ylim(0, 1.4 * best_loss(config, max(config["sizes"])))  # an unaligned layer interpolates to anything
    sizes.set_title("final loss")
    sizes.legend(loc="lower right")
    mark_above(sizes, config["sizes"], np.concatenate(list(finals.values()), axis=1))
    x, far = np.asarray(config["ranges"]), {n: record[f"range/{n}"] for n in LEARNERS}
    panels.shift_panel(ranges, x, far, r"input range $\alpha$", training=config["input_range"])
    ranges.set_title("larger inputs")
    return {"one_step": figure, "onset": _onsets(record)}


def _onsets(record: Record) -> Figure:
    """Members of each ensemble over training, and when half of their drop is done."""
    steps, config = record["onset_steps"], record.config
    batches = config["onset_batches"]
    figure, (row,) = axes_grid(len(batches) + 1, 1)
    for axes, batch in zip(row, batches):
        for member in scaled_onsets(record, batch):
            axes.plot(steps, member, color="#0072B2", alpha=0.3, linewidth=0.7)
        axes.axhline(plateau_loss(config), color="0.3", linestyle=":", label="one direction learned")
        axes.axhline(record.metrics["closed_form"], color="black", linestyle="--", label="best GD step")
        axes.set_xlabel("training step")
        axes.set_ylabel("loss (scaled to one start)")
        axes.set_title(f"batch {batch}, {config['onset_members']} members")
        axes.set_ylim(top=0.45)
        axes.legend(loc="center right")
    for batch, shade, hatch in zip(batches, ("#0072B2", "#E69F00", "#009E73"), ("", "///", "...")):
        times = onset_times(record, batch)
        bins = np.geomspace(min(100, 0.1 * config["onset_steps"]), config["onset_steps"], 25).tolist()
        dropped = times[np.isfinite(times)]
        label = f"batch {batch}\n({times.size - dropped.size} of {times.size} do not drop)"
        row[-1].hist(dropped, bins=bins, color=shade, hatch=hatch, alpha=0.6, label=label)
    row[-1].set_xscale("log")
    row[-1].set_xlabel("step at which half of the drop is done")
    row[-1].set_ylabel("members")
    row[-1].legend()
    return figure
