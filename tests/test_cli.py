"""The command line, end to end: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import occamrl as orl
from occamrl import demo, registry
from occamrl.cli import app
from occamrl.logs.log import simulate_log

TINY = """
name = "tiny"
episodes = 40
seeds = 2
[[problem]]
name = "RiverSwim"
parameters = { states = 3 }
[[agent]]
name = "UniformRandom"
[[agent]]
name = "Optimal"
"""
LADDER = """
horizon = 6
[[classes]]
name = "dry"
environments = [{ id = "FrozenLake-v1", is_slippery = false }]
[[classes]]
name = "slippery"
environments = [{ id = "FrozenLake-v1" }]
"""
ROOT = Path(__file__).parent.parent
TRACE = "Traceback (most recent call last)"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a spec and a ladder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "lake.toml").write_text(LADDER)
    return tmp_path


def call(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def ok(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def environment() -> dict[str, str]:
    source = str(Path(str(orl.__file__)).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment()
    )


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from occamrl.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "heavy = {'numpy', 'scipy', 'matplotlib', 'gymnasium', 'pyarrow'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert python("-c", code).stdout.strip() == "[]"
    version = python("-m", "occamrl", "--version")
    assert (version.stdout.strip(), version.returncode) == (orl.__version__, 0)


def test_an_experiment_is_run_looked_at_verified_damaged_repaired_and_reported(
    elsewhere: Path,
) -> None:
    printed = ok("run", "tiny.toml", "--folder", "out", "--workers", "1", "--json")
    events = [json.loads(line) for line in printed.splitlines()]
    assert events[-1] == {"event": "end", "finished": 4, "failed": 0, "stopped": False}
    assert sum(event["event"] == "done" for event in events) == 4
    assert "UniformRandom" in ok("status", "out")
    now = json.loads(ok("status", "out", "--json"))
    assert (now["cells"], now["finished"], now["missing"], now["failed"]) == (4, 4, 0, [])
    assert "as it was written" in ok("verify", "out")
    page = Path(ok("report", "out", "--figures", "figures").strip())
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert {path.suffix for path in Path("figures").iterdir()} == {".pdf", ".svg", ".png"}
    before = {cell["cell"]: cell["total_regret"] for cell in orl.load("out").cells}
    damaged = sorted(Path("out/cells").glob("*.json"))[0]
    damaged.write_bytes(damaged.read_bytes().replace(b"total_regret", b"total_regreT"))
    assert call("status", "out").exit_code == 1
    assert call("report", "out").exit_code == 1
    verified = call("verify", "out", "--json")
    assert verified.exit_code == 1
    assert json.loads(verified.stdout)["damaged"][0]["path"] == str(damaged)
    ok("resume", "out", "--workers", "1")
    assert {cell["cell"]: cell["total_regret"] for cell in orl.load("out").cells} == before


def test_a_cell_that_fails_is_told_of_and_the_others_are_finished(elsewhere: Path) -> None:
    (elsewhere / "broken_agent.py").write_text(
        "import occamrl as orl\n"
        "class Broken(orl.Learner):\n"
        "    def begin(self, known): return {}\n"
        "    def plan(self, known, state, draw): raise ValueError('out of ideas')\n"
        "    def learn(self, known, state, plan, flow): pass\n"
    )
    spec = (
        TINY.replace("seeds = 2", 'seeds = 1\nimport = ["broken_agent"]')
        + '[[agent]]\nname = "broken_agent:Broken"\n'
    )
    (elsewhere / "broken.toml").write_text(spec)
    # a spec alone imports nothing
    assert call("run", "broken.toml", "--folder", "out").exit_code == 2
    words = ("run", "broken.toml", "--folder", "out", "--workers", "1", "--import", "broken_agent")
    result = python("-m", "occamrl", *words)
    assert result.returncode == 1
    assert "2 cells finished, 1 failed" in result.stderr
    shown = ok("status", "out")
    assert "out of ideas" in shown
    assert TRACE not in shown


def test_ctrl_c_ends_with_one_line_and_code_130_and_resume_goes_on(elsewhere: Path) -> None:
    # an arena plays an episode a block: slow
    rule = '[[agent]]\nname = "Arena"\nrule = "UCB1"\nbases = ["UniformRandom", "PSRL"]\n'
    spec = TINY.replace("episodes = 40", "episodes = 1_000_000").replace("2", "1")
    (elsewhere / "slow.toml").write_text(spec + rule)
    words = ["run", "slow.toml", "--folder", "out", "--workers", "1"]
    command = [sys.executable, "-m", "occamrl", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
    deadline = time.monotonic() + 60.0
    while len(list(Path("out/cells").glob("*.json"))) != 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "occamrl resume out" in message
    assert TRACE not in message
    assert json.loads(ok("status", "out", "--json"))["finished"] == 2


def test_learning_in_an_environment_prints_the_verdict_and_writes_a_page_and_a_checkpoint(
    elsewhere: Path,
) -> None:
    words = ("learn", "FrozenLake-v1", "--ladder", "lake.toml", "--with", "map_name=4x4")
    files = ("--page", "answer.html", "--checkpoint", "lake.npz")
    lines = ok(*words, "--episodes", "60", "--compare", *files).splitlines()
    assert lines[0].startswith("Occam: 60 episodes")
    assert any("'slippery'" in line for line in lines)
    agents = [line.split(":")[0] for line in lines if "exact regret" in line]
    assert agents == ["Occam", "oracle (slippery)", "largest class", "smallest class"]
    assert "&#x27;slippery&#x27; is needed" in Path("answer.html").read_text("utf-8")
    again = json.loads(ok(*words, "--episodes", "80", "--checkpoint", "lake.npz", "--json"))
    assert (again["episodes"], again["chosen"], again["environment"]) == (80, 2, "FrozenLake-v1")
    by_value = ("--evidence", "value", "--scope", "all")
    value = json.loads(ok(*words, "--episodes", "20", *by_value, "--json"))
    assert value["agent"] == "ARL-GEN"
    unknown = json.loads(ok(*words, "--episodes", "5", "--rewards", "bernstein", "--json"))
    assert unknown["episodes"] == 5


def test_simulators_are_selected_from_a_log() -> None:
    code = """
