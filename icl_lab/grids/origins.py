"""Where the cells of a merged record come from: each is a run of its own, on a machine and a commit of its own."""

import collections
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from icl_lab.records import Record

OF_A_CELL = ("commit", "versions", "device", "precision", "seconds")
"""What the provenance of a merged record keeps of every cell."""
ALIKE = ("commit", "versions", "precision")
"""What decides the numbers: cells that differ in it are named."""
OF_THE_PARENT = ("device", "precision")
"""What says in the provenance of the process that merges only how that one was set up."""
SHOWN = 8

log = logging.getLogger("icl_lab")


def of_cells(labels: Sequence[str], records: Sequence[Record], parent: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of one record of all cells; a warning names the cells that another code made.

    Args:
      labels: of the cells.
      records: of the cells, in this order.
      parent: the provenance of the process that merges, whose device and precision no cell ran with.

    Returns:
      ``parent`` with device and precision of the cells where all agree and without them elsewhere, and with ``cells``:
      each one's label, commit, versions, device, precision and seconds, as far as its record has them.
    """
    merged = {key: value for key, value in parent.items() if key not in OF_THE_PARENT}
    for key in OF_THE_PARENT:
        found = [record.provenance.get(key) for record in records]
        if found and found[0] is not None and all(value == found[0] for value in found):
            merged[key] = found[0]
    merged["cells"] = [
        {"cell": label} | {key: record.provenance[key] for key in OF_A_CELL if key in record.provenance}
        for label, record in zip(labels, records, strict=True)
    ]
    differences = [f"{key}: {', '.join(odd)}" for key in ALIKE if (odd := _odd(labels, records, key))]
    if differences:
        log.warning("cells of one record that differ from most of its cells in %s", "; in ".join(differences))
    return merged


def _odd(labels: Sequence[str], records: Sequence[Record], key: str) -> list[str]:
    """The cells that differ from the most common value, the first few by name."""
    values = [json.dumps(record.provenance.get(key), sort_keys=True) for record in records]
    ((usual, _),) = collections.Counter(values).most_common(1) or [("", 0)]
    odd = [label for label, value in zip(labels, values) if value != usual]
    return odd if len(odd) <= SHOWN else [*odd[:SHOWN], f"and {len(odd) - SHOWN} more"]
