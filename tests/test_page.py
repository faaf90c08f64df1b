"""The page: complete, self-contained, true to the records; and the menus that lead to it."""

import base64
import contextlib
import dataclasses
import hashlib
import html
import io
import json
import re
import shutil
import string
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toys import made_up

import icl_lab.__main__ as front
from experiments import page
from experiments.binaries import GALLERY, discover
from experiments.page import article
from experiments.page.__main__ import main
from experiments.page.drawing import picture
from experiments.page.reading import once, read
from experiments.page.words import worded
from experiments.papers import ORDER, finding_of, paper_of
from icl_lab.lab import flags, records
from icl_lab.lab.claims import Claim
from icl_lab.lab.execution import draw
from icl_lab.lab.records import Record
from icl_lab.lab.style import panels


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = flags.setting(0, "seed")
    members: int = flags.setting(6, "members", at_least=1)
    word: str = flags.setting("<script>alert(1)</script>", "word")


def curve(record):
    figure, axes = panels(3)
    axes[0, 0].plot(record.arrays["error"])
    return {"curve": figure}


def experiment(name, finding=""):
    def claim(short, verdict, **changes):
        settings = {"expected": 1.0, "tolerance": 0.5, "reason": "a & b", "expected_verdict": {"lab": verdict}}
        statistic = lambda record: record.arrays["error"]  # noqa: E731
        return Claim(f"{name}.{short}", "Toy <1>", "It is <b>one</b>.", statistic, **settings | changes)

    claims = (claim("kept", "holds"), claim("broken", "fails"), claim("bound", "holds", relation=">=", expected=0.9))
    about = f"A curve <i>of</i> {name} (Toy 2020, Fig. 1)."
    return made_up(name, Config(), about=about, figures=curve, claims=claims, finding=finding)


