"""Checks the committed ledger against itself, the records and the texts, with numpy and scipy alone.

    python experiments/tools/audit.py [FOLDER]     (or: make audit)

It imports nothing of this laboratory: every formula is written here again. A line is printed for each disagreement;
the status is 1 if there is one. Checked are

- estimate, interval and verdict of each row of ``figures/claims.json`` that has the values of its members;
- the digests of every record below ``figures/``, and that its rows are those of the ledger;
- the values by member of headline claims, from the arrays of their records;
- the counts in README.md and docs/trust.md;
- every number of a text that names its claim in a comment behind it: ``0.18 % ± 0.03 %<!-- is: ID -->``. ``ID@paper``
  is of the preset paper, not lab; ``ID less 1`` what a ratio has beyond one; ``minus ID`` has the other sign.
"""

import hashlib
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy import stats

NOT_JUDGED, NOT_REACHED = "not judged", "not reached"
VERDICTS = ("holds", "fails", "not resolved", NOT_REACHED)
TEXTS = ("README.md", "docs/*.md", "docs/dev/*.md", "experiments/*/README.md", "experiments/*/CORRECTIONS.md")
PLACES = {"paper": 1, "lab": 0}
"""A claim that is judged at both presets counts once: at paper, unless only lab was run to its end."""


