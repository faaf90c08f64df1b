import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl_lab.grids.merging import Request, merge, split
from icl_lab.training import fit


@jax.custom_vjp
def halved_gradient(x):
    return x


halved_gradient.defvjp(lambda x: (x, None), lambda _, g: (0.5 * g,))


def request(rate=0.1, noise=0.5, seed=0, members=2, width=3, power=2, table=1.0, adapt=None, settings=None, **options):
    """A training in whose functions every argument is a constant, as in the binaries."""
    rows = np.full(width, table, np.float32)

    def loss(params, key, setting):
        x = params["w"] - noise * jax.random.normal(key, (width,)) - rows
        shift = 0.0 if setting is None else setting
        carry, _ = jax.lax.scan(lambda c, _: (c * rate + noise, None), halved_gradient(x), length=3)
        return jnp.sum(carry**power) + jnp.sum((x - shift) ** 2)

    return Request.of(
        "stage",
        (
            lambda key, setting: {"w": noise * jax.random.normal(key, (width,))},
            loss,
            optax.adam(rate),
            jax.random.split(jax.random.key(seed), members),
            settings,
        ),
        {
            "steps": 6,
            "measure_every": 3,
            "measure": lambda params, key, s: {"norm": jnp.sum(params["w"] ** 2) * rate},
            "adapt": adapt,
            **options,
        },
    )


def check(requests, groups):
    merged = merge(requests)
    assert [m.which for m in merged] == groups
    for which, arguments in merged:
        together = split(fit(**arguments), [requests[i] for i in which])
        for i, found in zip(which, together):
            alone = fit(**requests[i].arguments)
            np.testing.assert_allclose(found.params["w"], alone.params["w"], rtol=2e-5, atol=1e-6)
            for name in alone.metrics:
                np.testing.assert_allclose(found.metrics[name], alone.metrics[name], rtol=2e-5, atol=1e-6)
            np.testing.assert_array_equal(found.diverged_at, alone.diverged_at)


def test_settings_that_are_numbers_are_members_of_one_program():
    check([request(r, n, table=t) for r, n, t in ((0.1, 0.5, 1.0), (0.2, 0.5, 1.0), (0.1, 0.9, 2.0))], [[0, 1, 2]])


def test_seeds_and_numbers_of_members_go_together():
    check([request(seed=0), request(seed=1), request(members=3)], [[0, 1, 2]])


def test_other_shapes_and_operations_are_programs_of_their_own():
    check([request(), request(width=4), request(0.3), request(power=3), request(0.2, width=4)], [[0, 2], [1, 4], [3]])


@pytest.mark.parametrize("change", [{"steps": 3}, {"measure_every": 2}, {"members_at_once": 1}, {"measure": None}])
def test_other_schedules_are_programs_of_their_own(change):
    check([request(), request(0.2, **change)], [[0], [1]])


def test_own_settings_schedules_and_answers_to_what_was_measured_are_kept():
    def adapt(factor):
        return lambda s, step, row: s * jnp.where(row["norm"] > 0.01, factor, 1.0).astype(s.dtype)

    options = {"schedule": lambda s, step: s * (1 + 0.1 * step), "measure_schedule": lambda s, step: s}
    rates = ((0.1, 0.5), (0.2, 2.0))
    requests = [request(r, settings=jnp.array([0.1, 0.4]) * f, adapt=adapt(f), **options) for r, f in rates]
    check([*requests, request(0.3, settings=jnp.array([0.1, 0.4]), **options)], [[0, 1, 2]])


def test_a_member_that_diverges_stops_alone():
    requests = [request(0.1), request(table=np.nan), request(0.2)]
    check(requests, [[0, 1, 2]])
    assert (split(fit(**merge(requests)[0].arguments), requests)[1].diverged_at == 0).all()


def test_constants_too_large_to_lift_stay_apart(monkeypatch):
    monkeypatch.setattr("icl_lab.grids.lifting.LARGEST", 0)
    check([request(), request(0.2), request(seed=1)], [[0, 2], [1]])
