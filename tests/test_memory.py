import logging
import os
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType

from icl_lab import memory
from icl_lab.checkpoints import Checkpoint
from icl_lab.devices import MEMBERS
from icl_lab.ensembles import Ensemble
from icl_lab.flags import FlagError
from icl_lab.members import member
from icl_lab.memory import Memory
from icl_lab.training import fit

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


def slower(rates, step, row):
    return jnp.where(row["size"] > 99, rates / 2, rates)


def train(**options):
    chosen = {"steps": 6, "measure_every": 2, "measure": measure, "adapt": slower} | options
    return fit(init, loss, optax.adam, KEYS, RATES, **chosen)


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


@pytest.mark.parametrize("devices", [None, 1])
def test_members_in_parts_are_those_at_once_bit_for_bit(one_by_one, devices, said):
    mesh = devices and jax.make_mesh((devices,), (MEMBERS,), axis_types=(AxisType.Auto,))
    limit = one_by_one.memory - 6 * WIDTH * 4  # one state less, of which there are two: before and after
    parted = train(members_at_once=1, memory_limit=limit, mesh=mesh)
    assert parted.memory <= limit
    assert_same(parted, one_by_one, **EQUAL)
    (line,) = said.messages
    assert re.fullmatch(r"training: 5 members need \S+ GiB of \S+ on each device; 1 at a time", line)


def test_fewer_members_together_where_all_need_too_much(together, one_by_one, said):
    limit = 0.7 * together.memory
    assert one_by_one.memory < limit
    fewer = train(memory_limit=limit)
    assert fewer.memory <= limit
    assert not isinstance(fewer.params["w"], np.ndarray)  # all are still where they were
    assert_same(fewer, together, rtol=1e-4)
    assert re.search(r"; [23] at a time$", said.messages[0])


def test_what_fits_is_left_as_it_is(together, said):
    assert_same(train(memory_limit=together.memory), together, **EQUAL)
    assert not said.messages


@pytest.mark.parametrize("first_in_parts", [True, False])
def test_a_run_resumes_within_another_limit(one_by_one, tmp_path, first_in_parts):
    tight = one_by_one.memory - 6 * WIDTH * 4
    limits = (tight, None) if first_in_parts else (None, tight)
    train(members_at_once=1, memory_limit=limits[0], steps=4, resume=Checkpoint(tmp_path, "run", 0))
    begun = []
    resumed = train(
        members_at_once=1, memory_limit=limits[1], resume=Checkpoint(tmp_path, "run", 0),
        progress=lambda done, steps: begun.append(done),
    )  # fmt: skip
    assert begun == [4, 6]
    assert_same(resumed, one_by_one, **EQUAL)


def test_parameters_that_fill_a_device_stay_on_the_host_resumed_or_not(tmp_path):
    def large(members, limit=None):
        return fit(
            lambda key, _: jax.random.normal(key, (500,)), lambda w, key, _: jnp.mean(w**2), optax.sgd(0.1),
            jax.random.split(jax.random.key(0), members), steps=2, members_at_once=1, memory_limit=limit,
            resume=Checkpoint(tmp_path / str(members), "run", 0),
        )  # fmt: skip

    limit = 3.0 * large(1).memory
    trained, finished = large(40, limit), large(40, limit)
    assert 0 < trained.memory <= limit
    assert finished.memory == 0
    for found in (trained, finished):
        assert isinstance(found.params, np.ndarray)
        np.testing.assert_array_equal(found.params[:1], large(1).params)
    assert isinstance(large(1).params, jax.Array)


def test_a_limit_below_one_member_is_refused_before_training():
    begun = []
    with pytest.raises(
        FlagError, match=r"^the limit of \S+ GiB \(--memory_gb\) .* member takes \S+ GiB on a device; allowed is"
    ):
        train(memory_limit=1000.0, progress=lambda done, steps: begun.append(done))
    assert not begun


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 500),
    st.integers(1, 60_000),
)  # fmt: skip
def test_a_division_fits_or_nothing_does(members, together, each, extra, fixed, limit):
    tried = []

    def need(size, now):
        tried.append((size, now))
        return Memory(each * size, fixed + extra * now)

    if each + extra + fixed > limit:
        with pytest.raises(FlagError, match="--memory_gb"):
            memory.divided(need, members, together, limit)
        return
    size, now, found, whole = memory.divided(need, members, together, limit)
    assert found == need(size, now)
    assert found.total <= limit
    assert whole == need(members, min(members, together))
    assert 1 <= now <= size <= members
    assert (size, now) == (members, min(members, together)) or whole.total > limit
    assert size == members or each * members + fixed + extra > limit  # states leave the device only if they must
    assert len(set(tried)) <= 6  # each is a compilation


def test_the_limit_is_what_is_asked_for_or_a_share_of_all_there_is(monkeypatch):
    assert memory.limit(1.5) == 1.5 * 2**30
    here = memory.limit() * jax.local_device_count()
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < here <= memory.OF_HOST * pages  # less in a container
    monkeypatch.setattr(memory, "_host_memory", lambda: here)
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
    state = chunk.begin(RATES)
    with jax.transfer_guard("disallow"):
        state, losses = chunk.advance(state, RATES)
        jax.block_until_ready((state, chunk.observe(state, RATES)))
        with pytest.raises(Exception, match=r"[Dd]isallow"):
            chunk.advance(state, np.asarray(RATES))
    assert np.isfinite(losses).all()
