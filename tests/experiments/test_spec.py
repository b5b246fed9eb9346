"""Specs: all errors are reported at once; cells are addressed by their content; symbolic values are resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamrl import registry
from occamrl.envs.ladder_file import read_ladder
from occamrl.errors import InvalidInput, SpecError
from occamrl.experiments.execution import Experiment
from occamrl.experiments.resolution import Resolution
from occamrl.experiments.spec import Entry, read_source, shipped
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.problems.mdp import BernoulliRewards, BetaRewards
from tests.experiments.common import SMALL, write

MANY = ", ".join(f"x{i} = {list(range(100))}" for i in range(6))  # 10^12 combinations
MIXTURE = (
    SMALL.replace("RiverSwim", "SparseMixture").replace("states = 3", "dimension = 8")
    + """
[[agent]]
name = "UCRLVTRLin"
parameters = { norm_bound = 1.0, features = """
)


def make_agent(name: str, parameters: dict[str, Any], problem: Any, episodes: int) -> Any:
    return Resolution(problem, episodes).agent(name, parameters)[0]


def faults(folder: Path, text: str) -> dict[str, tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        Experiment.from_toml(write(folder, text))
    assert str(folder / "spec.toml") in str(caught.value)
    return {fault.key: (fault.got, fault.expected) for fault in caught.value.faults}


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
        (SMALL.replace("seeds = 2", "seeds = 2\ntuning_seeds = [7]"), "tuning_seeds"),  # without a sweep
        (SMALL.replace("episodes = 500", "episodes = " + "9" * 5_000), "file"),
        (SMALL.replace("episodes = 500", "episodes = 0x" + "f" * 5_000), "episodes"),
        (SMALL.replace("{ states = 3 }", "{ states = 1_000_000 }"), "problem[0].parameters.states"),
        (SMALL.replace("{ states = 3 }", f"{{ }}\nsweep = {{ {MANY} }}"), "problem.sweep"),
        (SMALL + f"sweep = {{ {MANY} }}", "agent.sweep"),
        (MIXTURE + "{ restrict = 5 } }", "agent[2].parameters.features.restrict"),
        (MIXTURE + "{ restrict = [] } }", "agent[2].parameters.features.restrict"),
        (MIXTURE + "{ restrict = [" + "9" * 30 + "] } }", "agent[2].parameters.coordinates"),
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
    with pytest.raises(SpecError, match=": 1 error\n"):
        Experiment.from_toml(tmp_path / "spec.toml")


def test_a_mark_of_the_encoding_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(SMALL, encoding="utf-8-sig")
    assert len(Experiment.from_toml(path).cells) == 4


def test_a_shipped_name_is_a_name_whatever_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # as `make demo` leaves it
    (tmp_path / "frozen-lake-4x4").write_text("horizons = 3")
    with pytest.raises(InvalidInput, match="did you mean 'horizon'"):  # a path, for it has a separator
        read_ladder("./frozen-lake-4x4")
    with pytest.raises(InvalidInput, match="did you mean 'taxi'"):
        read_ladder("taxo")
    assert Experiment.from_toml("demo").name == "demo"
    assert read_ladder("frozen-lake-4x4").names
    write(tmp_path, name="norm")
    assert read_source("norm")[0] != "norm"
    assert read_source("./norm")[1] == SMALL.encode()
    with pytest.raises(SpecError, match="no such file"):
        read_source("./demo")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean 'demo'"):
        Experiment.from_toml("dmeo")
    for name in ("no.toml", "n" * 300):  # more than a file system takes
        with pytest.raises(SpecError, match="no such file"):
            Experiment.from_toml(tmp_path / name)


def test_sweeps_expand_to_every_combination() -> None:
    entry = Entry(name="A", label="a{x}", parameters={"z": 0}, sweep={"x": [1, 2], "y": ["u", "v"]})
    assert list(entry.variants()) == [
        ("a1 (y=u)", {"z": 0, "x": 1, "y": "u"}),
        ("a1 (y=v)", {"z": 0, "x": 1, "y": "v"}),
        ("a2 (y=u)", {"z": 0, "x": 2, "y": "u"}),
        ("a2 (y=v)", {"z": 0, "x": 2, "y": "v"}),
    ]


def test_swept_tables_are_called_by_their_names() -> None:
    entry = Entry(name="A", sweep={"rule": ["R", {"name": "R", "parameters": {"scale": 0.1}}]})
    assert [label for label, _ in entry.variants()] == ["A (rule=R)", "A (rule=R(scale=0.1))"]


def test_ids_are_of_the_content_and_others_do_not_disturb_them(tmp_path: Path) -> None:
    few = Experiment.from_toml(write(tmp_path))
    more = Experiment.from_toml(
        write(tmp_path, SMALL.replace("seeds = 2", "seeds = 5") + '\n[[agent]]\nname = "Greedy"')
    )
    assert {cell.id for cell in few.cells} < {cell.id for cell in more.cells}
    assert len({cell.id for cell in more.cells}) == len(more.cells) == 15
    assert few.cells[0].id == "dd83d80a80703d14"  # what is on people's disks: not to be changed lightly
    for old, new in (("episodes = 500", "episodes = 501"), ("thinning = 20", "thinning = 21"), ("= 3 }", "= 4 }")):
        other = Experiment.from_toml(write(tmp_path, SMALL.replace(old, new)))
        assert not {cell.id for cell in few.cells} & {cell.id for cell in other.cells}


@pytest.mark.parametrize("name", shipped())
def test_shipped_specs(name: str) -> None:
    experiment = Experiment.from_toml(name)
    assert experiment.data["name"] == experiment.name == name
    assert experiment.cells


def test_the_published_river_swim_experiment_is_what_it_says() -> None:
    cells = Experiment.from_toml("ayoub-riverswim").cells
    assert len(cells) == 3 * 3 * 10
    assert {cell.problem.parameters["states"] for cell in cells} == {3, 4, 5}
    learner = next(cell for cell in cells if cell.agent.label == "UCRL-VTR")
    made: object = learner.make()[1]
    words = {"radius": "ayoub", "weights": "none", "replan": 0.0, "delta": 1 / 50_000}
    words["norm_bound"] = (2 * learner.problem.parameters["states"]) ** 0.5
    assert {word: getattr(made, word) for word in words} == words


@pytest.fixture(scope="module")
def mixture() -> Any:
    return registry.make_problem("SparseMixture", states=4, actions=2, horizon=4, dimension=6, nonzero=3)


def test_symbolic_values_stand_for_what_the_problem_knows(mixture: Any) -> None:
    def made(name: str = "UCRLVTRLin", **parameters: object) -> Any:
        return make_agent(name, dict(parameters), mixture, 1_000)

    norm, kernel = float(np.linalg.norm(mixture.theta)), mixture.phi @ mixture.theta
    assert made(norm_bound="true").norm_bound == norm
    assert made(norm_bound="4 * true").norm_bound == 4 * norm
    assert made(norm_bound="true", features="tabular").norm_bound == pytest.approx(np.linalg.norm(kernel))
    assert made(norm_bound=2.0).features.dimension == 6
    assert made(norm_bound=2.0, features="support").features.dimension == 3
    assert made(norm_bound=2.0, features={"restrict": [0, 2]}).features.dimension == 2
    assert made(norm_bound=2.0, rewards="known").rewards == "known"
    family = made("UCRLVTR", family={"random": 4, "with_truth": True}).family
    assert family.size == 5
    assert np.allclose(family.kernel(0), kernel)
    assert not made("UCRLVTR", family={"random": 4, "with_truth": False}).family.contains(kernel)
    pairs = made(norm_bound=2.0, rewards={"per_pair": "hoeffding", "share": 0.25, "per_step": True}).rewards
    assert isinstance(pairs, RewardsPerPair)
    assert (pairs.bound, pairs.share, pairs.per_step) == ("hoeffding", 0.25, True)
    linear = made(norm_bound=2.0, rewards={"linear": [[[1.0, 0.0], [0.0, 1.0]]] * 4, "norm_bound": 2.0}).rewards
    assert isinstance(linear, RewardsLinear)
    assert np.shape(linear.features) == (4, 2, 2)


def test_ladders_and_references_of_a_selector_are_named() -> None:
    own = registry.make_problem("SparseLadder", dimension=4, most=2, nonzero=1, states=4)
    sizes = dict(zip(("smallest", "oracle", "largest"), own.sizes, strict=True))
    for name, size in sizes.items():
        made: Any = make_agent(name, {"selector": "ARLGen", "delta": 0.02}, own, 10)
        assert (made.family.size, made.delta) == (size, 0.02)
    river = registry.make_problem("RiverSwim", states=3)
    drawn: Any = make_agent("oracle", {"selector": "ARLGen", "ladder": {"sizes": [1, 3, 9], "true": 3}}, river, 10)
    assert drawn.family.size == 9
    mixture = registry.make_problem("SparseMixture", dimension=6, nonzero=3)
    known: Any = make_agent("oracle", {"selector": "ARLLinDim", "norm_bound": "true"}, mixture, 10)
    assert known.features.dimension == 3
    with pytest.raises(InvalidInput, match="brings no ladder along"):
        make_agent("ARLGen", {"ladder": "problem"}, river, 10)
    for parameters, message in (
        ({}, "the name of a selector"),
        ({"selector": "ARLGenn"}, "ARLGen"),
        ({"selector": "ARLLinDim", "norm_bound": 1.0, "features": "tabular"}, "tabular"),
        ({"selector": "ARLGen", "m": 2}, "m"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make_agent("oracle", parameters, own, 10)


@pytest.mark.parametrize(
    ("parameters", "field", "expected"),
    [
        ({}, "norm_bound", "required"),
        ({"norm_bound": "tru"}, "norm_bound", "a number"),
        ({"norm_bound": [1.0]}, "norm_bound", "a number"),
        ({"delta": "2/K"}, "delta", "1/K"),
        ({"features": 3}, "features", "tabular"),
        ({"features": {"restric": [1]}}, "features.restric", "did you mean 'restrict'?"),
        ({"features": {"restrict": [99]}}, "coordinates", "6"),
        ({"radius": "sharpe"}, "radius", "did you mean 'sharp'?"),
        ({"rewards": "unknown"}, "rewards", "per_pair"),
        ({"rewards": np.zeros((2, 2))}, "rewards", "per_pair"),
        ({"rewards": {"per_pair": "bernstein", "linear": [[[1.0]]]}}, "rewards", "one of the keys"),
        ({"rewards": {"per_pair": "bernstein", "shar": 0.5}}, "rewards.shar", "did you mean 'share'?"),
        ({"rewards": {"per_pair": "bernstein", "share": 2.0}}, "rewards.share", "(0, 1)"),
        ({"rewards": {"linear": [[[1.0]]]}}, "rewards.norm_bound", "a bound"),
        ({"rewards": {"linear": "psi.npz", "norm_bound": 1.0}}, "rewards.linear", "nested lists"),
        ({"rewards": {"linear": [[[1.0], "x"]], "norm_bound": 1.0}}, "rewards.linear", "[S, A, p]"),
    ],
)
def test_symbolic_values_that_mean_nothing_are_refused_by_key(
    mixture: Any, parameters: dict[str, object], field: str, expected: str
) -> None:
    given = {"norm_bound": 1.0, **parameters} if parameters else {}
    with pytest.raises(InvalidInput) as caught:
        make_agent("UCRLVTRLin", given, mixture, 1_000)
    assert caught.value.field == field
    assert expected in str(caught.value)


def test_any_problem_takes_noise(mixture: Any) -> None:
    sizes = {"states": 4, "actions": 2, "horizon": 4, "dimension": 6, "nonzero": 3}
    for word, kind in (
        ("bernoulli", BernoulliRewards()),
        ("beta", BetaRewards()),
        ({"beta": 50.0}, BetaRewards(concentration=50.0)),
        (BernoulliRewards(), BernoulliRewards()),
    ):
        problem = registry.make_problem("SparseMixture", **sizes, reward_noise=word)
        assert problem.mdp.reward_noise == kind
        assert problem.phi.shape == (4, 2, 4, 6)  # the rest is the problem's own
        assert problem.mdp.with_reward_noise(None).fingerprint == mixture.mdp.fingerprint != problem.mdp.fingerprint
    for wrong, field in (
        ({"beta": -1.0}, "reward_noise.beta"),
        ({"gamma": 1.0}, "reward_noise.gamma"),
        (3, "reward_noise"),
    ):
        with pytest.raises(InvalidInput) as caught:
            registry.make_problem("SparseMixture", **sizes, reward_noise=wrong)
        assert caught.value.field == field
    with pytest.raises(InvalidInput, match="did you mean 'reward_noise'"):
        registry.make_problem("SparseMixture", **sizes, reward_nose="bernoulli")


def test_no_agent_is_handed_the_truth_unless_the_spec_says_so(tmp_path: Path) -> None:
    river = SMALL.partition("[[agent]]")[0]
    for name, key, told in (
        ("ARLGen", "ladder", "true = 2"),
        ("Occam", "ladder", "true = 2"),
        ("UCRLVTR", "family", "with_truth = true"),
    ):
        found = faults(tmp_path, f'{river}[[agent]]\nname = "{name}"\n')
        assert told in found[f"agent[0].parameters.{key}"][1]
    for parameters, key in (
        ("ladder = { sizes = [1, 2] }", "ladder.true"),
        ("ladder = { sizes = [1, 2], true = 3 }", "ladder.true"),
        ("ladder = { rungs = [] }", "ladder.rungs"),
    ):
        text = f'{river}[[agent]]\nname = "ARLGen"\nparameters = {{ {parameters} }}\n'
        assert f"agent[0].parameters.{key}" in faults(tmp_path, text)
    text = f'{river}[[agent]]\nname = "UCRLVTR"\nparameters.family = {{ random = 3 }}\n'
    assert "agent[0].parameters.family.with_truth" in faults(tmp_path, text)
    problem = registry.make_problem("RiverSwim", states=3)
    without: Any = make_agent("ARLGen", {"ladder": {"sizes": [1, 2], "true": 0}}, problem, 10)
    assert without.ladder.class_of(problem.mdp) is None


def test_what_was_resolved_is_said_in_plain_words() -> None:
    problem = registry.make_problem("RiverSwim", states=3)
    told = Resolution(problem, 100)
    ladder = {"sizes": [1, 3], "true": 2, "seed": 4}
    words = told.agent("ARLGen", {"delta": "1/K", "ladder": ladder})[1]
    assert words["ladder"] == "classes of 1 < 3 random kernels (seed 4), the true kernel in class 2"
    assert (words["delta"], words["safe"], words["rewards"]) == (0.01, False, "known")
    assert told.agent("oracle", {"selector": "ARLGen", "ladder": ladder})[1]["knows"] == "class 2"
    words = told.agent("UCRLVTRLin", {"norm_bound": "sqrt(SA)"})[1]
    assert words["norm_bound"] == pytest.approx(6**0.5)
    assert words["features"] == "one-hot: FeatureMap(tabular, S=3, A=2, d=18)"
    assert told.agent("UCRLVTR", {"family": {"random": 3, "with_truth": True}})[1]["family"] == (
        "the true kernel and 3 random kernels (seed 0)"
    )


def test_mistakes_of_every_kind_are_reported_together(tmp_path: Path) -> None:
    text = (
        SMALL.replace("episodes = 500", "episodes = 0\nthining = 3")
        .replace("seeds = 2", "seeds = [1, 1]")
        .replace("states = 3 }", "state = 3, variant = 7 }\nparameter = 3")
        .replace('"UniformRandom"', '"UniformRandon"')
        + 'only = ["RiverSwin"]\n[[agent]]\nlabel = "nameless"\n'
        + '[[agent]]\nname = "UCRLVTRLin"\nparameters = { norm_bound = -1.0, radius = "x", replam = 3, delta = 2 }\n'
        + '[[problem]]\nname = "DeepSea"\n[[problem]]\nname = "DeepSee"\n'
        + '[[agent]]\nname = "Greedy"\nparameters = { features = "tabula" }\n'
        + '[[agent]]\nname = "UCRLVTRLin"\nlabel = "swept"\nparameters = { norm_bound = 1.0 }\n'
        + 'sweep = { kernel = ["stationary", "per_stop"] }\n'
    )
    expected = {"episodes", "thining", "seeds", "agent[0].name", "agent[1].only[0]", "agent[2].name"}
    expected |= {"problem[0].parameter", *(f"problem[0].parameters.{name}" for name in ("state", "variant"))}
    expected |= {f"agent[3].parameters.{name}" for name in ("norm_bound", "radius", "replam", "delta")}
    expected |= {"problem[2].name", "agent[4].parameters.features", "agent[5].sweep.kernel"}
    found = faults(tmp_path, text)
    assert set(found) == expected
    assert found["episodes"] == ("0", "greater than or equal to 1")
    for key, near in (
        ("thining", "thinning"),
        ("problem[0].parameter", "parameters"),
        ("problem[0].parameters.state", "states"),
        ("agent[0].name", "UniformRandom"),
        ("agent[4].parameters.features", "tabular"),
    ):
        assert f"did you mean {near!r}?" in found[key][1]
    unknown = SMALL.replace('"RiverSwim"', '"RiverSwin"').replace('"Optimal"', '"Optimal"\nparameters = { mpd = 1 }')
    assert set(faults(tmp_path, unknown)) == {"problem[0].name", "agent[1].parameters.mpd"}


def test_an_option_that_another_makes_idle_is_refused(tmp_path: Path) -> None:
    for name, parameters, key in (
        ("UCRLVTRLin", "norm_bound = 1.0, paper_constant = 0.1", "paper_constant"),
        ("ARLGen", "ladder = { sizes = [1, 2], true = 1 }, safe = true, guard = true", "guard"),
    ):
        text = f'{SMALL}[[agent]]\nname = "{name}"\nparameters = {{ {parameters} }}\n'
        assert set(faults(tmp_path, text)) == {f"agent[2].parameters.{key}"}
    dimension = f'{SMALL}[[agent]]\nname = "ARLLinDim"\nparameters = {{ norm_bound = 1.0 }}\n'
    assert "UCRLVTRLin" in faults(tmp_path, dimension)["agent[2].parameters.features"][1]


def test_agents_are_swept_as_problems_are(tmp_path: Path) -> None:
    text = SMALL.partition("[[agent]]")[0] + '[[agent]]\nname = "UCRLVTRLin"\nlabel = "c = {scale}"\n'
    text += "parameters = { norm_bound = 1.0 }\nsweep = { scale = [0.1, 1.0] }\n"
    cells = Experiment.from_toml(write(tmp_path, text)).cells
    found = {(cell.agent.label, cell.agent.parameters["scale"]) for cell in cells}
    assert found == {("c = 0.1", 0.1), ("c = 1.0", 1.0)}
