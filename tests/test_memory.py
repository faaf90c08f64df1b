import logging
import os
import re
from itertools import pairwise
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.training import memory
from icl_lab.training.ensembles import Ensemble
from icl_lab.training.fitting import fit, member
from icl_lab.training.memory import DoesNotFitError, Memory

MEMBERS_IN_ALL, WIDTH = 5, 200
KEYS = jax.random.split(jax.random.key(0), MEMBERS_IN_ALL)
RATES = jnp.linspace(0.1, 0.5, MEMBERS_IN_ALL)
OUTSIDE = re.compile(r"callback|infeed|outfeed|\bsend\(|\brecv\(")


def draw(key):
    first, second = jax.random.key_data(key).astype(jnp.float32)
    return jnp.sin(jnp.arange(WIDTH) * (1 + first / 2.0**32) + second / 2.0**32)


def init(key, rate):
    return {"w": draw(key)}


def loss(params, key, rate):
    x = draw(key)
    return jnp.mean((jnp.outer(params["w"], x) - jnp.outer(x, x)) ** 2)  # two matrices of 160 kB a member


def measure(params, key, rate):
    return {"size": jnp.sum(params["w"] ** 2), "rate": rate}


def momentum(rate):
    """Not Adam, which divides a gradient by its size and so makes rounding large where the gradient is near zero."""
    return optax.sgd(rate, momentum=0.9)


def train(**options):
    chosen = {"steps": 6, "measure_every": 2, "measure": measure} | options
    return fit(init, loss, momentum, KEYS, RATES, **chosen)


@pytest.fixture(scope="module")
def one_by_one():
    return train(members_at_once=1)


@pytest.fixture(scope="module")
def together():
    return train()


@pytest.fixture
def said(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("icl_lab"), "propagate", True)
    caplog.set_level(logging.INFO, "icl_lab")
    return caplog


def assert_same(a, b, **bound):
    np.testing.assert_allclose(a.params["w"], b.params["w"], **bound)
    for name in b.metrics:
        np.testing.assert_allclose(a.metrics[name], b.metrics[name], **bound)


EQUAL = {"rtol": 0, "atol": 0}


def test_where_all_need_too_much_groups_are_those_that_are_asked_for_bit_for_bit(together, one_by_one, said):
    limit = 0.7 * together.memory
    assert one_by_one.memory < limit
    chosen = train(memory_limit=limit)
    assert chosen.memory <= limit
    (line,) = said.messages
    pattern = r"training: 5 members need \S+ GiB of \S+ on each device; ([23]) at a time"
    groups = int(re.fullmatch(pattern, line)[1])
    assert_same(chosen, train(members_at_once=groups), **EQUAL)
    assert_same(chosen, together, rtol=1e-4)


def test_what_fits_is_left_as_it_is(together, said):
    assert_same(train(memory_limit=together.memory), together, **EQUAL)
    assert not said.messages


@pytest.mark.parametrize("first_in_groups", [True, False])
def test_a_run_resumes_within_another_limit(together, tmp_path, first_in_groups):
    tight = 0.7 * together.memory
    limits = (tight, None) if first_in_groups else (None, tight)
    train(memory_limit=limits[0], steps=4, resume=Checkpoint(tmp_path, "run", 0))
    begun = []
    resumed = train(
        memory_limit=limits[1], resume=Checkpoint(tmp_path, "run", 0), progress=lambda done, steps: begun.append(done)
    )
    assert begun == [4, 6]
    assert_same(resumed, together, rtol=1e-4)


@pytest.mark.parametrize("members_at_once", [None, 1])
def test_a_limit_below_the_state_of_all_is_refused_before_training(members_at_once):
    begun = []
    with pytest.raises(
        DoesNotFitError,
        match=r"^the limit of \S+ GiB \(--memory_gb\) .* takes \S+ GiB on a device; .* --members .* --batch$",
    ):
        train(memory_limit=1000.0, members_at_once=members_at_once, progress=lambda done, steps: begun.append(done))
    assert not begun


def test_a_limit_below_one_member_at_a_time_is_refused(one_by_one):
    with pytest.raises(DoesNotFitError, match="training one member at a time takes"):
        train(memory_limit=one_by_one.memory - 2 * WIDTH * 4, members_at_once=1, measure=None)


def test_a_hundred_thousand_small_members_fit_into_little(said):
    members, limit, inner = 100_000, 2**26, jnp.ones((8, 256))
    fitted = fit(
        lambda key, _: jnp.zeros(8),
        lambda w, key, _: jnp.mean((jnp.sin(w @ inner) @ inner.T - 1) ** 2),  # 256 activations of 4 bytes a member
        optax.sgd(1e-3), jax.random.split(jax.random.key(0), members), steps=1, memory_limit=limit,
    )  # fmt: skip
    assert fitted.memory <= limit
    assert fitted.params.shape == (members, 8)
    assert len(said.messages) == 1


@given(st.integers(1, 100_000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 500), st.integers(1, 10**7))
def test_groups_fit_or_nothing_does(members, each, extra, fixed, limit):
    tried, now = [members], members

    def need():
        return Memory(each * members, fixed + extra * now)

    try:
        while sum(need()) > limit:
            tried.append(now := memory.fewer(need(), now, limit))
    except DoesNotFitError:
        assert each * members + fixed + extra > limit
    assert 1 <= now <= members
    assert len(tried) <= 8  # each is a compilation
    assert all(2 * later <= earlier for earlier, later in pairwise(tried))


def test_the_limit_is_what_is_asked_for_or_a_share_of_all_there_is(monkeypatch):
    assert memory.limit(1.5) == 1.5 * 2**30 / jax.local_device_count()
    with monkeypatch.context() as patch:  # devices of a CPU share what is asked for
        patch.setattr(jax, "local_device_count", lambda: 4)
        assert memory.limit(1.5) == 1.5 * 2**30 / 4
    here = memory.limit() * jax.local_device_count()
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < here <= memory.OF_HOST * pages  # less in a container
    monkeypatch.setattr(memory.machine, "memory", lambda: here)
    assert memory.limit() == pytest.approx(memory.OF_HOST * here / jax.local_device_count())


def test_what_is_in_use_on_an_accelerator_does_not_change_its_limit(monkeypatch):
    stats = {"bytes_limit": 8000, "bytes_in_use": 7000}
    device = SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert memory.limit() == pytest.approx(memory.OF_ACCELERATOR * 8000)


@pytest.fixture(scope="module")
def chunk():
    one = member(init, loss, optax.adam, measure)
    return Ensemble(one.begin, one.chunk(3), one.observe, KEYS, RATES)


def test_no_program_of_a_training_asks_the_host(chunk):
    for program in chunk.programs.values():
        assert not OUTSIDE.search(program.as_text())
    asking = jax.jit(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x))
    assert OUTSIDE.search(asking.lower(jnp.ones(3)).compile().as_text())


def test_a_chunk_moves_nothing_between_host_and_devices(chunk):
    state = chunk.begin()
    with jax.transfer_guard("disallow"):
        state, losses = chunk.advance(state)
        jax.block_until_ready((state, chunk.observe(state)))
        with pytest.raises(Exception, match=r"[Dd]isallow"):
            chunk.advance(jax.tree.map(np.asarray, state))
    assert np.isfinite(losses).all()
