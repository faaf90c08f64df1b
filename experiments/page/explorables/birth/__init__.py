"""The induction head is born: the attention and the accuracy of one network along its training, whole or clamped."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.birth import data, fallback


def birth_context() -> dict[str, Any]:
    """What the template ``birth.html`` shows: the default state, and the data of the script.

    Raises:
      RecordError: if the committed record is not what it says.
    """
    record = data.record()
    return fallback.context(record) | {"data": Markup(json.dumps(data.data(record)))}
