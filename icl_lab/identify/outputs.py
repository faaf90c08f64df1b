"""Several outputs: each is identified by itself, with the labels of the others zero; one answer, or mixed."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from icl_lab.identify.decision import Member
from icl_lab.identify.report import Identified, verdict_of
from icl_lab.prompts.prompt import Sample, Sampler


def sizes_of(sampler: Sampler, seed: int) -> tuple[int, int, int]:
    """(N, D, O) of the prompts of a sampler; O is 1 where labels are not what ``battery`` allows, which then says so.

    Raises:
      ValueError: for one that draws no samples, or no inputs (B, N, D).
    """
    sample = sampler(jax.random.key(seed), 2048) if callable(sampler) else sampler
    if not (callable(sampler) and isinstance(sample, Sample)):
        raise ValueError(f"sampler must be a function (key, batch) -> Sample, got {type(sample).__name__}")
    x, y = (np.shape(part) for part in (sample.prompt.x, sample.prompt.y))
    if len(x) != 3:
        raise ValueError(f"sampler: prompts must be x (B, N, D), got {x}")
    return x[1], x[2], max(y[2], 1) if len(y) == 3 else 1


def one_output(sampler: Sampler | None, channel: int, outputs: int) -> Sampler | None:
    """The sampler with one of its outputs, and the part of the tasks (B, D, O) that belongs to it."""
    if sampler is None or outputs == 1:
        return sampler

    def draw(key: Any, batch: int) -> Sample:
        sample, part = sampler(key, batch), slice(channel, channel + 1)
        prompt = dataclasses.replace(sample.prompt, y=sample.prompt.y[:, :, part])
        latent = dict(sample.latent)
        if "w" in latent and getattr(latent["w"], "ndim", 0) == 3:
            latent["w"] = latent["w"][:, :, part]
        return dataclasses.replace(sample, prompt=prompt, target=sample.target[..., part], latent=latent)

    return draw


def combined(every: Sequence[Identified], order: Iterable[str]) -> Identified:
    """One answer of all outputs, which it holds. The filter, structure and units are those of the first output."""
    rows = [_one_row(rows) for rows in zip(*(one.members for one in every))]
    verdict, family = verdict_of(rows, order)
    return dataclasses.replace(
        every[0], verdict=verdict, family=family, members=rows, judged=None, outputs=tuple(every)
    )


def _one_row(rows: Sequence[Member]) -> Member:
    """A member's row: of its worst output where all share a name (or a refusal), else ``mixed`` with what they are."""
    worst = max(rows, key=lambda row: row.residual)
    if any(row.verdict != "identified" for row in rows):
        if len({row.verdict for row in rows}) == 1:
            return worst
    elif shared := [name for name in worst.equals if all(name in row.equals for row in rows)]:
        stability = min(row.stability for row in rows)
        return dataclasses.replace(worst, family=shared[0], equals=tuple(shared), stability=stability)
    reason = "; ".join(f"output {k}: {row.family or row.verdict}" for k, row in enumerate(rows))
    return dataclasses.replace(
        worst, verdict="mixed", family=None, equals=(), steps=None, parameters={}, intervals={}, gain=None,
        reason=reason, stability=0.0,
    )  # fmt: skip
