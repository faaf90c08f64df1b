"""``icl_lab.train(..., folder=...)``: kept, resumed with the same bits, prolonged, read back, and never mistaken."""

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax.experimental.compilation_cache import compilation_cache

import icl_lab
from icl_lab import machine
from icl_lab.lab import own_training, records, stopping
from icl_lab.lab.checkpoints import Checkpoint
from icl_lab.lab.profile import Profile
from icl_lab.lab.record import RecordError
from icl_lab.models import LinearSelfAttention, SelfAttention
from icl_lab.models.attention import ATTENTIONS, Attention
from icl_lab.prompts import linear_regression
from icl_lab.training import Model, programs

SAMPLER = linear_regression(context_length=4, input_size=2)
NETWORK = LinearSelfAttention(init_scale=0.1)
SMALL = {"members": 2, "steps": 6, "batch": 8, "eval_tasks": 16, "measure_every": 2, "progress": False}


def kept(folder, network=NETWORK, sampler=SAMPLER, **options):
    return icl_lab.train(network, sampler, folder=folder, **(SMALL | options))


def assert_same(one, other):
    for a, b in zip(
        jax.tree.leaves((one.fit.params, one.fit.metrics)),
        jax.tree.leaves((other.fit.params, other.fit.metrics)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.fit.steps, other.fit.steps)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training without a stop: its folder, and what it returned."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    return folder, kept(folder)


def test_it_is_the_training_without_a_folder_and_the_same_call_returns_it(whole, monkeypatch, caplog):
    folder, first = whole
    assert_same(first, icl_lab.train(NETWORK, SAMPLER, **SMALL))
    monkeypatch.setattr(own_training.trained, "carried_out", None)  # nothing is trained
    assert_same(first, kept(folder))
    assert_same(first, icl_lab.load(folder))
    with jax.default_matmul_precision("float32"):
        kept(folder)
    assert "; overwrite=True does it again" in caplog.text


@pytest.mark.parametrize("when", ["before the first checkpoint", "after two measurements"])
def test_stopped_and_called_again_it_gives_the_same_bits(whole, tmp_path, monkeypatch, when):
    folder, first = whole
    saves = []

    def save(self, tree, finished):
        if when.startswith("before"):
            raise KeyboardInterrupt
        saved(self, tree, finished)
        saves.append(finished)
        if len(saves) == 3:
            raise stopping.Stopped

    saved = Checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(KeyboardInterrupt):
            kept(tmp_path, checkpoint_seconds=0.0)
    found = kept(tmp_path, checkpoint_seconds=0.0)
    assert found.fit.resumed == (4 if saves else 0)
    assert_same(first, found)
    for name in ("record.json", "arrays.npz", "params.npz", "config.json"):
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_more_steps_go_on_and_fewer_are_refused(whole, tmp_path):
    options = {name: value for name, value in SMALL.items() if name != "measure_every"}
    icl_lab.train(NETWORK, SAMPLER, folder=tmp_path, **options | {"steps": 40})  # measured every 2 steps
    longer = icl_lab.train(NETWORK, SAMPLER, folder=tmp_path, **options | {"steps": 60})
    assert longer.fit.resumed == 40
    assert_same(longer, icl_lab.train(NETWORK, SAMPLER, **SMALL | {"steps": 60}))
    with pytest.raises(RecordError, match="with 60 steps; allowed is that many, or more"):
        icl_lab.train(NETWORK, SAMPLER, folder=tmp_path, **options | {"steps": 40})
    (tmp_path / "checkpoints" / "training" / "current").unlink()
    with pytest.raises(RecordError, match="keeps no state of its optimizer"):
        icl_lab.train(NETWORK, SAMPLER, folder=tmp_path, **options | {"steps": 80})
    assert_same(icl_lab.load(tmp_path), longer)


def test_steps_that_nothing_divides_are_all_taken_measured_and_gone_on_from(tmp_path):
    """Of 23 steps the last measurement is after 23, and who goes on to 30 is as if there had been no end."""
    options = SMALL | {"steps": 23, "measure_every": None}
    first = icl_lab.train(NETWORK, SAMPLER, **options, folder=tmp_path)
    np.testing.assert_array_equal(first.fit.steps, [*range(0, 23, 2), 23])
    at_once = icl_lab.train(NETWORK, SAMPLER, **options | {"measure_every": 23})
    for one, other in zip(jax.tree.leaves(first.fit.params), jax.tree.leaves(at_once.fit.params), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.fit.metrics["loss"][:, -1], at_once.fit.metrics["loss"][:, -1])
    assert_same(icl_lab.train(NETWORK, SAMPLER, **options, folder=tmp_path), first)
    longer = icl_lab.train(NETWORK, SAMPLER, **options | {"steps": 30}, folder=tmp_path)
    assert longer.fit.resumed == 22
    assert_same(longer, icl_lab.train(NETWORK, SAMPLER, **SMALL | {"steps": 30}))


def noisy(noise):
    def draw(key, batch):
        return linear_regression(context_length=4, input_size=2, label_noise=noise)(key, batch)

    return draw


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"batch": 4}, "batch: 8 there, 4 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"learning_rate": 0.1}, r"learning_rate: 0\.001 there, 0\.1 here"),
        ({"network": LinearSelfAttention(layers=2, init_scale=0.1)}, "network/layers: 1 there, 2 here"),
        ({"sampler": linear_regression(context_length=4, input_size=2, label_noise=0.5)}, r"noise: 0 there, 0\.5 here"),
        ({"optimizer": optax.sgd(0.1)}, "optimizer: None there, optax"),
        ({"settings": jnp.zeros(2), "sampler": noisy}, "settings: None there"),
        ({"objective": lambda p, s: jnp.abs(p - s.target).sum(1)}, "objective: icl_lab.* there, <lambda> .* here"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_another_call_is_refused_naming_what_differs(whole, other, said):
    with pytest.raises(RecordError, match=rf"another configuration \(.*{said}.*overwrite=True"):
        kept(whole[0], **other)


def test_a_refusal_names_the_releases_that_differ_too(whole, monkeypatch):
    monkeypatch.setattr(own_training, "versions", lambda: {"jax": "99"})
    with pytest.raises(RecordError, match=r"seed: 0 there, 1 here\) \(made .*jax: .+ there, 99 here"):
        kept(whole[0], seed=1)


def test_overwritten_it_is_trained_again_also_twice(tmp_path):
    first, second = kept(tmp_path), kept(tmp_path, seed=1, overwrite=True)
    assert_same(second, kept(tmp_path, seed=1))
    third = kept(tmp_path, overwrite=True)
    assert third.fit.resumed == kept(tmp_path, overwrite=True).fit.resumed == 0
    assert_same(first, third)


def test_a_folder_that_holds_something_else_or_is_at_work_is_refused(whole, tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RecordError, match="is not empty and holds no run; choose another folder"):
        kept(tmp_path)
    with records.locked(whole[0]), pytest.raises(RecordError, match="another run is at work in"):
        kept(whole[0])
    for option, value in {"overwrite": True, "checkpoint_seconds": 5.0, "keep_dtype": "float16"}.items():
        with pytest.raises(ValueError, match=f"{option}={value!r} .* give folder= too"):
            icl_lab.train(NETWORK, SAMPLER, **SMALL, **{option: value})


def test_load_run_gives_learners_metrics_and_a_tidy_table(whole):
    folder, first = whole
    run = icl_lab.load_run(folder)
    prompt = jax.tree.map(lambda leaf: leaf[0], SAMPLER(jax.random.key(3), 1).prompt)
    np.testing.assert_allclose(run.learner(1)(prompt), first.learner(1)(prompt), rtol=1e-5)
    np.testing.assert_array_equal(run.record["loss"], first.fit.metrics["loss"])
    rows = [row for row in run.record.table() if row["array"] == "loss"]
    assert [(row["member"], row["step"]) for row in rows] == [(m, t) for m in (0, 1) for t in (0, 2, 4, 6)]
    assert (run.stages(), repr(run)[:12]) == (["training"], "FinishedRun(")
    with pytest.raises(RecordError, match="does not say on what prompts"):
        run.sampler()
    with pytest.raises(RecordError, match="network/layers"):
        icl_lab.load_run(folder, network=LinearSelfAttention(layers=2, init_scale=0.1)).learner()


class Mlp(nn.Module):
    width: int = 3

    @nn.compact
    def __call__(self, prompts):
        pairs = jnp.concatenate([prompts.x, prompts.y], axis=2).reshape(len(prompts.x), -1)
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(jnp.concatenate([pairs, prompts.x_query], axis=1))))


