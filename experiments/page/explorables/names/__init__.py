"""When does a network take its name? Losses and names over the training of five kinds of networks, under one cursor."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.names import data, fallback


def names_context() -> dict[str, Any]:
    """What the template ``names.html`` shows: the default state, and the data of the script.

    Raises:
      RecordError: if the committed record cannot be read.
    """
    shown = data.data(data.record())
    return fallback.context(shown) | {"data": Markup(json.dumps(data.read_by_script(shown), ensure_ascii=False))}
