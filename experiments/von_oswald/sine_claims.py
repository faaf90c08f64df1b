"""What ``sine`` claims: network and control agree, and the control is functional gradient descent."""

import numpy as np

from experiments.statistics import Statistic, array, last, ratio
from experiments.von_oswald.criteria import settled
from icl_lab.lab import Claim, Record, claims_of

claim = claims_of("von_oswald.sine", presets=("lab",))


def _final(law: str, which: str) -> Statistic:
    return array(f"{law}_1/final/{which}")


def _initial(law: str) -> Statistic:
    """(1,) of the task and the networks shown: rms difference of the functions before attention, over the task's."""

    def statistic(record: Record) -> np.ndarray:
        task = record[f"{law}_1/task"]
        apart = task["trained"]["before"] - task["control"]["before"]
        return np.sqrt([(apart**2).mean() / (task["curve"] ** 2).mean()])

    return statistic


def _of_law(law: str) -> tuple[Claim, ...]:
    """The claims of Fig. 4 on one distribution of the tasks: the figure's is dependent, the text's independent."""
    paper = f"von Oswald et al. 2022, Fig. 4 (amplitude and phase {law})"
    ends = {
        "expected_verdict": {"lab": "not reached"},  # after 20,000 steps of 128 tasks
        "criterion": settled(f"{law}_1/trained_loss", f"{law}_1/control_loss"),
    }
    identity = {"expected_verdict": {"lab": "holds"}, "kind": "identity"}
    return (
        claim(f"{law}_loss", paper, "The network trained whole learns sines in context (loss).", _final(law, "trained"),
              0.001, relation="<=", reason="where the published curves end, on an axis to .006", **ends),
        claim(f"{law}_same_loss", paper,
              "The network trained whole is as good as meta-learned features with one step (difference of losses).",
              lambda record: _final(law, "trained")(record) - _final(law, "control")(record), 0.0, 0.0005,
              reason="about a line's width on the figure's axis to .006", **ends),
        claim(f"{law}_cosine", paper,
              "The two agree on the sign of d prediction / d query (mean of the cosine, which is 1 or -1).",
              last(f"{law}_1/control_sensitivity_cosine"), 0.9, relation=">=",
              reason="near 1 on the figure's axis from .5 to 1.1", **ends),
        claim(f"{law}_prediction_difference", paper,
              "Both networks predict nearly the same: they differ by a tenth of the root mean square target, .22, at "
              "most.",
              last(f"{law}_1/control_prediction_difference"), 0.022, relation="<=",
              reason="a tenth of what there is to predict; the figure's axis ends at .08", **ends),
        claim(f"{law}_initial", paper,
              "The two have almost the same initial function, before attention (first members, the task of the figure: "
              "root mean square of the difference over that of the task).",
              _initial(law), 0.1, relation="<=", interval="exact",
              reason="a line's width beside the task's height", **ends),
        claim(f"{law}_values", "this lab, on von Oswald et al. 2022, Prop. 2",
              "The network trained whole is another kernel machine: the values that it smooths are not the labels "
              "(squared correlation; 1 in Prop. 2).",
              array(f"{law}_1/value_r2"), 0.9, relation="<=",
              reason="a tenth of the variance is more than rounding or noise leaves"),
        claim(f"{law}_kernel", "von Oswald et al. 2022, Prop. 2",
              "One layer behind the meta-learned features is kernel smoothing with k(x, x') = m(x).m(x') (relative "
              "root mean square error).",
              lambda record: record[f"{law}_1/functional_error"][:, 0], 1e-5, relation="<=",
              reason="an identity: float32 rounding of sums of forty products", **identity)
        if law == "independent"
        else claim(f"{law}_functional", "von Oswald et al. 2022, A.8",
                   "Up to four attention layers behind the meta-learned features, with no MLP between, are as many "
                   "steps of functional gradient descent (largest relative root mean square error).",
                   lambda record: record[f"{law}_1/functional_error"].max(axis=1), 1e-4, relation="<=",
                   reason="an identity; each step rounds the residuals of the one before", **identity),
    )  # fmt: skip


CLAIMS = (
    *_of_law("dependent"),
    *_of_law("independent"),
    claim("one_number", "this lab",
          "The released code's tasks are easier: their loss is at most half of the others' (ratio, median).",
          ratio("dependent_1/final/trained", "independent_1/final/trained"), 0.5, relation="<=", interval="median",
          reason="a family of one parameter against one of two", expected_verdict={"lab": "not reached"},
          criterion=settled("dependent_1/trained_loss", "independent_1/trained_loss")),
)  # fmt: skip
