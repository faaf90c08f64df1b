"""The explorable of the induction head: the record, the figure without a script, and its code in Chromium."""

import base64
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.binaries import GALLERY
from experiments.onsets import crossing
from experiments.page.explorables.birth import data, fallback, live, recording
from experiments.reddy.clamping import CURVE
from experiments.reddy.settings import member_laws
from experiments.reddy.training import evaluation_samples, induction_model, progress
from icl_lab.lab import records
from icl_lab.lab.records import RecordError
from icl_lab.models.inspection import Trace
from icl_lab.prompts import Prompt, Sample

MODEL = data.FOLDER.with_name("model.js")


@pytest.fixture(scope="module")
def found():
    return data.record()


# Without a browser


def test_the_record_is_the_first_member_of_the_committed_lab_record(found):
    """But for rounding that 5,000 steps of training grow: less than a test set of 1,000 sequences can tell.

    The standard error of a share of them is at most 0.016; attention is no count, and differs by less.
    """
    lab = records.load(GALLERY / "reddy/clamping/lab")
    assert found.config == json.loads(json.dumps(vars(recording.CONFIG)))
    assert {**lab.config, "members": 1} == found.config
    np.testing.assert_array_equal(found.arrays["steps"], lab.arrays["steps"])
    for arm in data.ARMS:
        for name, curve in zip(data.CURVES, found.arrays[f"{arm}/curves"]):
            within = 0.5 / 1000**0.5 if name in ("ic", "cla") else 2e-3
            np.testing.assert_allclose(curve, CURVE(lab, condition=arm, metric=name)[0], atol=within, err_msg=arm)


def test_progress_measures_are_sums_of_the_kept_attention():
    draw, n, count = np.random.default_rng(0), 3, 60
    pattern = draw.dirichlet(np.full(2 * n + 1, 0.3), (count, 2, 1, 2 * n + 1)).astype(np.float32)
    item = draw.integers(0, 2, count)  # never the last
    samples = Sample(
        Prompt(jnp.zeros((count, n)), jnp.zeros((count, n)), jnp.arange(count)),
        jnp.zeros(count, int),
        {"match": jnp.eye(n, dtype=bool)[item], "labels": jnp.tile(jnp.arange(n), (count, 1))},
    )

    def run(prompt):
        return jnp.zeros(n), Trace(jnp.asarray(pattern)[prompt.x_query], jnp.zeros(1), jnp.zeros(1))

    told = jax.tree.map(np.asarray, progress(run, samples, recording.attention))
    maps = recording.in_255ths(told["attention"][None], told["match"])
    np.testing.assert_allclose(told["match"], np.bincount(item, minlength=n) / count, rtol=1e-6)
    assert maps.dtype == np.uint8
    assert not maps[0, :, -1].any()
    for name, value in data.measures(maps / 255, told["match"]).items():
        assert abs(value[0] - told[name]) <= data.bound(name, n), name