import occamrl as orl
def step(states, actions, rng):
    return 0.9 * states + actions + 0.1 * rng.normal(size=states.shape)
about = dict(reward=lambda s, a, y: -y[:, 0] ** 2, horizon=5, actions=orl.Box(-1, 1), start=[0])
ladder = orl.SimulatorLadder({"calm": [step]}, **about)
"""
    Path("room.py").write_text(code)
    Path("log.csv").write_text("day,warm,heat\n" + "".join(f"1,{0.9**i},0\n" for i in range(6)))
    columns = ("--columns", "episode=day,state=warm,action=heat")
    words = ("select", "log.csv", "--model", "room.py:ladder", *columns)
    assert json.loads(ok(*words, "--page", "log.html", "--json"))["chosen"] == 1
    assert "calm" in Path("log.html").read_text("utf-8")


def test_selection_from_a_log_has_an_exit_code_for_each_kind_of_answer() -> None:
    draw = np.random.default_rng(0)
    dry, wet, strange = draw.dirichlet(np.ones(3), size=(3, 3, 2))
    reward = draw.random((3, 2))
    for name, array in (("dry", dry), ("wet", wet), ("reward", reward)):
        np.savez(name, array)
    toml = 'horizon = 4\nreward = "reward.npz"\n'
    for name in ("dry", "wet"):
        toml += f'[[classes]]\nname = "{name}"\nkernels = ["{name}.npz"]\n'
    Path("models.toml").write_text(toml)
    for kernel, episodes, code, status in (
        (wet, 200, 0, "decided"),
        (dry, 1, 3, "not enough data"),
        (strange, 200, 4, "misspecified"),
    ):
        mdp = orl.FiniteMDP(transition=kernel, reward=reward, horizon=4)
        pq.write_table(pa.table(simulate_log(mdp, episodes=episodes).columns()), "log.parquet")
        words = ("select", "log.parquet", "--ladder", "models.toml", "--page", "log.html")
        answer = call(*words, "--json")
        assert (json.loads(answer.stdout)["status"], answer.exit_code) == (status, code)
    assert "None of your models" in call(*words).stdout
    assert "None of your models" in Path("log.html").read_text("utf-8")


SHOP = """
import occamrl as orl
def shop(state, order, *, rate, rush=0.0):
    stock, day = state
    tomorrow = {"Mon": "Tue", "Tue": "Mon"}[day]
    chance = rate + rush * (stock > 2)
    filled = min(stock + (order == "some"), 4)
    yield 1 - chance, (filled, tomorrow), -0.1 * stock, False
    yield chance, (max(filled - 1, 0), tomorrow), 1.0 * (filled > 0) - 0.1 * stock, False
bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.3)}
model = orl.Model(shop, start=(2, "Mon"), actions=["none", "some"], horizon=6, parameters=bounds)
ladder = model.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})
number = 3
"""


def shop_log(months: int) -> str:
    """A log of the shop, whose customers are more when there is much on the shelf."""
    draw = np.random.default_rng(1)
    lines = ["month,date,stock,weekday,ordered"]
    for month in range(months):
        stock = 2
        for day in range(7):
            order = int(draw.random() < 0.4)
            weekday = ("Mon", "Tue")[day % 2]
            lines.append(f"{month},{day},{stock},{weekday},{('none', 'some')[order]}")
            sold = int(draw.random() < 0.3 + 0.25 * (stock > 2))
            stock = max(min(stock + order, 4) - sold, 0)
    return "\n".join(lines)


def test_a_log_and_a_model_of_yours_make_an_answer_a_page_and_an_agent_that_is_told(
    elsewhere: Path,
) -> None:
    (elsewhere / "shop.py").write_text(SHOP)
    (elsewhere / "log.csv").write_text(shop_log(150))
    roles = "episode=month,state=stock+weekday,action=ordered"
    columns = ("--columns", roles, "--order-by", "date")
    model = ("--model", "shop.py:ladder")
    words = ("select", "log.csv", *model, *columns)
    printed = ok(*words, "--agent", "shop.npz", "--page", "shop.html")
    assert "'rushes' is needed" in printed
    assert "is needed" in Path("shop.html").read_text("utf-8")
    assert json.loads(ok(*words, "--json"))["model"] == "rushes"
    assert call("select", "log.csv", "--model", "shop.py:model", *columns).exit_code == 0

    monday = (*model, "--state", "2+Mon")
    action = ok("act", "shop.npz", *monday).strip()
    assert action in ("none", "some")
    asked = json.loads(ok("act", "shop.npz", *monday, "--json"))
    assert asked == {"state": [2, "Mon"], "action": action}
    step = ("--action", "none", "--next-state", "2+Tue", "--reward", "-0.2")
    ok("observe", "shop.npz", *monday, *step)
    assert call("act", "shop.npz", *monday).exit_code == 2  # it is Tuesday
    assert ok("act", "shop.npz", *model, "--state", "2+Tue").strip() in ("none", "some")
    # another episode, this one was cut off
    assert ok("act", "shop.npz", *monday, "--begin").strip() == action
    new = ok("act", "none-yet.npz", *monday, "--new")
    assert new.strip() in ("none", "some")
    for same in ("2,Mon", "(2, 'Mon')"):
        assert ok("act", "none-yet.npz", *model, "--state", same, "--new") == new
    assert not Path("none-yet.npz").exists()

    wrong = {
        ("act", "shop.npz", "--state", "2+Mon"): "no file can hold",
        ("act", "shpo.npz", *monday): "no such file",
        ("observe", "shpo.npz", *monday, *step): "no such file",
        ("observe", "shop.npz", *monday, *step, "--new"): "a file that exists",
        ("act", "shop.npz", "--model", "shop.py:model", "--state", "2+Mon"): "another one",
        ("select", "log.csv"): "one of them",
        ("select", "log.csv", "--model", "shop:ladder"): "FILE.py:NAME",
        ("select", "log.csv", "--model", "shop.py:lader", *columns): "ladder",
        ("select", "log.csv", "--model", "shop.py:number", *columns): "model.ladder",
        ("select", "log.csv", *model, "--columns", "episode"): "role=column",
        ("select", "log.csv", *model, "--columns", "episode=year"): "year",
        ("observe", "shop.npz", *monday, "--action", "all", *step[2:4]): "begin_episode",
    }
    for mistaken, message in wrong.items():
        result = call(*mistaken)
        assert (result.exit_code, message in result.stderr) == (2, True), result.output


def test_a_spoiled_log_is_mended_as_asked_and_what_was_done_is_printed(elsewhere: Path) -> None:
    (elsewhere / "shop.py").write_text(SHOP)
    header, *lines = shop_log(40).splitlines()
    lost = [line for i, line in enumerate(lines) if i % 7 != 3 or i % 5]
    (elsewhere / "log.csv").write_text("\n".join([header + ",euro", *(row + ",9" for row in lost)]))
    roles = "episode=month,state=stock+weekday,action=ordered,time=date"
    words = ("select", "log.csv", "--model", "shop.py:ladder", "--columns", roles)
    printed = call(*words, "--every", "1", "--policy", "policy.csv").stdout
    assert f"8 of {len(lost)} rows come after a gap" in printed
    assert Path("policy.csv").read_text().count("\n") > 1
    refused = call(*words, "--gaps", "error")
    assert (refused.exit_code, "2 steps after row" in refused.stderr) == (2, True)
    assert "which was taken for no time" in call(*words, "--gaps", "join").stdout

    paid = (*words[:-1], f"{roles},reward=euro")
    refused = call(*paid)
    assert (refused.exit_code, "contradict" in refused.stderr) == (2, True)
    assert "as you asked" in call(*paid, "--rewards", "model").stdout
    long = "\n".join([header, *(f"0,{i},2,{('Mon', 'Tue')[i % 2]},none" for i in range(20))])
    (elsewhere / "long.csv").write_text(long)
    one = ("select", "long.csv", *words[2:])
    assert call(*one).exit_code == 2
    assert "were cut from longer episodes" in call(*one, "--split").stdout


def test_the_commands_of_practitioners_come_first() -> None:
    text = ok("--help")
    order = [text.index(word) for word in ("Your system", "select", "demo", "Experiments")]
    assert order == sorted(order)
    assert text.index("Experiments") < text.index("resume")


@pytest.mark.parametrize("kind", ["model", "problem", "learner", "selector", "rule"])
def test_a_new_class_checks_itself_and_is_found_by_a_spec(kind: str, elsewhere: Path) -> None:
    assert "python mine.py" in ok("new", kind, "Mine")
    ran = python("mine.py")
    assert ran.returncode == 0, ran.stderr
    if kind in ("model", "problem", "learner"):
        spec = TINY.replace("seeds = 2", 'seeds = 1\nimport = ["mine"]')
        replaced = {"learner": "UniformRandom"}.get(kind, "RiverSwim")
        spec = spec.replace(f'name = "{replaced}"', 'name = "mine:Mine"')
        if kind == "model":  # its ladder is enough, for references too
            spec = spec.replace("parameters = { states = 3 }\n", "")
            spec = spec.replace("UniformRandom", "Occam")
            spec += '[[agent]]\nname = "oracle"\nparameters = { selector = "Occam" }\n'
        (elsewhere / "own.toml").write_text(spec)
        words = ("run", "own.toml", "--folder", "out", "--workers", "1", "--import", "mine")
        run = python("-m", "occamrl", *words)
        assert run.returncode == 0, run.stderr


def test_a_new_ladder_and_a_new_spec_are_valid() -> None:
    ok("new", "ladder", "Mine", "--out", "cliff.toml")
    assert orl.read_ladder("cliff.toml").names == ("dry", "slippery", "anything between")
    ok("new", "spec", "River")
    assert len(orl.Experiment.from_toml("river.toml").cells) == 2 * 3 * 3


def test_list_names_everything_that_is_found() -> None:
    lines = ok("list").splitlines()
    for kind in registry.KINDS:
        (line,) = (line for line in lines if line.startswith(f"{kind}:"))
        assert all(name in line for name in registry.own(kind))
    names = json.loads(ok("list", "--json"))
    assert {"demo", "ladder", "norm"} <= set(names["specs"])
    assert "frozen-lake-4x4" in names["ladders"]


def test_the_demonstration_tells_the_story_of_the_readme_and_compares_like_for_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "EPISODES", 40)
    monkeypatch.setattr(demo, "SEEDS", 1)
    output = ok("demo", "--folder", "deep/out")
    folder = Path("deep/out")
    readme = (ROOT / "README.md").read_text("utf-8")
    story = readme.split("<!-- output -->\n```text\n")[1].split("```")[0]
    assert story in output
    for file in ("flowers.csv", "flowers-odd.csv"):
        shipped = ROOT / "docs" / "data" / file
        assert (folder / file).read_text("utf-8") == shipped.read_text("utf-8")
    assert output.count("At least 'full shelves sell' is needed") == 2  # with odd days, too
    assert (folder / "regret.png").read_bytes().startswith(b"\x89PNG")
    for file in ("flowers.csv", "answer.html", "regret.png"):
        assert (folder / file).exists()
        assert str(folder / file) in output
    for table in output.split("\nBy ")[1:]:
        assert all(how in table for how in ("class told", "class selected", "largest class"))
    assert output.count("\nBy ") == 2


@pytest.mark.parametrize(
    "name", ["demo", "dimension", "norm", "ayoub-riverswim", "arena-mixture", "arena-riverswim"]
)
def test_shipped_specs_are_valid(name: str) -> None:
    assert orl.Experiment.from_toml(name).cells


LEARN = ("learn", "FrozenLake-v1", "--episodes", "5", "--ladder")
# what is called, the exit code, and what the message names
WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no such spec": (("run", "dem", "--folder", "out"), 2, "did you mean 'demo'"),
    "a spec with faults": (("run", "bad.toml", "--folder", "out"), 2, "agent[0].name"),
    "no experiment": (("status", "."), 1, "experiment.json"),
    "nothing to resume": (("resume", "nowhere"), 1, "experiment.json"),
    "nothing to report": (("report", "nowhere"), 1, "experiment.json"),
    "no such ladder": ((*LEARN, "frozen-lake-4x5"), 2, "frozen-lake-4x4"),
    "no such environment": (
        ("learn", "Nope-v0", "--episodes", "5", "--ladder", "lake.toml"),
        2,
        "Nope-v0",
    ),
    "a module in the id": (
        ("learn", "os:Nope-v0", "--episodes", "5", "--ladder", "lake.toml"),
        2,
        "--import",
    ),
    "no such module": ((*LEARN, "lake.toml", "--import", "no_such_module"), 2, "no_such_module"),
    "a bad option": ((*LEARN, "lake.toml", "--with", "slippery"), 2, "key=value"),
    "a bad choice": ((*LEARN, "lake.toml", "--evidence", "values"), 2, "--evidence"),
    "a bad delta": ((*LEARN, "lake.toml", "--delta", "7"), 2, "delta"),
    "a page nowhere": (
        (*LEARN, "lake.toml", "--page", "tiny.toml/page.html"),
        1,
        "cannot be written",
    ),
    "no such log": (("select", "nothing.csv", "--ladder", "lake.toml"), 2, "nothing.csv"),
    "no such kind": (("new", "lerner", "Mine"), 2, "learner"),
    "no name": (("new", "learner", "a b"), 2, "name"),
    "a keyword": (("new", "learner", "class"), 2, "name"),
    "a file that is there": (("new", "spec", "Tiny"), 2, "exists"),
    "a file of another kind": (("new", "learner", "Mine", "--out", "my-own.py"), 2, "out"),
    "no such command": (("ran",), 2, "ran"),
    "a missing option": (("run", "tiny.toml"), 2, "--folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_a_message_on_standard_error_and_an_exit_code(
    case: str, elsewhere: Path
) -> None:
    (elsewhere / "bad.toml").write_text(TINY.replace('"UniformRandom"', '"UniformRandon"'))
    words, code, names = WRONG[case]
    result = call(*words)
    assert result.exit_code == code, result.output
    assert names in result.stderr
    assert TRACE not in result.output


def test_for_a_program_an_error_is_a_line_of_json(elsewhere: Path) -> None:
    (elsewhere / "bad.toml").write_text(TINY.replace('"UniformRandom"', '"UniformRandon"'))
    event = json.loads(call("run", "bad.toml", "--folder", "out", "--json").stdout)
    assert (event["event"], event["kind"]) == ("error", "SpecError")
    assert event["faults"][0]["key"] == "agent[0].name"


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("failed to map a segment"), OSError("no")]
)
def test_what_the_machine_cannot_do_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(kind: str) -> None:
        raise error

    monkeypatch.setattr(registry, "named", failing)
    result = call("list")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_names_cannot_steer_a_terminal(elsewhere: Path) -> None:
    (elsewhere / "red.toml").write_text(TINY.replace('"tiny"', '"\\u001b[31mred"'))
    ok("run", "red.toml", "--folder", "out", "--workers", "1")
    assert "\x1b" not in ok("status", "out")
