"""GPT-2 on sentences of one's own: how they are split, which files are refused. The loaders have their own tests."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.dai import implicit_finetuning, real_text
from icl_lab.lab.command_line import parse_command_line
from icl_lab.lab.flags import FlagError
from icl_lab.models import LanguageModel, gpt2
from icl_lab.models.gpt2 import END, Tokenizer

ROOT = Path(__file__).parents[2]

WORDS = [END, "Sentence:", "Label:", *(f"w{i}" for i in range(20)), "good", "bad"]


@pytest.fixture
def config(tmp_path):
    lines = [{"text": f"w{i} w{i + 1}", "label": ("good", "bad")[i % 2]} for i in range(12)]
    (tmp_path / "examples.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "gpt2.safetensors").write_bytes(b"")
    return dataclasses.replace(
        implicit_finetuning.PRESETS["smoke"], gpt2_weights=str(tmp_path / "gpt2.safetensors"), tokenizer=str(tmp_path),
        examples=str(tmp_path / "examples.jsonl"), max_queries=3, test_queries=9, development_queries=2, seeds=2,
        positions=("learned",),
    )  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """A GPT-2 of one layer, and a tokenizer of whole words."""
    tokenizer = Tokenizer(lambda text: [WORDS.index(word) for word in text.split()], lambda ids: "")
    network = LanguageModel(len(WORDS), 1, 2, 8, positions=20)
    params = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros(1, jnp.int32))
    monkeypatch.setattr(real_text, "load_tokenizer", lambda folder: tokenizer)
    monkeypatch.setattr(real_text, "gpt2_network", lambda path, heads: network)
    monkeypatch.setattr(real_text, "load_gpt2", lambda path, heads: (network, params))


def test_every_line_is_in_one_split_and_demonstrations_are_apart(config, small):
    material = started(config).material
    assert [len(split.tokens) for split in (material.development, material.test)] == [2, 3]
    asked = [tuple(q) for split in (material.development, material.test) for q in split.tokens]
    shown = {tuple(q) for one in material.sets for q, _ in one}
    assert len(set(asked)) == 5
    assert not shown & set(asked)
    assert len(material.sets) == 2
    assert material.sets[0] != material.sets[1]
    assert material.candidates.tolist() == [WORDS.index("bad"), WORDS.index("good")]
    question, answer = material.sets[0][0]
    first = int(WORDS[question[1]][1:])
    assert question == [1, 3 + first, 4 + first, 2]
    assert WORDS[answer] == ("good", "bad")[first % 2]


def test_a_byte_order_mark_is_no_part_of_the_first_line(config, small):
    before = started(config).material
    lines = Path(config.examples).read_text()
    Path(config.examples).write_text(lines, encoding="utf-8-sig")
    assert started(config).material.sets == before.sets


def test_a_sentence_that_is_repeated_counts_once(config, small):
    once = started(config).material
    lines = Path(config.examples).read_text()
    Path(config.examples).write_text(lines + lines.replace('"text": "', '"text": " ').replace(" w", "  w"))
    twice = started(config).material
    assert (twice.sets, twice.test.tokens, twice.development.tokens) == (
        once.sets, once.test.tokens, once.development.tokens,
    )  # fmt: skip
    Path(config.examples).write_text("".join(f"{line}\n" for line in lines.splitlines() for _ in "ab"))
    assert started(config).material.sets == once.sets


def started(config):
    implicit_finetuning.EXPERIMENT.validate(config)
    return real_text.real_subject(config)


def refused(config, said):
    """Before work starts: validation alone must say it."""
    with pytest.raises(FlagError, match=said):
        implicit_finetuning.EXPERIMENT.validate(config)


def test_what_does_not_fit_is_refused_with_its_flag(config, small, tmp_path, monkeypatch):
    change = lambda **fields: dataclasses.replace(config, **fields)  # noqa: E731
    refused(change(tokenizer=""), "--tokenizer=: allowed is a local folder")
    refused(change(examples=str(tmp_path / "none")), "--examples=.*none: allowed is a local file")
    refused(change(gpt2_weights=str(tmp_path)), "--gpt2_weights=.*: allowed is a local file")
    for template in (
        "Label:",
        "{text} Label: ",
        "{text}\n",
        "{text} is {label}",
        "{Text}: {text}",
        "{text}\\nLabel:",
        f"{{text}}{END} a",
    ):
        refused(change(template=template), "--template=")
    implicit_finetuning.EXPERIMENT.validate(change(template="{text}\n\tLabel:"))
    refused(change(members=2), "--members=1")
    refused(change(controls=("wrong_task", "local")), "--controls=wrong_task,local: allowed is .* without wrong_task")
    refused(change(demonstrations=8), "--examples=.*at least 13 different texts.*got 12")
    refused(change(demonstrations=4), "--demonstrations=4: allowed are fewer")
    network = LanguageModel(len(WORDS) - 4, 1, 2, 8, positions=20)
    monkeypatch.setattr(real_text, "gpt2_network", lambda path, heads: network)
    refused(config, f"--tokenizer=.*has {len(WORDS) - 4} tokens; it makes token")
    (tmp_path / "examples.jsonl").write_bytes(b'{"text": "\xff", "label": "good"}')
    refused(config, "--examples=.*UTF-8")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no json", "line 13"),
        ('{"text": "w1"}', "line 13"),
        ('{"text": "w1", "label": "good bad"}', "'good bad' has 2"),
        ('{"text": null, "label": "good"}', "line 13"),
        ('{"text": " ", "label": "good"}', "line 13"),
        ('{"text": "w1", "label": true}', "line 13"),
        (f'{{"text": "w1 {END} w2", "label": "good"}}', r"without <\|endoftext\|>.*line 13"),
        (f'{{"text": "w1", "label": "{END}"}}', r"without <\|endoftext\|>.*line 13"),
        ('{"text": " w0  w1", "label": "bad"}', "line 13 says 'bad' of that of line 1, 'good'"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(config, small, line, said):
    with open(config.examples, "a") as file:
        file.write(line + "\n")
    refused(config, said)


def test_files_that_the_loaders_refuse_are_refused_with_their_flags(config, small, monkeypatch):
    monkeypatch.setattr(real_text, "gpt2_network", gpt2.gpt2_network)
    refused(config, r"--gpt2_weights=.*, --heads=0: .*truncated or no safetensors file, 0 bytes")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes_of_gpt2(8).items()}
    save_file(weights, config.gpt2_weights)
    refused(config, "--heads=0: .*heads must be given for a width of 8")
    refused(dataclasses.replace(config, heads=3), "--heads=3: .*heads must divide the width 8")
    implicit_finetuning.EXPERIMENT.validate(dataclasses.replace(config, heads=2))
    monkeypatch.setattr(real_text, "load_tokenizer", gpt2.load_tokenizer)
    refused(dataclasses.replace(config, heads=2), "--tokenizer=.*missing: .*vocab.json")


def shapes_of_gpt2(width):
    outside = {"wte.weight": (len(WORDS), width), "wpe.weight": (20, width)}
    norms = {f"{name}.{part}": (width,) for name in ("ln_f", "h.0.ln_1", "h.0.ln_2") for part in ("weight", "bias")}
    products = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    matrices = {f"h.0.{name}.weight": (width * rows, width * out) for name, (rows, out) in products.items()}
    return outside | norms | matrices | {f"h.0.{name}.bias": (width * out,) for name, (_, out) in products.items()}


def test_the_sentences_of_the_worked_example_are_enough_and_in_balance():
    lines = real_text._lines(str(ROOT / "docs/examples/sentences.jsonl"))
    lab = implicit_finetuning.PRESETS["lab"]
    assert len(lines) >= 2 * lab.max_queries + lab.demonstrations
    assert len({text for text, _ in lines}) == len(lines)
    count = Counter(label for _, label in lines)
    assert count == {"positive": len(lines) / 2, "negative": len(lines) / 2}


def test_the_command_of_the_worked_example_is_let_through(config, small, tmp_path, monkeypatch):
    network = LanguageModel(len(WORDS), 1, 2, 8, positions=10_000)
    monkeypatch.setattr(real_text, "gpt2_network", lambda path, heads: network)
    words = Tokenizer(lambda text: [min(len(word), 20) for word in text.split()], lambda ids: "")
    monkeypatch.setattr(real_text, "load_tokenizer", lambda folder: words)
    (tmp_path / "model.safetensors").write_bytes(b"")
    (command,) = re.findall(r"^\.venv/bin/python -m (.*)$", (ROOT / "docs/gpt2.md").read_text(), re.M)
    monkeypatch.chdir(ROOT)
    said = command.replace("NAME", str(tmp_path)).split()
    chosen, _ = parse_command_line(implicit_finetuning.EXPERIMENT, [*said, f"--outdir={tmp_path / 'out'}"])
    assert chosen.dry_run
