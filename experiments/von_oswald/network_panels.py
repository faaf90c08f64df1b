"""What is read off a record of several networks, and its figures: of ``multi_step`` and ``twelve_layers``."""

from experiments.panels import described
from experiments.statistics import Statistic, last, ratio
from experiments.von_oswald.common import chosen_of
from experiments.von_oswald.multi_step import CURVE, FINAL, STEPS, STRENGTH
from experiments.von_oswald.panels import cosine_panel, loss_lines, member_lines, network_label
from icl_lab.lab import Record
from icl_lab.lab.style import LEARNERS, Figure, panels


def over(network: str, reference: str) -> Statistic:
    """(M,) final loss of a network over that of a reference on the same tasks."""
    return ratio(*(FINAL.at(network=network, learner=learner) for learner in ("trained", reference)))


def cosine(network: str, reference: str) -> Statistic:
    """(M,) final sensitivity cosine of a network with a reference."""
    return last(CURVE.at(network=network, metric=f"{reference}_sensitivity_cosine"))


def figures(record: Record) -> dict[str, Figure]:
    """One figure a network: loss; agreement with GD and GD++; and gamma, where it can be read off."""
    return {network: _row(record, network) for network in chosen_of(record.config)}


def _row(record: Record, network: str) -> Figure:
    steps, metrics = STEPS(record, network=network), CURVE(record, network=network)
    figure, (axes,) = panels(3 if "gamma" in metrics else 2)
    curves = {"trained": metrics["loss"], "gd": metrics["gd_loss"], "gd++": metrics["gd++_loss"]}
    loss_lines(axes[0], steps, curves, network_label(network))
    axes[0].set_yscale("log")
    figure.legend(*axes[0].get_legend_handles_labels())
    cosine_panel(axes[1], steps, metrics, "gd", "gd++")
    if "gamma" in metrics:
        gamma = STRENGTH(record, network=network, strength="gamma")
        member_lines(axes[2], steps, gamma[..., 0], "trained")
        axes[2].axhline(record.metrics[network]["gd++"]["gammas"][0], **LEARNERS["gd++"] | {"marker": ""})
        label = r"$\gamma$" if gamma.shape[2] == 1 else r"$\gamma$ of the first layer"
        described(axes[2], title="strength of GD++", xlabel="training step", ylabel=label)
    return figure
