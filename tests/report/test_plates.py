from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from matplotlib import rc_context
from matplotlib.image import imread

from occamrl.report.data import build
from occamrl.report.figures import _STYLE, COLOURS, FORMATS, plates, write_figures
from tests.report.hostile import hostile
from tests.report.synthetic import KINDS, Kind, records


def test_every_plot_in_every_format_and_the_same_bytes_again(tmp_path: Path) -> None:
    model = build(records(problems=["Sparse mixture"], kinds=KINDS[:4], seeds=3, episodes=500))
    first = write_figures(model, tmp_path / "one")
    names = {path.stem for path in first}
    assert len(names) == 8  # regret twice, differences, two decisions with evidence, one norm bound
    assert len(first) == len(names) * len(FORMATS)
    for path in first:
        if path.suffix == ".svg":
            ElementTree.parse(path)  # noqa: S314  # our own file
        content = path.read_bytes()
        assert content[:4] in (b"%PDF", b"\x89PNG", b"<?xm")
        if path.suffix == ".pdf":  # fonts are embedded as outlines
            assert b"/FontFile2" in content
            assert b"/Type3" not in content
    problem = model["problems"][0]
    one = {**model, "problems": [{**problem, "agents": problem["agents"][:1], "differences": []}]}
    again = write_figures(one, tmp_path / "two", FORMATS)
    twice = write_figures(one, tmp_path / "three", FORMATS)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in twice]


def test_names_are_drawn_as_they_are_and_lead_to_no_other_folder(tmp_path: Path) -> None:
    model = build(hostile())
    write_figures({**model, "problems": model["problems"][:1]}, tmp_path / "figures", ["svg"])
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    odd = build(records(problems=["../../up"], kinds=[Kind("_hidden", 0.5), Kind("$x$", 0.5)], seeds=3))
    for path in write_figures(odd, tmp_path / "figures", ["png"]):
        assert path.parent == tmp_path / "figures"
        assert path.exists()


def test_nothing_but_zeros_can_be_drawn_on_logarithmic_axes(tmp_path: Path) -> None:
    assert write_figures(build(records(problems=["p"], kinds=[Kind("Optimal", 1.0, 0.0)], seeds=2)), tmp_path, ["png"])


def test_long_names_and_many_agents_leave_room_for_the_plot() -> None:
    kinds = [Kind(f"agent {i} " + "with a long name " * 10, 0.5) for i in range(40)]
    model = build(records(problems=["\u03a9" * 200], kinds=kinds, seeds=1, episodes=50))
    with rc_context(_STYLE):
        figure = dict(plates(model))["01--regret-linear"]
        figure.draw_without_rendering()  # a layout that fails is a warning, and that an error
    (axes,) = figure.axes
    assert axes.get_position().width > 0.7
    assert axes.get_position().height * figure.get_figheight() > 1.5


def test_a_single_episode_is_drawn_as_a_point(tmp_path: Path) -> None:
    model = build(records(problems=["p"], kinds=[Kind("a", 0.5)], seeds=1, episodes=1))
    linear = next(path for path in write_figures(model, tmp_path, ["png"]) if "linear" in path.name)
    colour = np.array([int(COLOURS[0][i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    picture = imread(linear)[..., :3]
    height = picture.shape[0]
    drawn = np.abs(picture - colour).max(axis=-1) < 0.02
    assert drawn[: height * 7 // 10].any()  # below is the legend