@pytest.mark.parametrize(("row", "key"), [(1, 0), (9, 3)])
def test_a_record_whose_maps_give_other_measures_is_refused(found, tmp_path, row, key):
    name = "cla_held/attention"
    maps = found.arrays[name].copy()
    maps[7, row // 8, row, key] ^= 16
    records.save(dataclasses.replace(found, arrays=found.arrays | {name: maps}), tmp_path, [])
    with pytest.raises(RecordError, match="maps of cla_held give another"):
        data.record(tmp_path)


def test_the_static_figure_is_the_control_where_the_head_has_formed(found):
    shown, time = fallback.context(found), fallback.start(found)
    accuracy = found.arrays["control/curves"][0]
    assert accuracy[time] >= fallback.FORMED > accuracy[time - 1]
    widths = np.array([float(arc["width"]) for arc in shown["arcs"]])
    assert len(widths) == 36 + 8
    by_query = np.split(widths, np.cumsum(range(1, 9)))  # in the first layer, then of the target in the second
    assert [row.argmax() for row in by_query[:8:2]] == [0, 2, 4, 6]  # labels attend most to their items
    assert by_query[8].argmax() == 2 * fallback.ITEM + 1
    counted = [arc["kind"] for arc in shown["arcs"]]
    assert {kind: counted.count(kind) for kind in ("ila1", "tila2", "tla2")} == {"ila1": 4, "tila2": 1, "tla2": 3}
    ila1 = widths[[kind == "ila1" for kind in counted]].mean() / fallback.THICK
    np.testing.assert_allclose(ila1, found.arrays["control/curves"][3, time], atol=0.01)  # widths have one decimal


def test_what_the_page_says_of_the_arms(found):
    """The classifier delays the onset by most of the steps frozen, the first layer by next to nothing."""
    steps, n, hold = found.arrays["steps"], found.config["context_length"], found.config["hold"]
    control, classifier, layer, given = (
        fallback.onset(found.arrays[f"{arm}/curves"][0], steps, n) for arm in data.ARMS
    )
    assert (classifier - control) / hold > 0.5
    assert abs(layer - control) / hold < 0.1
    assert 0.4 < given / control < 0.6


def matrices(found):
    return {name: found.arrays[f"live/{name}"] for name in live.ARRAYS}


def test_folded_matrices_are_the_network_that_is_trained():
    """But for rounding to float16: 2^-11 of each of some products of matrices, of which there are six in a row."""
    config = dataclasses.replace(recording.CONFIG, hidden=32)
    params = induction_model(config).init(jax.random.key(0))
    law = jax.tree.map(lambda leaf: leaf[0], member_laws(config))
    samples = evaluation_samples(dataclasses.replace(config, eval_tasks=50), law, "ic", jax.random.key(1))
    first = jnp.zeros_like(samples.prompt.offset)
    prompt = dataclasses.replace(samples.prompt, offset=first)
    logits, attention = live.answered(live.folded(params, config), prompt.x, prompt.y, prompt.x_query)
    expected, trace = jax.jit(jax.vmap(lambda one: induction_model(config).run(params, one)))(prompt)
    np.testing.assert_allclose(attention, trace.attention[:, :, 0], atol=0.01)
    np.testing.assert_allclose(logits, expected, atol=0.01 * abs(expected).max())
    assert live.other_answers(live.folded(params, config), expected, samples) <= 0.04


def test_exported_logits_are_those_of_jax_and_the_readers_first_sequence_is_answered_by_its_label(found):
    kept = matrices(found)
    logits, _ = live.of_reader(kept, kept["sequences"])
    assert logits.dtype == np.float64
    np.testing.assert_allclose(kept["logits"], logits, rtol=0, atol=live.TOLERANCE / 2 * abs(logits).max())
    usual = live.usual(found.config["context_length"])
    assert usual[-1] == usual[2 * fallback.ITEM]
    assert live.of_reader(kept, np.array([usual]))[0].argmax() == usual[2 * fallback.ITEM + 1]
    assert len(live.LETTERS) == len(live.ITEMS) == len(kept["items"]) == len(kept["labels"]) == 6
    assert kept["sequences"].max() < 6


def test_what_float64_takes_from_logits_is_less_than_half_of_what_is_allowed(found):
    """Bounds of Higham (Accuracy and Stability, ch. 3): a sum of n products is off by at most n u of the sum of sizes.

    Whatever the order of summation. With e the bound on a vector's error: that of x W is e |W| + n u |x| |W|; a
    softmax of scores off by s is off by a factor of e^(2 s) and some roundings; ReLU adds nothing.
    """
    kept = {name: np.asarray(value, float) for name, value in matrices(found).items()}
    u, width = 2.0**-53, len(kept["mlp_0"])

    def product(x, e, w, f=0.0):  # of numbers off by at most e and f
        n = len(w) + 2
        return x @ w, e @ abs(w) + (abs(x) + e) @ (f + np.zeros_like(w)) + n * u * (abs(x) + e) @ (abs(w) + f)

    worst = 0.0
    for sequence in kept["sequences"].astype(int):
        rows = np.zeros((len(sequence), width))
        for at, which in enumerate(sequence):
            content = kept["labels" if at % 2 else "items"][which]
            rows[at, at], rows[at, len(sequence) : len(sequence) + len(content)] = 1, content
        off = np.zeros_like(rows)
        for layer in range(2):
            scores, values = kept[f"scores_{layer}"], kept[f"values_{layer}"]
            seen = slice(len(scores))
            asked, e = product(rows[:, seen], off[:, seen], scores)
            found_scores, e = product(asked, e, rows[:, seen].T, off[:, seen].T)
            causal = np.tril(np.ones_like(found_scores, bool))
            e = np.where(causal, e, 0).max(1, keepdims=True)
            shares = np.where(
                causal, np.exp(found_scores - found_scores.max(1, keepdims=True, where=causal, initial=-1e9)), 0
            )
            shares /= shares.sum(1, keepdims=True)
            of_shares = shares * (np.expm1(2 * e) + (abs(found_scores).max() + 30) * u)
            heads, of_heads = product(rows[:, seen], off[:, seen], values)
            head, e = product(shares, of_shares, heads, of_heads)
            off = off + e + u * abs(rows + head)
            rows = rows + head
        last, e = rows[-1:], off[-1:]
        for layer, bias in enumerate(kept["mlp_bias"]):
            last, e = product(last, e, kept[f"mlp_{layer}"])
            e = e + 2 * u * (abs(last) + abs(bias))
            last = np.maximum(0, last + bias)
        _, e = product(last, e, kept["read_out"])
        worst = max(worst, e.max())
    assert 2 * worst <= live.TOLERANCE / 2 * abs(kept["logits"]).max()  # both sides may be off


# In Chromium


class TestAgainstPython:
    """Functions of model.js."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_measures_are_those_of_python(self, in_page, found):
        maps, share = found.arrays["ila1_held/attention"], found.arrays["share"].astype(float)
        told = in_page(
            MODEL, "v[1].map((_, t) => m.measures({maps: v[0]}, v[2], t))",
            maps.ravel().tolist(), list(range(len(maps))), share.tolist(),
        )  # fmt: skip
        for name, expected in data.measures(maps / 255, share).items():
            np.testing.assert_allclose([one[name] for one in told], expected, rtol=1e-12)

    def test_worst_is_one_where_a_measure_is_off_by_the_bound(self, in_page, found):
        share = found.arrays["share"].astype(float)
        maps = found.arrays["control/attention"]
        exact = data.measures(maps / 255, share)
        for name in exact:
            curves = np.stack([exact.get(one, np.zeros(len(maps))) for one in data.CURVES])
            curves[data.CURVES.index(name), 5] += 1.5 * data.bound(name, len(share))
            arm = {"maps": maps.ravel().tolist(), "curves": curves.ravel().tolist()}
            told = in_page(MODEL, "m.worst([v[0]], v[1], v[2], v[3])", arm, share.tolist(), data.HALF, data.FLOAT)
            np.testing.assert_allclose(told, 1.5, rtol=1e-9)

    def test_crossings_are_those_of_python(self, in_page):
        draw = np.random.default_rng(0)
        curves, steps = draw.uniform(size=(50, 9)).cumsum(axis=1) / 6, np.arange(0, 900, 100)
        told = in_page(MODEL, "v[0].map(c => m.crossing(c, v[1], v[2]))", curves.tolist(), steps.tolist(), 0.625)
        np.testing.assert_allclose(told, crossing(curves, steps, 0.625), rtol=1e-12)
        assert in_page(MODEL, "[m.crossing([0, .1], [0, 1], .5), m.crossing([1, 0], [3, 4], .5)]") == [np.inf, 3]

    def test_the_network_is_that_of_jax(self, in_page, found):
        kept = matrices(found)
        sequences = np.random.default_rng(1).integers(0, 6, (100, 9))
        logits, attention = live.of_reader(kept, sequences)
        text, shapes = (live.data(kept)[name] for name in ("matrices", "shapes"))
        told = in_page(
            MODEL,
            "v[2].map((one) => { const {attention, logits} = m.answer("
            "m.matrices(Uint8Array.from(atob(v[0]), (c) => c.charCodeAt(0)), v[1]), one);"
            " return [attention.map((layer) => layer.map((row) => [...row])), [...logits]]; })",
            text, shapes, sequences.tolist(),
        )  # fmt: skip
        np.testing.assert_allclose([one for _, one in told], logits, rtol=0, atol=1e-10 * abs(logits).max())
        for (maps, _), expected in zip(told, attention):
            for layer in (0, 1):
                for query, row in enumerate(maps[layer]):
                    np.testing.assert_allclose(row, expected[layer, query, : query + 1], rtol=0, atol=1e-10)

    def test_float16_numbers_are_those_of_numpy(self, in_page):
        """Normal and subnormal ones, both zeros, the largest and the smallest."""
        values = np.array([0, -0.0, 1, -2.5, 65504, 6e-8, -6.1e-5, 6.103e-5, 0.1, 1 / 3], np.float16)
        bits = values.view(np.uint8).tolist()
        told = in_page(MODEL, "m.matrices(Uint8Array.from(v[0]), [[2, 5]]).map((row) => row.map((c) => [...c]))", bits)
        np.testing.assert_array_equal(np.array(told).ravel(), values.astype(float))


class TestExplorable:
    """The explorable in a page without records."""

    pytestmark = pytest.mark.xdist_group("browser")

    def test_the_default_state_is_the_static_figure(self, light_tab, found):
        root, shown = light_tab.locator("#head"), fallback.context(found)
        assert root.locator("[data-part=check]").inner_text().startswith("✓")
        assert root.locator("[data-part=said]").inner_text() == shown["said"]
        attributes = "(all, name) => all.map(one => one.getAttribute(name))"
        assert root.locator(".arc").evaluate_all(attributes, "stroke-width") == [a["width"] for a in shown["arcs"]]
        cells = [value for one in shown["maps"] for *_, value in one]
        assert root.locator(".cell").evaluate_all(attributes, "fill-opacity") == cells
        curves = root.locator("[data-part=plot] .curve").evaluate_all(attributes, "d")
        assert curves == list(shown["curves"].values())
        assert {name: root.locator(f"[data-part={name}]").inner_text() for name in data.CURVES} == shown["values"]

    def test_keys_and_mouse_reach_the_same_state_which_is_in_the_address(self, light_tab, open_page, found):
        root, times = light_tab.locator("#head"), light_tab.locator("#head [data-part=time]")

        def told(tab):
            parts = ("said", "delay", *data.CURVES)
            return [tab.locator(f"#head [data-part={one}]").text_content() for one in parts]

        times.focus()
        for key in ("Home", "PageUp", "ArrowRight", "ArrowRight", "ArrowLeft"):
            light_tab.keyboard.press(key)
        at = int(times.input_value())
        assert 1 < at < 12
        light_tab.keyboard.press("Tab")
        light_tab.keyboard.press("ArrowDown")  # the radio buttons are one stop
        assert root.get_by_label("classifier frozen").is_checked()
        by_keys = told(light_tab)
        steps, n = found.arrays["steps"], found.config["context_length"]
        soon, later = (fallback.onset(found.arrays[f"{arm}/curves"][0], steps, n) for arm in ("control", "cla_held"))
        assert f"the onset comes {later - soon:,.0f} steps later" in by_keys[0]
        assert by_keys[1] == f"+{later - soon:,.0f}"
        address = light_tab.url
        assert address.endswith(f"#head?arm=cla_held&time={at}")
        root.locator("[data-part=reset]").evaluate("one => one.click()")
        root.get_by_label("classifier frozen").click()
        plot, left = root.locator("[data-part=plot]"), (34 + 360 * at / (len(steps) - 1)) / 402
        box = plot.bounding_box()
        plot.click(position={"x": left * box["width"], "y": box["height"] / 2})
        assert told(light_tab) == by_keys
        assert light_tab.url == address
        assert told(open_page(address)) == by_keys
        root.locator("[data-part=reset]").evaluate("one => one.click()")
        assert told(light_tab)[0] == fallback.context(found)["said"]

    def test_the_readers_own_sequence_is_answered_by_the_network(self, light_tab, open_page, found):
        root, own = light_tab.locator("#head"), light_tab.locator("#head [data-part=own]")
        before = [root.locator("svg").first.inner_html(), root.locator("[data-part=said]").inner_text()]
        assert own.is_hidden()
        root.get_by_label("nothing frozen").focus()
        light_tab.keyboard.press("ArrowUp")  # the radio buttons are a ring
        assert root.get_by_label("your own sequence").is_checked()
        assert root.locator(".like").is_hidden()
        usual = live.usual(found.config["context_length"])

        def holds(sequence, text):
            logits, attention = (one[0] for one in live.of_reader(matrices(found), np.array([sequence])))
            shares = np.exp(logits) / np.exp(logits).sum()
            said, tokens = root.locator("[data-part=said]").inner_text(), root.locator("svg").first.locator("text")
            assert said.startswith(
                f"The network answers {chr(65 + logits.argmax())} with probability {shares.max():.0%}"[:-1]
            )
            assert text in said
            shown = tokens.all_text_contents()
            assert shown == [(live.LETTERS if at % 2 else live.ITEMS)[one][0] for at, one in enumerate(sequence)]
            widths = root.locator(".arc").evaluate_all("all => all.map(one => one.getAttribute('stroke-width'))")
            np.testing.assert_allclose([float(w) for w in widths[36:]], 14 * attention[1, 8, :8], atol=0.051)
            opacity = root.locator(".cell").evaluate_all("all => all.map(one => one.getAttribute('fill-opacity'))")
            np.testing.assert_allclose(
                [float(o) for o in opacity], attention[:, *np.tril_indices(9)].ravel(), atol=0.0051
            )
            assert root.locator(".arc.tila2").count() == sum(one == sequence[8] for one in sequence[:8:2])
            assert light_tab.url.endswith(f"own={''.join(map(str, sequence))}")

        holds(usual, "Here ▲ triangle has label B")
        own.locator("select").nth(8).select_option("✚ cross")
        holds([*usual[:8], 5], "Here ✚ cross is missing")
        own.locator("select").nth(6).select_option("✚ cross")
        own.locator("select").nth(7).select_option("F")
        holds([0, 0, 1, 1, 2, 2, 5, 5, 5], "Here ✚ cross has label F")
        own.locator("select").nth(0).select_option("✚ cross")
        holds([5, 0, 1, 1, 2, 2, 5, 5, 5], "has label A and F, which gets")
        again = open_page(light_tab.url)
        assert again.locator("#head [data-part=said]").inner_text() == root.locator("[data-part=said]").inner_text()
        assert again.locator("#head [data-part=own]").is_visible()
        root.get_by_label("nothing frozen").click()
        assert [root.locator("svg").first.inner_html(), root.locator("[data-part=said]").inner_text()] == before
        assert own.is_hidden()
        assert "own=" not in light_tab.url
        root.get_by_label("your own sequence").click()
        root.locator("[data-part=time]").press("ArrowLeft")
        assert root.get_by_label("nothing frozen").is_checked()
        assert own.is_hidden()

    @pytest.mark.parametrize("own", ["", "01", "000000006", "0123450123"])
    def test_what_is_no_sequence_in_the_address_is_left_out(self, open_page, light_page, found, own):
        opened = open_page(f"{light_page.as_uri()}#head?own={own}")
        assert opened.locator("#head [data-part=said]").inner_text() == fallback.context(found)["said"]
        assert opened.locator("#head [data-part=own]").is_hidden()

    def test_one_corrupted_byte_of_the_network_brings_the_static_figure_back(
        self, open_page, light_page, tmp_path, found
    ):
        """The high byte of the largest bias, which every sequence meets."""
        kept = matrices(found)
        good = live.data(kept)["matrices"]
        bias = abs(kept["mlp_bias"].astype(float)).argmax()
        raw = bytearray(base64.b64decode(good))
        raw[2 * (kept["items"].size + kept["labels"].size + int(bias)) + 1] ^= 4
        other = tmp_path / "page.html"
        other.write_text(light_page.read_text().replace(good, base64.b64encode(raw).decode()))
        root = open_page(other.as_uri()).locator("#head")
        assert root.locator("[data-part=check]").inner_text().startswith("✕")
        assert root.locator("[data-part=own]").is_hidden()
        assert root.locator("[data-part=said]").inner_text() == fallback.context(found)["said"]

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [390, 1280])
    def test_axe_finds_nothing_in_the_readers_own_sequence(self, axe, open_page, light_page, width, scheme):
        url, viewport = f"{light_page.as_uri()}#head?own=001122335", {"width": width, "height": 844}
        opened = open_page(url, viewport=viewport, color_scheme=scheme)
        assert opened.locator("#head [data-part=own] select").count() == 9
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        assert axe(opened) == []