TOYS = {
    "toy.first": experiment("toy.first", "The error is {kept:.1f} <i>of</i> one."),
    "toy.second": experiment("toy.second"),
}
ERRORS = np.array([0.9, 1.0, 1.1, 1.0, 0.95, 1.05])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A gallery of two toys, and its ledger."""
    root = tmp_path_factory.mktemp("gallery")
    ledger = []
    for name, toy in TOYS.items():
        folder = root.joinpath(*name.split("."), "lab")
        config = {"seed": 0, "members": 6, "word": "<script>alert(1)</script>"}
        record = Record(name, "lab", config, {"error": 1.0}, {"error": ERRORS}, {"commit": "0" * 40})
        ledger += [
            row | {"predicted": row["expected_verdict"], "first_verdict": row["verdict"]} for row in toy.judged(record)
        ]
        records.save(record, folder, toy.judged(record))
        draw(toy, record, folder)
    (root / "claims.json").write_text(json.dumps(ledger))
    return root


@pytest.fixture
def gallery(made, tmp_path):
    """A copy of it to spoil."""
    return Path(shutil.copytree(made, tmp_path / "gallery"))


def written(root, out, toys=TOYS, **changes):
    left_out = page.write_page(root, root / "claims.json", out, toys, **changes)
    return left_out, out.read_text()


def test_page_asks_nothing_of_any_network(made, tmp_path):
    left_out, text = written(made, tmp_path / "page.html")
    assert left_out == {}
    links = re.findall(r"<a [^>]*?href=\"([^\"]*)\"", text)
    places = re.findall(r"\b(?:src|href|srcset|action|data|poster)=\"([^\"]*)\"", text)
    assert links
    assert all(re.match(r"#|https://arxiv\.org/abs/", link) for link in links)  # followed by a reader only
    for link in links:
        places.remove(link)
    assert places
    assert all(re.match(r"data:(image/(avif|webp);base64)?,", place) for place in places)
    assert not re.search(r"url\((?!#)|@import|<iframe|<object|<embed", text)
    assert not re.search(r" on\w+=| style=", re.sub(r"<script>.*?</script>", "", text, flags=re.S))


def test_policy_lets_only_this_style_and_this_script_through(made, tmp_path):
    _, text = written(made, tmp_path / "page.html")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    for kind in ("style", "script"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_markup_in_a_record_stays_text(made, tmp_path):
    _, text = written(made, tmp_path / "page.html", failures={"toy.third": "<script>alert(2)"})
    assert "<b>one</b>" not in text
    assert "<i>of</i>" not in text
    assert "<script>alert" not in text
    for said in ("It is <b>one</b>.", "<script>alert(1)</script>", "<script>alert(2)", "Toy <1>", "a & b"):
        assert said in html.unescape(text)


def test_a_record_of_an_earlier_preset_is_left_out_as_from_the_ledger(gallery, tmp_path):
    folder = gallery / "toy" / "first" / "lab"
    record = records.load(folder)
    earlier = dataclasses.replace(record, config=record.config | {"word": "another"})
    records.save(earlier, folder, TOYS["toy.first"].judged(earlier))
    left_out, text = written(gallery, tmp_path / "page.html")
    assert "earlier lab preset" in left_out[str(folder)]
    assert 'data-id="toy.first.kept"' not in text
    assert "toy.second.kept" in text


def test_same_records_give_the_same_bytes(made, tmp_path):
    assert written(made, tmp_path / "a.html")[1] == written(made, tmp_path / "b.html")[1]


def test_page_has_a_section_and_a_picture_of_each_experiment_and_a_row_of_each_claim(made, tmp_path):
    _, text = written(made, tmp_path / "page.html")
    for name, toy in TOYS.items():
        assert text.count(f'<article id="{name}"') == 1
        assert all(text.count(f'<tr id="claim-{claim.id}"') == 1 for claim in toy.claims)
    assert "The error is 1.0 &lt;i&gt;of&lt;/i&gt; one." in text
    assert text.count('<figure class="picture">') == len(TOYS)
    assert len(set(re.findall(r'\bid="([^"]*)"', text))) == len(re.findall(r'\bid="([^"]*)"', text))


def test_only_a_verdict_that_differs_from_the_committed_one_has_a_banner_of_one_line(gallery, tmp_path):
    text = written(gallery, tmp_path / "page.html")[1]
    assert "from the committed" not in text  # toy.first.broken was predicted to fail, and holds in its committed record
    rows = json.loads((gallery / "claims.json").read_text())
    for row in rows:
        if row["id"] == "toy.first.kept":
            row["verdict"] = "fails"
    (gallery / "claims.json").write_text(json.dumps(rows))
    text = written(gallery, tmp_path / "page.html")[1]
    assert "1 verdict differs from the committed one" in text
    assert "<b>toy.first.kept</b>: holds, committed: fails" in text


def test_a_wrong_prediction_is_a_sentence_of_its_own(made, tmp_path):
    text = written(made, tmp_path / "page.html")[1]
    part = text[text.index('id="predicted"') : text.index('id="experiments"')]
    assert part.count("<li>") == 2
    assert "We expected 1 ± 0.5 not to hold; it is" in html.unescape(part)


def test_a_claim_of_two_presets_is_counted_once_at_the_better_one(gallery, tmp_path):
    folder, toy = gallery / "toy" / "first" / "lab", TOYS["toy.first"]
    record = dataclasses.replace(records.load(folder), preset="quick", arrays={"error": 2 * ERRORS})
    before = written(gallery, tmp_path / "before.html")[1]
    records.save(record, folder.with_name("quick"), toy.judged(record))
    text = written(gallery, tmp_path / "page.html")[1]
    assert re.search(r"All (\d+) claims", text)[1] == re.search(r"All (\d+) claims", before)[1] == "6"
    assert text.count('<tr id="claim-toy.first.kept"') == 1
    (row,) = re.findall(r'<tr id="claim-toy.first.kept".*?</tr>', text, re.S)
    assert "At quick: not judged, 2.00" in row


@pytest.mark.parametrize(("verdict", "counts"), [("fails", "fails"), ("not reached", "holds"), ("not judged", "holds")])
def test_a_claim_is_counted_at_the_published_size_where_training_reached_its_criterion(gallery, verdict, counts):
    lab, _ = read([gallery / "toy" / "first" / "lab"], TOYS, {})
    (run,) = lab["toy.first"]
    row = next(row for row in run.rows if row.id == "toy.first.kept")
    at_paper = dataclasses.replace(row, preset="paper", verdict=verdict, estimate="9.00")
    (one,) = once([dataclasses.replace(run, rows=[row]), dataclasses.replace(run, rows=[at_paper])])
    assert (one.verdict, one.preset) == (counts, "paper" if counts == "fails" else "lab")
    other = row if counts == "fails" else at_paper
    assert one.elsewhere == [f"at {other.preset}: {other.verdict}, {other.estimate}"]


def test_an_identity_is_shown_marked_and_not_counted(gallery, tmp_path):
    folder, toy = gallery / "toy" / "first" / "lab", TOYS["toy.first"]
    kept, *others = toy.claims
    toy = dataclasses.replace(toy, claims=(dataclasses.replace(kept, kind="identity"), *others))
    before = written(gallery, tmp_path / "before.html")[1]
    records.replace_claims(folder, toy.judged(records.load(folder)))
    text = written(gallery, tmp_path / "page.html", TOYS | {"toy.first": toy})[1]
    assert re.search(r"All (\d+) claims", before)[1] == "6"
    assert re.search(r"All (\d+) claims", text)[1] == "5"
    (row,) = re.findall(rf'<tr id="claim-{kept.id}".*?</tr>', text, re.S)
    assert "an identity" in row
    assert "an identity" not in before


def test_what_the_paper_prints_is_read_from_the_claim_of_today(made, tmp_path):
    toy = TOYS["toy.first"]
    published, read_off, none = toy.claims
    published = dataclasses.replace(published, published=(0.25, "Table <1>"), falsified_by="an error that is <two>")
    read_off = dataclasses.replace(read_off, published=("about a half", "Fig. 1"))
    toy = dataclasses.replace(toy, claims=(published, read_off, none))
    text = written(made, tmp_path / "page.html", TOYS | {"toy.first": toy})[1]  # of records that are older
    cells = dict(re.findall(r'<tr id="claim-toy\.first\.(\w+)".*?data-label="Published">(.*?)</td>', text, re.S))
    said = {name: html.unescape(cell) for name, cell in cells.items()}
    assert said == {"kept": "0.25, Table <1>", "broken": "about a half, Fig. 1", "bound": "–"}
    assert text.count("had we found an error that is &lt;two&gt;") == 1
    assert "Table &lt;1&gt;" not in written(made, tmp_path / "before.html")[1]


def truncated(folder):
    path = folder / "record.json"
    path.write_bytes(path.read_bytes()[:-20])


def of_another_schema(folder):
    content = json.loads((folder / "record.json").read_text()) | {"schema": 99}
    (folder / "record.json").write_text(json.dumps(content))


def of_no_binary(folder):
    record = records.load(folder)
    records.save(dataclasses.replace(record, experiment="toy.none"), folder, [])


def with_claims_of_another_form(folder):
    records.replace_claims(folder, [{"id": "toy.first.kept"}])


def without_arrays_that_belong(folder):
    (folder / "arrays.npz").write_bytes(b"no arrays")


@pytest.mark.parametrize(
    "spoil", [truncated, of_another_schema, of_no_binary, with_claims_of_another_form, without_arrays_that_belong]
)
def test_record_that_cannot_be_used_is_left_out_and_named(gallery, tmp_path, spoil):
    folder = gallery / "toy" / "first" / "lab"
    spoil(folder)
    left_out, text = written(gallery, tmp_path / "page.html")
    assert set(left_out) == {str(folder), "toy.first"}
    assert html.escape(left_out[str(folder)]).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
    assert "<b>toy.first</b>: no record" in text
    assert '<article id="toy.first"' not in text
    assert '<article id="toy.second"' in text


def test_picture_that_is_none_is_left_out_and_named(gallery, tmp_path):
    path = gallery / "toy" / "first" / "lab" / "curve.png"
    path.write_bytes(path.read_bytes()[:100])
    left_out, text = written(gallery, tmp_path / "page.html")
    assert list(left_out) == [str(path)]
    assert "not a picture" in text
    assert text.count('<figure class="picture">') == 1


@pytest.mark.parametrize("content", [None, "{", '{"a": 1}', "[1]", '[{"id": "a"}]'])
def test_page_without_a_usable_ledger_has_no_numbers_and_says_so(gallery, tmp_path, content):
    ledger = gallery / "claims.json"
    if content is None:
        ledger.unlink()
    else:
        ledger.write_text(content)
    left_out, text = written(gallery, tmp_path / "page.html")
    assert list(left_out) == [str(ledger)]
    assert "The error is – &lt;i&gt;" in text


def test_a_picture_of_one_name_is_shown_once_of_the_best_run(gallery):
    name, toy = next(iter(TOYS.items()))
    best = gallery.joinpath(*name.split("."), "lab")
    shutil.copytree(best, best.with_name("lab-again"))
    best.with_name("lab-again").joinpath("another.png").write_bytes(next(best.glob("*.png")).read_bytes())
    runs, left_out = read([best, best.with_name("lab-again")], {name: toy}, {})
    assert left_out == {}
    first, again = (sorted(path.name for path in run.pictures) for run in runs[name])
    assert first == sorted(path.name for path in best.glob("*.png"))
    assert again == ["another.png"]


def test_pictures_are_made_smaller_until_the_page_is_small_enough(made, tmp_path, monkeypatch):
    _, large = written(made, tmp_path / "large.html")
    monkeypatch.setattr(page, "LARGEST", len(large) - 1000)
    _, small = written(made, tmp_path / "small.html")
    assert len(small) <= len(large) - 1000


@pytest.mark.parametrize(("width", "quality"), [*page.SIZES, (640, None)])
def test_the_pale_bands_of_the_members_are_seen_at_every_size(width, quality):
    path = GALLERY / "reddy" / "data_dependence" / "lab" / "classes.png"
    with Image.open(path) as opened:
        drawn = opened.convert("RGB")
    if quality is None:  # a palette, which takes them for paper
        shown = drawn.resize((width, round(width * drawn.height / drawn.width))).quantize(6, dither=0)
    else:
        shown = Image.open(io.BytesIO(base64.b64decode(picture(path, width, quality).uri.split(",")[1])))
    asked = np.asarray(drawn.resize(shown.size), float)
    tint, there = np.ptp(asked, axis=-1), np.ptp(np.asarray(shown.convert("RGB"), float), axis=-1)
    pale = (asked.mean(-1) > 200) & (tint > 20) & (tint < 60)
    assert pale.sum() > 1_000
    assert (there[pale] > tint[pale] / 2).mean() > 0.8 or quality is None
    assert (there[pale] > tint[pale] / 2).mean() < 0.2 or quality is not None


def test_command_names_what_is_left_out_and_refuses_a_folder_without_records(gallery, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.page.__main__.discover", lambda: TOYS)
    truncated(gallery / "toy" / "first" / "lab")
    out = tmp_path / "new" / "page.html"
    assert main(["page", f"--records={gallery}", f"--out={out}"]) == 0
    said = capsys.readouterr()
    assert "record.json differs from its own digest" in said.err or "cannot be read" in said.err
    assert f"page: {out}" in said.out
    assert main(["page", f"--records={tmp_path / 'none'}"]) == 2
    assert "allowed is a folder with records" in capsys.readouterr().err


# What is committed


@pytest.fixture(scope="module")
def binaries():
    return discover()


class Claims(dict):
    """The committed ledger, in which a claim that no binary has is an error; newer claims have no estimate yet."""

    def __init__(self, binaries):
        rows = json.loads((GALLERY / "claims.json").read_text())
        super().__init__({(row["id"], row["preset"]): row for row in rows})
        self.ids = {claim.id for found in binaries.values() for claim in found.claims}

    def get(self, key, default=None):
        if key[0] not in self.ids:
            raise KeyError(key[0])
        return super().get(key, default)


def fields(sentence):
    return [field for _, field, _, _ in string.Formatter().parse(sentence) if field]


@pytest.fixture(scope="module")
def ledger(binaries):
    return Claims(binaries)


def test_every_binary_says_in_two_sentences_what_it_found_with_a_number_of_the_ledger(binaries, ledger):
    recorded = {name for name in binaries if any(id.startswith(f"{name}.") for id, _ in ledger)}
    assert len(recorded) >= 37
    for name in recorded:
        found = finding_of(binaries[name])
        assert fields(found), name
        assert 1 <= len(re.findall(r"[.!?](?= [A-Z]|$)", worded(found, name, ledger))) <= 2, name


def test_every_paper_has_a_question_and_an_answer_with_a_number_of_the_ledger(binaries, ledger):
    assert {name.split(".")[0] for name in binaries} >= {*ORDER}
    for paper in map(paper_of, ORDER):
        assert paper.question.endswith("?")
        assert fields(paper.answer)
        answer = worded(paper.answer, paper.key, ledger)
        assert answer.endswith(".")
        assert "–" not in answer


def test_every_sentence_of_the_article_has_its_claims_in_the_ledger(binaries, ledger):
    for part in article.written()["sections"]:
        assert "–" not in worded(part["text"], part["paper"], ledger)
        assert part["experiment"] in binaries
        assert {*part["claims"]} <= ledger.ids
    assert {row["claim"] for row in article.written()["differs"]} <= ledger.ids
    assert len(article.written()["differs"]) == 12
    assert len(article.written()["context"].split()) <= 120


def test_every_committed_picture_of_a_paper_has_a_caption():
    committed = {path.relative_to(GALLERY).with_suffix("").parts for path in GALLERY.glob("*/*/*/[!.]*.png")}
    pictures = {f"{paper}/{figure}/{picture}" for paper, figure, _, picture in committed if paper in ORDER}
    assert pictures <= {f"{key}/{name}" for key in ORDER for name in paper_of(key).captions}


def test_an_unknown_claim_in_a_sentence_is_an_error_here(ledger):
    with pytest.raises(KeyError, match="nonsense"):
        worded("{nonsense}", "von_oswald.one_step", ledger)


# Menus


def test_first_screen_has_the_title_and_commands_of_the_readme_and_every_experiment(binaries):
    with contextlib.redirect_stdout(io.StringIO()) as captured:
        front.main()
    said = captured.getvalue()
    readme = (GALLERY.parent / "README.md").read_text()
    assert said.startswith(readme.splitlines()[0].lstrip("# "))
    assert "  make reproduce" in said
    assert set(front.experiments()) == set(binaries)
    assert all(f"  {name.split('.')[1]} " in said for name in binaries)
    assert all(len(line) <= 100 for line in said[said.index("experiments.dai") :].splitlines())


def test_first_screen_refuses_a_readme_without_commands():
    with pytest.raises(ValueError, match="commands"):
        front.first_screen("# Title\n\nA paragraph.\n")


def test_make_help_names_every_target():
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    root = GALLERY.parent
    said = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(), re.M)
    assert set(re.findall(r"^  make ([a-z-]+) +\S", said, re.M)) == set(phony.split()) - {"help", "force"}
