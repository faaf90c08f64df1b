"""What the templates show of every explorable: its default state, and the data of its script."""

import json
from typing import Any

from markupsafe import Markup

from experiments.page.explorables.birth import data as birth
from experiments.page.explorables.birth import fallback as birth_figure
from experiments.page.explorables.fingerprint import data as fingerprint
from experiments.page.explorables.layer import data as layer
from experiments.page.explorables.layer import fallback as layer_figure
from experiments.page.explorables.names import data as names
from experiments.page.explorables.names import fallback as names_figure
from experiments.page.explorables.weights import data as weights
from experiments.page.explorables.weights import fallback as weights_figure
from icl_lab.identify.explorable import data as identification
from icl_lab.identify.explorable import figure as identification_figure
from icl_lab.lab.records import load


def contexts() -> dict[str, dict[str, Any]]:
    """By the name that templates call it.

    Raises:
      RecordError: if a committed record cannot be read, or is not what it says.
    """
    layers, births, named = layer.record(), birth.record(), names.data(load(names.FOLDER))
    asked = fingerprint.shown(fingerprint.record())
    script = lambda data, **options: Markup(json.dumps(data, **options))  # noqa: E731  # it has nothing to escape
    return {
        "layer": layer_figure.context(layers) | {"data": script(layer.data(layers))},
        "watch": weights_figure.context() | {"data": script(weights.data(weights.record()))},
        "print": identification_figure.context(*asked) | {"data": script(identification.data(*asked))},
        "naming": names_figure.context(named) | {"data": script(names.read_by_script(named), ensure_ascii=False)},
        "birth": birth_figure.context(births) | {"data": script(birth.data(births))},
    }