def mlp(width=3):
    return Model(lambda key: Mlp(width).init(key, SAMPLER(key, 1).prompt), Mlp(width).apply)


class OwnAttention(nn.Module):
    """A network with a number that is no field of it."""

    _scale = 1.0

    @nn.compact
    def __call__(self, tokens):
        return tokens + self._scale * SelfAttention()(tokens)


def test_an_edited_network_is_not_taken_for_the_one_that_was_kept(tmp_path, monkeypatch):
    """A class of one's own is compared also where the folder can make its network again, and an attention by name."""

    def scaled(factor):
        return Attention(lambda queries, keys: factor * queries @ keys.T, lambda scores: factor * scores)

    monkeypatch.setitem(ATTENTIONS, "mine", scaled(1.0))
    for network in (LinearSelfAttention(attention="mine"), OwnAttention()):
        folder = tmp_path / type(network).__name__
        kept(folder, network, steps=2)
        assert kept(folder, network, steps=2).fit.resumed == 2
    assert icl_lab.load(folder, network=OwnAttention()).fit.resumed == 2
    monkeypatch.setattr(OwnAttention, "_scale", 2.0)
    for network in (None, OwnAttention()):
        with pytest.raises(RecordError, match=r"_scale: 1 there, 2 here"):
            icl_lab.load(folder, network=network)
    with pytest.raises(RecordError, match=r"_scale: 1 there, 2 here"):
        kept(folder, OwnAttention(), steps=2)
    monkeypatch.setitem(ATTENTIONS, "mine", scaled(2.0))
    with pytest.raises(RecordError, match=r"attention/mine/pattern/factor: 1 there, 2 here"):
        kept(tmp_path / "LinearSelfAttention", LinearSelfAttention(attention="mine"), steps=2)


