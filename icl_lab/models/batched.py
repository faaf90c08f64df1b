"""Predictions of a whole batch of prompts at once: the form of linear self-attention that training uses."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from icl_lab.layouts import Layout
from icl_lab.models.learner import learner
from icl_lab.models.tasks_last import (
    by_shared,
    context_mask,
    gram,
    matmul,
    matmul_tn,
    matvec,
    matvec_t,
    shared,
    sum_over_tasks,
    symmetric_matvec,
    total,
)
from icl_lab.models.transformer import Transformer, folded_weights
from icl_lab.prompts.draws import batch_first, block_last
from icl_lab.prompts.prompt import Prompt
from icl_lab.unfused import unfused


def batched_predictions(network: Transformer, params: dict, prompts: Prompt, layout: Layout | None = None) -> Array:
    """``vmap(learner(network, params, layout))``: prompts with a leading batch axis -> (B, O).

    For linear attention on joint tokens, with one output and nothing else in the block, this folds the weight products first
    (A = W_q W_k^T, B = W_v W_p), keeps the task as last axis, carries the E x E Gram matrix of the context instead of
    attention patterns, reads only the query's label channel in the last layer, and has its gradient written out: the
    same numbers to rounding, several times faster on a CPU. Other networks take the plain form.
    """
    more = network.embedding or network.embedding_mlp or network.mlp_width or network.layer_norm
    plain = more or network.updated_channels or network.damping != 1.0 or set(network.attentions()) != {"linear"}
    if plain or layout is not None or prompts.y.shape[-1] != 1:
        return jax.vmap(learner(network, params, layout))(prompts)
    x, y, query = (block_last(part) for part in (prompts.x, prompts.y, prompts.x_query))
    query = jnp.concatenate([query, jnp.zeros_like(query[:, :1])], axis=1)
    tokens = jnp.concatenate([jnp.concatenate([x, y], axis=2), query[:, None]], axis=1)  # (blocks, N + 1, E, tasks)
    a, b = folded_weights(params)
    if network.looped:
        a, b = (jnp.broadcast_to(w, (network.layers, *w.shape[1:])) for w in (a, b))
    two_unclipped = network.layers == 2 and not network.token_clip
    out = _two_layers(a, b, tokens) if two_unclipped else _layers(a, b, tokens, float(network.token_clip))
    return batch_first(out, prompts.x.shape[0])[:, None]


def _two_layers(a: Array, b: Array, tokens: Array) -> Array:
    """Two unclipped layers by matrix-vector products alone.

    With G = C^T C and M = I + sum_h A_h G B_h the first layer maps every token e to e M, so that the second one's Gram
    matrix is M^T G M and no (E, E) product is needed: (r M^T)(G (M b)) takes four applications of G.

    (2, H, E, E), (2, H, E, E), (blocks, T, E, tasks) -> (blocks, tasks).
    """
    n, heads = tokens.shape[1] - 1, range(a.shape[1])
    query, g = tokens[:, n], gram(tokens, n)

    def through(v: Array) -> Array:  # M v; the first product is shared by all tasks when v is
        inner = [symmetric_matvec(g, jnp.broadcast_to(by_shared(v, b[0, h].T), query.shape)) for h in heads]
        return v + total([by_shared(inner[h], a[0, h].T) for h in heads])

    query = query + total([by_shared(symmetric_matvec(g, by_shared(query, a[0, h])), b[0, h]) for h in heads])
    out = query[:, -1]
    for h in heads:
        column = symmetric_matvec(g, through(b[1, h, :, -1][None, :, None]))
        out = out + (through(by_shared(query, a[1, h])) * column).sum(1)
    return -out


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layers(a: Array, b: Array, tokens: Array, clip: float) -> Array:
    """Any number of layers, with or without clipping: (L, H, E, E) twice, (blocks, T, E, tasks) -> (blocks, tasks)."""
    return _forward(a, b, tokens, clip)[0]


def _forward(a: Array, b: Array, tokens: Array, clip: float):
    n, (layers, heads) = tokens.shape[1] - 1, a.shape[:2]
    saved = []
    for layer in range(layers - 1):
        g = matmul_tn(tokens, tokens, length=n)
        gb = [matmul(g, shared(b[layer, h])) for h in range(heads)]
        update = total([matmul(shared(a[layer, h]), gb[h]) for h in range(heads)])  # sum_h A_h G B_h
        saved.append((tokens, g, gb, update))
        tokens = _advance(tokens, update, clip=clip)
    # Of the last layer only the query's label is read, so vectors suffice: y + sum_h (q A_h) C^T (C b_h).
    query, context = tokens[:, n], tokens[:, :n]
    r = [matvec_t(shared(a[-1, h]), query) for h in range(heads)]
    s = [matvec(context, b[-1, h, :, -1][None, :, None]) for h in range(heads)]
    u = [matvec_t(context, s[h]) for h in range(heads)]
    label = query[:, -1] + total([(r[h] * u[h]).sum(1) for h in range(heads)])
    if clip:
        label = jnp.clip(label, -clip, clip)
    return -label, (saved, tokens, r, s, u, label)


def _layers_fwd(a, b, tokens, clip):
    prediction, residual = _forward(a, b, tokens, clip)
    return prediction, (a, b, residual)


def _layers_bwd(clip, residual, d_prediction):
    a, b, (saved, tokens, r, s, u, label) = residual
    n, (layers, heads) = tokens.shape[1] - 1, a.shape[:2]
    da: list = [None] * layers
    db: list = [None] * layers
    d_label = -d_prediction * _slope(label, clip)
    query, context, t = tokens[:, n], tokens[:, :n], d_label[:, None]
    dr, du = [t * u[h] for h in range(heads)], [t * r[h] for h in range(heads)]
    ds = [matvec(context, du[h]) for h in range(heads)]
    da[-1] = [sum_over_tasks(query[:, :, None], dr[h][:, :, None]) for h in range(heads)]
    columns = [matvec_t(context, ds[h]).sum((0, 2)) for h in range(heads)]
    db[-1] = [jnp.zeros_like(b[-1, h]).at[:, -1].set(columns[h]) for h in range(heads)]
    d_query = total([matvec(shared(a[-1, h]), dr[h]) for h in range(heads)]).at[:, -1].add(d_label)
    last = [b[-1, h, :, -1][None, None, :, None] for h in range(heads)]
    d_tokens = _retreat_last(tokens, s, du, ds, last, d_query, clip=clip if layers > 1 else 0.0)
    for layer in reversed(range(layers - 1)):
        tokens, g, gb, update = saved[layer]
        d_update = matmul_tn(tokens, d_tokens)
        da[layer] = [sum_over_tasks(d_update, gb[h]) for h in range(heads)]
        d_gb_t = [matmul_tn(d_update, shared(a[layer, h])) for h in range(heads)]  # (d GB)^T = dU^T A
        db[layer] = [sum_over_tasks(g, d_gb_t[h]) for h in range(heads)]  # G dGB, G symmetric
        d_gram = total([matmul_tn(d_gb_t[h], shared(b[layer, h].T)) for h in range(heads)])  # dGB B^T
        d_gram = _plus_transpose(d_gram)
        d_tokens = _retreat(d_tokens, tokens, update, d_gram, n=n, clip=clip if layer else 0.0)
    stack = lambda rows: jnp.stack([jnp.stack(row) for row in rows])  # noqa: E731
    return stack(da), stack(db), d_tokens


_layers.defvjp(_layers_fwd, _layers_bwd)


@unfused(static=("clip",))
def _advance(tokens: Array, update: Array, *, clip: float) -> Array:
    tokens = tokens + matmul.__wrapped__(tokens, update)
    return jnp.clip(tokens, -clip, clip) if clip else tokens


@unfused
def _plus_transpose(g: Array) -> Array:
    return g + jnp.swapaxes(g, 1, 2)


@unfused(static=("n", "clip"))
def _retreat(d_tokens: Array, tokens: Array, update: Array, d_gram: Array, *, n: int, clip: float) -> Array:
    """Cotangent of a layer's input: the residual, the tokens' own use, the context's use in the Gram matrix."""
    own = matmul.__wrapped__(d_tokens, jnp.swapaxes(update, 1, 2))
    in_gram = context_mask(tokens, n) * matmul.__wrapped__(tokens, d_gram)
    return (d_tokens + own + in_gram) * _slope(tokens, clip)


@unfused(static=("clip",))
def _retreat_last(tokens, s, du, ds, last, d_query, *, clip: float) -> Array:
    """The same for the last layer, whose output is one number: outer products only."""
    heads = zip(s, du, ds, last)
    d_context = total([sh[:, :, None] * duh[:, None] + dsh[:, :, None] * column for sh, duh, dsh, column in heads])
    return jnp.concatenate([d_context, d_query[:, None]], axis=1) * _slope(tokens, clip)


def _slope(clipped: Array, clip: float) -> Array:
    """Slope of the clip, read off the clipped value: 1 inside, 0 at the bounds; 1 where there is no clip."""
    return (jnp.abs(clipped) < clip).astype(clipped.dtype) if clip else jnp.ones((), clipped.dtype)
