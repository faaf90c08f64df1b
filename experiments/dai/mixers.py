"""Mixers of earlier values, which the binaries on momentum add to attention: by name, as arrays.

A mixer is a matrix (T, N) that is added to every head's attention pattern. It is data, so networks with different
mixers are members of one program. ``vanilla`` is none; ``momentum_E`` is momentum with coefficient E, ``normalised_E``
with weights that sum to one; ``learned_E`` starts with E and learns it, one coefficient a head; ``recent_W`` is the
mean of the last W values, ``recent_1`` a shift by one token: local mixers of equal cost without decay.
"""

import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from experiments.settings import Members, member_keys
from icl_lab.lab import NotRun, Record
from icl_lab.lab.constraints import Constraint, holds, once
from icl_lab.lab.quantities import Quantity
from icl_lab.models.attention import momentum_pattern, recent_pattern

NAME = r"vanilla|(momentum|normalised|learned)_(0?\.\d+)|recent_([1-9]\d*)"
ALLOWED = "vanilla, momentum_E, normalised_E, learned_E with 0 < E < 1, or recent_W with W >= 1"


def _is_mixer(name: str) -> bool:
    match = re.fullmatch(NAME, name)
    return bool(match and (not match[2] or float(match[2])))


CONSTRAINTS = (
    holds(ALLOWED, "mixers", when=lambda c: all(_is_mixer(name) for name in c.mixers)),
    holds("vanilla among them: the others are paired with it", "mixers", when=lambda c: "vanilla" in c.mixers),
    once("mixers"),
)


def includes(*kinds: str) -> Constraint:
    """A mixer of one of these kinds, with a coefficient, is among them."""
    return holds(f"a {' or '.join(f'{one}_E' for one in kinds)} among them", "mixers",
                 when=lambda c: any(kind(name) in kinds for name in c.mixers))  # fmt: skip


def kind(name: str) -> str:
    """``vanilla``, ``momentum``, ``normalised``, ``learned`` or ``recent``."""
    return name.split("_")[0]


def eta_of(name: str) -> float:
    """The coefficient in a mixer's name; of the others one that is never used, since sigmoid(0) = 1/2."""
    return float(name.split("_")[1]) if kind(name) in ("momentum", "normalised", "learned") else 0.5


def window_of(name: str) -> int:
    """The window in a mixer's name; 1 of the others, which have none."""
    return int(name.split("_")[1]) if kind(name) == "recent" else 1


def fixed_mixing(name: str, tokens: int, keys: int | None = None) -> Array:
    """(T, N) what a mixer adds to a pattern; zeros where it is learned, or none."""
    if kind(name) == "recent":
        return recent_pattern(tokens, window_of(name), keys=keys).astype(jnp.float32)
    if kind(name) in ("momentum", "normalised"):
        return momentum_pattern(tokens, eta_of(name), keys=keys, normalised=kind(name) == "normalised")
    return jnp.zeros((tokens, tokens if keys is None else keys))


def settings(mixers: tuple[str, ...], members: int, tokens: int, keys: int | None = None) -> dict[str, Array]:
    """Settings of V mixers times M members, mixer after mixer.

    Returns:
      ``mixing`` (V M, T, N); ``learned`` (V M,) 1 where momentum with a coefficient of the parameters is added to it;
      ``logit`` (V M,) where that coefficient starts: the inverse of the sigmoid.
    """
    eta = jnp.array([eta_of(name) for name in mixers])
    per_mixer = {
        "mixing": jnp.stack([fixed_mixing(name, tokens, keys) for name in mixers]),
        "learned": jnp.array([float(kind(name) == "learned") for name in mixers]),
        "logit": jnp.log(eta / (1 - eta)),
    }
    return {name: jnp.repeat(values, members, axis=0) for name, values in per_mixer.items()}


def mixing(setting: dict[str, Array], eta: ArrayLike) -> Array:
    """What a member's mixer adds to the patterns: (.., T, N) for the parameter ``eta`` (..) before its sigmoid."""
    fixed = setting["mixing"]
    tokens, keys = fixed.shape
    logits = jnp.asarray(eta)
    learned = jax.vmap(lambda e: momentum_pattern(tokens, jax.nn.sigmoid(e), keys=keys))(logits.ravel())
    return (fixed[None] + setting["learned"] * learned).reshape(*logits.shape, tokens, keys)


def paired_keys(config: Members, names: Sequence[str], stream: int = 0) -> Array:
    """(V M,) keys: members of one number share start, data and evaluation whatever their mixer."""
    return jnp.concatenate([member_keys(config, stream)] * len(names))


def of(record: Record, quantity: Quantity, mixer: str) -> np.ndarray:
    """(M, ..) an array of the record for one mixer.

    Raises:
      NotRun: naming the mixer, for one that was not run.
    """
    if mixer not in record.config["mixers"]:
        raise NotRun(mixer)
    return quantity(record)[list(record.config["mixers"]).index(mixer)]


def momenta(record: Record) -> list[str]:
    """The mixers of fixed momentum, by coefficient."""
    return sorted((name for name in record.config["mixers"] if kind(name) == "momentum"), key=eta_of)


def chosen(record: Record, which: str, losses: np.ndarray, *, by: np.ndarray | None = None) -> np.ndarray:
    """(M, ..) losses of the best mixer of a kind, chosen for each member by the mean of the *other* members.

    Choosing by a member's own loss would flatter the kind that has more mixers.

    Args:
      record: for its mixers.
      which: ``momentum`` (fixed coefficients), ``recent`` or ``vanilla``.
      losses: (V, M, ..).
      by: (V, M) what is compared, lower is better; None for the losses themselves.

    Raises:
      NotRun: where no mixer of the kind was run.
    """
    rows = [i for i, name in enumerate(record.config["mixers"]) if kind(name) == which]
    if not rows:
        raise NotRun(which)
    table = (losses if by is None else by)[rows]
    members = table.shape[1]
    others = (table.sum(1, keepdims=True) - table) / max(members - 1, 1)
    best = others.argmin(0) if members > 1 else np.zeros(1, int)
    return losses[rows][best, np.arange(members)]
