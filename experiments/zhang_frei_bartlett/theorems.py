"""What Zhang, Frei & Bartlett 2023 prove of the flow, measured: how tight it is, and which conditions it needs.

Nothing is trained. From the initialisations of Assumption 3.3, u = s and U11 = s Theta Theta^T:

- Theorem 4.1 asks for s^2 |Gam|_op D^(1/2) < 2. The flow ends at u U11 = Gam^-1 from scales far beyond it, too.
- Lemma 5.4 bounds |grad L|^2 / (L - L*) by a constant mu, so that the excess loss falls at least as exp(-mu t). In the
  end it falls as exp(-2 h t), h the smallest curvature at the limit that is not zero; mu is smaller by orders.
- Lemma 5.1 writes a prediction as vec(U)^T H vec(U): H is indefinite, with D + 1 eigenvalues of either sign.
- Theorem 4.5: under random covariances the flow ends at A* = E[Gam Lam^2]^-1 E[Lam^2] and u = |A*|_F^(1/2).
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.settings import member_keys
from experiments.zhang_frei_bartlett.common import LAYOUT, NETWORK, Tasks, covariance
from icl_lab import theory
from icl_lab.constructions import linear_attention_weights
from icl_lab.lab import Experiment, main, setting
from icl_lab.lab.constraints import rising
from icl_lab.lab.quantities import quantity
from icl_lab.lab.trainings import Fits, Yield
from icl_lab.models import learner
from icl_lab.prompts import gaussian_regression
from icl_lab.theory.flows.fluctuations import curvatures, optimum_moments


@dataclasses.dataclass(frozen=True)
class Config(Tasks):
    """Assumption 3.3 at several scales."""

    factors: tuple[float, ...] = setting((0.2, 1.0, 3.0, 10.0), "scales s over the bound of Theorem 4.1", above=0)
    horizon: float = setting(300.0, "time of the flow", above=0)
    random_scale: float = setting(0.1, "s under random covariances", above=0)
    random_horizon: float = setting(1000.0, "time of that flow", above=0)
    samples: int = setting(300, "times at which a flow is read", at_least=20)


PRESETS = {
    "smoke": Config(members=2, spectrum=(1.0, 0.5), context_length=4, factors=(0.5, 2.0), horizon=60.0,
                    random_horizon=60.0, samples=40),
    "quick": Config(members=3),
    "lab": Config(),
    "paper": Config(),
}  # fmt: skip


TIMES, EXCESS = quantity("flow/times", "time"), quantity("flow/excess", "member", "factor", "time")
GAP, STEEPNESS = quantity("flow/gap", "member", "factor"), quantity("flow/steepness", "member", "time")
CONSTANT, SLOWEST = quantity("flow/constant", "member"), quantity("flow/slowest", "one")
FORM_ERROR, SPECTRUM = quantity("form/error", "member"), quantity("form/spectrum", "member", "rank")
RANDOM_TIMES, RANDOM_GAP = quantity("random/times", "random_time"), quantity("random/gap", "member", "random_time")
RANDOM_U = quantity("random/{over}", "member", over=("u", "printed"))


def measured(config: Config, fits: Fits) -> Iterator[Yield]:
    """The flows from every scale; predictions by the form of Lemma 5.1; the flow under random covariances."""
    d = len(config.spectrum)
    drawn = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (d, d)))(member_keys(config)), np.float64)
    thetas = np.stack([m / np.linalg.norm(m @ m.T) ** 0.5 for m in drawn])
    with fits.bar("theorems", 3) as advance:
        yield {"flow": _flows(config, thetas)}
        advance(1, 3)
        yield {"form": _form(config)}
        advance(2, 3)
        yield {"random": _random(config, thetas)}
        advance(3, 3)


def _flows(config: Config, thetas: np.ndarray) -> dict[str, np.ndarray]:
    """Excess loss over L* and distance to Gam^-1 from every scale; slope and gradient from the smallest."""
    lam, n, members = covariance(config), config.context_length, len(thetas)
    scales = np.array(config.factors) * theory.largest_initial_scale(lam, n)
    square = np.tile(thetas @ thetas.swapaxes(1, 2), (len(scales), 1, 1))
    u = np.repeat(scales, members)
    times = np.linspace(0, config.horizon, config.samples + 1)[1:]
    start = {"u": u, "u11": u[:, None, None] * square}
    flow = theory.gradient_flow(start, lam, n, times, rtol=1e-9, atol=1e-12)
    best = theory.optimal_loss(lam, n)
    excess = (flow.loss - best).reshape(len(scales), members, -1).swapaxes(0, 1)
    product = flow.end["u"][:, None, None] * flow.end["u11"]
    gap = np.abs(product - theory.optimum(lam, n)).max((1, 2)).reshape(len(scales), members).T
    first = np.where(excess[:, 0] > 1e-10 * best, excess[:, 0], np.nan)  # below it rounding
    return {
        "times": times,
        "excess": np.maximum(excess, 1e-16) / best,
        "gap": gap,
        "steepness": flow.gradient[:members] ** 2 / first,
        "constant": np.array([theory.pl_constant(lam, n, scales[0], theta) for theta in thetas]),
        "slowest": curvatures(optimum_moments(lam, n), theory.flow_limit(lam, n)[0])[1:].min()[None],
    }


def _form(config: Config) -> dict[str, np.ndarray]:
    """Lemma 5.1 for one prompt and dense random weights a member: its error, and the eigenvalues of H."""
    d, pairs = len(config.spectrum), []
    sampler = gaussian_regression(context_length=config.context_length, covariance=covariance(config))
    with jax.enable_x64(True):
        for key in member_keys(config, 1):
            prompt = jax.tree.map(lambda leaf: jnp.asarray(leaf[0], float), sampler(key, 1).prompt)
            u = np.asarray(jax.random.normal(jax.random.fold_in(key, 1), (d + 1, d + 1)), np.float64)
            weights = linear_attention_weights(u[:d, :d], u[d, d], u[:d, d], u[d, :d])
            predicted = float(learner(NETWORK, weights, LAYOUT)(prompt)[0])
            e = np.asarray(LAYOUT.encode(prompt), np.float64)
            across = np.zeros((d + 1, d + 1))
            across[d, :d] = across[:d, d] = prompt.x_query
            h = np.kron(across, e.T @ e / config.context_length) / 2
            vector = u.T.ravel()  # column after column
            pairs.append((abs(vector @ h @ vector - predicted) / abs(predicted), np.linalg.eigvalsh(h)))
    errors, spectra = zip(*pairs)
    return {"error": np.array(errors), "spectrum": np.stack(spectra)}


def _random(config: Config, thetas: np.ndarray) -> dict[str, np.ndarray]:
    """The flow of Theorem 4.5, variances Exp(1) times the spectrum: distance to A*, last u over |A*|_F^(1/2)."""
    from scipy.integrate import solve_ivp

    d, n, s = len(config.spectrum), config.context_length, config.random_scale
    moments = theory.variance_moments("exponential", d, scale=np.asarray(config.spectrum))
    units = np.eye(d * d).reshape(d * d, d, d)
    zero, up, down = (theory.random_covariance_loss(a, moments, n) for a in (np.zeros((d, d)), units, -units))
    square, linear = (up + down - 2 * zero).reshape(d, d), ((up - down) / 2).reshape(d, d)  # the loss is quadratic in A
    best = theory.random_covariance_optimum(moments, n)

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        u, u11 = state[0], state[1:].reshape(d, d)
        slope = square * u * u11 + linear
        return -np.append((slope * u11).sum(), u * slope)

    times, gaps, ends = np.geomspace(0.1, config.random_horizon, config.samples), [], []
    for theta in thetas:
        start = np.append(s, s * theta @ theta.T)
        path = solve_ivp(velocity, (0, times[-1]), start, "BDF", times, rtol=1e-10, atol=1e-13).y
        product = (path[0] * path[1:]).T.reshape(-1, d, d)
        gaps.append(np.abs(product - best).max((1, 2)))
        ends.append(path[0, -1])
    scale = theory.random_covariance_scale(moments, n)
    printed = np.diagonal(best).sum() ** 0.25
    return {"times": times, "gap": np.stack(gaps), "u": np.array(ends) / scale, "printed": np.array(ends) / printed}


EXPERIMENT = Experiment(
    "zhang_frei_bartlett.theorems", __doc__, PRESETS, measured,
    (TIMES, EXCESS, GAP, STEEPNESS, CONSTANT, SLOWEST, FORM_ERROR, SPECTRUM, RANDOM_TIMES, RANDOM_GAP, RANDOM_U),
    constraints=(rising("factors", fewest=2),),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
