"""Which algorithm is it? Measured residual factors against families of algorithms, with the exact residual."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.fingerprint import data, fallback


def fingerprint_context() -> dict[str, Any]:
    """What the template ``fingerprint.html`` shows: the default state, and the data of the script.

    Raises:
      RecordError: if the committed record is not what it says.
    """
    found = data.record()
    return fallback.context(found) | {"data": Markup(json.dumps(data.data(found)))}
