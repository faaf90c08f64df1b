"""Predictions of a whole batch of prompts at once: the form of the transformer that training uses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.fast.agreement import check_forms, ours
from icl_lab.fast.pointwise import add, add_bias, gelu, layer_norm
from icl_lab.fast.tasks_last import between, by_shared, contract, gram, linear_layer, total
from icl_lab.models.attention import ATTENTIONS, Attention, linear_pattern, seen_of_scores
from icl_lab.models.layers import folded_weights, layer_weights, padded
from icl_lab.models.learner import check_params, learner, told
from icl_lab.models.transformer import BY_LAYER, Transformer
from icl_lab.prompts.draws import BLOCK, batch_first, block_last
from icl_lab.prompts.layouts import Layout, joint_layout
from icl_lab.prompts.naming import called
from icl_lab.prompts.prompt import BatchLearner, Prompt, check_prompts

OURS = frozenset(ATTENTIONS.values())
"""Attentions of this library, whose forms its tests compare."""


def batch_learner(network: Transformer, params: dict, layout: Layout | None = None) -> BatchLearner:
    """``vmap(learner(network, params, layout))``: a learner of B prompts at once, -> (B, O).

    The same numbers to rounding, five to twenty times faster on a CPU: weight products are folded first
    (A = W_q W_k^T, B = W_v W_p), the task is the last axis (``tasks_last``), and in the last layer only the query's
    row is computed, of plain joint tokens (W0 = 0) only its label channels. Gradients are by reverse mode only.

    Raises:
      ValueError: for a network that is no ``Transformer``, or as ``learner``; when it is called, for anything but B
        prompts (``ShapeError``) or parameters of another network, as the network, for an attention that has
        no form for batches, for forms that disagree (compared once where a part of the network or its layout is not of
        this library), and for a layout of logits, which are read off all tokens.
    """
    if not isinstance(network, Transformer):
        raise ValueError(f"{type(network).__name__} is no Transformer: use jax.vmap(learner(network, params, layout))")
    learner(network, params, layout)  # which refuses what is wrong
    encoding = layout or joint_layout()

    def predictions(prompts: Prompt) -> Array:
        check_prompts(prompts)
        check_network(network, encoding, prompts)
        return _fast(network, params, prompts, encoding)

    return called(predictions, f"batch_learner({type(network).__name__})")


def check_network(network: Transformer, layout: Layout, prompts: Prompt) -> None:
    """Compares the forms of a network on prompts of these shapes, where not all of it is of this library.

    Raises:
      ValueError: as ``agreement.check_forms``.
    """
    parts = (type(network), layout.encode, layout.decode, layout.encode_tasks or layout.encode)
    mine = all(ours(part) for part in parts)
    for name in dict.fromkeys(network.attentions()):
        kind = ATTENTIONS.get(name, Attention(linear_pattern))
        if (kind.of_scores is None and kind.of_grams is None) or (mine and kind in OURS):
            continue
        # an attention is the same in every layer, and in few the weights may be large
        one = _first_layers(network, 2, name) if ours(type(network)) else network
        check_forms(
            f"attention {name!r} in {type(network).__name__}", (type(network), repr(one), kind, layout), one, layout,
            prompts, lambda params, prompt: learner(one, params, layout)(prompt),  # noqa: B023
            lambda params, prompts: _fast(one, params, prompts, layout), 2 * _largest_block(one) + 1,  # noqa: B023
        )  # fmt: skip


def _first_layers(network: Transformer, layers: int, attention: str) -> Transformer:
    """The same network with so many layers at most, and one attention in all."""
    layers = min(network.layers, layers)
    sizes: Any = {name: value[:layers] for name in BY_LAYER if isinstance(value := getattr(network, name), tuple)}
    return network.clone(layers=layers, attention=attention, **sizes)


def _fast(network: Transformer, params: dict, prompts: Prompt, layout: Layout) -> Array:
    if not prompts.x.shape[1]:  # no examples: nothing that is worth a form of its own
        return jax.vmap(learner(network, params, layout))(prompts)
    batch, largest = prompts.x.shape[0], _largest_block(network)
    length = told(network, layout, prompts).get("length")
    if layout.encode_tasks is None:
        tokens = block_last(jax.vmap(layout.encode)(prompts), largest)
    else:
        tokens = jax.vmap(layout.encode_tasks)(jax.tree.map(lambda part: block_last(part, largest), prompts))
    if layout.joint_sign:
        labels = batch_first(_stack(network, params, tokens, prompts.y.shape[-1], length), batch)[:, 0]
        return labels if layout.joint_sign > 0 else -labels
    rows = batch_first(_stack(network, params, tokens, network.embedding or tokens.shape[2], length), batch)
    predictions = jax.vmap(layout.decode)(rows, prompts)
    if predictions.ndim != 2 + layout.prefixes:
        raise ValueError("a Transformer has no logits for this layout to pass on: it computes tokens")
    return predictions


def _largest_block(network: Transformer) -> int:
    """Tasks of a block: half as many for layers of linear attention on each other, whose products then take less time.

    With both heads and MLPs most products are a library's, and those of four times as many tasks take less. For fewer
    than three layers, for softmax and with LayerNorm either takes more.
    """
    linear = set(network.attentions()) <= {name for name, kind in ATTENTIONS.items() if kind.gram}
    if network.layers < 3 or not linear or network.layer_norm:
        return BLOCK
    several, mlps = max(network.by_layer("heads")) > 1, any(network.by_layer("mlp_width"))
    return 4 * BLOCK if several and mlps else BLOCK // 2


def _stack(network: Transformer, params: dict, tokens: Array, reads: int, length: Array | None) -> Array:
    """Last ``reads`` channels of the Q queries after the stack: (blocks, T, E, tasks) -> (blocks, Q, reads, tasks).

    ``length`` (B,) is that of each padded context; None: all of it is seen.
    """
    network.check(tokens.shape[1:3])
    check_params(network, params, tokens.shape[1:3])
    kinds = [ATTENTIONS[name] for name in network.attentions()]
    patterns = [_pattern_of(name) for name in network.attentions()]
    dtype = jnp.result_type(tokens, *jax.tree.leaves(params))
    params, tokens = jax.tree.map(lambda leaf: leaf.astype(dtype), (params, tokens))
    weights, clip = params["params"], float(network.token_clip)
    if network.embedding or network.embedding_mlp:
        tokens = _embedded(network, weights, tokens)
    context = network.examples(tokens.shape[1])
    keys = tokens.shape[1] if network.query_as_key else context
    seen, divided = _seen(network, tokens, length)
    a, b = _folded(network, params, tokens.shape[2], context if seen is None else 1)
    hidden = network.by_layer("mlp_width")
    bare = seen is None and not (any(hidden) or network.layer_norm)
    if bare and not clip and reads == 1 and len(kinds) == 2 and all(kind.gram for kind in kinds):
        return _two_layers(a, b, tokens, keys)
    for layer, kind in enumerate(kinds):
        i, last = 0 if network.looped else layer, layer == network.layers - 1
        read = tokens
        if network.layer_norm and (network.looped or layer):
            norm = 0 if network.looped else layer - 1
            read = layer_norm(tokens, weights["norm_scale"][norm], weights["norm_offset"][norm])
        by_gram = seen is None and kind.gram and not last and tokens.shape[1] >= tokens.shape[2]
        if by_gram and read is tokens:
            tokens = linear_layer(tokens, a[layer], b[layer], clip, keys)
        elif by_gram:
            tokens = add(tokens, contract(read, between(gram(read[:, :keys]), a[layer], b[layer]), (2, 1)), clip)
        else:
            kept = reads if last and not hidden[layer] else tokens.shape[2]
            first = context if last else 0
            pattern = patterns[layer]
            if seen is not None:
                pattern = partial(_of_seen, kind, seen[:, first:], divided[:, first:])
            metric = partial(_key_metric, weights, i, tokens.shape[2], len(a[layer]))
            update = _attention(pattern, read[:, first:], read[:, :keys], a[layer], b[layer, :, :, -kept:], metric)
            tokens = add(tokens[:, first:, -kept:], update, clip)
        if hidden[layer]:
            tokens = _mlp(tokens, tokens[:, :, -reads:] if last else tokens, weights, "mlp", (i,), clip)
    return tokens


def _seen(network: Transformer, tokens: Array, length: Array | None) -> tuple[Any, Any]:
    """``Transformer.seen`` of every task, (blocks or 1, T, N, tasks or 1), and what its rows are divided by.

    None and None where all tokens see all keys.
    """
    if length is None and not network.causal:
        return None, None
    t, tasks = tokens.shape[1], 1 if length is None else tokens.shape[3]
    lengths = None if length is None else block_last(length, tasks).reshape(-1)  # what fills up a block sees nothing

    def of_task(one: Any) -> tuple[Any, Any]:
        seen = network.seen(t, one)
        return seen, network.counts(t, seen) if network.averaged else jnp.ones((t, 1))

    pair = jax.vmap(of_task, axis_size=1 if lengths is None else None)(lengths)
    seen, divided = (jnp.moveaxis(part.reshape(-1, tasks, *part.shape[1:]), 1, -1) for part in pair)
    return seen, divided


def _of_seen(kind: Attention, seen: Array, divided: Array, scores: Array, _: Callable[[], Array]) -> Array:
    return seen_of_scores(kind, scores, seen) / divided


def _embedded(network: Transformer, weights: dict, tokens: Array) -> Array:
    """Tokens after the embedding and its MLP, whose first matrix is folded into a narrow embedding's."""
    read = tokens
    if network.embedding:
        into = weights["embedding"]
        tokens = by_shared(read, into)
        if network.embedding_mlp and into.shape[0] < into.shape[1]:
            weights = weights | {"embedding_mlp_in": into @ weights["embedding_mlp_in"]}
        else:
            read = tokens
    if network.embedding_mlp:
        tokens = _mlp(read, tokens, weights, "embedding_mlp", (), float(network.token_clip))
    return tokens


