"""What ``label_couplings`` claims and shows: functions of its record."""

from collections.abc import Sequence

from experiments.statistics import Statistic, ratio
from experiments.von_oswald import shifts
from experiments.von_oswald.label_couplings import SHIFTED, Config
from experiments.von_oswald.panels import shift_panels
from experiments.von_oswald.statistics import worst
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of, from_json, style
from icl_lab.lab.quantities import Quantity
from icl_lab.lab.style import Figure

_TARGETS, _INPUTS = ([SHIFTED[kind], SHIFTED[f"other_{kind}"]] for kind in ("targets", "inputs"))
_LINE = "a tenth of e is a line's width on the figure's logarithmic axis"


def _left_without(shifted: Sequence[Quantity]) -> Statistic:
    """(M,) largest |log ratio| to GD++ without the label couplings, over that as trained."""
    return ratio(worst(shifted, "ablated", "gd++"), worst(shifted, "trained", "gd++"))


claim = claims_of(
    "von_oswald.label_couplings", "this lab, on von Oswald et al. 2022, Fig. 6", presets=("lab",), interval="median"
)

CLAIMS = (
    claim(
        "targets",
        "Without its label couplings a layer looped twice coincides with tuned GD++ on larger and other targets "
        "(largest |log ratio| of the losses; control: as trained).",
        worst(_TARGETS, "ablated", "gd++"), at_most=0.0, tolerance=0.1, reason=_LINE,
        control=worst(_TARGETS, "trained", "gd++"), headline=1,
        quick=Quick(0.2, "512 tasks a step for 2,048: the jitter is up to four times as large; as trained it is above "
                         ".5"),
    ),
    claim(
        "trained_targets", "As trained, with its label couplings, it does not (control: without them).",
        worst(_TARGETS, "trained", "gd++"), at_least=0.1, reason=_LINE, control=worst(_TARGETS, "ablated", "gd++"),
    ),
    claim(
        "inputs",
        "Label couplings do not explain larger and other inputs: without them the largest |log ratio| there stays at "
        "least half of what it is as trained (ratio; control: targets in place of inputs).",
        _left_without(_INPUTS), at_least=0.5, reason="half of it explained would be half", headline=2,
        control=_left_without(_TARGETS),
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One column a shift."""
    columns = from_json(Config, record.config).columns(*shifts.COLUMNS)
    figure, (row,) = style.panels(len(columns), 1, shape=0.74)
    shift_panels(row, columns, {column: losses(record) for column, losses in SHIFTED.items()})
    return {"label_couplings": figure}
