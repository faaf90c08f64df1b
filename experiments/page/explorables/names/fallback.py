"""The figure without a script: the state in which ``view.js`` begins, and the drawings of the others."""

from collections import Counter
from itertools import groupby
from typing import Any

import numpy as np

WIDTH, HEIGHT, TOP, ROW = 360, 110, 122, 14  # of the plot of losses; where names begin, and a member's row


def places(times: list[int]) -> list[float]:
    """Where answers stand on the axis of log time; the one before the first step at half of the next."""
    at = np.log(np.maximum(times, times[1] / 2))
    return [round(float(x), 1) for x in 8 + (WIDTH - 16) * (at - at[0]) / (at[-1] - at[0])]


def context(shown: dict[str, Any]) -> dict[str, Any]:
    """What the template ``names.html`` shows.

    Args:
      shown: ``data.data``.
    """
    (network, time), members = shown["start"], len(shown["networks"][0]["names"])
    return {
        "width": WIDTH, "height": HEIGHT, "top": TOP, "row": ROW, "bottom": TOP + ROW * members,
        "members": members, "chosen": network, "kinds": shown["kinds"],
        "drawings": [_drawn(one, shown["kinds"]) for one in shown["networks"]],
        "cursor": places(shown["networks"][network]["times"])[time], "said": said(shown, network, time),
        "table": [
            {
                "name": one["name"], "step": f"{one['times'][time]:,}", "fallen": one["fallen"][time],
                "names": [(letter, *shown["kinds"][letter], count) for letter, count in counted(one, time)],
            }
            for one in shown["networks"]
        ],
    }  # fmt: skip


def counted(network: dict[str, Any], time: int) -> list[tuple[str, int]]:
    """Letters at an answer and how many members have each, the most frequent first."""
    return Counter(member[time] for member in network["names"]).most_common()


def said(shown: dict[str, Any], network: int, time: int) -> str:
    """The sentence of a state."""
    one = shown["networks"][network]
    (first, most), *others = counted(one, time)
    rest = "".join(f", {count} {shown['kinds'][letter][1]}" for letter, count in others)
    return (
        f"At step {one['times'][time]:,}, {most} of {len(one['names'])} {one['plural']} are {shown['kinds'][first][1]}"
        f"{rest}; {one['fallen'][time]} % of the fall of their mean loss is done."
    )


def _drawn(one: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """Lines of the losses, and rows of letters in runs of one name."""
    xs, most = places(one["times"]), max(max(member) for member in one["loss"])
    return {
        "lines": "".join(
            "M" + "L".join(f"{x:g} {HEIGHT * (1 - loss / most):.0f}" for x, loss in zip(xs, member))
            for member in one["loss"]
        ),
        "most": f"{most:.2g}", "first": f"{one['times'][1]:,}", "last": f"{one['times'][-1]:,}", "xs": xs,
        "rows": [[(kinds[letter][2], "".join(run)) for letter, run in groupby(member)] for member in one["names"]],
    }  # fmt: skip
