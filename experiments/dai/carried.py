"""Beyond the paper: which attention outputs carry the answer, and whether two kinds of descent do the same."""

import numpy as np

from experiments.dai.analysis import Subject, present_mean, right
from experiments.dai.controls import Reading
from experiments.dai.programs import right_log_probabilities, updates_compared
from experiments.dai.rates import Floats
from icl_lab.compare import NetworkStates, Patch
from icl_lab.prompts.encoding import EncodedTask


def carried(subject: Subject, reading: Reading, task: EncodedTask) -> dict[str, dict[str, dict[str, Floats]]]:
    """What attention outputs of another reading do in the zero-shot run: ``accuracy`` and ``log_probability`` of the
    right label that they gain.

    By reading (``in_context``, ``finetuned``, and ``finetuned_sized``, fine-tuning's changes made as large as those of
    the demonstrations, question by question): ``layer`` (L,), put in one layer alone, ``all`` in all at once, which
    gives the whole answer where the last token enters alike (rotary positions), and ``answer``, of that reading itself.
    """
    base = reading.zero_shot

    def scores(read: NetworkStates) -> np.ndarray:
        hits = right(np.asarray(read.candidate_logits), task.targets)
        return np.array([hits.mean(), np.asarray(right_log_probabilities(read.candidate_logits, task)).mean()])

    before = scores(base)
    changes = {name: getattr(reading, name).output - base.output for name in ("in_context", "finetuned")}
    length = {name: np.linalg.norm(change, axis=-1, keepdims=True) for name, change in changes.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        sized = np.nan_to_num(np.asarray(changes["finetuned"]) * (length["in_context"] / length["finetuned"]))
    layers = base.output.shape[1]
    found = {}
    for name, change in (changes | {"finetuned_sized": sized}).items():
        put = lambda chosen, change=change: subject.read(  # noqa: E731
            None, task, "zero_shot", Patch(base.output + change, chosen)
        )
        gains = {"layer": np.stack([scores(put(np.arange(layers) == layer)) - before for layer in range(layers)])}
        gains["all"] = scores(put(np.ones(layers, bool))) - before
        if hasattr(reading, name):
            gains["answer"] = scores(getattr(reading, name)) - before
        measures = enumerate(("accuracy", "log_probability"))
        found[name] = {measure: {place: gain[..., m] for place, gain in gains.items()} for m, measure in measures}
    return found


def alpha(reading: Reading, other: Reading) -> dict[str, Floats]:
    """Cosines of what two kinds of fine-tuning change, mean over questions and layers: of attention ``scores`` (alpha
    of Deutch et al. 2024), and of ``outputs``."""
    found = updates_compared(reading.zero_shot, reading.finetuned, other.finetuned)
    return {name: present_mean(values, None) for name, values in found.items()}
