import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.theory import (
    balanced_alpha,
    cliff_time,
    cliff_time_limit,
    escape_time,
    mean_field_loss,
    nested_logit_flow,
    nested_logit_gradient,
    nested_logit_hessian,
    nested_logit_loss,
    slow_phase_time,
)
from icl_lab.theory.nested_logits.loss import FORMS, loss_of

LOSSES = {"simplified": nested_logit_loss, "mean_field": mean_field_loss}
logits = st.floats(-6, 6)
sizes = st.tuples(st.integers(1, 4), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair)))


def by_loops(beta_1, alpha, xi, n, labels):
    """The reduced model on orthonormal contents, one matched pair after the other, token by token."""
    tokens, losses = 2 * n + 1, []
    for matched in range(n):
        contents = np.eye(tokens)
        contents[-1] = contents[2 * matched]
        buffers = []
        for i in range(tokens):
            weights = np.array([np.exp(beta_1 * (j == i - 1)) for j in range(i + 1)])
            buffers.append(weights @ contents[: i + 1] / weights.sum())
        scores = np.exp([alpha * contents[-1] @ buffer for buffer in buffers])
        read = xi * scores[1::2] / scores.sum()
        answers = np.concatenate([read, np.zeros(labels - n)])
        losses.append(np.log(np.exp(answers).sum()) - read[matched])
    return np.mean(losses)


@given(logits, logits, logits, sizes)
def test_mean_field_is_the_reduced_model_on_orthonormal_contents(beta_1, alpha, xi, size):
    loss = mean_field_loss(beta_1, alpha, xi, context_length=size[0], labels=size[1])
    np.testing.assert_allclose(loss, by_loops(beta_1, alpha, xi, *size), rtol=1e-12, atol=1e-12)


@given(logits, logits, logits, sizes)
def test_simplified_form_is_its_formula(beta_1, alpha, xi, size):
    n, labels = size
    overlap = np.exp(alpha / (1 + 2 * n * np.exp(-beta_1)))
    right, other = overlap / (overlap + 2 * n), 1 / (overlap + 2 * n)
    expected = np.log(1 + (n - 1) * np.exp(-xi * (right - other)) + (labels - n) * np.exp(-xi * right))
    loss = nested_logit_loss(beta_1, alpha, xi, context_length=n, labels=labels)
    np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "labels"), [(1, 1), (3, 3), (8, 32)])
def test_gradient_and_hessian_at_the_origin(form, n, labels):
    with jax.enable_x64(True):
        loss = lambda p: loss_of(form, n + 1)(p, n, labels)  # noqa: E731 (padded by one pair)
        slope, curvature = jax.jit(lambda p: (jax.grad(loss)(p), jax.hessian(loss)(p)))(np.zeros(3))
    np.testing.assert_allclose(LOSSES[form](0, 0, 0, context_length=n, labels=labels), np.log(labels), atol=1e-15)
    np.testing.assert_allclose(nested_logit_gradient(n, labels), slope, atol=1e-15)
    np.testing.assert_allclose(nested_logit_hessian(n, labels, form), curvature, atol=1e-15)


