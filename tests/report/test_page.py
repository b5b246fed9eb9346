"""The page and its figures: what they hold, and what strange names cannot do."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.image import imread

from occamrl.report import page
from occamrl.report.data import build
from occamrl.report.figures import _STYLE, COLOURS, FORMATS, plates, write_figures
from tests.report.synthetic import KINDS, MARKUP, Kind, hostile, records


def embedded(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_its_data_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    made = records(seeds=3)
    out = page.write_report(made, tmp_path / "deep" / "report.html")
    text = out.read_text()
    assert embedded(text) == build(made)
    assert text == page.render(build(made))  # the same when it is written again
    assert list(out.parent.iterdir()) == [out]  # no partial file
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "@import" not in text
    assert " style=" not in text  # the policy would refuse it


def test_the_policy_admits_exactly_the_style_and_the_script_of_the_page() -> None:
    text = page.render(build(records(seeds=1)))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="(.*?)"', text)[0])
    for directive, part in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src 'none'" in policy


def test_names_with_markup_stay_inside_the_data() -> None:
    made = hostile()
    text = page.render(build(made))
    assert text.count("<script") == 2  # the data and the script
    assert "<img" not in text
    assert embedded(text)["name"] == MARKUP
    assert embedded(text)["agents"] == [manifest["agent"]["label"] for manifest in made.cells[::3]][:8]


def test_a_report_goes_into_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "load", lambda folder: records(problems=["p"], kinds=KINDS[:1], seeds=1, folder=folder))
    assert page.write_report(tmp_path) == tmp_path / "report.html"
    out = page.write_report(tmp_path, tmp_path / "other.html", tmp_path / "figures")
    assert out.exists()
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".pdf", ".svg", ".png"}


def test_a_page_without_a_finished_cell_can_be_written() -> None:
    made = records(problems=["p"], kinds=KINDS[:1], seeds=1)
    none = records(problems=["p"], kinds=KINDS[:1], seeds=1, cells=[], missing=["a", "b"])
    model = build(none)
    assert model["problems"] == []
    assert model["status"]["missing"] == model["status"]["total"] == 2
    assert len(page.render(model)) < len(page.render(build(made)))


def test_the_baseline_is_the_specs_or_the_first() -> None:
    made = records(problems=["p"], seeds=1)
    assert build(made)["baseline"] == 0
    made.spec["baseline"] = "Optimal"
    assert build(made)["baseline"] == 5
    made.spec["baseline"] = "another experiment's"
    assert build(made)["baseline"] == 0


def test_a_thousand_cells_make_a_page_of_about_a_megabyte() -> None:
    few, more = (len(page.render(build(records(problems=["p", *"qr"[:n]], seeds=10)))) for n in (1, 2))
    assert more - few < 90_000  # for 60 cells: 1.5 MB for a thousand


def test_the_page_holds_the_spec_as_toml() -> None:
    made = records(problems=["p"], kinds=KINDS[:1], seeds=1)
    made.spec["agent"].append({"name": "x", "sweep": {"delta": [0.1, None, 0.2]}, "label": None, "\x7f é": "\x1b"})
    expected = {**made.spec, "agent": [*made.spec["agent"][:-1], {"name": "x", "sweep": {"delta": [0.1, 0.2]}}]}
    expected["agent"][-1]["\x7f é"] = "\x1b"
    assert tomllib.loads(build(made)["spec"]) == expected


def test_every_plot_in_every_format_and_the_same_bytes_again(tmp_path: Path) -> None:
    model = build(records(problems=["Sparse mixture"], kinds=KINDS[:4], seeds=3, episodes=500))
    names = {path.stem for path in write_figures(model, tmp_path / "one", ["png"])}
    assert len(names) == 8  # regret twice, differences, two decisions with evidence, one norm bound
    problem = model["problems"][0]
    one = {**model, "problems": [{**problem, "agents": problem["agents"][:1], "differences": []}]}
    again, twice = (write_figures(one, tmp_path / name) for name in ("two", "three"))
    assert len(again) == len({path.stem for path in again}) * len(FORMATS)
    for path in again:
        if path.suffix == ".svg":
            ElementTree.parse(path)  # noqa: S314  # our own file
        content = path.read_bytes()
        assert content[:4] in (b"%PDF", b"\x89PNG", b"<?xm")
        if path.suffix == ".pdf":  # fonts are embedded as outlines
            assert b"/FontFile2" in content
            assert b"/Type3" not in content
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