LAYERS = Model(lambda key: [(jnp.zeros((2, 1)), jnp.ones(1))], lambda params, prompts: prompts.x_query @ params[0][0])


@pytest.mark.parametrize(("model", "other"), [(mlp(), mlp(4)), (LAYERS, mlp())])
def test_saved_members_are_loaded_where_their_model_is_given(tmp_path, model, other):
    first = icl_lab.train(model, SAMPLER, **SMALL)
    first.save(tmp_path)
    with pytest.raises(RecordError, match="no record can make again; give it to load as network="):
        icl_lab.load(tmp_path)
    with pytest.raises(RecordError, match="this training was of another configuration"):
        icl_lab.load(tmp_path, network=other)
    with pytest.raises(RecordError, match="layout: a Model brings its own"):
        icl_lab.load(tmp_path, network=model, layout=1)
    found = icl_lab.load(tmp_path, network=model)
    assert_same(first, found)
    assert jax.tree.structure(found.fit.params) == jax.tree.structure(first.fit.params)
    prompts = SAMPLER(jax.random.key(0), 3).prompt
    run = icl_lab.load_run(tmp_path, network=model)
    np.testing.assert_allclose(run.batch_learner(1)(prompts), first.batch_learner(1)(prompts), rtol=1e-5)
    with pytest.raises(RecordError, match="holds a run; choose another folder, or give overwrite=True"):
        first.save(tmp_path)
    found.save(tmp_path, overwrite=True)
    assert_same(first, icl_lab.load(tmp_path, network=model))


def test_the_measurements_of_a_training_keep_their_names():
    taken = lambda params, samples: {"steps": jnp.zeros(())}  # noqa: E731
    with pytest.raises(ValueError, match="steps: a name that is empty or taken"):
        icl_lab.train(NETWORK, SAMPLER, **SMALL, extra=taken)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_after_the_next_checkpoint(whole, tmp_path, number):
    flag = tmp_path / "stop"

    def until(row):
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), number)
        return False

    flag.touch()
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path / "run", until=until)
    with pytest.raises(RecordError, match="the same call of train finishes it"):
        icl_lab.load(tmp_path / "run")
    found = kept(tmp_path / "run", until=until)
    assert found.fit.resumed in (0, 2)  # it came before the first or the second measurement was saved
    assert_same(whole[1], found)


def test_parameters_on_the_way_are_kept_also_of_a_training_that_was_stopped_and_goes_on(whole, tmp_path, monkeypatch):
    options = {"keep": 3, "keep_dtype": "float16", "checkpoint_seconds": 0.0}
    saved = Checkpoint.save

    def stopping_save(self, tree, finished):
        saved(self, tree, finished)
        if finished:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopping_save)
        with pytest.raises(KeyboardInterrupt):
            kept(tmp_path, **options)
    kept(tmp_path, **options)
    kept(tmp_path, **options, steps=8)
    run = icl_lab.load_run(tmp_path)
    assert run.stages() == ["training", *(f"training@{step}" for step in (0, 2, 4, 6, 8))]
    prompts = SAMPLER(jax.random.key(3), 4).prompt
    half, exact = run.batch_learner(1, "training@6")(prompts), whole[1].batch_learner(1)(prompts)
    np.testing.assert_allclose(half, exact, rtol=1e-2)
    assert {leaf.dtype for leaf in jax.tree.leaves(run.params(1, "training@6"))} == {np.dtype("float16")}
    assert (run.learner(1)(jax.tree.map(lambda leaf: leaf[0], prompts)) != half[0]).all()  # of the end
    with pytest.raises(ValueError, match="keep_dtype must be one of float32, float16, got 'int8'"):
        kept(tmp_path, keep=3, keep_dtype="int8")


def test_compiled_programs_are_kept_beside_the_folder_and_jax_is_left_as_it_was(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", None)
    counted = Profile()
    try:
        for name in ("first", "second"):
            programs.forget()
            with counted.listening(), counted.training(name):
                kept(tmp_path / name, batch=3, steps=2)
            assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()
    assert any((tmp_path / ".xla_cache" / machine.processor()).iterdir())
    assert counted.found["first"]["cached"] == 0 < counted.found["second"]["cached"]
