"""What ``dense_starts`` claims and shows: functions of its record."""

from experiments.panels import SERIES, described, intervals
from experiments.statistics import Statistic, difference
from experiments.zhang_frei_bartlett.dense_starts import ENDED, FLOW, LOSS, STARTS, STEPS
from experiments.zhang_frei_bartlett.landscape import OPTIMUM
from icl_lab.lab import Record, claims_of
from icl_lab.lab.intervals import wilson_interval
from icl_lab.lab.style import THEORY, Figure, panels


def reached(optimizer: str, start: str) -> Statistic:
    """(M,) whether a training ends nearer to the optimal loss than to the spurious one."""
    return lambda record: (LOSS(record, optimizer=optimizer, start=start)[:, -1] < 0.5).astype(float)


def flows_reached(length: int) -> Statistic:
    """(flows,) whether a flow from a start of the largest scale ends at the optimum, at a prompt length of the map."""
    return lambda record: (ENDED(record)[length, -1] == OPTIMUM).astype(float)


claim = claims_of("zhang_frei_bartlett.dense_starts", "this lab")

CLAIMS = (
    *(
        claim(
            f"{name}_stays",
            f"{about} does not leave the spurious minimum: started there it does not reach the optimum (share of "
            "members that do; control: of flows from dense starts at the longest prompts, where it is no minimum).",
            reached(name, "spurious"), at_most=0.4, interval="wilson", control=flows_reached(-1),
            reason="none is expected to; the interval needs none of six, 2 of 16", headline=headline,
        )
        for headline, (name, about) in enumerate((("sgd", "SGD"), ("adam", "Adam")), start=1)
    ),
    *(
        claim(
            f"{name}_dense",
            f"From dense starts of the usual scale {about} reaches the optimum at least as often as the flow from the "
            "same starts (difference of shares).",
            difference(reached(name, "dense"), lambda record: FLOW(record) == OPTIMUM), at_least=0.0,
            tolerance=0.1, reason="a tenth of the starts",
        )
        for name, about in (("sgd", "SGD"), ("adam", "Adam"))
    ),
    claim(
        "long_prompts",
        "At the longest prompts the flow reaches the optimum from nearly every start of the usual scale (share; "
        "control: at the shortest).",
        flows_reached(-1), at_least=0.9, interval="wilson", unit="flow", control=flows_reached(0),
        reason="no minimum but the optimum is known there; 50 of 50 give .93", headline=3,
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """The map; loss over training from the spurious minimum, and from dense starts."""
    config = record.config
    figure, ((share, *losses),) = panels(3, 1)
    for i, scale in enumerate(config["scales"]):
        at_optimum = ENDED(record)[:, i] == OPTIMUM
        look = SERIES[i % 5] | {"label": f"{scale:g}"}
        intervals(share, config["lengths"], at_optimum, wilson_interval, "starts", **look)
    share.set(ylim=(-0.03, 1.03), xlabel="examples in a prompt, N", ylabel="share of flows at the optimum")
    described(share, len(config["scales"]), f"scale of the start ({config['starts']} each)", xscale="log")
    share.set_xticks(config["lengths"], [str(n) for n in config["lengths"]])
    share.minorticks_off()
    for axes, start in zip(losses, STARTS):
        for name, color, dash in (("sgd", "#0072B2", "-"), ("adam", "#D55E00", "--")):
            for m, curve in enumerate(LOSS(record, optimizer=name, start=start)):
                label = None if m else f"{name.upper() if name == 'sgd' else 'Adam'}, each of {config['members']}"
                axes.plot(STEPS(record), curve, color=color, linestyle=dash, linewidth=0.8, alpha=0.7, label=label)
        for level, label in ((0.0, "optimum"), (1.0, "spurious minimum")):
            axes.axhline(level, **THEORY, label=label if level else None)
        about = {"spurious": "from the spurious minimum", "dense": f"from dense starts of {config['scales'][-1]:g}"}
        described(
            axes, 2, f"{about[start]}, N = {config['context_length']}",
            ylim=(-0.1, 3), xlabel="training step", ylabel="loss: 0 optimal, 1 spurious",
        )  # fmt: skip
    return {"dense_starts": figure}
