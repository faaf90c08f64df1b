"""The committed record of five learners, and what the page shows of it."""

from pathlib import Path
from typing import Any

from icl_lab.identify.explorable.data import BY_NAME, TOLERANCE, residual
from icl_lab.lab.records import Record, RecordError, load

FOLDER = Path(__file__).with_name("record")
START = 1, 1  # three loops, GD++


def record(folder: Path = FOLDER) -> Record:
    """The committed record, whose exported residuals its own arrays give.

    Raises:
      RecordError: if they do not, to ``TOLERANCE``.
    """
    record = load(folder)
    for check in record.metrics["checks"]:
        again = residual(record.arrays, check["learner"], BY_NAME[check["family"]], check["steps"], check["theta"])
        if not abs(again - check["residual"]) <= TOLERANCE * max(1, again):
            raise RecordError(f"{folder}: {check['family']} is {again:g} from the learner, the record says otherwise")
    return record


def shown(found: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and facts of the record, as ``icl_lab.identify.explorable`` takes them."""
    arrays, facts = dict(found.arrays), dict(found.metrics)
    arrays["doubled"] = arrays["doubled"][:, ::2]
    return arrays, facts | {"start": START, "others": [None] * len(facts["learners"])}
