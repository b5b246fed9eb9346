"""What the data say of simulators: which class and member are needed, what a policy is worth, where they misfit."""

from __future__ import annotations

import importlib
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
        self.agent, self.facts, self.evidence = agent, agent.facts(), agent.state["evidence"]
        level, order = self.evidence["level"], agent.ranking()
        self.chosen: int = self.facts["chosen"]  # from 1
        self.misspecified: bool = self.facts["misspecified"]
        inside = order[level[order] < self.chosen]
        self.index = int(order[0] if self.misspecified else inside[0])
        self.member = label_of(agent.members[self.index])  # the heaviest of the class
        self.parameters = parameters(agent.members[self.index])
        self._worth: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        """The class that is needed."""
        return self.agent.ladder.names[self.chosen - 1]

    @property
    def verdict(self) -> Verdict:
        """Facts by name, and sentences."""
        found = Verdict(self.facts | {"threshold": math.log(1 / self.agent.delta), "member": self.member})
        found.update(parameters=self.parameters, status="misspecified" if self.misspecified else "at least")
        found.sentences = tuple(self._sentences())
        return found

    def _sentences(self) -> list[str]:
        names, steps, since = self.facts["names"], self.evidence["steps"], self.facts["rejected_after"]
        if not steps:
            return ["Nothing has been observed yet."]
        delta = self.agent.delta
        out = [f"{name!r} after {n:,} steps" for name, n in zip(names, since, strict=True) if n is not None]
        if self.misspecified:
            found = [
                f"None of your simulators explains the data: {names[-1]!r} is rejected, too, since step {since[-1]:,}.",
                f"The nearest is {self.member}. {self.misfit}",
                "Meanwhile the agent plans with it, corrected by the mean of its errors.",
                "Next: add what is missing as a richer class, or finer values of the parameters.",
            ]
        else:
            found = [f"You need {self.name!r} ({ordinal(self.chosen)} of {count(len(names))} classes)."]
            if out:
                found.append(f"Rejected: {listed(out)}.")
            left = self.facts["alive"][-1]
            found.append(
                f"Its most plausible simulator is {self.member}; {left:,} of {len(self.agent.members):,} are left."
            )
            found.append(
                f"The smallest class that holds the truth is ever rejected with probability at most {delta:g}."
            )
            found.append(f"Richer classes are never excluded: {steps:,} steps did not ask for them.")
        if self.agent.state["added"]:
            n = len(self.agent.state["added"])
            found.append(f"{n} simulators were added between listed ones; the guarantee is for those listed.")
        returns = self.agent.state["returns"]
        if returns and any(returns):
            lately = np.array(returns[-max(1, len(returns) // 4) :])
            found.append(f"The last {lately.size:,} episodes earned {lately.mean():,.4g} each.")
        return found

    @property
    def misfit(self) -> str:
        """Where, in which coordinate and in which direction the member named misfits, in a sentence."""
        beta, error, scale = evidence.coefficients(self.evidence, self.index)
        ladder = self.agent.ladder
        seen, chosen = ladder.resolution.size, ladder.actions.dimension
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
        level, facts = self.evidence["level"], self.facts
        return [
            {
                "class": m + 1,
                "name": name,
                "size": int((level <= m).sum()),
                "left": facts["alive"][m],
                "evidence_against": facts["statistics"][m],
                "rejected_after": facts["rejected_after"][m],
            }
            for m, name in enumerate(facts["names"])
        ]

    def worth(
        self,
        policy: Callable[[Floats, int], Floats] | None = None,
        *,
        runs: int = 8,
        most: int = 8,
        progress: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Return the mean return of a policy under every surviving simulator, with its standard error, by Monte Carlo.

        ``policy(states [N, n], step) -> actions [N, m]``; by default the planner in the most plausible member.
        With probability 1 - delta the truth, if it is a member, is among the survivors, so that the least and the
        largest worth, give or take their errors, bound that in the truth; only the ``most`` heaviest are run.
        """
        agent, ladder, found = self.agent, self.agent.ladder, list[dict[str, Any]]()
        weight, order = np.exp(self.evidence["log_weight"]), agent.ranking()[:most]
        model = agent.corrected(self.index) if self.misspecified else agent.members[int(agent.ranking()[0])]
        bar = Progress("worth", len(order), progress, "simulators")
        for done, i in enumerate(order, start=1):
            rng, total = generator(agent.seed, "worth"), np.zeros(runs)
            states, warm = np.stack([ladder.first_state(rng) for _ in range(runs)]), [None] * runs
            for t in range(ladder.horizon):
                if policy is not None:
                    actions = as_floats("policy", policy(states, t), (runs, ladder.actions.dimension))
                else:
                    actions = np.empty((runs, ladder.actions.dimension))
                    for n in range(runs):
                        left = ladder.horizon - t
                        planned = agent.planner.plan(
                            model, ladder.reward, states[n], left, ladder.actions, rng, warm[n]
                        )
                        actions[n], warm[n] = planned
                after = agent.members[i](states, actions, rng)
                total, states = total + ladder.reward(states, actions, after), after
            error = float(total.std(ddof=1) / math.sqrt(runs)) if runs > 1 else math.inf
            row = {"simulator": label_of(agent.members[i]), "weight": float(weight[i] / weight[order].sum())}
            found.append(row | {"worth": float(total.mean()), "standard_error": error})
            bar.update(done)
        bar.close()
        self._worth = found
        return found

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class over time, on the current axes unless some are given."""
        import matplotlib.pyplot as plt

        axes = plt.gca() if axes is None else axes
        history, limit = np.array(self.agent.state["history"]), math.log(1 / self.agent.delta)
        for m, name in enumerate(self.facts["names"], start=1):
            if history.size:
                axes.plot(history[:, 0], np.minimum(history[:, m], 3 * limit), label=name)
        axes.axhline(limit, color="black", linestyle="--", linewidth=1.0, label="rejected above")
        axes.set(xlabel="real steps", ylabel="evidence against the class", xscale="log")
        axes.legend(fontsize="small")
        return axes

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

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page."""
        page: Any = importlib.import_module("occamrl.report.page")
        verdict, agent = self.verdict, self.agent
        shown = [{k.replace("_", " "): v for k, v in row.items()} for row in self.rows]
        sections = {"Answer": page.paragraphs(*verdict.sentences[1:])}
        sections["Evidence over time"] = page.picture(self.plot, "the evidence against each class") + page.table(shown)
        sections["Where it misfits"] = page.paragraphs(f"{self.member}: {self.misfit}")
        if agent.state["path"]:
            sections["Where it misfits"] += page.picture(self.plot_predictions, "the last episode, predicted and real")
        returns = agent.state["returns"]
        if returns and any(returns):
            sections["Returns"] = page.picture(lambda axes: draw_returns(returns, axes), "the return of every episode")
        if self._worth:
            sections["What the planner is worth"] = page.table(self._worth)
        sections["What is guaranteed"] = page.paragraphs(
            f"With probability {1 - agent.delta:g} the smallest class that holds the true simulator is never rejected, "
            "at any time, however the actions were chosen. It holds for exactly the simulators that were listed.",
            "Nothing is guaranteed of returns, of weights among simulators, or of how soon a wrong class is rejected.",
        )
        place = as_path("path", path)
        make_folder(place.parent)
        write_whole(place, page.render_static(verdict.sentences[0], sections).encode())
        return place

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            mark = "->" if row["class"] == self.chosen and not self.misspecified else "  "
            after = row["rejected_after"]
            fate = "not rejected" if after is None else f"rejected after {after:,} steps"
            left = f"{row['left']:,} of {row['size']:,} simulators left"
            against = f"evidence {row['evidence_against']:.2f}"
            lines.append(f"{mark} {row['class']}. {row['name']}: {against}, {fate}, {left}")
        lines.append(f"   rejected above {math.log(1 / self.agent.delta):.2f}")
        return "\n".join([*lines, *self.verdict.sentences])


def draw_returns(returns: Sequence[float] | Floats, axes: Axes) -> Axes:
    """Draw the return of every episode."""
    axes.plot(np.arange(1, len(returns) + 1), returns, marker="o", markersize=3)
    axes.set(xlabel="episode", ylabel="return")
    return axes


def transitions(log: Any) -> list[tuple[int, Floats, Floats, Floats]]:
    """Return a log as (episode, states [T, n], actions [T, m], next_states [T, n]), episode by episode.

    A log is a mapping or data frame with ``episode`` [T], ``states`` [T, n] and ``actions`` [T, m], in the order in
    which the steps were made, or with columns ``state_0``, ``state_1``, ..., ``action_0``, ...; ``next_states`` may be
    left out: then the last row of an episode only says where it ended, and its action is not used. Or a Minari
    dataset, or any iterable of episodes with ``observations`` [T + 1, n] and ``actions`` [T, m].
    """

    def flat(name: str, value: Any) -> Floats:
        array = as_floats(name, value)
        return array.reshape(len(array), -1)

    if hasattr(log, "iterate_episodes"):
        log = list(log.iterate_episodes())
    found = []
    if isinstance(log, Sequence):
        for i, each in enumerate(log):
            path = flat("observations", each.observations)
            found.append((i, path[:-1], flat("actions", each.actions)[: len(path) - 1], path[1:]))
        return found
    names = list(log) if isinstance(log, Mapping) else list(getattr(log, "column_names", getattr(log, "columns", ())))

    def column(name: str) -> Floats | None:
        if name in names:
            return flat(name, np.asarray(log[name]))
        several = [each for each in names if each.rpartition("_")[0] == name[:-1] and each.rpartition("_")[2].isdigit()]
        several.sort(key=lambda each: int(each.rpartition("_")[2]))
        return np.stack([as_floats(each, np.asarray(log[each])) for each in several], axis=1) if several else None

    states, actions, after = (column(name) for name in ("states", "actions", "next_states"))
    if states is None or actions is None or "episode" not in names:
        expected = "episode, states and actions (and next_states)"
        raise InvalidInput("log", got=f"columns {names}", expected=expected)
    episode = np.asarray(log["episode"])
    for name, rows in (("actions", actions), ("next_states", after), ("episode", episode)):
        if rows is not None and len(rows) != len(states):
            raise ShapeError(name, got=f"{len(rows)} rows", expected=f"{len(states)}, as states")
    cuts = np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]]))
    for i, (first, last) in enumerate(zip(cuts, [*cuts[1:], len(states)], strict=True)):
        whole = slice(first, last if after is not None else last - 1)
        follow = states[first + 1 : last] if after is None else after[whole]
        found.append((i, states[whole], actions[whole], follow))
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
