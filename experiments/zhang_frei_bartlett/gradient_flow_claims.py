"""Claims of ``gradient_flow``, and what they read off its record."""

import numpy as np

from experiments.statistics import Statistic, array, last
from experiments.zhang_frei_bartlett.gradient_flow_figures import predicted_courses
from icl_lab.lab import Record, claims_of


def small_drifts(record: Record) -> np.ndarray:
    """(batches, rates) where the drift is predicted to move b by less than a tenth of u*^2."""
    return np.abs(record["drift_predicted"]) < 0.1 * record.metrics["flow_scale"] ** 2


def drift_exponents(record: Record) -> np.ndarray:
    """(M, 2) exponents of the drift's size in the learning rate and in 1 / B: small drifts, far below the edge.

    Rates above a seventh of the edge are left out, where the noise of u21 exceeds that of small rates by 4 % or more.
    NaN where the cells that are left do not tell the two exponents apart, or where a drift has another sign than the
    predicted one.
    """
    config, drift = record.config, record["drift"]
    batches, rates = np.meshgrid(config["drift_batches"], config["drift_rates"], indexing="ij")
    kept = small_drifts(record) & (rates < record.metrics["edge_rate"] / 7)
    design = np.stack([np.ones(kept.sum()), np.log(rates[kept]), -np.log(batches[kept])], axis=1)
    if np.linalg.matrix_rank(design) < 3:
        return np.full((len(drift), 2), np.nan)
    sizes = drift[:, kept] * np.sign(record["drift_predicted"][kept])[None]
    found = np.linalg.lstsq(design, np.log(np.where(sizes > 0, sizes, 1.0)).T, rcond=None)[0][1:].T
    return np.where((sizes > 0).all(axis=1, keepdims=True), found, np.nan)


def drift_ratio(record: Record) -> np.ndarray:
    """(M,) measured over predicted drift, mean over the small ones; NaN where there are none."""
    drift, kept = record["drift"], small_drifts(record)
    ratios = (drift / record["drift_predicted"])[:, kept]
    return ratios.mean(1) if kept.any() else np.full(len(drift), np.nan)


def nearer(record: Record) -> np.ndarray:
    """(M,) last error of Adam's product over SGD's."""
    return record["adam/error"][:, -1] / record["sgd/error"][:, -1]


def end_scale(name: str) -> Statistic:
    """(M,) last u of a path over that of the flow's limit."""
    return lambda record: record[f"{name}/u"][:, -1] / record.metrics["flow_scale"]


def end_ratio(name: str, reference: str) -> Statistic:
    """(M,) last u of a path over the last u of another."""
    return lambda record: record[f"{name}/u"][:, -1] / record[f"{reference}/u"][:, -1]


def largest_scale(name: str) -> Statistic:
    """(M,) largest u of a path over the u at which SGD's rate is the edge of stability."""
    return lambda record: record[f"{name}/u"].max(1) / record.metrics["edge_scale"]


def moved(start: int) -> Statistic:
    """(M,) last u over the first, of SGD along the optimal weights from one of the starts."""
    return lambda record: record["quiet/u"][:, start, -1] / record["quiet/u"][:, start, 0]


def course(start: int, *, limit: bool = False) -> Statistic:
    """(M,) last u of SGD along the optimal weights from one of the starts, over the predicted one."""
    return lambda record: record["quiet/u"][:, start, -1] / predicted_courses(record, limit=limit)[start, -1]


def largest_balance(name: str) -> Statistic:
    """(M,) largest size of the balance over a path."""
    return lambda record: np.abs(record[f"{name}/balance"]).max(1)


_claim = claims_of("zhang_frei_bartlett.gradient_flow")
_THEOREM, _LAB = "Zhang, Frei & Bartlett 2023, Theorem 4.1", "this lab"
_EDGE = "the edge of stability along u21, .98, over the flow's u, 1.51"

