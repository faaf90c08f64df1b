"""A layer is a gradient step: ten trained networks of two inputs on the reader's prompt."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.layer import data, fallback


def layer_context() -> dict[str, Any]:
    """What the template ``layer.html`` shows: the default state as a figure and a sentence, and the data of the script.

    Raises:
      RecordError: if the committed record is not what it says.
    """
    record = data.record()
    return {
        "prompt": fallback.prompt_plane(),
        "weights": fallback.weight_plane(record),
        "steps": f"{record.arrays['steps'][-1]:,}",
        "distance": f"{100 * fallback.distance(record):.1f}",
        "one_direction": data.of_one_direction(record),
        "data": Markup(json.dumps(data.data(record))),  # numbers, names and base64: nothing to escape
    }
