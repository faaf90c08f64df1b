"""Figures as they are printed: sizes, legends, what is alike in grey; and how the gallery draws them anew."""

import shutil

import numpy as np
import pytest
from printable import faults
from toys import Config, made_up

from experiments.binaries import GALLERY, discover
from experiments.tools.redrawing import lead_of, redraw
from icl_lab.lab import records
from icl_lab.lab.execution import execute
from icl_lab.lab.layout import WIDTHS, finish
from icl_lab.lab.quantities import quantity
from icl_lab.lab.style import panels, styled

X = np.linspace(0, 1, 50)
COMMITTED = (
    "dai/momentum_tasks/lab",
    "reddy/curriculum/lab",
    "von_oswald/noisy_labels/lab",
    "zhang_frei_bartlett/dense_starts/lab",
)
"""Records whose figures take little time, of each paper one; ``sketched`` lays out those of every binary."""


@pytest.fixture(autouse=True)
def style():
    with styled():
        yield


def legends(figure):
    finish(figure)
    own = [
        [text.get_text() for text in axes.get_legend().get_texts()] if axes.get_legend() else [] for axes in figure.axes
    ]
    return own, [text.get_text() for legend in figure.legends for text in legend.get_texts()]


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (2, 1), (3, 2), (4, 1), (5, 2), (4, 4), (7, 1)])
def test_at_most_three_panels_stand_in_a_row(columns, rows):
    figure, axes = panels(columns, rows)
    assert axes.shape == (rows, columns)
    places = {(place.rowspan.start, place.colspan.start) for place in (one.get_subplotspec() for one in axes.flat)}
    assert len(places) == axes.size
    across = 1 + max(column for _, column in places)
    assert across <= 3
    assert figure.get_figwidth() == WIDTHS[across]


def test_what_several_panels_share_has_one_legend():
    figure, (row,) = panels(3)
    for i, axes in enumerate(row):
        axes.plot(X, X, color="black", label="theory")
        axes.plot(X, X**2, color="red", linestyle=("--", "-.", ":")[i], label=f"own {i}")
        axes.legend()
    own, shared = legends(figure)
    assert shared == ["theory"]
    assert own == [["own 0"], ["own 1"], ["own 2"]]


def test_a_look_of_two_meanings_stays_in_its_panels():
    figure, (row,) = panels(2)
    for axes, label in zip(row, ("one", "other")):
        axes.plot(X, X, color="black", label=label)
        axes.plot(X, 1 - X, color="red", linestyle=":", label="both")
        axes.legend()
    assert legends(figure) == ([["one", "both"], ["other", "both"]], [])


def test_a_legend_that_would_cover_data_stands_above_its_panel():
    figure, ((axes,),) = panels(1)
    axes.plot(X, np.random.default_rng(0).uniform(size=(50, 9)), color="black", label=None)
    axes.lines[0].set_label("noise")
    axes.legend(loc="center")
    assert any("covers" in fault for fault in faults_as_they_are(figure))
    finish(figure)
    assert axes.get_legend().get_window_extent().y0 >= axes.bbox.y1 - 1
    assert faults(figure) == []


def faults_as_they_are(figure):
    """Of a figure that is laid out by matplotlib alone."""
    figure.get_layout_engine().execute(figure)
    engine = figure.get_layout_engine()
    figure.set_layout_engine(None)
    found = faults(figure)
    figure.set_layout_engine(engine)
    return found


def test_marks_of_a_legend_stand_where_none_is_taken_for_data():
    figure, (row,) = panels(2)
    for axes in row:
        axes.plot(X, X, color="black", label="a line of its own" if axes is row[0] else None)
    row[1].plot([0.1], [0.1], linestyle="", marker="o", label="a mark")
    for axes in row:
        axes.legend(loc="upper left")
    finish(figure)
    for axes in row:  # the other of the row, whose line covers nothing, stands beside it
        assert axes.get_legend().get_window_extent().y0 >= axes.bbox.y1 - 1


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [np.nan]])
def test_nothing_positive_on_a_logarithm_is_drawn_all_the_same(values):
    figure, (axes,) = panels(2)
    for one in axes:
        one.set_yscale("log")
    axes[0].plot(range(len(values)), values, "o")
    axes[1].plot(X, X + 1)
    finish(figure)
    figure.canvas.draw()
    assert axes[0].get_yscale() == "linear"
    assert axes[1].get_yscale() == "log"