@pytest.mark.parametrize("form", FORMS)
def test_without_other_labels_the_origin_lies_on_a_line_of_saddles_on_which_the_loss_is_flat(form):
    eigenvalues = np.linalg.eigvalsh(nested_logit_hessian(8, 8, form))
    np.testing.assert_allclose(eigenvalues, [-eigenvalues[2], 0, eigenvalues[2]], atol=1e-16)
    assert eigenvalues[2] > 0.003
    x = np.linspace(-4, 4, 5)
    for alpha, xi in ((x, 0), (0, x)):
        flat = LOSSES[form](x[:, None], alpha, xi, context_length=8, labels=8)
        np.testing.assert_allclose(flat, np.log(8), rtol=1e-14)
    harmonic = (1 / np.arange(1, 9)).sum()
    closed = {"simplified": 7 / (8 * 17**2), "mean_field": (harmonic - 1) / (16 * 17)}
    np.testing.assert_allclose(eigenvalues[2], closed[form], rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_slow_phase_is_the_flow_of_the_read_out_alone(form):
    xi, step = np.array([0.5, 3.0, 20.0]), 1e-4
    sizes = {"context_length": 3, "labels": 5}
    velocity = -(LOSSES[form](1, 0, xi + step, **sizes) - LOSSES[form](1, 0, xi - step, **sizes)) / (2 * step)
    time = (slow_phase_time(xi + step, **sizes) - slow_phase_time(xi - step, **sizes)) / (2 * step)
    np.testing.assert_allclose(time * velocity, 1, rtol=1e-6)
    assert slow_phase_time(0.0, context_length=3, labels=3) == 0
    assert slow_phase_time(1.0, context_length=3, labels=3) == np.inf


def test_flow_descends_at_the_rate_of_its_gradient_and_passes_levels_when_told():
    times = np.linspace(0, 60, 2001)
    lengths, counts = [3, 2], [6, 9]
    flow = nested_logit_flow([0.0, 0.1, 0.0], times, context_length=lengths, labels=counts)
    rate = (flow.gradient**2).sum(axis=2)
    fallen = np.concatenate([np.zeros((2, 1)), np.cumsum((rate[:, 1:] + rate[:, :-1]) / 2, axis=1)], axis=1)
    np.testing.assert_allclose(flow.loss[:, :1] - flow.loss, fallen * times[1], rtol=1e-3, atol=1e-4)
    for m, (n, labels) in enumerate(zip(lengths, counts)):
        np.testing.assert_allclose(
            flow.loss[m], nested_logit_loss(*flow.path[m].T, context_length=n, labels=labels), rtol=1e-12
        )
    cliff = cliff_time([0.0, 0.1, 0.0], context_length=lengths, labels=counts)
    at = [np.interp(cliff[m], times, flow.loss[m]) for m in range(2)]
    np.testing.assert_allclose(at, np.log(lengths) / 2, rtol=1e-3)
    assert escape_time([0, 0, 0], [9.0, 1e-3], context_length=3, labels=6, horizon=50).tolist() == [0, np.inf]


@pytest.mark.parametrize("form", FORMS)
def test_the_saddle_is_left_after_a_logarithm_of_the_start(form):
    """Both ways: with a positive attention and read-out, and with both negative."""
    scale = np.array([1e-4, 1e-6, -1e-4, -1e-6])
    start = np.stack([0 * scale, scale, scale], axis=1)
    times = escape_time(start, 0.4, context_length=2, labels=2, form=form)
    waited = np.array([times[1] - times[0], times[3] - times[2]])
    predicted = np.log(100) / -nested_logit_hessian(2, 2, form)[1, 2]
    np.testing.assert_allclose(waited, predicted, rtol=1e-3)


def test_many_pairs_meet_the_cliff_when_the_blow_up_is():
    n, labels = np.array([8, 8, 512, 512]), np.array([9, 64, 640, 5120])
    ratio = cliff_time(np.zeros(3), context_length=n, labels=labels) / cliff_time_limit(n, labels)
    assert (np.abs(ratio - 1) < [0.1, 0.1, 0.005, 0.005]).all()


@pytest.mark.parametrize("labels", [3, 12])
def test_the_path_of_the_simplified_form_is_the_same_whatever_the_labels(labels):
    flow = nested_logit_flow([0.0, 0.0, 0.1], [30.0, 300.0, 3000.0], context_length=3, labels=labels)
    beta_1, alpha, _ = flow.path[0].T
    assert alpha[-1] > 2
    np.testing.assert_allclose(alpha, balanced_alpha(beta_1, 3), rtol=1e-6)


BAD = {
    "context_length": lambda: nested_logit_loss(0, 0, 0, context_length=0, labels=4),
    "labels": lambda: mean_field_loss(0, 0, 0, context_length=4, labels=3),
    "whole": lambda: slow_phase_time(1.0, context_length=2, labels=2.5),  # type: ignore[arg-type]
    "alpha must be finite": lambda: nested_logit_loss(0, np.nan, 0, context_length=2, labels=4),
    "form": lambda: nested_logit_hessian(2, 4, "exact"),
    "xi must be": lambda: slow_phase_time(-1.0, context_length=2, labels=4),
    "beta_1 must be": lambda: balanced_alpha(-1.0, 2),
    "labels must be above": lambda: cliff_time_limit(4, 4),
    "start must be": lambda: nested_logit_flow(np.zeros((2, 2)), 1.0, context_length=2, labels=4),
    "times must": lambda: nested_logit_flow(np.zeros(3), [1.0, 1.0], context_length=2, labels=4),
    "level and horizon": lambda: escape_time(np.zeros(3), 0.0, context_length=2, labels=4),
    "at least 2 for a cliff": lambda: cliff_time(np.zeros(3), context_length=1, labels=4),
}


@pytest.mark.parametrize("message", BAD)
def test_refused(message):
    with pytest.raises(ValueError, match=message):
        BAD[message]()
