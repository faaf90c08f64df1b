"""Explicit fine-tuning of a language model on the demonstrations, and controls of what it does to the network."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from icl_lab.models.language import LanguageModel, block, embedded, of_layer, unembedded
from icl_lab.models.language_capture import captured
from icl_lab.models.layers import Params

TUNED = ("w_k", "w_v", "k_bias", "v_bias")
"""What fine-tuning moves, in every layer: the projections of keys and values, and their biases."""

READING = (
    "embedding",
    "position",
    *(f"{where}_{what}" for where in ("norm", "attention", "mlp") for what in ("scale", "offset")),
)
"""What stands around attention and MLPs: embeddings and LayerNorms."""

OBJECTIVES = ("all", "local")


class Finetuned(NamedTuple):
    """A fine-tuned network. N examples of at most S tokens.

    Attributes:
      params: the pytree of ``network.init``; what is not in ``TUNED`` is untouched.
      queries: (N, S, L, H, K) attention queries of the training tokens, by the weights with which their example's
        gradient was taken.
      update_norms: by name of ``TUNED``, (L,) Frobenius norms of what was added.
    """

    params: Params
    queries: Array
    update_norms: dict[str, Array]


def finetune(
    network: LanguageModel,
    params: Params,
    examples: Array,
    lengths: Array,
    learning_rate: ArrayLike,
    *,
    objective: str = "all",
    sequential: bool = True,
) -> Finetuned:
    """Plain SGD on demonstrations: one pass in their order, one step an example, keys and values alone.

    The loss of an example is that of a causal language model on its whole text, the mean over the tokens it predicts;
    the token that begins it is not one. Dai et al. 2022, section 4.1, and released code. ``vmap`` over learning rates
    runs a grid in one program; over examples, permutations and sets of demonstrations; over params, networks.

    Args:
      network: the module.
      params: the pytree of ``network.init``.
      examples: (N, S) token ids, right-padded; as in ``icl_lab.prompts.encoding.EncodedTask``.
      lengths: (N,) tokens of each, at least 2.
      learning_rate: a scalar, or one an example (N,); an example with rate zero is left out.
      objective: ``all``, the paper's; or ``local``, layer-causal gradient descent: the sum over layers of the same loss
        read after that layer, whose gradient moves that layer alone (Deutch et al. 2024).
      sequential: False takes all gradients at the start and adds them in one step, which does not depend on the order.

    Raises:
      ValueError: for another objective, or shapes that do not fit.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, got {objective!r}")
    if examples.ndim != 2 or examples.shape[1] < 2 or lengths.shape != examples.shape[:1]:
        raise ValueError(
            f"examples must be (N, S), S at least 2, and lengths (N,), got {examples.shape} and {lengths.shape}"
        )
    weights = params["params"]
    rates = jnp.asarray(learning_rate, weights["w_k"].dtype)
    if rates.shape not in ((), lengths.shape):
        raise ValueError(f"learning_rate must be a scalar or one an example {lengths.shape}, got {rates.shape}")

    def loss(tuned: Tuned, tokens: Array, length: Array) -> Array:
        streams = _streams(network, weights, tuned, tokens[:-1], objective)  # what the last token predicts has no loss
        return sum((_text_loss(unembedded(weights, rows), tokens, length) for rows in streams), jnp.zeros(()))

    def look(tuned: Tuned, tokens: Array, length: Array) -> tuple[Tuned, Array]:
        current = params | {"params": weights | _apart(tuned)}
        queries = captured(network, current, tokens, 0).queries  # where they are not read, XLA leaves this out
        return jax.grad(loss)(tuned, tokens, length), queries.swapaxes(0, 1)

    def step(tuned: Tuned, example: tuple[Array, Array, Array]) -> tuple[Tuned, Array]:
        tokens, length, rate = example
        gradient, queries = look(tuned, tokens, length)
        return jax.tree.map(lambda w, g: w - rate * g, tuned, gradient), queries

    start, rates = _joined(weights), jnp.broadcast_to(rates, lengths.shape)
    if sequential:
        tuned, queries = jax.lax.scan(step, start, (examples, lengths, rates))
    else:
        gradients, queries = jax.vmap(look, (None, 0, 0))(start, examples, lengths)
        tuned = jax.tree.map(lambda w, g: w - jnp.tensordot(rates, g, 1), start, gradients)
    after = params | {"params": weights | _apart(tuned)}
    return Finetuned(after, queries, update_norms(params, after))