def test_panels_have_letters_and_titles_that_fit():
    figure, (row,) = panels(3)
    for axes in row:
        axes.set_title("a title that is much longer than the panel below it is wide")
    finish(figure)
    assert [axes.get_title(loc="left")[9] for axes in row] == ["a", "b", "c"]
    assert all("\n" in axes.get_title(loc="left") for axes in row)
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("fault", "draw"),
    [
        ("nothing but colour", lambda axes: [axes.plot(X, X + c, color=f"C{c}", label=f"{c}") for c in range(2)]),
        ("letters of 5 pt", lambda axes: axes.text(0.5, 0.5, "small", fontsize=5)),
        ("run into one another", lambda axes: axes.set_xticks(X, [f"{x:.4f}" for x in X])),
        ("nothing says what the bars", lambda axes: axes.errorbar(X[:2], X[:2], X[:2])),
        ("does not fit", lambda axes: axes.figure.text(1.1, 0.5, "far")),
    ],
)
def test_faults_are_found(fault, draw):
    figure, ((axes,),) = panels(1)
    draw(axes)
    assert any(fault in found for found in faults(figure))


@pytest.mark.parametrize("titled", [1, 2])
def test_one_of_several_panels_without_a_title_is_a_fault(titled):
    figure, (row,) = panels(2)
    for axes in row[:titled]:
        axes.set_title("its title")
    assert faults(figure) == ["has a panel without a title"] * (titled < 2)


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_figures_can_be_printed_as_they_are(name):
    record = records.load(GALLERY / name)
    figures = discover()[record.experiment].figures(record)
    assert [f"{key}: {fault}" for key, figure in figures.items() for fault in faults(figure)] == []


LEADS = {f"{name.replace('.', '/')}/lab/{lead}" for name in discover() if (lead := lead_of(name))}
"""Of every paper, and of every section of the article."""


def test_every_lead_figure_and_no_other_is_kept_as_svg_beside_its_png():
    kept = {str(path.relative_to(GALLERY).with_suffix("")) for path in GALLERY.glob("*/*/*/*.svg")}
    assert kept == LEADS
    for lead in LEADS:
        assert (GALLERY / lead).with_suffix(".png").exists()
        assert (GALLERY / lead).with_suffix(".svg").stat().st_size < 300_000


def test_a_lead_figure_drawn_again_is_the_same_bytes(tmp_path):
    name = min(LEADS, key=lambda lead: (GALLERY / lead).with_suffix(".svg").stat().st_size)
    for kept in sorted((GALLERY / name).parent.glob("[!.]*.*")):
        if kept.suffix != ".png":
            shutil.copy(kept, tmp_path)
    experiment = discover()[records.load(tmp_path).experiment]
    drawn = []
    for _ in range(2):
        redraw(experiment, tmp_path)
        drawn.append((tmp_path / name.rpartition("/")[2]).with_suffix(".svg").read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0] == (GALLERY / name).with_suffix(".svg").read_bytes()


def test_the_gallery_draws_its_pictures_anew_and_changes_nothing_else(tmp_path):
    values = quantity("values", "member")

    def measured(config, fits):
        yield values, np.arange(config.members, dtype=float)

    def figures(record):
        figure, axes = panels(1)
        axes[0, 0].plot(values(record))
        return {"values": figure}

    experiment = made_up("toy.fine", Config(), measured, (values,), figures=figures)
    folder = tmp_path / "toy" / "fine" / "lab"
    execute(experiment, "lab", Config(), folder)
    redraw(experiment, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".pdf"}
    (folder / "values.png").write_bytes(b"an older drawing")
    (folder / "former.png").write_bytes(b"of a figure that is no more")
    (folder / "values.pdf").unlink(missing_ok=True)
    redraw(experiment, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    younger = quantity("younger", "member")
    of_today = made_up(
        "toy.fine", Config(), measured, (values, younger), figures=lambda record: {"at": younger(record)}
    )
    assert "younger" in redraw(of_today, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    (folder / "arrays.npz").unlink()
    assert "arrays are not kept" in redraw(experiment, folder)