CLAIMS = (
    _claim(
        "flow_limit", _THEOREM, "Population gradient flow ends at u U11 = Gam^-1 (largest entry of the gap).",
        array("flow/gap"), 0.0, 1e-8, "tolerances of the solver", kind="identity",
    ),
    _claim(
        "flow_scale", _THEOREM, "Population gradient flow ends at u = |Gam^-1|_F^(1/2) (ratio).",
        end_scale("flow"), 1.0, 1e-5, "tolerances of the solver over the whole path", kind="identity",
    ),
    _claim(
        "flow_balance", _THEOREM, "Population gradient flow keeps u^2 - |U11|_F^2 = 0 (largest size over the path).",
        largest_balance("flow"), 0.0, 1e-5, "tolerances of the solver over the whole path",
        control=largest_balance("sgd"), kind="identity",
    ),
    _claim(
        "gd_order", _LAB,
        "Population GD is the flow to first order: its largest distance is linear in the rate (exponent).",
        array("order"), 1.0, 0.15, "the second order, at a fifth of the largest stable rate", kind="identity",
    ),
    _claim(
        "gd_scale", _LAB, "Population GD keeps the balance to first order: u ends where the flow's does (ratio).",
        end_scale("gd"), 1.0, 0.005, "one seed ends at a balance of -.009 at this rate",
    ),
    _claim(
        "sgd_product", _LAB, "Minibatch SGD ends near u U11 = Gam^-1 (relative error; control: at the start).",
        last("sgd/error"), 0.08, 0.0, relation="<=", control=lambda record: record["sgd/error"][:, 0],
        reason="half of .165, the distance of Gam^-1 from the nearest multiple of Lam^-1: SGD tells the two apart",
    ),
    _claim(
        "adam_product", _LAB, "Adam ends nearer to u U11 = Gam^-1 than SGD (ratio of the relative errors).",
        nearer, 1.0, 0.0, "an ordering, paired by member", relation="<=",
    ),
    *(
        _claim(
            f"{name}_scale", _LAB, f"{about} ends far below the u of the flow (ratio).", end_scale(name), 0.65, 0.0,
            reason, relation="<=", control=end_scale("gd"),
        )
        for name, about, reason in (
            ("sgd", "SGD", f"{_EDGE}: SGD of this rate cannot stay above it"),
            ("adam", "Adam", f"as for SGD: {_EDGE}"),
            ("exact_adam", "Adam on exact gradients, which breaks the balance too,", "as for Adam on batches"),
        )
    ),
    _claim(
        "mean_field", _LAB, "SGD ends at the u of population GD with the mean drift of b by batch noise added (ratio).",
        end_ratio("sgd", "mean_field"), 1.0, 0.05,
        "fluctuations of the product, a few per cent of it, are left out", control=end_ratio("gd", "mean_field"),
    ),
    _claim(
        "edge", _LAB, "SGD stays below the u at which its rate is the edge of stability along u21 (largest u, ratio).",
        largest_scale("sgd"), 1.0, 0.0, "a bound: beyond it u21 grows at every step", relation="<=",
        control=largest_scale("gd"),
    ),
    _claim(
        "drift_rate", _LAB, "From the optimum b drifts per flow time in proportion to the learning rate (exponent).",
        lambda record: drift_exponents(record)[:, 0], 1.0, 0.1,
        "the noise of u21 near the edge adds .05 to the exponent at these rates",
    ),
    _claim(
        "drift_batch", _LAB, "From the optimum b drifts in proportion to 1 / B (exponent).",
        lambda record: drift_exponents(record)[:, 1], 1.0, 0.1,
        "corrections of second order in eta / B, a tenth or two at the smallest batch",
    ),
    _claim(
        "drift", _LAB,
        "The drift of the balance is the closed form (measured over predicted, mean over all small ones).",
        drift_ratio, 1.0, 0.1, "corrections of the order of 1 / B",
    ),
    _claim(
        "course", _LAB,
        "From optimal weights below the u of least gradient noise SGD raises u as the closed form at its rate says "
        "(last u over predicted; control: over the limit of small rates).",
        course(0), 1.0, 0.05, control=course(0, limit=True),
        reason="of the order of 1 / B: u itself fluctuates by a tenth at the start",
    ),
    *(
        _claim(
            f"quiet_from_{name}", _LAB,
            f"From optimal weights {name} the u of least gradient noise SGD {what} u (ratio).",
            moved(start), bound, 0.0, "5 % is more than the noise of its mean", relation=relation,
        )
        for start, (name, what, bound, relation) in enumerate(
            (("below", "raises", 1.05, ">="), ("above", "lowers", 0.95, "<="))
        )
    ),
    _claim(
        "exact_adam_rate", _LAB,
        "On exact gradients Adam ends there at a tenth of the rate too, so that it is no error of the step's size "
        "(ratio).",
        end_ratio("slow_exact_adam", "exact_adam"), 1.0, 0.1,
        "an error of first order would fall tenfold and bring u near the flow's, the control",
        control=end_ratio("flow", "exact_adam"),
    ),
)  # fmt: skip
