"""GPT-2 with its published weights, asked about the user's own sentences; all from local files."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dai.analysis import Analysis, Subject
from experiments.dai.material import Material, Questions
from icl_lab.lab import constraints
from icl_lab.lab.constraints import holds
from icl_lab.lab.flags import FlagError, setting
from icl_lab.models.gpt2 import END, Tokenizer, gpt2_network, load_gpt2, load_tokenizer
from icl_lab.prompts.encoding import Demonstration

WEIGHTS_AT_ONCE, TOKENS_AT_ONCE = 2**25, 2**12
"""Most weights that fine-tunings in one program move together, and most tokens of prompts."""


@dataclasses.dataclass(frozen=True)
class Files(Analysis):
    """The analysis, and the files that may take the place of the networks of ``pretrain``."""

    gpt2_weights: str = setting("", "local safetensors file: GPT-2 in place of the networks of pretrain", path=True)
    heads: int = setting(
        0, "with it, heads where no config.json beside the file says them; 0: those of the published widths", at_least=0
    )
    tokenizer: str = setting("", "with it, the folder of tokenizer.json, or of vocab.json and merges.txt", path=True)
    examples: str = setting("", 'with it, a file of lines {"text": .., "label": ..}', path=True)
    template: str = setting("Sentence: {text} Label:", "with it, what is asked; the label follows after a space")
    max_queries: int = setting(16, "with it, questions of a split at most", at_least=1)


NEEDED = "GPT-2 needs --tokenizer, --examples and --gpt2_weights"
FILES = (
    holds(f"a local folder; {NEEDED}", "tokenizer", when=lambda c: bool(c.tokenizer) and Path(c.tokenizer).is_dir()),
    holds(f"a local file; {NEEDED}", "examples", when=lambda c: Path(c.examples).is_file()),
    holds("a local file", "gpt2_weights", when=lambda c: Path(c.gpt2_weights).is_file()),
    holds(
        "text with {text} in it and no other placeholder or escape (for a line break put one in, in bash $'\\n'), "
        f"which does not end in a space: one is put before the label, and without {END}",
        "template",  # a shell keeps \n as two characters
        when=lambda c: (
            END not in c.template
            and set(re.findall(r"\{\w*\}|\\[nrt]", c.template)) == {"{text}"}
            and not c.template[-1:].isspace()
        ),
    ),
)


def check_files(config: Files) -> None:
    """Raises FlagError for files that cannot be used; all is read but the weights themselves."""
    constraints.check(config, FILES)
    with _refusing("gpt2_weights", "heads", config=config):
        network = gpt2_network(config.gpt2_weights, config.heads or None)
    material = _own_material(config)
    longest = _longest(material)
    largest = int(max(material.strangers.max(), material.candidates.max(), *material.marks.values()))
    if longest > network.positions:
        raise FlagError(
            f"--demonstrations={config.demonstrations}: allowed are fewer, the longest prompt has {longest} tokens and "
            f"the context of the network {network.positions}"
        )
    if largest >= network.vocabulary:
        raise FlagError(
            f"--tokenizer={config.tokenizer}: allowed is that of --gpt2_weights, whose embedding has "
            f"{network.vocabulary} tokens; it makes token {largest}"
        )


def real_subject(config: Files) -> Subject:
    """GPT-2 and its questions, of files that ``check_files`` lets through.

    Raises:
      FlagError: for weights of an untied output layer.
    """
    with _refusing("gpt2_weights", "heads", config=config):
        network, params = load_gpt2(config.gpt2_weights, config.heads or None)
    material = _own_material(config)
    moved = 2 * network.layers * network.width * (network.width + 1)
    return Subject(
        network, params, material,
        jobs_at_once=max(1, min(config.jobs_at_once, WEIGHTS_AT_ONCE // moved)),
        prompts_at_once=max(1, min(config.prompts_at_once, TOKENS_AT_ONCE // _longest(material))),
        position=config.position,
    )  # fmt: skip


def _own_material(config: Files) -> Material:
    with _refusing("tokenizer", config=config):
        tokenizer = load_tokenizer(config.tokenizer)
        if len(tokenizer.encode(END)) != 1:
            raise ValueError(f"allowed is a vocabulary with {END}")
    with _refusing("examples", config=config):
        return real_material(tokenizer, config)


@contextlib.contextmanager
def _refusing(*flags: str, config: Files) -> Iterator[None]:
    """Says of what is refused which flags it is about."""
    try:
        yield
    except (ValueError, ImportError) as error:
        raise FlagError(f"{', '.join(f'--{flag}={getattr(config, flag)}' for flag in flags)}: {error}") from error


def real_material(tokenizer: Tokenizer, config: Files) -> Material:
    """Sentences from a file, split at random into questions of two splits and what demonstrations are drawn from.

    A sentence is in one of the three, whatever it is repeated as: ``_lines`` has each once.

    Raises:
      ValueError: for a file that cannot be used; the sentence says what is allowed.
    """
    lines = _lines(config.examples)
    labels = sorted({label for _, label in lines})
    answers = {label: tokenizer.encode(f" {label}") for label in labels}
    for label, tokens in answers.items():
        if len(tokens) != 1:
            raise ValueError(f"allowed are labels of one token, {label!r} has {len(tokens)}")
    end = tokenizer.encode(END)
    questions = [tokenizer.encode(config.template.replace("{text}", text)) for text, _ in lines]
    splits = [min(count, config.max_queries) for count in (config.test_queries, config.development_queries)]
    order = np.random.default_rng(config.seed).permutation(len(lines))
    test, development, pool = np.split(order, np.cumsum(splits))
    if len(pool) < config.demonstrations:
        raise ValueError(
            f"allowed are at least {sum(splits) + config.demonstrations} different texts, for "
            f"--max_queries={config.max_queries} in two splits and --demonstrations={config.demonstrations}; "
            f"got {len(lines)}"
        )

    def asked(rows: np.ndarray) -> Questions:
        return Questions([questions[i] for i in rows], np.array([labels.index(lines[i][1]) for i in rows]))

    def drawn(seed: int) -> list[Demonstration]:
        chosen = np.random.default_rng([config.seed, seed]).permutation(pool)[: config.demonstrations]
        return [(questions[i], answers[lines[i][1]][0]) for i in chosen]

    return Material(
        sets=tuple(drawn(seed) for seed in range(1, config.seeds + 1)),
        development=asked(development),
        test=asked(test),
        candidates=np.array([answers[label][0] for label in labels], np.int32),
        marks={"begin": end[0], "end": end[0], "pad": end[0]},  # as in the paper's code, one token begins and ends
        strangers=np.unique(np.concatenate([np.asarray(question, np.int32) for question in questions])),
    )


def _lines(path: str) -> list[tuple[str, str]]:
    """Text and label of every line, without white space around them; of lines with one text the first.

    Raises:
      ValueError: for a line that is no text with a label, holds the end token, or repeats a text with another label;
        with its number.
    """
    entries: dict[str, tuple[str, str, int]] = {}  # by the words of a text
    try:
        read = Path(path).read_text(encoding="utf-8-sig")  # editors of Windows put a byte order mark first
    except UnicodeDecodeError as error:
        raise ValueError(f"allowed is a file of text in UTF-8; {error}") from error
    for number, line in enumerate(read.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text, label = (_words(row[name], kinds) for name, kinds in (("text", str), ("label", str | int)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                'allowed are lines {"text": .., "label": ..} with words in both, or a whole number as label; line '
                f"{number} is not one of these"
            ) from error
        if END in text or END in label:
            raise ValueError(
                f"allowed are texts and labels without {END}, which begins and ends prompts; see line {number}"
            )
        _, before, at = entries.setdefault(" ".join(text.split()), (text, label, number))
        if before != label:
            raise ValueError(
                f"allowed is one label for a text; line {number} says {label!r} of that of line {at}, {before!r}"
            )
    if len({label for _, label, _ in entries.values()}) < 2:
        raise ValueError("allowed are examples of at least two labels")
    return [(text, label) for text, label, _ in entries.values()]


def _words(value: Any, kinds: Any) -> str:
    """A value of these kinds as text.

    Raises:
      ValueError: for one of another kind, or without any words.
    """
    if not isinstance(value, kinds) or isinstance(value, bool) or not str(value).strip():
        raise ValueError(f"no words: {value!r}")
    return str(value).strip()


def _longest(material: Material) -> int:
    """Tokens of the longest prompt, with the label that is read at the position ``code``."""
    contexts = [1 + sum(len(question) + 2 for question, _ in one) for one in material.sets]
    queries = [len(question) for split in (material.development, material.test) for question in split.tokens]
    return max(contexts) + max(queries) + 1