def update_norms(before: Params, after: Params) -> dict[str, Array]:
    """Frobenius norm of what was added to each of ``TUNED``, by layer: (L,)."""
    changes = {name: after["params"][name] - before["params"][name] for name in TUNED}
    return {name: jnp.sqrt(jnp.square(change).sum(range(1, change.ndim))) for name, change in changes.items()}


def random_update(key: Array, before: Params, after: Params) -> Params:
    """The network with Gaussian noise in place of each update, of its Frobenius norm in every layer (this lab).

    A similarity that the noise has too does not come from what was learned, but from the network's geometry.
    """
    norms, weights = update_norms(before, after), dict(before["params"])
    for name, one in zip(TUNED, jax.random.split(key, len(TUNED))):
        noise = jax.random.normal(one, weights[name].shape, weights[name].dtype)
        size = jnp.sqrt(jnp.square(noise).sum(range(1, noise.ndim)))
        weights[name] = weights[name] + noise * jnp.expand_dims(norms[name] / size, range(1, noise.ndim))
    return before | {"params": weights}


def untrained(key: Array, network: LanguageModel) -> Params:
    """A network that has learned nothing: random params (Deutch et al. 2024, "No Training")."""
    return dict(network.init(key, jnp.zeros(1, jnp.int32)))


def trained_embeddings(trained: Params, fresh: Params) -> Params:
    """The trained embedding, positions and LayerNorms in an untrained network (control of Deutch et al. 2024).

    Attention, MLPs and a mixer's coefficients are those of ``fresh``.
    """
    weights = {name: trained["params"][name] if name in READING else value for name, value in fresh["params"].items()}
    return fresh | {"params": weights}


Tuned = list[dict[str, Array]]
"""By layer, keys and values side by side: ``w`` (E, 2E) and ``bias`` (2E,).

In a grid of learning rates only these are batched, the query projections are not; and the gradient of a layer is no
array of all layers. Together that halves the time of ``block`` on the stacked weights.
"""


def _joined(weights: Params) -> Tuned:
    w, bias = (jnp.concatenate([weights[k], weights[v]], axis=-1) for k, v in (TUNED[:2], TUNED[2:]))
    return [{"w": one, "bias": other} for one, other in zip(w, bias)]


def _apart(tuned: Tuned) -> Params:
    (w_k, w_v), (k_bias, v_bias) = (
        jnp.split(jnp.stack([layer[name] for layer in tuned]), 2, axis=-1) for name in ("w", "bias")
    )
    return dict(zip(TUNED, (w_k, w_v, k_bias, v_bias)))


def _streams(network: LanguageModel, weights: Params, tuned: Tuned, tokens: Array, objective: str) -> list[Array]:
    """Residual streams (T, E) that the loss reads: the last, or for ``local`` each after the block that it moves."""
    rows, streams = embedded(network, weights, tokens[None]), []
    for layer, moved in enumerate(tuned):
        params = of_layer(weights, layer)
        projections = [(params["w_q"], params["q_bias"]), (moved["w"], moved["bias"])]
        rows = jax.lax.stop_gradient(rows) if objective == "local" else rows
        rows, _ = block(network, params, rows, projections=projections)
        streams.append(rows[0])
    return streams if objective == "local" else streams[-1:]


def _text_loss(logits: Array, tokens: Array, length: Array) -> Array:
    """Mean cross-entropy of the tokens 1 .. length - 1, from logits (S - 1, V) of those before."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[1:])
    predicted = jnp.arange(1, tokens.shape[0]) < length
    return jnp.where(predicted, losses, 0).sum() / (length - 1)
