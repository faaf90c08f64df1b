"""The explorable that trains: the record, the exact loss, the figure without a script, and its code in Chromium."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from experiments.page.explorables.layer import data as layer_data
from experiments.page.explorables.layer.training import CONFIG
from experiments.page.explorables.weights import data, fallback
from experiments.von_oswald.common import one_layer
from experiments.von_oswald.one_step_shown import plateau_loss
from experiments.von_oswald.tuning import best_step, zero_loss
from icl_lab.lab import records
from icl_lab.lab.records import RecordError
from icl_lab.prompts import linear_regression
from icl_lab.theory.gradient_descent.one_step import one_step_loss
from icl_lab.training.plans import squared_error

MODEL = data.FOLDER.with_name("model.js")


@pytest.fixture(scope="module")
def found():
    return data.record()


@pytest.fixture(scope="module")
def stored():
    """(10, 3, 3) A and B of the stored networks at the end of their training."""
    arrays = layer_data.record().arrays
    return arrays["a"][:, -1].astype(float), arrays["b"][:, -1].astype(float)


# Without a browser


@pytest.mark.parametrize("name", ["slope", "after", "x"])
def test_a_record_of_another_training_is_refused(found, tmp_path, name):
    changed = found.arrays | {name: found.arrays[name] * np.float32(1.0001)}
    records.save(dataclasses.replace(found, arrays=changed), tmp_path, [])
    with pytest.raises(RecordError, match="not those of Adam"):
        data.record(tmp_path)


def test_exact_loss_is_that_of_many_prompts_and_of_a_step_the_closed_form():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 3)) * 0.4
    x, w = rng.uniform(-1, 1, (200_000, 5, 2)), rng.normal(size=(200_000, 2))
    tokens = np.concatenate([x, np.einsum("tnd,td->tn", x, w)[..., None]], axis=-1)
    weights = -np.einsum("di,tni,tn->td", a[:2], tokens, tokens @ b[:, 2], optimize=True)
    errors = ((weights - w) ** 2).sum(1) / 6
    np.testing.assert_allclose(data.population_loss(a, b, 5), errors.mean(), atol=4 * errors.std() / 200_000**0.5)
    hand = np.diag([1.0, 1.0, 0.0]), np.diag([0.0, 0.0, -1.7 / 5])
    law = {"context_length": 5, "input_size": 2, "input_variance": 1 / 3}
    np.testing.assert_allclose(data.population_loss(*hand, 5), one_step_loss(1.7, **law), rtol=1e-12)


@pytest.mark.parametrize("length", [2, 8])
def test_lines_are_the_closed_forms(length):
    config = dataclasses.replace(CONFIG, context_length=length)
    expected = [zero_loss(config), plateau_loss(config), best_step(config)[1]]
    np.testing.assert_allclose(fallback.levels(length), expected, rtol=1e-12)


def test_the_tenth_network_rests_on_a_line_and_the_fourth_in_a_minimum_of_the_loss(stored):
    """What the page says of them: no step leads out of the fourth's place, whose Hessian is nowhere negative."""
    places = [np.concatenate([a[:2].ravel(), b[:, 2]]) for a, b in zip(*stored)]

    def loss(place):
        return data.population_loss(
            np.vstack([place[:6].reshape(2, 3), np.zeros(3)]), np.outer(place[6:], [0, 0, 1]), 8
        )

    np.testing.assert_allclose(loss(places[9]), fallback.levels(8)[1], rtol=0.003)
    steps = 1e-3 * np.eye(9)

    def hessian(place):
        return np.array([
            [loss(place + i + j) - loss(place + i - j) - loss(place - i + j) + loss(place - i - j) for j in steps]
            for i in steps
        ]) / 4e-6  # fmt: skip

    values = [np.linalg.eigvalsh(hessian(places[member])) for member in (3, 9)]
    assert values[0][0] > -0.01 < 0.05 < values[0][1]  # one direction of none: A and B may be scaled
    assert 2.3 < loss(places[3]) / fallback.levels(8)[2] < 2.6


def test_what_is_left_of_a_direction_is_what_the_layer_leaves_of_it():
    """On prompts whose eigenvectors are the directions of the fastest and the slowest step."""
    rng, n = np.random.default_rng(2), 5
    a, b = rng.normal(size=(2, 3, 3)) * 0.4
    taken = -n * (b[2, 2] * a[:2, :2] + np.outer(a[:2, 2], b[:2, 2]))
    for k, rate in zip((1, 0), fallback.pace(a, b, n)):
        vectors = np.linalg.eigh(taken + taken.T)[1]
        eigenvalues, v = np.array([0.3, 0.7]), vectors[:, k]
        x = np.concatenate([np.sqrt(n * eigenvalues)[:, None] * vectors.T, np.zeros((n - 2, 2))])

        def weights(w, x=x):
            tokens = np.column_stack([x, x @ w])
            return -a[:2] @ tokens.T @ tokens @ b[:, 2]

        answer = v @ (weights(v) - weights(-v)) / 2  # odd in the labels
        np.testing.assert_allclose(1 - answer, 1 - rate * eigenvalues[k], rtol=1e-12)


