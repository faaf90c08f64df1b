import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from icl_lab.compare.implicit_finetuning import label_directions
from icl_lab.compare.network_states import Patch, network_states, similarities
from icl_lab.models.language import LanguageModel
from icl_lab.models.language_capture import captured
from icl_lab.prompts.encoding import encode_task
from icl_lab.solvers.finetuning import finetune, untrained

NETWORK = LanguageModel(vocabulary=12, layers=2, heads=2, width=8, positions=0, rotary=100.0, scaled=True)
DEMONSTRATIONS = [([5, 6], 3), ([7], 4), ([8, 9, 10], 3)]
QUERIES = [[11, 5, 6], [8], [9, 7]]


def encoded(queries=QUERIES):
    return encode_task(DEMONSTRATIONS, queries, [0] * len(queries), [3, 4], begin=1, end=2, pad=0)


TASK = encoded()


@pytest.fixture(scope="module")
def params():
    shapes, rng = jax.eval_shape(lambda: untrained(jax.random.key(0), NETWORK)), np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.7 * rng.normal(size=leaf.shape), jnp.float32), shapes)


@partial(jax.jit, static_argnames=("setting", "position"))
def of_task(params, task, setting, position):
    return network_states(NETWORK, params, task, setting, position=position)


def read(params, setting, position="paper", task=TASK):
    return of_task(params, jax.tree.map(jnp.asarray, task), setting, position)


tune = jax.jit(lambda params, rate: finetune(NETWORK, params, TASK.examples, TASK.example_lengths, rate))
plain_capture = jax.jit(captured, static_argnums=0)
compared = jax.jit(similarities, static_argnames=("baseline", "released"))


def everything(params, rate, **options):
    tuned = tune(params, np.float32(rate))
    states = read(params, "zero_shot"), read(params, "in_context"), read(tuned.params, "zero_shot")
    return states, tuned, compared(jax.random.key(0), *states, tuned.queries, TASK.matched, **options)


@pytest.mark.parametrize("setting", ["zero_shot", "in_context"])
def test_states_are_those_of_the_prompt_without_padding(params, setting):
    found = read(params, setting)
    context = [token for question, answer in DEMONSTRATIONS for token in [*question, answer, 2]]
    begins = 1 + (len(context) if setting == "in_context" else 0)
    query = QUERIES[2]
    tokens = jnp.asarray([1, *(context if setting == "in_context" else []), *query])
    plain = plain_capture(NETWORK, params, tokens, len(tokens) - 1)
    near = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found.output[2], plain.output, **near)
    np.testing.assert_allclose(found.queries[2], plain.queries[:, -1], **near)
    np.testing.assert_allclose(found.query_scores[2, :, :, :2], plain.scores[:, :, begins:], **near)
    np.testing.assert_allclose(found.logits[2], plain.logits, **near)
    np.testing.assert_array_equal(found.candidate_logits, found.logits[:, TASK.candidates])
    np.testing.assert_array_equal(found.predictions, np.argmax(found.candidate_logits, axis=1))
    of_demonstrations = [t for t in range(1, begins) if tokens[t] != 2]
    np.testing.assert_allclose(found.demonstration_scores[2], plain.scores.sum(1)[:, of_demonstrations], **near)


def test_in_context_and_zero_shot_score_as_many_tokens_of_the_query(params):
    columns = np.arange(3) < np.asarray([3, 1, 2])[:, None]
    for setting in ("zero_shot", "in_context"):
        scores = np.asarray(read(params, setting).query_scores)
        np.testing.assert_array_equal((scores != 0).all((1, 2)), columns)
        np.testing.assert_array_equal((scores != 0).any((1, 2)), columns)


def test_the_position_of_the_code_is_behind_the_first_candidate(params):
    found, paper = (read(params, "in_context", position) for position in ("code", "paper"))
    longer = read(params, "in_context", task=encoded([[*query, 3] for query in QUERIES]))
    for name in ("output", "query_scores", "demonstration_scores", "queries"):
        np.testing.assert_allclose(getattr(found, name), getattr(longer, name), rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found.logits, paper.logits, rtol=1e-4, atol=1e-5)