def _pattern_of(name: str) -> Callable[[Array, Callable[[], Array]], Array]:
    """What an attention makes of scores and, where it asks for them, k.k; ValueError where it has no such form."""
    kind = ATTENTIONS[name]
    if (of_scores := kind.of_scores) is not None:
        return lambda scores, _: of_scores(scores)
    if (of_grams := kind.of_grams) is not None:
        return lambda scores, key_gram: of_grams(scores, key_gram())
    raise ValueError(f"attention {name!r} has no form for batches: ATTENTIONS[{name!r}] needs of_scores or of_grams")


def _key_metric(weights: dict, index: int, width: int, heads: int) -> Array:
    """W_k W_k^T of every head, (H, E, E), so that k.k = e W_k W_k^T e; the identity where keys are tokens."""
    layer = layer_weights(weights, index)
    if "w_k" not in layer:
        return jnp.broadcast_to(jnp.eye(width, dtype=layer["w_kq"].dtype), (heads, width, width))
    return padded(list(layer["w_k"] @ layer["w_k"].mT), heads)


def _folded(network: Transformer, params: dict, width: int, context: int) -> tuple[Array, Array]:
    """A and B of every layer, (L, H, E, E), with all factors: 1/sqrt(K), 1/N, damping, updated channels."""
    a, b = folded_weights(params)
    b = (network.damping / context if network.averaged else network.damping) * b
    if network.updated_channels:
        b = b * (jnp.arange(width) >= width - network.updated_channels)[None, None, None]
    if network.looped:
        a, b = (jnp.broadcast_to(w, (network.layers, *w.shape[1:])) for w in (a, b))
    whole = network.parametrisation == "merged"
    sizes = [width if whole else size or width for size in network.by_layer("key_size")]
    scaled = (ATTENTIONS[name].scaled for name in network.attentions())
    factors = [size**-0.5 if scaled_ else 1.0 for size, scaled_ in zip(sizes, scaled)]
    return a * jnp.asarray(factors, a.dtype)[:, None, None, None], b


