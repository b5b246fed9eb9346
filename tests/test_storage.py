"""Files: whatever is saved comes back to the bit; what is not as it was written is refused."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import occamrl as orl
from occamrl import registry
from occamrl.errors import CheckpointError, ParameterError
from occamrl.experiments.resolver import Resolver
from occamrl.files import Entry
from occamrl.protocols import Floats, Flow, Known, Plan, State
from occamrl.running.identity import changes, identity
from occamrl.running.result import Cut
from occamrl.running.storage import load, read_document, save, write_document

PROBLEM = orl.make_problem("sparse-ladder", states=3, actions=2, horizon=2, dimension=4)
EPISODES = 6
Parameters = dict[str, Any]
Craft = Callable[[dict[str, Any], dict[str, Any]], object]  # of a document and its arrays
LINEAR = {"name": "UCRLVTRLin", "parameters": {"norm_bound": 2.0}}
GIVEN: Parameters = {
    "norm_bound": 2.0,
    "family": "problem",
    "episodes": EPISODES,
    "promised": [1.0, 2.0],
}
GIVEN |= {"bases": ["UniformRandom", LINEAR], "rule": "D3RB", "agent": LINEAR, "kernel": "per_step"}


def build(name: str, kind: type[Any], kinds: str) -> orl.Learner:
    """Build a class of the package with the parameters that it needs."""
    resolver = Resolver(PROBLEM, EPISODES)
    parameters = {}
    for parameter in inspect.signature(kind).parameters.values():
        needed = parameter.default is parameter.empty or parameter.name in ("family", "kernel")
        if needed and parameter.name in GIVEN:
            parameters[parameter.name] = GIVEN[parameter.name]
    if name == "OccamMixture":  # every coordinate of its features is a kernel
        kernels = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 3, 2))
        mixture: orl.Learner = kind(features=orl.FeatureMap([PROBLEM.mdp.kernel(), *kernels]))
        return mixture
    agent: orl.Learner
    if kinds == "rules":
        rule = {"name": name, "parameters": parameters}
        agent = resolver.agent("Arena", {"bases": GIVEN["bases"], "rule": rule})
    else:
        agent = resolver.agent(name, parameters)
    assert not resolver.faults, resolver.faults
    return agent


def same(one: object, other: object) -> bool:
    """Say whether two trees are equal to the bit, in kind and in content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return bool(
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Flow):
        return same(vars(one), vars(other))
    return repr(one) == repr(other)


CLASSES: dict[str, tuple[type[Any], str]] = {}
for kinds in ("learners", "selectors", "paper", "rules"):
    CLASSES |= {name: (kind, kinds) for name, kind in registry.own(kinds).items()}


@pytest.mark.parametrize("name", CLASSES)
def test_every_agent_goes_on_from_a_file_as_if_there_had_been_no_end(
    name: str, tmp_path: Path
) -> None:
    agent = build(name, *CLASSES[name])
    whole = orl.run(agent, PROBLEM, episodes=EPISODES, seed=3)
    result = orl.run(agent, PROBLEM, episodes=1, seed=3)
    path = tmp_path / "run.npz"
    for episodes, problem in ((3, None), (2, PROBLEM), (0, None)):
        save(result, path)
        again = load(path, problem=problem)
        assert same(again.state, result.state)
        assert same(again.cut, result.cut)
        assert same(again.blocks.phases, result.blocks.phases)
        assert identity(again.agent) == identity(agent)
        if episodes:
            result = orl.run(again.agent, PROBLEM, episodes=episodes, continue_from=again)
    assert same(again.state, whole.state)
    assert same(vars(again.blocks), vars(whole.blocks))


class Sums(NamedTuple):
    visits: Floats
    pair: tuple[int, np.int32 | None]


@dataclass(frozen=True, kw_only=True)
class Mine(orl.Learner):
    """An algorithm of a user: NamedTuples, keys that are numbers, sparse arrays, growing things."""

    rate: float = 0.5
    matrix: sp.csr_array | None = None
    rule: Callable[[float], float] | None = None

    def begin(self, known: Known) -> State:
        return {
            "sums": Sums(np.zeros(known.states), (0, None)),
            "seen": {},
            "past": np.zeros(0),
            "none": None,
        }

    def plan(self, known: Known, state: State, draw: np.random.Generator) -> Plan:
        policy = draw.integers(known.actions, size=(known.horizon, known.states))
        return Plan(
            policy=policy, episodes=5, facts={"played": len(state["past"]), "mean": np.float64(0.1)}
        )

    def learn(self, known: Known, state: State, plan: Plan, flow: Flow) -> None:
        np.add.at(state["sums"].visits, flow.state, flow.count)
        state["sums"] = Sums(state["sums"].visits, (flow.episodes, np.int32(3)))
        state["seen"][len(state["seen"])] = flow
        state["past"] = np.append(state["past"], flow.reward @ flow.count)


def test_states_of_users_come_back(tmp_path: Path) -> None:
    agent = Mine(matrix=sp.csr_array(np.eye(3)))
    whole = orl.run(agent, PROBLEM, episodes=17)
    result = orl.run(agent, PROBLEM, episodes=8)
    assert isinstance(result.cut, Cut)  # 8 is in the middle of a block of 5
    result.save(tmp_path / "mine.npz")
    again = orl.run(
        agent, PROBLEM, episodes=9, continue_from=orl.Result.load(tmp_path / "mine.npz", agent)
    )
    assert same(again.state, whole.state)
    assert again.total_regret == whole.total_regret