def test_a_learning_rate_of_zero_is_no_update(params):
    (zero_shot, _, finetuned), _, found = everything(params, 0.0)
    jax.tree.map(np.testing.assert_array_equal, finetuned, zero_shot)
    np.testing.assert_array_equal(found["sim_am_before"], found["sim_am_after"])
    assert all(np.isnan(found[name]).all() for name in ("sim_aou", "sim_aou_raw", "floor", "sim_am_delta"))
    assert not found["finetuned_ratio"].any()
    assert np.isfinite(found["kendall"]).all()
    *_, as_released = everything(params, 0.0, released=True)
    assert not as_released["sim_aou"].any()
    assert not as_released["sim_am_delta"].any()


def test_a_map_over_networks_gives_equal_networks_equal_bits(params):
    tuned = tune(params, np.float32(0.1)).params
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, tuned, params)
    found = jax.jit(lambda many: jax.lax.map(lambda p: network_states(NETWORK, p, TASK, "zero_shot"), many))(stacked)
    for leaf in found:
        np.testing.assert_array_equal(leaf[0], leaf[2])
    np.testing.assert_allclose(found.output[1], read(tuned, "zero_shot").output, rtol=1e-4, atol=1e-5)
    assert np.abs(found.output[1] - found.output[0]).max() > 1e-3


def test_similarities_by_hand(params):
    states, tuned, found = everything(params, 0.1)
    zero, context, after = (np.asarray(s.output, np.float64) for s in states)
    m_zero, m_context, m_after = (np.asarray(s.query_scores, np.float64) for s in states)

    def cosine(a, b):
        return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)

    near = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(found["sim_aou_raw"], cosine(context - zero, after - zero), **near)
    np.testing.assert_allclose(found["sim_am_before"], cosine(m_context, m_zero).mean(-1), **near)
    np.testing.assert_allclose(found["sim_am_after"], cosine(m_context, m_after).mean(-1), **near)
    upper = [m[:, 1] for m in (m_zero, m_context, m_after)]  # in the lower layer there is only rounding
    delta = cosine(upper[1] - upper[0], upper[2] - upper[0]).mean(-1)
    np.testing.assert_allclose(found["sim_am_delta"][:, 1], delta, **near)
    norms = [np.linalg.norm(h - zero, axis=-1) / np.linalg.norm(zero, axis=-1) for h in (context, after)]
    np.testing.assert_allclose(found["in_context_ratio"], norms[0], **near)
    np.testing.assert_allclose(found["finetuned_ratio"], norms[1], **near)
    assert (np.abs(found["sim_aou"] - found["sim_aou_raw"]) > 1e-3).any()
    for i in range(3):
        for layer in range(2):
            own = [
                (np.asarray(tuned.queries[n, t, layer]) * np.asarray(states[2].queries[i, layer])).sum()
                for n, (question, _) in enumerate(DEMONSTRATIONS)
                for t in range(1, len(question) + 2)
            ]
            tau = scipy.stats.kendalltau(states[1].demonstration_scores[i, layer], own).statistic
            np.testing.assert_allclose(found["kendall"][i, layer], tau, atol=1e-6)
    assert (np.abs(found["kendall_random"] - found["kendall"]) > 1e-3).any()


def test_what_only_rounding_moves_is_nan(params):
    # queries and keys of the first layer are the same in context, but for the angles of the rotation
    (zero, context, _), _, found = everything(params, 0.1)
    assert (np.asarray(zero.query_scores[:, 0]) != np.asarray(context.query_scores[:, 0])).any()
    np.testing.assert_allclose(found["sim_am_before"][:, 0], 1, rtol=1e-5)
    assert np.isnan(found["sim_am_delta"][:, 0]).all()
    assert np.isfinite(found["sim_am_delta"][:, 1]).all()


def test_kendall_of_the_first_layer_does_not_depend_on_fine_tuning(params):
    # queries there are made of embeddings by weights that are not tuned; so the first layer is left out of its mean
    *_, none = everything(params, 0.0)
    *_, much = everything(params, 2.0)
    np.testing.assert_array_equal(none["kendall"][:, 0], much["kendall"][:, 0])
    assert (none["kendall"][:, 1] != much["kendall"][:, 1]).any()