def _attention(
    pattern: Callable[[Array, Callable[[], Array]], Array], queries: Array, context: Array, a: Array, b: Array,
    metric: Callable[[], Array],
) -> Array:  # fmt: skip
    """sum_h pattern(queries A_h context^T, context K_h context^T) context B_h, where ``metric`` gives K.

    (s, Q, E, t), (s, keys, E, t), (H, E, E), (H, E, F), () -> (H, E, E): (s, Q, F, t).
    """

    def key_gram(head: int) -> Array:
        return contract(by_shared(context, metric()[head]), context, (2, 2))

    heads = []
    for h, (a_h, b_h) in enumerate(zip(a, b)):
        weights = pattern(contract(by_shared(queries, a_h), context, (2, 2)), partial(key_gram, h))
        heads.append(by_shared(contract(weights, context, (2, 1)), b_h))
    return total(heads)


def _mlp(tokens: Array, residual: Array, weights: dict, name: str, index: tuple[int, ...], clip: float) -> Array:
    """An MLP block of all channels on the last channels, ``residual``, of its tokens."""
    layer = layer_weights(weights, *index) if index else weights
    w_in, w_out, in_bias, out_bias = (layer[f"{name}_{part}"] for part in ("in", "out", "in_bias", "out_bias"))
    kept = residual.shape[2]
    update = by_shared(gelu(by_shared(tokens, w_in), in_bias), w_out[:, -kept:])
    return add(residual, add_bias(update, out_bias[-kept:]), clip)


def _two_layers(a: Array, b: Array, tokens: Array, keys: int) -> Array:
    """Query's last channel after two unclipped linear layers, by matrix-vector products alone.

    With G = C^T C of the key tokens C and M = I + sum_h A_h G B_h the first layer maps every token e to e M, so that
    the second one's Gram matrix is M^T G M and no (E, E) product is needed: (r M^T)(G (M b)) takes four applications
    of G.

    (2, H, E, E), (2, H, E, E), (blocks, T, E, tasks) -> (blocks, 1, 1, tasks).
    """
    query, g, heads = tokens[:, -1:], gram(tokens[:, :keys]), range(a.shape[1])

    def through(v: Array) -> Array:  # v M^T; the first product is shared by all tasks when v is
        inner = [jnp.broadcast_to(by_shared(v, b[0, h].T), query.shape) for h in heads]
        return v + total([by_shared(contract(inner[h], g, (2, 1)), a[0, h].T) for h in heads])

    query = query + total([by_shared(contract(by_shared(query, a[0, h]), g, (2, 1)), b[0, h]) for h in heads])
    out = query[:, :, -1:]
    for h in heads:
        column = contract(through(b[1, h, :, -1][None, None, :, None]), g, (2, 1))
        out = out + contract(through(by_shared(query, a[1, h])), column, (2, 2))
    return out
