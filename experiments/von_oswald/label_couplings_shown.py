"""What ``label_couplings`` claims and shows: functions of its record."""

from experiments.statistics import Statistic, largest, log_ratio, ratio
from experiments.von_oswald import shifts
from experiments.von_oswald.label_couplings import SHIFTED, Config
from experiments.von_oswald.panels import shift_panels
from icl_lab.claims import Quick
from icl_lab.lab import Record, claims_of, from_json, style
from icl_lab.lab.style import Figure


def _worst(learner: str, *columns: str) -> Statistic:
    """(M,) largest |log ratio| of a learner's loss to that of GD++ over these shifts."""
    return largest(*(log_ratio(*(SHIFTED[c].at(learner=one) for one in (learner, "gd++"))) for c in columns))


_TARGETS, _INPUTS = ("targets", "other_targets"), ("inputs", "other_inputs")
_LINE = "a tenth of e is a line's width on the figure's logarithmic axis"

claim = claims_of("von_oswald.label_couplings", "this lab, on von Oswald et al. 2022, Fig. 6", presets=("lab",))

CLAIMS = (
    claim(
        "targets",
        "Without its label couplings a layer looped twice coincides with tuned GD++ on larger and other targets "
        "(largest |log ratio| of the losses; control: as trained).",
        _worst("ablated", *_TARGETS), at_most=0.0, tolerance=0.1, reason=_LINE, control=_worst("trained", *_TARGETS),
        headline=1,
        quick=Quick(0.2, "512 tasks a step for 2,048: the jitter is up to four times as large; as trained it is above "
                         ".5"),
    ),
    claim(
        "trained_targets", "As trained, with its label couplings, it does not.",
        _worst("trained", *_TARGETS), at_least=0.1, reason=_LINE,
    ),
    claim(
        "inputs",
        "Label couplings do not explain larger and other inputs: without them the largest |log ratio| there stays at "
        "least half of what it is as trained (ratio).",
        ratio(_worst("ablated", *_INPUTS), _worst("trained", *_INPUTS)), at_least=0.5,
        interval="median", reason="half of it explained would be half", headline=2,
        falsified_by="losses that return to those of GD++ without the couplings",
    ),
)  # fmt: skip


def figures(record: Record) -> dict[str, Figure]:
    """One column a shift."""
    columns = from_json(Config, record.config).columns(*shifts.COLUMNS)
    figure, (row,) = style.panels(len(columns), 1, shape=0.74)
    shift_panels(row, columns, {column: losses(record) for column, losses in SHIFTED.items()})
    return {"label_couplings": figure}
