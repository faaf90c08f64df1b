"""What ``twelve_layers`` claims and shows: functions of its record."""

from experiments.statistics import Statistic, ratio, settled
from experiments.von_oswald.multi_step import CURVE
from experiments.von_oswald.network_panels import cosine, figures, over
from experiments.von_oswald.statistics import early
from icl_lab.claims import NOT_REACHED, Beside, Criterion, Quick
from icl_lab.lab import claims_of

__all__ = ["CLAIMS", "figures"]


def _loss_early(solver: str) -> Statistic:
    """(M,) loss after a tenth of the training, over that of twelve steps of a solver."""
    return early(ratio(*(CURVE.at(network="free_12", metric=metric) for metric in ("loss", f"{solver}_loss"))), 0.1)


claim = claims_of(
    "von_oswald.twelve_layers", "von Oswald et al. 2022, Fig. 8", presets=(), interval="median",
    at_lab=dict.fromkeys(("loss", "beats_gd", "cosine"), NOT_REACHED),
    criterion=settled(CURVE.at(network="free_12", metric="train_loss")),
)  # fmt: skip

CLAIMS = (
    claim(
        "loss",
        "Twelve layers with four heads and MLPs are no worse than tuned twelve-step GD++ (ratio of losses, median; "
        "control: after a tenth of the training).",
        over("free_12", "gd++"), at_most=1.0, tolerance=0.1, reason="the figure's curves coincide",
        published=("losses coincide (ratio 1)", "Fig. 8"), control=_loss_early("gd++"), headline=2,
        beside=Beside(over("free_12", "gd"), "twelve steps of GD end far above GD++, so that the layers beat them"),
    ),
    claim(
        "beats_gd",
        "Twelve layers beat twelve steps of GD at the best shared learning rate (ratio of losses, median; "
        "control: after a tenth of the training).",
        over("free_12", "gd"), at_most=1.0, reason="an ordering", control=_loss_early("gd"),
    ),
    claim(
        "cosine",
        "Twelve layers have the sensitivities of tuned twelve-step GD++: cosine at least .95 (median; control: after "
        "a tenth of the training).",
        cosine("free_12", "gd++"), at_least=0.95, reason="the figure's cosine lies near 1",
        published=("cosine near 1", "Fig. 8"), headline=1,
        control=early(CURVE.at(network="free_12", metric="gd++_sensitivity_cosine"), 0.1),
        beside=Beside(cosine("free_12", "gd"), "in so short a training the layers are nearer to GD than to GD++"),
        quick=Quick(
            0.0, "20 steps of 64 tasks for 5,000 of 256", NOT_REACHED,
            Criterion("every member's loss is below twice that of twelve steps of GD",
                      lambda record: bool((over("free_12", "gd")(record) < 2).all())),
        ),
    ),
)  # fmt: skip
