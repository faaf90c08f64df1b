"""What ``twelve_layers`` claims and shows: functions of its record."""

from experiments.statistics import settled
from experiments.von_oswald.multi_step import CURVE
from experiments.von_oswald.network_panels import cosine, figures, over
from icl_lab.claims import NOT_REACHED, Criterion, Quick
from icl_lab.lab import claims_of

__all__ = ["CLAIMS", "figures"]


claim = claims_of(
    "von_oswald.twelve_layers", "von Oswald et al. 2022, Fig. 8", presets=(), interval="median",
    at_lab=dict.fromkeys(("loss", "beats_gd", "cosine"), NOT_REACHED),
    criterion=settled(CURVE.at(network="free_12", metric="train_loss")),
)  # fmt: skip

CLAIMS = (
    claim(
        "loss",
        "Twelve layers with four heads and MLPs are no worse than tuned twelve-step GD++ (ratio of losses, median).",
        over("free_12", "gd++"), at_most=1.0, tolerance=0.1, reason="the figure's curves coincide",
        published=("losses coincide (ratio 1)", "Fig. 8"), control=over("free_12", "gd"), headline=2,
    ),
    claim(
        "beats_gd", "Twelve layers beat twelve steps of GD at the best shared learning rate (ratio of losses, median).",
        over("free_12", "gd"), at_most=1.0, reason="an ordering",
    ),
    claim(
        "cosine",
        "Twelve layers have the sensitivities of tuned twelve-step GD++: cosine at least .95 (median; control: GD).",
        cosine("free_12", "gd++"), at_least=0.95, reason="the figure's cosine lies near 1",
        published=("cosine near 1", "Fig. 8"), control=cosine("free_12", "gd"), headline=1,
        quick=Quick(
            0.0, "20 steps of 64 tasks for 5,000 of 256", NOT_REACHED,
            Criterion("every member's loss is below twice that of twelve steps of GD",
                      lambda record: bool((over("free_12", "gd")(record) < 2).all())),
        ),
    ),
)  # fmt: skip
