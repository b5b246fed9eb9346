"""What the data say of simulators: which class and member are needed, what a policy is worth, where they misfit."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.control import evidence
from occamrl.control.agent import OccamControl, parameters
from occamrl.control.ladder import SimulatorLadder, label_of
from occamrl.errors import InvalidInput, ShapeError, as_floats, as_path
from occamrl.protocols import Floats
from occamrl.running.run import Progress, generator
from occamrl.running.storage import make_folder, write_whole
from occamrl.running.verdict import Verdict, count, listed, ordinal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SURE = 4.0  # standard errors from which on a misfit is named


class Answer:
    """What the data say so far: print it, take ``rows``, ask what a policy is ``worth``, write a ``page``."""

    def __init__(self, agent: OccamControl) -> None:
        self.agent, self.ladder, self.delta = agent, agent.ladder, agent.delta
        self.facts, self.evidence = agent.facts(), agent.state["evidence"]
        self.threshold, self.history = math.log(1 / self.delta), agent.state["history"]
        self.chosen: int = self.facts["chosen"]  # from 1
        self.misspecified: bool = self.facts["misspecified"]
        self.name = self.ladder.names[self.chosen - 1]  # of the class that is needed
        order = evidence.ranking(self.evidence)
        inside = order if self.misspecified else order[self.evidence["level"][order] < self.chosen]
        self.index = int(inside[0])  # the heaviest of the class
        self.member, self.parameters = label_of(agent.members[self.index]), parameters(agent.members[self.index])
        self._worth: list[dict[str, Any]] = []

    @property
    def verdict(self) -> Verdict:
        """Facts by name, and sentences."""
        found = Verdict(self.facts, threshold=self.threshold, member=self.member, parameters=self.parameters)
        found["status"], found.sentences = "misspecified" if self.misspecified else "at least", self.sentences
        return found

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words."""
        names, steps, since = self.facts["names"], self.evidence["steps"], self.facts["rejected_after"]
        members, added, returns = len(self.agent.members), len(self.agent.state["added"]), self.agent.returns
        if not steps:
            return ("Nothing has been observed yet.",)
        if self.misspecified:
            found = [
                f"None of your simulators explains the data: {names[-1]!r} is rejected, too, since step {since[-1]:,}.",
                f"The nearest is {self.member}. {self.misfit}",
                "Meanwhile the agent plans with it, corrected by the mean of its errors.",
                "Next: add what is missing as a richer class, or finer values of the parameters.",
            ]
        else:
            out = [f"{name!r} after {n:,} steps" for name, n in zip(names, since, strict=True) if n is not None]
            found = [
                f"You need {self.name!r} ({ordinal(self.chosen)} of {count(len(names))} classes).",
                *([f"Rejected: {listed(out)}."] if out else []),
                f"Its most plausible simulator is {self.member}; {self.facts['alive'][-1]:,} of {members:,} are left.",
                f"The smallest class that holds the truth is ever rejected with probability at most {self.delta:g}.",
                f"Richer classes are never excluded: {steps:,} steps did not ask for them.",
            ]
        if added:
            found.append(f"{added} simulators were added between listed ones; the guarantee is for those listed.")
        if returns.any():
            lately = returns[-max(1, len(returns) // 4) :]
            found.append(f"The last {lately.size:,} episodes earned {lately.mean():,.4g} each.")
        return tuple(found)

    @property
    def misfit(self) -> str:
        """Where, in which coordinate and in which direction the member named misfits, in a sentence."""
        beta, error, scale = evidence.coefficients(self.evidence, self.index)
        seen, chosen = self.ladder.resolution.size, self.ladder.actions.dimension
        names = ["", *(f"view[{i}]" for i in range(seen)), *(f"action[{i}]" for i in range(chosen))]
        strength = np.abs(beta) / error
        k = int(strength.max(axis=1).argmax())
        if strength[k].max() < SURE:
            seen = evidence.PRIOR + self.evidence["awake"][self.index]
            wide = np.sqrt(self.evidence["squares"][self.index, 1] / seen)
            j = int(np.abs(np.log(wide)).argmax())
            if abs(math.log(wide[j])) < 0.1:
                return "No linear misfit of its mean is visible."
            return f"Its mean fits; the noise of view[{j}] is {wide[j]:.2g} times as wide as it says."
        named = [
            f"state[{i}] comes out {'higher' if beta[k, i] > 0 else 'lower'} than it says, "
            f"by {abs(beta[k, i]):.3g} a step ({abs(beta[k, i]) / scale[i]:.2g} standard deviations)"
            for i in np.flatnonzero(strength[k] > 0.8 * strength[k].max())
        ]
        if k == 0:
            return f"{listed(named)}, on average."
        far = "one typical spread above its middle" if k <= seen else "at its upper end instead of the middle"
        return f"{listed(named)}, where {names[k]} is {far}; below, the opposite way."

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each class: its size, members left, the evidence against it, since when it is rejected."""
        facts, names = self.facts, ("class", "name", "size", "left", "evidence_against", "rejected_after")
        sizes = [int((self.evidence["level"] <= m).sum()) for m in range(len(facts["names"]))]
        columns = facts["names"], sizes, facts["alive"], facts["statistics"], facts["rejected_after"]
        return [dict(zip(names, row, strict=True)) for row in zip(range(1, len(sizes) + 1), *columns, strict=True)]

    def worth(
        self, policy: Callable[[Floats, int], Floats] | None = None, *, runs: int = 8, most: int = 8
    ) -> list[dict[str, Any]]:
        """Return the mean return of a policy under every surviving simulator, with its standard error, by Monte Carlo.

        ``policy(states [N, n], step) -> actions [N, m]``; by default the planner in the most plausible member.
        With probability 1 - delta the truth, if it is a member, is among the survivors, so that the least and the
        largest worth, give or take their errors, bound that in the truth; only the ``most`` heaviest are run.
        """
        agent, ladder, shape = self.agent, self.ladder, (runs, self.ladder.actions.dimension)
        weight, order = np.exp(self.evidence["log_weight"]), evidence.ranking(self.evidence)[:most]
        model = agent.corrected(self.index) if self.misspecified else agent.members[int(order[0])]
        bar, self._worth = Progress("worth", len(order), None, "simulators"), []
        for i in order:
            rng, total = generator(agent.seed, "worth"), np.zeros(runs)
            states, warm = np.stack([ladder.first_state(rng) for _ in range(runs)]), [None] * runs
            for t in range(ladder.horizon):
                actions = np.empty(shape) if policy is None else as_floats("policy", policy(states, t), shape)
                for n in range(runs) if policy is None else ():
                    actions[n], warm[n] = agent.plan(model, states[n], ladder.horizon - t, rng, warm[n])
                after = agent.members[i](states, actions, rng)
                total, states = total + ladder.reward(states, actions, after), after
            error = float(total.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf
            row = {"simulator": label_of(agent.members[i]), "weight": float(weight[i] / weight[order].sum())}
            self._worth.append(row | {"worth": float(total.mean()), "standard_error": error})
            bar.update(len(self._worth))
        bar.close()
        return self._worth

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class over time, on the current axes unless some are given."""
        drawn: Axes = importlib.import_module("occamrl.report.figures").draw_evidence(self, axes)
        drawn.set_xlabel("real steps")
        return drawn

    def plot_predictions(self, axes: Axes | None = None) -> Axes:
        """Draw the last episode against what the heaviest simulator said a step before, two deviations either way."""
        import matplotlib.pyplot as plt

        axes = plt.gca() if axes is None else axes
        path = np.array(self.agent.state["path"]).reshape(-1, 3, self.agent.dimension)
        for i in range(min(6, self.agent.dimension)):
            line = axes.plot(path[:, 0, i], ".", markersize=3)[0]
            low, high = (path[:, 1, i] + sign * 2 * path[:, 2, i] for sign in (-1, 1))
            axes.fill_between(np.arange(len(path)), low, high, alpha=0.3, color=line.get_color(), label=f"state[{i}]")
        axes.set(xlabel="step of the last episode", ylabel="dots: what came; bands: predicted")
        axes.legend(fontsize="small")
        return axes

    def plot_returns(self, axes: Axes) -> None:
        """Draw the return of every episode."""
        axes.plot(np.arange(1, self.agent.total_episodes + 1), self.agent.returns, marker="o", markersize=3)
        axes.set(xlabel="episode", ylabel="return")

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page."""
        page: Any = importlib.import_module("occamrl.report.page")
        shown = [{k.replace("_", " "): v for k, v in row.items()} for row in self.rows]
        sections = {"Answer": page.paragraphs(*self.sentences[1:])}
        sections["Evidence over time"] = page.table(shown)
        sections["Where it misfits"] = page.paragraphs(f"{self.member}: {self.misfit}")
        if self.history:
            sections["Evidence over time"] += page.picture(self.plot, "the evidence against each class")
            sections["Where it misfits"] += page.picture(self.plot_predictions, "the last episode, predicted and real")
        if self.agent.returns.any():
            sections["Returns"] = page.picture(self.plot_returns, "the return of every episode")
        if self._worth:
            sections["What the planner is worth"] = page.table(self._worth)
        sections["What is guaranteed"] = page.paragraphs(
            f"With probability {1 - self.delta:g} the smallest class that holds the true simulator is never rejected, "
            "at any time, however the actions were chosen. It holds for exactly the simulators that were listed.",
            "Nothing is guaranteed of returns, of weights among simulators, or of how soon a wrong class is rejected.",
        )
        place = as_path("path", path)
        make_folder(place.parent)
        write_whole(place, page.render_static(self.sentences[0], sections).encode())
        return place

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def transitions(log: Any) -> list[tuple[int, Floats, Floats, Floats]]:
    """Return a log as (episode, states [T, n], actions [T, m], next_states [T, n]), episode by episode.

    A log is a mapping or data frame with ``episode`` [T], ``states`` [T, n] and ``actions`` [T, m], in the order in
    which the steps were made, or with columns ``state_0``, ``state_1``, ..., ``action_0``, ...; ``next_states`` may be
    left out: then the last row of an episode only says where it ended, and its action is not used. Or a Minari
    dataset, or any iterable of episodes with ``observations`` [T + 1, n] and ``actions`` [T, m].
    """

    def flat(name: str, value: Any) -> Floats:
        array = as_floats(name, np.asarray(value))
        return array.reshape(len(array), -1)

    if hasattr(log, "iterate_episodes"):
        log = list(log.iterate_episodes())
    found = []
    if not isinstance(log, (Sequence, Mapping)) and not hasattr(log, "__getitem__"):
        expected = "arrays by name (episode, states, actions), a data frame, or a Minari dataset"
        raise InvalidInput("log", got=type(log).__name__, expected=expected)
    if isinstance(log, Sequence):
        for each in log:
            if not hasattr(each, "observations"):
                expected = "episodes with observations and actions; or arrays by name: episode, states, actions"
                raise InvalidInput("log", got=f"a list of {type(each).__name__}", expected=expected)
        for i, each in enumerate(log):
            path = flat("observations", each.observations)
            found.append((i, path[:-1], flat("actions", each.actions)[: len(path) - 1], path[1:]))
        return found
    names = list(log) if isinstance(log, Mapping) else list(getattr(log, "column_names", getattr(log, "columns", ())))
    columns: dict[str, Floats] = {}
    for name in ("states", "actions", "next_states"):
        parts = (f"{name[:-1]}_{i}" for i in itertools.count())
        if several := [name] if name in names else list(itertools.takewhile(names.__contains__, parts)):
            columns[name] = np.concatenate([flat(each, log[each]) for each in several], axis=1)
    if not {"states", "actions"} <= {*columns} or "episode" not in names:
        raise InvalidInput("log", got=f"columns {names}", expected="episode, states and actions (and next_states)")
    states, actions, episode = columns["states"], columns["actions"], np.asarray(log["episode"])
    for name, column in (*columns.items(), ("episode", episode)):
        if len(column) != len(states):
            raise ShapeError(name, got=f"{len(column)} rows", expected=f"{len(states)}, as states")
    cuts = np.flatnonzero(episode[1:] != episode[:-1]) + 1
    for i, rows in enumerate(np.split(np.arange(len(states)), cuts)):
        whole = rows if "next_states" in columns else rows[:-1]
        after = columns["next_states"][rows] if "next_states" in columns else states[rows[1:]]
        found.append((i, states[whole], actions[whole], after))
    return found


def select_simulators(
    log: Any, ladder: SimulatorLadder, *, delta: float = 0.05, seed: int = 0, progress: bool | None = None
) -> Answer:
    """Test simulators on a log, without acting; :func:`occamrl.select` calls it."""
    agent, episodes = OccamControl(ladder=ladder, delta=delta, seed=seed), transitions(log)
    bar = Progress("select", max(1, len(episodes)), progress)
    for number, states, actions, after in episodes:
        agent.begin_episode()
        for s, a, y in zip(states, actions, after, strict=True):
            agent.observe(s, a, 0.0, y)
        bar.update(number + 1)
    bar.close()
    return Answer(agent)