patched = jax.jit(lambda params, patch: network_states(NETWORK, params, TASK, "zero_shot", patch=patch))


def test_outputs_of_every_layer_carry_the_whole_answer(params):
    # rotary positions: the last token enters alike in all settings, and only attention looks at other tokens
    states, _, _ = everything(params, 0.5)
    every = np.ones(2, bool)
    for other in states[1:]:
        found = patched(params, Patch(other.output, every))
        np.testing.assert_allclose(found.logits, other.logits, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.output, other.output, rtol=1e-3, atol=1e-4)
        assert np.abs(found.logits - states[0].logits).max() > 0.01
    one = patched(params, Patch(states[2].output, np.array([False, True])))
    np.testing.assert_allclose(one.output[:, 0], states[0].output[:, 0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(one.output[:, 1], states[2].output[:, 1], rtol=1e-3, atol=1e-4)
    assert np.abs(one.logits - states[2].logits).max() > 0.01
    nothing = patched(params, Patch(states[2].output, np.zeros(2, bool)))
    np.testing.assert_allclose(nothing.logits, states[0].logits, rtol=1e-5, atol=1e-6)


def test_a_mixer_beside_attention_and_parts_of_the_queries_change_nothing(params):
    mixed = dataclasses.replace(NETWORK, mixer="momentum", eta=0.5)
    context = [1] + [token for question, answer in DEMONSTRATIONS for token in [*question, answer, 2]]
    plain = plain_capture(mixed, params, jnp.asarray([*context, *QUERIES[0]]), len(context) + 2)
    for at_once in (None, 2):
        found = jax.jit(lambda params, of=at_once: network_states(mixed, params, TASK, "in_context", at_once=of))(
            params
        )
        np.testing.assert_allclose(found.logits[0], plain.logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.output[0], plain.output, rtol=1e-4, atol=1e-5)


def test_updates_are_split_by_the_directions_of_labels(params):
    states, tuned, _ = everything(params, 0.1)
    weights = params["params"]
    directions = label_directions(weights["embedding"], weights["norm_scale"], np.array([3, 4, 3]))
    found = compared(jax.random.key(0), *states, tuned.queries, TASK.matched, directions=directions)
    along = weights["norm_scale"] * (weights["embedding"][4] - weights["embedding"][3])
    along = np.asarray(along / np.linalg.norm(along), np.float64)
    updates = [np.asarray(other.output, np.float64) - states[0].output for other in states[1:]]
    inside = [update @ along for update in updates]
    np.testing.assert_array_equal(np.round(found["sim_aou_inside"], 3), np.sign(inside[0] * inside[1]))
    share = inside[0] ** 2 / (updates[0] ** 2).sum(-1)
    np.testing.assert_allclose(found["in_context_inside"], share, rtol=1e-3, atol=1e-5)
    rest = [update - np.multiply.outer(part, along) for update, part in zip(updates, inside)]
    cosine = (rest[0] * rest[1]).sum(-1) / np.linalg.norm(rest[0], axis=-1) / np.linalg.norm(rest[1], axis=-1)
    np.testing.assert_allclose(found["sim_aou_outside"], cosine, rtol=1e-3, atol=1e-3)


def test_random_baselines(params):
    *_, gaussian = everything(params, 0.1)
    *_, uniform = everything(params, 0.1, baseline="uniform")
    assert np.abs(gaussian["random"]).max() < 1
    assert (np.asarray(gaussian["random"]) != np.asarray(uniform["random"])).all()


def test_kendall_needs_two_tokens(params):
    states, tuned, _ = everything(params, 0.1)
    few = states[1]._replace(demonstration_scores=states[1].demonstration_scores[..., :1])
    found = jax.eval_shape(similarities, jax.random.key(0), states[0], few, states[2], tuned.queries, TASK.matched[:1])
    assert not {"kendall", "kendall_random"} & set(found)


@pytest.mark.parametrize(("setting", "position"), [("finetuned", "paper"), ("zero_shot", "text")])
def test_other_settings_and_positions_are_refused(params, setting, position):
    wrong = "setting" if setting == "finetuned" else "position"
    with pytest.raises(ValueError, match=f"{wrong} must be one of"):
        network_states(NETWORK, params, TASK, setting, position=position)
