"""Watch it learn: ten networks of two inputs, as they were trained or trained anew by the reader."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.weights import data, fallback


def weights_context() -> dict[str, Any]:
    """What the template ``weights.html`` shows: the networks of ``layer`` as they learned, and the data of the check.

    Raises:
      RecordError: if a committed record is not what it says.
    """
    return fallback.context() | {"data": Markup(json.dumps(data.data(data.record())))}
