from pathlib import Path
from xml.etree import ElementTree

from occamrl.report.model import build
from occamrl.report.plates import FORMATS, write_figures
from tests.report.hostile import hostile
from tests.report.synthetic import KINDS, Kind, records


def test_every_plot_in_every_format_and_the_same_bytes_again(tmp_path: Path) -> None:
    model = build(records(problems=["Sparse mixture"], kinds=KINDS[:4], seeds=3))
    first = write_figures(model, tmp_path / "one")
    names = {path.stem for path in first}
    assert len(names) == 8  # regret twice, differences, two decisions with evidence, one norm bound
    assert len(first) == len(names) * len(FORMATS)
    for path in first:
        if path.suffix == ".svg":
            ElementTree.parse(path)  # noqa: S314  # our own file
        assert path.read_bytes()[:4] in (b"%PDF", b"\x89PNG", b"<?xm")
    again = write_figures(model, tmp_path / "two")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in first]


def test_pdf_fonts_are_embedded_as_outlines(tmp_path: Path) -> None:
    model = build(records(problems=["p"], kinds=KINDS[:1], seeds=1))
    path = write_figures(model, tmp_path, ["pdf"])[0]
    assert b"/FontFile2" in path.read_bytes()
    assert b"/Type3" not in path.read_bytes()


def test_names_are_drawn_as_they_are_and_lead_to_no_other_folder(tmp_path: Path) -> None:
    write_figures(build(hostile()), tmp_path / "figures", ["svg"])
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    odd = build(records(problems=["../../up"], kinds=[Kind("_hidden", 0.5), Kind("$x$", 0.5)], seeds=3))
    for path in write_figures(odd, tmp_path / "figures", ["png"]):
        assert path.parent == tmp_path / "figures"
        assert path.exists()


def test_nothing_but_zeros_can_be_drawn_on_logarithmic_axes(tmp_path: Path) -> None:
    assert write_figures(build(records(problems=["p"], kinds=[Kind("Optimal", 1.0, 0.0)], seeds=2)), tmp_path, ["png"])
