"""Specs: everything wrong is told at once; cells are addressed by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamrl import registry
from occamrl.errors import InvalidInput, SpecError
from occamrl.experiments.execution import Experiment
from occamrl.experiments.spec import Entry, agents, make_agent, parse, read_source, shipped
from tests.experiments.common import SMALL, write

NEEDS = {"dimension": {"ARLLinDim"}, "norm": {"ARLLinNorm"}, "ladder": {"ARLGen"}}

MANY = ", ".join(f"x{i} = {list(range(100))}" for i in range(6))  # 10^12 combinations
MIXTURE = (
    SMALL.replace("RiverSwim", "SparseMixture").replace("states = 3", "dimension = 8")
    + """
[[agent]]
name = "UCRLVTRLin"
parameters = { norm_bound = 1.0, features = """
)
WRONG = """
name = ""
episodes = 0
seeds = [1, -1]
thining = 3
[[problem]]
name = "RiverSwim"
parameter = { states = 3 }
[[agent]]
label = "x"
"""


def faults(folder: Path, text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        Experiment.from_toml(write(folder, text))
    assert str(folder / "spec.toml") in str(caught.value)
    return {fault.key: (fault.got, fault.expected) for fault in caught.value.faults}


def test_every_fault_of_the_form_is_told_at_once(tmp_path: Path) -> None:
    found = faults(tmp_path, WRONG)
    assert set(found) == {"name", "episodes", "seeds[1]", "thining", "problem[0].parameter", "agent[0].name"}
    assert "did you mean 'thinning'?" in found["thining"][1]
    assert "did you mean 'parameters'?" in found["problem[0].parameter"][1]
    assert found["episodes"] == ("0", "greater than or equal to 1")


def test_every_fault_of_the_content_is_told_at_once(tmp_path: Path) -> None:
    text = SMALL.replace('"UniformRandom"', '"UniformRandon"').replace(
        '"Optimal"', '"Greedy"\nparameters = { replam = 1 }'
    )
    text = text.replace("{ states = 3 }", "{ state = 3 }") + (
        '[[agent]]\nname = "UCRLVTRLin"\nparameters = { norm_bound = -1.0 }\n'
        '[[problem]]\nname = "DeepSea"\n[[problem]]\nname = "DeepSee"\n'
        '[[agent]]\nname = "Greedy"\nlabel = "words"\nparameters = { features = "tabula" }\n'
    )
    found = faults(tmp_path, text)
    assert set(found) == {
        "problem[0].parameters.state",
        "problem[2].name",
        "agent[0].name",
        "agent[1].parameters.replam",
        "agent[2].parameters.norm_bound",
        "agent[3].parameters.features",
    }
    assert "'UniformRandom'" in found["agent[0].name"][1]
    assert "'states'" in found["problem[0].parameters.state"][1]
    assert "'tabular'" in found["agent[3].parameters.features"][1]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("name = ", "file"),
        (SMALL.replace("seeds = 2", "seeds = [1, 1]"), "seeds"),
        (SMALL.replace('"Optimal"', '"UniformRandom"'), "agent[1].label"),
        (SMALL + 'only = ["RiverSwin"]', "agent[1].only[0]"),
        (SMALL.replace('name = "small"', 'name = "small"\nbaseline = "optimal"'), "baseline"),
        (SMALL.replace("{ states = 3 }", "{ states = 3 }\nsweep = { states = [3] }"), "problem[0].sweep.states"),
        (SMALL.replace("{ states = 3 }", "{ states = 1979-05-27 }"), "problem[0].parameters"),
        (SMALL.replace("seeds = 2", "seeds = 1_000_000"), "seeds"),
        (SMALL.replace("seeds = 2", "seeds = 60_000"), "cells"),
        (SMALL.replace("seeds = 2", "seeds = 1_000_000_000_000"), "seeds"),
        (SMALL.replace("episodes = 500", "episodes = " + "9" * 5_000), "file"),
        (SMALL.replace("episodes = 500", "episodes = 0x" + "f" * 5_000), "episodes"),
        (SMALL.replace("{ states = 3 }", "{ states = 1_000_000 }"), "problem[0].parameters"),
        (SMALL.replace("{ states = 3 }", f"{{ }}\nsweep = {{ {MANY} }}"), "problem.sweep"),
        (SMALL + f"sweep = {{ {MANY} }}", "agent.sweep"),
        (MIXTURE + "{ restrict = 5 } }", "agent[2].parameters.features.restrict"),
        (MIXTURE + "{ restrict = [] } }", "agent[2].parameters.features.restrict"),
        (MIXTURE + "{ restrict = [" + "9" * 30 + "] } }", "agent[2].parameters"),
        (
            SMALL + '[[agent]]\nname = "ARLGen"\nparameters.ladder.sizes = [1_000_000_000_000]',
            "agent[2].parameters.ladder.sizes",
        ),
    ],
)
def test_faults_name_their_key(tmp_path: Path, text: str, key: str) -> None:
    assert key in faults(tmp_path, text)


@pytest.mark.parametrize("seeds", ["0", "-1", "true", '"2"', "2.0", "[]", "{ a = 1 }"])
def test_one_mistake_is_told_once(tmp_path: Path, seeds: str) -> None:
    assert set(faults(tmp_path, SMALL.replace("seeds = 2", f"seeds = {seeds}"))) == {"seeds"}
    with pytest.raises(SpecError, match=r": 1 error\(s\)"):
        Experiment.from_toml(tmp_path / "spec.toml")


def test_a_mark_of_the_encoding_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(SMALL, encoding="utf-8-sig")
    assert len(Experiment.from_toml(path).cells) == 4


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'demo'"):
        Experiment.from_toml("dmeo")
    for name in ("no.toml", "n" * 300):  # more than a file system takes
        with pytest.raises(SpecError, match="nothing there"):
            Experiment.from_toml(tmp_path / name)


def test_sweeps_expand_to_every_combination() -> None:
    entry = Entry(name="A", label="a{x}", parameters={"z": 0}, sweep={"x": [1, 2], "y": ["u", "v"]})
    assert list(entry.variants()) == [
        ("a1 (y=u)", {"z": 0, "x": 1, "y": "u"}),
        ("a1 (y=v)", {"z": 0, "x": 1, "y": "v"}),
        ("a2 (y=u)", {"z": 0, "x": 2, "y": "u"}),
        ("a2 (y=v)", {"z": 0, "x": 2, "y": "v"}),
    ]


def test_ids_are_of_the_content_and_others_do_not_disturb_them(tmp_path: Path) -> None:
    few = Experiment.from_toml(write(tmp_path))
    more = Experiment.from_toml(
        write(tmp_path, SMALL.replace("seeds = 2", "seeds = 5") + '\n[[agent]]\nname = "Greedy"')
    )
    assert {cell.id for cell in few.cells} < {cell.id for cell in more.cells}
    assert len({cell.id for cell in more.cells}) == len(more.cells) == 15
    assert few.cells[0].id == "dd83d80a80703d14"  # what is on people's disks: not to be changed lightly
    for change in (
        ("episodes = 500", "episodes = 501"),
        ("thinning = 20", "thinning = 21"),
        ("states = 3", "states = 4"),
    ):
        other = Experiment.from_toml(write(tmp_path, SMALL.replace(*change)))
        assert not {cell.id for cell in few.cells} & {cell.id for cell in other.cells}


@pytest.mark.parametrize("name", shipped())
def test_shipped_specs(name: str) -> None:
    path, content = read_source(name)
    data, spec = parse(content, path)
    assert data["name"] == spec.name == name
    missing = NEEDS.get(name, set()) - set(agents())
    if missing:
        with pytest.raises(SpecError, match=missing.pop()):
            Experiment.from_toml(name)
    else:
        assert Experiment.from_toml(name).cells


def test_the_published_river_swim_experiment_is_what_it_says() -> None:
    cells = Experiment.from_toml("ayoub-riverswim").cells
    assert len(cells) == 3 * 3 * 10
    assert {cell.problem["parameters"]["states"] for cell in cells} == {3, 4, 5}
    learner = next(cell for cell in cells if cell.agent["label"] == "UCRL-VTR")
    made: object = learner.make()[1]
    states = learner.problem["parameters"]["states"]
    words = {
        "radius": "ayoub",
        "weights": "none",
        "replan": 0.0,
        "delta": 1 / 50_000,
        "norm_bound": (2 * states) ** 0.5,
    }
    assert {word: getattr(made, word) for word in words} == words


def test_words_stand_for_what_the_problem_knows() -> None:
    mixture = registry.make_problem("SparseMixture", dimension=6, nonzero=3)

    def made(**parameters: object) -> object:
        return make_agent("UCRLVTRLin", dict(parameters), mixture, 1_000)

    norm = float(np.linalg.norm(mixture.theta))
    assert getattr(made(norm_bound="true"), "norm_bound") == norm  # noqa: B009  # typed as an object
    assert getattr(made(norm_bound="4 * true"), "norm_bound") == 4 * norm  # noqa: B009  # the same
    assert getattr(made(norm_bound=2.0), "features").dimension == 6  # noqa: B009  # the same
    assert getattr(made(norm_bound=2.0, features="support"), "features").dimension == 3  # noqa: B009  # the same
    assert getattr(made(norm_bound=2.0, features={"restrict": [0, 2]}), "features").dimension == 2  # noqa: B009  # the same
    tabular = made(norm_bound="true", features="tabular")
    kernel = mixture.phi @ mixture.theta
    assert getattr(tabular, "norm_bound") == pytest.approx(np.linalg.norm(kernel))  # noqa: B009  # the same
    family = make_agent("UCRLVTR", {"family": {"random": 4}}, mixture, 10)
    assert getattr(family, "family").size == 5  # noqa: B009  # the same
    assert np.allclose(getattr(family, "family").kernel(0), kernel)  # noqa: B009  # the same


def test_ladders_and_their_true_class_are_words_too() -> None:
    own = registry.make_problem("SparseLadder", dimension=4, most=2, nonzero=1, states=4)
    told: Any = make_agent("LadderOracle", {"m": "true"}, own, 10)
    assert (told.ladder.sizes, told.m) == (own.sizes, 2)
    river = registry.make_problem("RiverSwim", states=3)
    drawn: Any = make_agent("LadderOracle", {"m": "true", "ladder": {"sizes": [1, 3, 9], "true": 3}}, river, 10)
    assert (drawn.ladder.sizes, drawn.m) == ([1, 3, 9], 3)
    with pytest.raises(InvalidInput, match="brings no ladder along"):
        make_agent("ARLGen", {"ladder": "problem"}, river, 10)
    with pytest.raises(InvalidInput, match='or "true"'):
        make_agent("LadderOracle", {"m": "tru"}, own, 10)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"norm_bound": "tru"},
        {"norm_bound": 1.0, "delta": "2/K"},
        {"norm_bound": 1.0, "features": 3},
        {"norm_bound": 1.0, "features": {"restric": [1]}},
        {"norm_bound": 1.0, "features": {"restrict": [99]}},
        {"norm_bound": [1.0]},
        {"norm_bound": 1.0, "radius": "sharpe"},
    ],
)
def test_words_that_mean_nothing_are_refused(parameters: dict[str, object]) -> None:
    mixture = registry.make_problem("SparseMixture", dimension=6, nonzero=3)
    with pytest.raises(InvalidInput):
        make_agent("UCRLVTRLin", parameters, mixture, 1_000)
