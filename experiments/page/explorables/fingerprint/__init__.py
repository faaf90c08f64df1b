"""Which algorithm is it? Measured residual factors against families of algorithms, with the exact residual."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.fingerprint import data
from icl_lab.identify.explorable import figure
from icl_lab.identify.explorable.data import data as read_by_script


def fingerprint_context() -> dict[str, Any]:
    """What the template ``fingerprint.html`` shows: the default state, and the data of the script.

    Raises:
      RecordError: if the committed record is not what it says.
    """
    arrays, facts = data.shown(data.record())
    return figure.context(arrays, facts) | {"data": Markup(json.dumps(read_by_script(arrays, facts)))}
