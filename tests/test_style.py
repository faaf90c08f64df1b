import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from icl_lab.lab import style
from icl_lab.lab.style import LEARNERS, band, heat_map, panels, save, styled

X = np.arange(4.0)


def figure(members):
    with styled():
        drawn, axes = panels(2)
        band(axes[0, 0], X, members, "trained")
        image = heat_map(axes[0, 1], members[:, :3], 1.0, "a map")
        drawn.colorbar(image)
        axes[0, 0].legend()
    return drawn


def written(folder, members):
    with styled():
        return {
            path.suffix: path.read_bytes() for path in save(figure(members), folder / "figure", "a caption", svg=True)
        }


def test_the_same_figure_is_the_same_bytes(tmp_path, monkeypatch):
    members = np.random.default_rng(0).normal(size=(5, 4))
    first = written(tmp_path, members)
    monkeypatch.setattr("time.time", lambda: 2e9)  # what a PDF would otherwise say of its creation
    assert written(tmp_path, members) == first
    assert set(first) == {".png", ".pdf", ".svg"}
    assert b"CreationDate" not in first[".pdf"]
    assert b"date>" not in first[".svg"]
    assert b"<text" not in first[".svg"]  # letters are paths: they print alike without the font
    other = written(tmp_path, members + 1)
    assert all(other[suffix] != first[suffix] for suffix in first)


def test_a_long_caption_does_not_widen_the_picture(tmp_path):
    said = "a.binary · preset paper with members=3, steps=60000, grid=(0.0, 0.7) and more settings · 3 members · seed 0"
    with styled():
        single, axes = panels(1)
        band(axes[0, 0], X, np.ones((2, 4)))
        (png,) = save(single, tmp_path / "figure", said, pdf=False)
    height, width, _ = mpl.image.imread(png).shape
    assert width <= style.DPI * single.get_figwidth() + 1
    assert height > style.DPI * single.get_figheight()


def drawn(members):
    _, axes = panels(1)
    band(axes[0, 0], X, members, "gd")
    (line,), (area,) = axes[0, 0].lines, axes[0, 0].collections
    return line.get_xdata(), line.get_ydata(), area


def test_a_band_is_median_and_deciles():
    members = np.arange(11.0)[:, None] + np.zeros((1, 4))
    x, y, area = drawn(members)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, [5.0] * 4)
    np.testing.assert_allclose(
        [area.get_datalim(area.axes.transData).y0, area.get_datalim(area.axes.transData).y1], [1, 9]
    )


def test_a_slim_svg_draws_the_same_to_a_hundredth_of_a_point(tmp_path, monkeypatch):
    members = np.random.default_rng(0).normal(size=(5, 4))
    slim = written(tmp_path, members)[".svg"]
    monkeypatch.setattr(style, "slimmed", lambda svg: svg)
    whole = written(tmp_path, members)[".svg"]
    assert len(slim) < len(whole)
    one, other = (list(ElementTree.fromstring(svg).iter()) for svg in (slim, whole))
    assert [element.tag for element in one] == [element.tag for element in other]
    numbers = ([float(n) for e in of for n in re.findall(r"-?\d+\.?\d*", e.get("d", ""))] for of in (one, other))
    np.testing.assert_allclose(*numbers, atol=0.01)


@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_a_band_leaves_out_what_is_not_finite(gap):
    members = np.ones((3, 4))
    members[:, 1] = gap  # no member has a value
    members[1, 2] = gap  # one has none
    x, y, _ = drawn(members)
    np.testing.assert_array_equal(x, [0, 2, 3])
    np.testing.assert_array_equal(y, [1, 1, 1])
    x, _, _ = drawn(np.full((3, 4), gap))
    assert x.size == 0


def test_the_style_stays_inside_its_block():
    before = dict(mpl.rcParams)
    with styled():
        assert mpl.rcParams["axes.grid"]
    assert dict(mpl.rcParams) == before


def test_learners_differ_without_colour():
    assert len({str(learner["linestyle"]) for learner in LEARNERS.values()}) == len(LEARNERS)
    assert len({learner["marker"] for learner in LEARNERS.values()}) == len(LEARNERS)


def test_a_map_has_a_symmetric_scale():
    _, axes = panels(1)
    assert heat_map(axes[0, 0], np.eye(3), 0.5, "a map").get_clim() == (-0.5, 0.5)


VALUES = np.ones((3, 4))
WRONG = [
    ("learner", lambda axes: band(axes, X, VALUES, "Bayes")),
    ("learner", lambda axes: band(axes, X, VALUES, 3)),
    ("members", lambda axes: band(axes, X[:3], VALUES)),
    ("members", lambda axes: band(axes, X, VALUES[0])),
    ("members", lambda axes: band(axes, X, VALUES[None])),
    ("members", lambda axes: band(axes, X, [["a"]])),
    ("members", lambda axes: band(axes, X, [[1.0], [1.0, 2.0]])),
    ("x", lambda axes: band(axes, "steps", VALUES)),
    ("axes", lambda axes: band(axes.figure, X, VALUES)),
    ("axes", lambda axes: heat_map(np.array([axes]), VALUES, 1.0, "a map")),
    *(("share", lambda axes, share=share: band(axes, X, VALUES, share=share)) for share in (80, 0, -0.5, "a", None)),
    *(("limit", lambda axes, limit=limit: heat_map(axes, VALUES, limit, "a map")) for limit in (0.0, -1, np.nan, "1")),
    *(("matrix", lambda axes, m=m: heat_map(axes, m, 1.0, "a map")) for m in (X, VALUES[None], "m", VALUES * 1j)),
    *(("columns", lambda axes, count=count: panels(count)) for count in (0, -1, 1.5, "2", None)),
    *(("rows", lambda axes, count=count: panels(1, count)) for count in (0, 1.5, "2")),
    *((name, lambda axes, name=name: panels(1, **{name: 0})) for name in ("width", "height", "shape")),
    *(("count", lambda axes, count=count: style.viridis(count)) for count in (-1, 2.5, "a")),
    ("figure", lambda axes: save(axes, "picture", "a caption")),
    ("figure", lambda axes: save(VALUES, "picture", "a caption")),
    ("caption", lambda axes: save(axes.figure, "picture", None)),
]


@pytest.mark.parametrize(("name", "call"), WRONG)
def test_a_wrong_argument_of_a_picture_is_refused_in_one_sentence(name, call):
    axes = panels(1)[1][0, 0]
    with pytest.raises(ValueError, match=rf"^{name} must be [^\n]*$"):
        call(axes)


def test_right_arguments_in_other_forms_are_taken(tmp_path):
    drawn, axes = panels(1.0)
    band(axes[0, 0], X.tolist(), VALUES.tolist(), share=1)
    band(axes[0, 0], X, np.full((3, 4), np.nan), "gd")  # where no member is finite there is no band
    names = [path.name for path in save(drawn, str(tmp_path / "noise_0.5"), "a caption")]
    assert names == ["noise_0.5.png", "noise_0.5.pdf"]