def test_what_no_file_can_hold_is_given_to_load(tmp_path: Path) -> None:
    agent = Mine(rule=lambda x: 2.0 * x)
    path = tmp_path / "mine.npz"
    orl.run(agent, PROBLEM, episodes=8).save(path)
    with pytest.raises(CheckpointError, match="given to load"):
        load(path)
    assert load(path, agent).total_episodes == 8
    with pytest.raises(CheckpointError, match="code"):
        load(path, Mine(rule=lambda x: 3.0 * x))


def test_another_agent_is_no_continuation(tmp_path: Path) -> None:
    features = orl.FeatureMap(PROBLEM.phi)
    path = tmp_path / "run.npz"
    agent = orl.UCRLVTRLin(features=features, norm_bound=2.0)
    result = orl.run(agent, PROBLEM, episodes=8)
    result.save(path)
    other = orl.UCRLVTRLin(features=features, norm_bound=2.5)
    with pytest.raises(CheckpointError, match=r"norm_bound: 2.0 before, 2.5 now"):
        load(path, other)
    with pytest.raises(ParameterError, match=r"norm_bound: 2.0 before, 2.5 now"):
        orl.run(other, PROBLEM, episodes=8, continue_from=result)
    with pytest.raises(CheckpointError, match="problem"):
        load(path, agent, orl.make_problem("river-swim"))
    equal = orl.UCRLVTRLin(features=orl.FeatureMap(PROBLEM.phi), norm_bound=2.0)
    assert load(path, equal).agent is equal
    assert changes(identity(agent), identity(equal)) == ""


SOURCE = """
import numpy as np
import occamrl as orl
import used_by_user
SHARE = {share}
def helper(n):
    # {comment}
    return n{more}
class Made(orl.Learner):
    def begin(self, known):
        return {{"n": 0}}
    def plan(self, known, state, draw):
        episodes = helper(SHARE) + used_by_user.longer()
        return orl.Plan(policy=np.zeros((known.horizon, known.states), int), episodes=episodes)
    def learn(self, known, state, plan, flow):
        state["n"] += flow.episodes
"""


def import_made(folder: Path, **parts: object) -> orl.Learner:
    """Write the user's two modules, some of their parts changed, and import them anew."""
    parts = {"share": 3, "more": "", "comment": "one", "longer": 0} | parts
    (folder / "made_by_user.py").write_text(SOURCE.format(**parts))
    (folder / "used_by_user.py").write_text(f"def longer():\n    return {parts['longer']}\n")
    for module in ("made_by_user", "used_by_user"):
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    for cached in folder.glob("__pycache__/*"):
        cached.unlink()
    learner: orl.Learner = importlib.import_module("made_by_user").Made()
    return learner


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("made_by_user.py", {"share": 4}),
        ("made_by_user.py", {"more": " + 1"}),
        ("used_by_user.py", {"longer": 1}),
    ],
    ids=["a constant", "a function that is called", "a function of another file"],
)
def test_other_code_of_a_user_is_refused(
    file: str, parts: Parameters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "run.npz"
    orl.run(import_made(tmp_path), PROBLEM, episodes=8).save(path)
    assert load(path, import_made(tmp_path, comment="another comment")).state == {"n": 8}
    assert load(path).state == {"n": 8}
    changed = import_made(tmp_path, **parts)
    for agent in (changed, None):
        with pytest.raises(CheckpointError) as refusal:
            load(path, agent)
        assert re.findall(r"\w+\.py", str(refusal.value)) == [file]


def reseal(content: bytes) -> bytes:
    """Give an archive a right digest: not damage, but somebody's work."""
    body = content[:-2] + (64).to_bytes(2, "little")
    return body + hashlib.sha256(body).hexdigest().encode()


def foreign(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("hello.txt", "not ours")
    return buffer.getvalue()


def pickled(content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, document=np.array([{"format": 7}, Bomb()], dtype=object))
    return reseal(buffer.getvalue())


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('executed')",)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "last byte gone": lambda content: content[:-1],
    "longer": lambda content: content + b"x",
    "first byte": lambda content: b"\x00" + content[1:],
    "a byte": lambda content: content[:999] + bytes([content[999] ^ 1]) + content[1000:],
    "digest": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "text": lambda content: b"hello",
    "a pickle": lambda content: pickle.dumps({"format": 7}),
    "a foreign archive": foreign,
    "a foreign archive with a digest": lambda content: reseal(foreign(content)),
    "a pickle inside": pickled,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_and_foreign_files_are_refused_and_left_in_place(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "run.npz"
    orl.run(orl.UniformRandom(), PROBLEM, episodes=8).save(path)
    content = damage(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        load(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


CRAFTED: dict[str, Craft] = {
    "another class": lambda document, arrays: document["objects"][0].update(
        kind="subprocess:Popen"
    ),
    "a class that is none": lambda document, arrays: document["objects"][0].update(
        kind="os:system"
    ),
    "a field is missing": lambda document, arrays: document.pop("identity"),
    "an array is missing": lambda document, arrays: arrays.pop("a0"),
    "another format": lambda document, arrays: document.update(format=1),
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED.keys())
def test_files_that_save_did_not_write_are_refused(craft: Craft, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    orl.run(
        orl.UCRLVTRLin(features=orl.FeatureMap(PROBLEM.phi), norm_bound=2.0), PROBLEM, episodes=8
    ).save(path)
    document, arrays = read_document(Entry.of(path))
    assert load(path).total_episodes == 8
    craft(document, arrays)
    write_document(Entry.of(path), document, arrays)
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        load(path)


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.npz"
    result = orl.run(orl.UniformRandom(), PROBLEM, episodes=8)
    result.save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(orl.OccamRLError, match="No space left"):
        result.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CheckpointError, match=r"none\.npz"):
        load(tmp_path / "none.npz")