def test_the_best_step_is_left_of_both_directions_of_networks_that_have_it_and_nothing_where_one_is_learned(stored):
    rate = best_step(CONFIG)[0]
    paces = np.array([fallback.pace(a, b, 8) for a, b in zip(*stored)])
    np.testing.assert_allclose(np.delete(paces, [3, 9], axis=0), rate, rtol=0.05)
    np.testing.assert_allclose(paces[9], [rate, 0], atol=0.05 * rate)


def test_the_static_figure_is_of_the_stored_networks(stored):
    shown = fallback.context()
    assert len(shown["curves"]) == 10
    assert shown["stuck"] == 2
    assert "8 of 10 networks" in shown["said"]
    assert [cell["text"] for cell in shown["maps"][1]["cells"]][:2] == ["0.47", "0.00"]


# In Chromium


class TestAgainstJax:
    """Functions of model.js."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_gradient_is_that_of_jax_on_fresh_prompts(self, in_page):
        sample = linear_regression(context_length=8, input_size=2, input_range=2.0)(jax.random.key(9), 200)
        layer = one_layer(CONFIG)
        params = jax.tree.map(lambda leaf: 20 * leaf, layer.init(jax.random.key(0)))
        slope = jax.grad(lambda p: squared_error(layer.learner(p)(sample.prompt), sample).mean())(params)
        flat = lambda tree: np.stack([np.asarray(tree["params"][n], float)[0, 0] for n in data.NAMES])  # noqa: E731
        parts = {"x": sample.prompt.x, "y": sample.prompt.y, "query": sample.prompt.x_query, "target": sample.target}
        tasks = {"n": 8} | {name: np.asarray(part, float).ravel().tolist() for name, part in parts.items()}
        told = in_page(MODEL, "[...m.gradient(v[0], v[1])]", flat(params).ravel().tolist(), tasks)
        expected = flat(slope).ravel()
        np.testing.assert_allclose(told, expected, atol=1e-6 * np.linalg.norm(expected))

    def test_losses_and_lines_are_those_of_python(self, in_page, stored):
        a, b = np.concatenate([stored, np.random.default_rng(1).normal(size=(2, 5, 3, 3))], axis=1)
        pairs = [{"a": one.ravel().tolist(), "b": other.ravel().tolist()} for one, other in zip(a, b)]
        losses, levels, rate, paces = in_page(
            MODEL,
            "[v[0].map(w => m.populationLoss(w, 5)), m.levels(5), m.bestRate(8), v[0].map(w => m.pace(w, 5))]",
            pairs,
        )
        np.testing.assert_allclose(paces, [fallback.pace(*pair, 5) for pair in zip(a, b)], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(losses, [data.population_loss(*pair, 5) for pair in zip(a, b)], rtol=1e-10)
        np.testing.assert_allclose(levels, fallback.levels(5), rtol=1e-12)
        np.testing.assert_allclose(rate, best_step(CONFIG)[0], rtol=1e-12)

    def test_prompts_and_starts_have_the_laws_of_the_laboratory(self, in_page):
        script = """(() => { const r = m.uniforms(3, 1), t = m.drawn(r, 8, 4000);
            const starts = Array.from({length: 60}, () => [...m.begun(r).params]);
            return [[...t.x], [...t.y], [...t.target], [...t.query], starts]; })()"""
        x, y, target, query, starts = map(np.array, in_page(MODEL, script))
        assert -1 < x.min() < -0.999 < 0.999 < x.max() < 1
        np.testing.assert_allclose([x.mean(), (x**2).mean()], [0, 1 / 3], atol=0.01)
        np.testing.assert_allclose([(y**2).mean(), (target**2).mean()], [2 / 3, 2 / 3], atol=0.05)
        w = np.linalg.lstsq(x[:16].reshape(8, 2), y[:8], rcond=None)[0]
        np.testing.assert_allclose(query[:2] @ w, target[0], atol=1e-12)
        np.testing.assert_allclose([starts.mean(), starts.std()], [0, (0.002 / 3) ** 0.5], atol=0.001)
        assert abs(starts).max() <= 2 * (0.002 / 3) ** 0.5 / 0.8796

    def test_ten_trainings_end_with_the_rate_of_the_closed_form_or_rest_where_the_stored_ones_do(self, in_page):
        script = """Array.from({length: 10}, (_, k) => {
            const r = m.uniforms(1, k), one = m.begun(r);
            m.train(one, r, 8, 1e-3, m.STEPS - 1000);
            return Array.from({length: 20}, () => {
                m.train(one, r, 8, 1e-3, m.EVERY);
                const w = m.folded(one.params);
                return [m.populationLoss(w, 8), m.rateOf(w, 8)];
            }); })"""
        losses, rates = np.moveaxis(in_page(MODEL, script), -1, 0)
        rate, best = best_step(CONFIG)
        near = losses[:, -1] < fallback.NEAR * best
        assert near.sum() >= 5
        np.testing.assert_allclose(rates[near].mean(axis=1), rate, rtol=0.01)
        np.testing.assert_allclose(losses[near, -1], best, rtol=0.01)
        rests = losses[~near, -1, None] / best
        assert np.all(abs(rests - [3.22, 2.44]).min(axis=1) < 0.03)  # one direction; the minimum


class TestExplorable:
    """The explorable in a page without records."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_the_default_state_is_the_static_figure_and_keys_move_the_time(self, light_tab):
        root, shown = light_tab.locator("#weights"), fallback.context()
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        assert root.locator("[data-part=said]").inner_text() == shown["said"]
        assert root.locator("path.trained").get_attribute("d") == shown["curves"][0]
        for part in ("factors", "best"):
            assert root.locator(f"[data-part={part}]").get_attribute("d") == shown[part]
        assert root.locator("[data-part=paces]").all_text_contents() == shown["paces"]
        assert root.locator("[data-part=pace]").text_content() == shown["pace"]
        texts = [cell["text"] if cell["used"] else "·" for one in shown["maps"] for cell in one["cells"]]
        assert root.locator("[data-part=maps] .value").all_text_contents() == texts
        cursor = root.get_by_role("slider", name="Training step")
        cursor.focus()
        for key, value in {"ArrowLeft": 2950, "PageDown": 2450, "ArrowRight": 2500, "Home": 0, "End": 3000}.items():
            light_tab.keyboard.press(key)
            assert cursor.get_attribute("aria-valuenow") == str(value)
        root.locator("[data-part=plot]").click()  # in its middle, which is scrolled into view first
        assert 1200 < int(cursor.get_attribute("aria-valuenow")) < 1700
        root.locator("[data-part=network]").select_option("10")
        fast, slow = root.locator("[data-part=paces]").all_text_contents()
        assert re.fullmatch(r"1 − 2\.\d\d λ", fast)
        assert re.fullmatch(r"1 [−+] 0\.0\d λ", slow)
        assert "where one direction is learned" in root.locator("[data-part=said]").inner_text()
        light_tab.reload()
        assert root.locator("[data-part=network]").input_value() == "10"
        assert "where one direction is learned" in root.locator("[data-part=said]").inner_text()

    def test_numbers_start_anew_step_by_step_and_the_seed_gives_the_same_networks_again(self, light_tab):
        root = light_tab.locator("#weights")
        root.get_by_label("Examples N").fill("2")
        assert f"= {fallback.levels(2)[2]:.3f}" in root.locator("[data-part=plot] text").all_text_contents()[2]
        root.get_by_label("Seed").fill("7")
        told = []
        for _ in range(2):
            assert root.get_attribute("data-steps") == "0"
            root.get_by_role("button", name="Step", exact=True).click()
            light_tab.locator("#weights[data-steps='50']").wait_for()
            told.append(root.locator("[data-part=maps] .value").all_text_contents())
            assert "seed=7" in light_tab.url
            assert "n=2" in light_tab.url
            light_tab.reload()
        assert told[0] == told[1]
        root.get_by_role("button", name="Back to the stored ones").click()
        assert root.locator("[data-part=said]").inner_text() == fallback.context()["said"]

    def test_training_goes_on_in_slices_and_stops(self, light_tab):
        root = light_tab.locator("#weights")
        root.get_by_role("button", name="Train ten networks").click()
        light_tab.locator("#weights:not([data-steps='0']):not([data-steps=''])").wait_for()
        assert root.locator("[data-part=said]").inner_text() == "Ten networks of seed 1 are training."
        root.get_by_role("button", name="Stop").click()
        stopped = int(root.get_attribute("data-steps"))
        assert 50 <= stopped < 3000
        assert root.locator("[data-part=paces]").all_text_contents() != fallback.context()["paces"]
        assert f"After {stopped:,} steps" in root.locator("[data-part=said]").inner_text()
        light_tab.wait_for_timeout(100)
        assert int(root.get_attribute("data-steps")) == stopped
        assert root.get_by_role("button", name="Train on").is_visible()

    def test_what_is_said_of_the_stored_networks(self, light_tab):
        root, said = light_tab.locator("#weights"), []
        for network in range(1, 11):
            root.locator("[data-part=network]").select_option(str(network))
            said.append(root.locator("[data-part=said]").inner_text())
        rates = [float(rate) for text in said for rate in re.findall(r"had the learning rate (\d\.\d+)", text)]
        np.testing.assert_allclose(rates, best_step(CONFIG)[0], rtol=0.01)
        assert len(rates) == 8
        assert "rests on none of the lines" in said[3]
        assert "rests where one direction is learned" in said[9]