class Folder:
    """Files below a folder; some of them as if they had other bytes."""

    def __init__(self, root: Path, changed: Mapping[str, bytes] | None = None) -> None:
        self.root, self.changed = root, dict(changed or {})

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return self.changed[name] if name in self.changed else (self.root / name).read_bytes()

    def names(self, pattern: str) -> list[str]:
        """Names of the files that match a pattern, in order."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern))


def audit(folder: Folder) -> Iterator[str]:
    """A line for each disagreement."""
    rows = json.loads(folder.read("figures/claims.json"))
    for row in rows:
        yield from check_row(row)
    yield from check_records(folder, rows)
    yield from check_headlines(folder, rows)
    yield from check_counts(folder, rows)
    for pattern in TEXTS:
        for name in folder.names(pattern):
            yield from check_text(name, folder.read(name).decode(), rows)


# Estimates, intervals, verdicts


def interval_of(kind: str, values: np.ndarray) -> tuple[float, float, float]:
    """Estimate and ends of the 95 % interval: of a mean (t), a median, a share (wilson), or one exact value."""
    size = values.size
    if kind == "exact":
        return float(values[0]), float(values[0]), float(values[0])
    if kind == "wilson":
        ends = stats.binomtest(int(values.sum()), size).proportion_ci(0.95, "wilson")
        return float(values.mean()), float(ends.low), float(ends.high)
    below = [k for k in range(1, size // 2 + 1) if 2 * stats.binom.cdf(k - 1, size, 0.5) < 0.05]
    ordered = np.sort(values)
    middle = (ordered[below[-1] - 1], ordered[-below[-1]]) if below else (-math.inf, math.inf)
    if kind == "median":
        return float(np.median(values)), float(middle[0]), float(middle[1])
    mean = float(values.mean())
    if size < 2:
        return mean, -math.inf, math.inf
    if not np.isfinite(values).all():  # the open side is where members are infinite
        low = -math.inf if (values == -math.inf).any() else middle[0]
        return mean, float(low), float(math.inf if (values == math.inf).any() else middle[1])
    half = stats.t.ppf(0.975, size - 1) * stats.sem(values)
    return mean, float(mean - half), float(mean + half)


def bounds_of(row: Mapping) -> tuple[float, float]:
    """The bounds of a claim, from its expectation and tolerance."""
    low = -math.inf if row["relation"] == "<=" else row["expected"] - row["tolerance"]
    high = math.inf if row["relation"] == ">=" else row["expected"] + row["tolerance"]
    return low, high


def verdict_of(row: Mapping, values: np.ndarray | None, low: float, high: float) -> str:
    """The verdict of an interval; ``values`` None: of a record that keeps no values of members."""
    least, greatest = bounds_of(row)
    if row["expected_verdict"] is None:
        return NOT_JUDGED
    if not row.get("converged", row["verdict"] != NOT_REACHED):  # older rows do not say it
        return NOT_REACHED
    if values is not None and values.size < row["fewest_members"]:
        return "not resolved"
    if least <= low and high <= greatest:
        return "holds"
    all_beyond = values is not None and ((values < least).all() or (values > greatest).all())
    if high < least or low > greatest or (all_beyond and row["interval_kind"] != "wilson"):
        return "fails"
    return "not resolved"


def number(value: float | None, otherwise: float) -> float:
    """The number, or what its null stands for."""
    return otherwise if value is None else value


def near(value: float | None, other: float, scale: float = 0.0) -> bool:
    """Whether two numbers agree to rounding; None stands for what is not finite."""
    if value is None:
        return not math.isfinite(other)
    return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12 + 1e-9 * scale)


def check_row(row: Mapping) -> Iterator[str]:
    """Estimate, interval, bounds and verdict of a row, from the values of its members."""
    name = f"figures/claims.json: {row['id']} at {row['preset']}"
    ends = number(row["interval"][0], -math.inf), number(row["interval"][1], math.inf)
    if row.get("values") is None:
        if row["verdict"] not in (NOT_JUDGED, verdict := verdict_of(row, None, *ends)):
            yield f"{name}: verdict {row['verdict']}, its interval says {verdict}"
        return
    values = np.array(row["values"], float)
    if values.size != row["members"]:
        yield f"{name}: {row['members']} members, {values.size} values"
    if not all(near(said, bound) for said, bound in zip(row["region"], bounds_of(row))):
        yield f"{name}: bounds {row['region']}, expectation and tolerance say {bounds_of(row)}"
    if values.size:
        estimate, low, high = interval_of(row["interval_kind"], values)
        low, high = low - row["half_step"], high + row["half_step"]
        scale = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        said = (row["estimate"], *row["interval"])
        if not all(near(word, value, scale) for word, value in zip(said, (estimate, low, high))):
            yield f"{name}: {said}, the values of its members give {(estimate, low, high)}"
        ends = low, high
    if row["verdict"] != (verdict := verdict_of(row, values, *ends)):
        yield f"{name}: verdict {row['verdict']}, the values of its members give {verdict}"


# Records


def check_records(folder: Folder, rows: list[Mapping]) -> Iterator[str]:
    """Digests of every record, and whether its rows are those of the ledger."""
    ledger = {(row["id"], row["preset"]): row for row in rows}
    for path in folder.names("figures/**/record.json"):
        record = path.removesuffix("/record.json")
        content, config = (json.loads(folder.read(name)) for name in (path, f"{record}/config.json"))
        digests = content.pop("digest"), content["config"]
        for name, value, sealed in zip(("record", "config"), (content, config), digests):
            if sealed != hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest():
                yield f"{record}/{name}.json: differs from the digest in record.json"
        for name in ("arrays", "params"):
            for file in folder.names(f"{record}/{name}.npz"):  # none where a gallery does not keep it
                if hashlib.sha256(folder.read(file)).hexdigest() != content[name]:
                    yield f"{file}: differs from the digest in record.json"
        if record.split("/")[-1] in PLACES:
            for row in content["claims"]:
                in_ledger = ledger.get((row["id"], row["preset"]), row)
                if different := [name for name in row if name in in_ledger and row[name] != in_ledger[name]]:
                    yield f"{path}: {row['id']} differs from figures/claims.json in {', '.join(different)}"


# Headline claims, from arrays

HEADLINES = {
    "correlated.effective_length.collapse_40": lambda a: a["equal_40/error"] / a["equal_10/error"],
    "correlated.online.gain_08": lambda a: a["momentum_0.8/error"] / a["delta_0.8/error"],
    "depth.looped.free_2_error": lambda a: a["free_2/trained"] / a["free_2/free"],
    "depth.looped.looped_2_error": lambda a: a["looped_2/trained"] / a["looped_2/looped"],
    "depth.scaling.zeros_4": lambda a: a["zeros_4/trained"] / a["zeros_4/tied"],
    "online.delta_rule.ratio_10": lambda a: a["error_10/delta_10"] / a["error_10/linear_10"],
    "von_oswald.layer_norm.one_above": lambda a: a["looped_1/final/trained"] / a["looped_1/final/gd"],
    "von_oswald.multi_step.looped_2_beats_gd": lambda a: a["looped_2/final/trained"] / a["looped_2/final/gd"],
    "von_oswald.multi_step.looped_2_cosine": lambda a: a["looped_2/gd++_sensitivity_cosine"][:, -1],
    "von_oswald.noisy_labels_retrained.beats_gd": lambda a: a["final/trained"][0] / a["final/gd"][0],
    "von_oswald.one_step.cosine": lambda a: a["gd_sensitivity_cosine"][:, -1],
    "von_oswald.one_step.trained_excess": lambda a: a["final/trained"] / a["final/gd"] - 1,
    "von_oswald.roll_out.level": lambda a: np.nan_to_num(a["damping_0.75/trained"][:, -1], nan=np.inf, posinf=np.inf),
    "von_oswald.separate_tokens.by_hand": lambda a: a["hand_built_difference"],
    "von_oswald.softmax.one_head_above": lambda a: a["heads_1/final/trained"] / a["heads_1/final/gd"] - 1,
    "von_oswald.task_sets.few_cosine": lambda a: a["tasks_128/gd_sensitivity_cosine"][:, -1],
    "von_oswald.task_sets.few_overfit": lambda a: a["tasks_128/final/trained"],
    "von_oswald.weight_maps.a_1": lambda a: off_over_on(a["looped_1/trained/a"][:, :-1, :-1]),
    "zhang_frei_bartlett.gradient_flow.flow_limit": lambda a: a["flow/gap"],
    "zhang_frei_bartlett.staircase.time_2": lambda a: a["predicted_halves"][:, 1] / a["halves"][:, 1],
}
"""Values by member from the arrays at lab."""


def off_over_on(matrices: np.ndarray) -> np.ndarray:
    """(M,) root mean square of the entries off the diagonal over the mean size of those on it."""
    on = np.eye(matrices.shape[-1], dtype=bool)
    matrices = matrices.astype(float)
    return np.sqrt((matrices[:, ~on] ** 2).mean(axis=1)) / np.abs(matrices[:, on]).mean(axis=1)


def check_headlines(folder: Folder, rows: list[Mapping]) -> Iterator[str]:
    """Values by member of headline claims, from the arrays of the lab records."""
    ledger = {row["id"]: row for row in rows if row["preset"] == "lab"}
    for claim, formula in HEADLINES.items():
        paper, figure, _ = claim.split(".", 2)
        arrays = np.load(io.BytesIO(folder.read(f"figures/{paper}/{figure}/lab/arrays.npz")), allow_pickle=False)
        values = np.asarray(formula(arrays), float)
        said = np.array(ledger[claim]["values"], float)
        values = values[~np.isnan(values)]
        if values.shape != said.shape or not np.allclose(values, said, rtol=1e-5, atol=1e-7):
            yield f"figures/{paper}/{figure}/lab: {claim}: the arrays give {values}, the ledger says {said}"


# Texts


def counted(rows: list[Mapping]) -> dict[str, dict[str, int]]:
    """Verdicts by paper, each claim once; identities are not counted."""
    chosen: dict[str, Mapping] = {}
    for row in sorted(rows, key=lambda row: PLACES[row["preset"]]):
        counts_at_all = row["verdict"] != NOT_JUDGED and row["kind"] != "identity"
        if counts_at_all and (row["verdict"] != NOT_REACHED or row["id"] not in chosen):
            chosen[row["id"]] = row
    counts: dict[str, dict[str, int]] = {}
    for claim, row in chosen.items():
        paper = counts.setdefault(claim.split(".")[0], dict.fromkeys(VERDICTS, 0))
        paper[row["verdict"]] += 1
    return counts


def check_counts(folder: Folder, rows: list[Mapping]) -> Iterator[str]:
    """The table of README.md, and the sentence on predictions in docs/trust.md."""
    table = re.findall(r"^\| \[(\w+)\]\([^)]*\) \|([ \d|]+)\|$", folder.read("README.md").decode(), re.M)
    said = {paper: dict(zip(VERDICTS, map(int, cells.split("|")))) for paper, cells in table}
    for paper, counts in counted(rows).items():
        if said.get(paper) != counts:
            yield f"README.md: {paper}: {said.get(paper)}, the ledger says {counts}"
    judged = [row for row in rows if row["verdict"] != NOT_JUDGED and row["kind"] != "identity"]
    predicted = [row for row in judged if row["predicted"]]
    right = sum(row["predicted"] == row["first_verdict"] for row in predicted)
    words = " ".join(folder.read("docs/trust.md").decode().split())
    numbers = re.findall(r"Of (\d+) judged claims (\d+) have a prediction. The first record of (\d+) came", words)
    if [tuple(map(int, groups)) for groups in numbers] != [(len(judged), len(predicted), right)]:
        yield f"docs/trust.md: {numbers}, the ledger says {(len(judged), len(predicted), right)}"


PRINTED = r"[-−+]?\d[\d,]*\.?\d*"
MARKED = re.compile(
    rf"(?P<estimate>{PRINTED})(?P<percent>\s%)?"
    rf"(?:\s+\[(?P<low>{PRINTED})(?:\s%)?,\s+(?P<high>{PRINTED})(?:\s%)?\]|\s±\s(?P<half>{PRINTED})(?:\s%)?)?"
    r"<!-- is: (?P<minus>minus )?(?P<claim>[\w.+-]+)(?:@(?P<preset>\w+))?(?P<less> less 1)? -->"
)


def check_text(name: str, text: str, rows: list[Mapping]) -> Iterator[str]:
    """Every number that names its claim, to the digits that are printed."""
    found = list(MARKED.finditer(text))
    if len(found) != text.count("<!-- is: "):
        yield f"{name}: a comment 'is:' stands behind no number, or is misspelt"
    ledger = {(row["id"], row["preset"]): row for row in rows}
    for match in found:
        row = ledger.get((match["claim"], match["preset"] or "lab"))
        if row is None or row["estimate"] is None:
            yield f"{name}: {match[0]}: no such claim has an estimate"
            continue
        sign, scale = (-1 if match["minus"] else 1), (100 if match["percent"] else 1)
        estimate, low, high = (
            scale * (sign * number(value, math.nan) - (1 if match["less"] else 0))
            for value in (row["estimate"], *row["interval"][::sign])
        )
        told = {"estimate": estimate, "low": low, "high": high, "half": (high - low) / 2}
        if wrong := [part for part, value in told.items() if match[part] and not says(match[part], value)]:
            yield f"{name}: {match[0]}: {', '.join(f'{part} is {told[part]:.6g}' for part in wrong)}"


def says(words: str, value: float) -> bool:
    """Whether a printed number is the value, rounded to its digits."""
    digits = len(words.partition(".")[2])
    return abs(float(words.replace("−", "-").replace(",", "")) - value) <= 0.5 * 10.0**-digits + 1e-9


def main(words: list[str]) -> int:
    """Prints the disagreements; the status is 1 if there is one."""
    lines = list(audit(Folder(Path(words[0] if words else "."))))
    print("\n".join(lines or ["the ledger, the records and the texts agree"]))
    return min(len(lines), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
