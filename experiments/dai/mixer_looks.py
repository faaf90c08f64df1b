"""How figures draw mixers: no two alike in grey."""

from experiments.dai import mixers


def looks(names: tuple[str, ...]) -> dict[str, dict]:
    """Line, marker and label of every mixer; a kind has its hue and dash, every mixer its marker."""
    styles = mixers.looks(names)
    return {name: look | {"marker": "osv^DPX*<>"[i % 10]} for i, (name, look) in enumerate(styles.items())}
