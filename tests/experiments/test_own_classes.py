"""Classes of the user's own in experiments: modules named twice, entry points of packages, agents of agents."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from occamrl import registry
from occamrl.errors import InvalidInput, SpecError
from occamrl.experiments.execution import Experiment
from tests.experiments.common import LAB_SPEC, SMALL, command, play, write, write_lab

OWN = """
import = ["bench_agents"]
name = "own"
episodes = 3
seeds = 1
[[problem]]
name = "bench_agents:Chain"
[[agent]]
name = "bench_agents:Counting"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "_imported", set())
    write_lab(tmp_path, monkeypatch)
    return tmp_path


def refusal(folder: Path, text: str, *imports: str) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        Experiment.from_toml(write(folder, text), imports=imports)
    return {fault.key: fault.expected for fault in caught.value.faults}


def test_a_file_alone_imports_nothing(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(lab / "bench")
    assert "--import bench_agents" in refusal(lab, OWN)["import"]
    assert "bench_agents" not in sys.modules
    answer = command("run", write(lab, OWN), "--out", lab / "out")
    assert answer.exit_code == 2
    assert "--import bench_agents" in answer.output
    silent = OWN.replace('import = ["bench_agents"]', "")
    assert set(refusal(lab, silent)) == {"problem[0].name", "agent[0].name"}
    assert "--import bench_agents" in refusal(lab, silent)["agent[0].name"]
    assert "import = ['os']" in refusal(lab, SMALL, "os")["--import"]  # an option that does nothing
    assert "bench_agents" not in sys.modules
    assert "can be imported" in refusal(lab, OWN.replace("bench_agents", "no_such_bench"), "no_such_bench")["import"]
    monkeypatch.chdir(lab / "bench")
    write(lab, OWN)
    for step in (("run", lab / "spec.toml", "--out"), ("resume",)):
        answer = command(*step, lab / "out", "--import", "bench_agents")
        assert answer.exit_code == 0, answer.output
        assert "next: occamrl report" in answer.output
    answer = command("resume", lab / "out")
    assert answer.exit_code == 2
    assert "--import bench_agents" in answer.output


def test_only_what_a_named_module_brings_can_be_named(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(lab / "bench")
    for name, expected in (
        ("bench_agents:Countin", "did you mean 'bench_agents:Counting'?"),
        ("bench_agents:dataclass", "one of"),  # of another package
        ("bench_agents:Turning", "a class with"),  # no learner
        ("bench_agents:Broken", "a class with"),
        ("subprocess:Popen", "--import subprocess"),
    ):
        text = OWN.replace('"bench_agents:Counting"', f'"{name}"')
        assert expected in refusal(lab, text, "bench_agents")["agent[0].name"]


def test_a_package_brings_a_learner_a_rule_and_a_problem(lab: Path) -> None:
    sys.path.append(str(lab / "bench"))
    try:
        experiment = Experiment.from_toml(write(lab, LAB_SPEC), imports=["bench_agents"])
    finally:
        sys.path.remove(str(lab / "bench"))
    assert "my_lab.missing" not in sys.modules
    labels = [cell.agent.label for cell in experiment.cells if cell.seed == 0]
    assert labels == ["Counting (action=0)", "Counting (action=1)", "bench_agents:Counting", "Choosing"]
    here = play(experiment, lab / "here")
    records = experiment.run(lab / "workers", workers=1, progress=False)
    assert not records.failed
    assert len(records.cells) == 8
    for path in here.path.rglob("*.parquet"):
        assert (lab / "workers" / path.relative_to(here.path)).read_bytes() == path.read_bytes()
    resolved = records.cells[-1]["resolved"]
    assert resolved["rule"] == {"name": "Turning", "period": 3}
    assert resolved["bases"] == [
        {"name": "Counting", "action": 0},
        {"name": "Counting", "action": 1},
        {"name": "bench_agents:Counting", "action": 1},
    ]


def test_what_is_wrong_inside_bases_and_rules_is_told_by_key(lab: Path) -> None:
    text = LAB_SPEC.replace('import = ["bench_agents"]', "").replace("bench_agents:", "")
    text = text.replace('[[agent]]\nname = "Counting"\n[[agent]]', "[[agent]]").replace("period = 3", "perod = 3")
    found = refusal(lab, text.replace('bases = [{ name = "Counting"', 'bases = [{ name = "Countin"'))
    assert set(found) == {"agent[1].rule.parameters.perod", "agent[1].bases[0].name"}
    assert "did you mean 'Counting'?" in found["agent[1].bases[0].name"]
    rule = 'rule = { name = "Turning", parameters = { perod = 3 } }'
    for instead, key in (
        ('rule = { name = "Turning", sweeep = 3 }', "agent[1].rule.sweeep"),
        ('sweep = { rule = ["Turning", "T"] }', "agent[1].sweep.rule.name"),
        ("", "agent[1].rule"),
    ):
        assert set(refusal(lab, text.replace(rule, instead))) == {key}


def test_packages_that_do_not_keep_their_promise_are_named(lab: Path) -> None:
    for name, message in (("Missing", "my-lab 0.3: ModuleNotFoundError"), ("Misfit", "a class with examples, mdp")):
        with pytest.raises(InvalidInput, match=message):
            registry.make_problem(name)
    other = lab / "installed" / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[occamrl.problems]\nChain = my_lab.parts:Chain\n")
    registry._declared.cache_clear()  # folders are read once per process
    with pytest.raises(InvalidInput, match=r"my-lab 0\.3 and other 1\.0"):
        registry.make_problem("Chain")


def test_the_list_says_where_a_class_comes_from(lab: Path) -> None:
    lines = command("list").output.splitlines()
    assert "learners of my-lab 0.3: Choosing, Counting" in lines
    assert "rules of my-lab 0.3: Turning" in lines
    assert "my_lab.parts" not in sys.modules
