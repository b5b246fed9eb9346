r"""What the data say of simulators: which one is needed, what to do, what that is worth, where they misfit.

**Worth.** With probability :math:`1-\delta` the true simulator, if it is listed, is among those
that are left. So the least and the largest mean return of a policy over them, give or take two
standard errors of the Monte Carlo mean, bound what the policy earns in truth. Two policies are
compared simulator by simulator, with common random numbers. *The price of simplicity* is what
planning with a class that was ruled out would lose.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.verdict import Verdict
from occamrl.answers.wording import USE_IT as ADVICE
from occamrl.answers.wording import count_word, format_number, listed, ordinal
from occamrl.control import errors, evidence
from occamrl.control.agent import OccamControl, parameters
from occamrl.control.ladder import Simulator, checked, label_of
from occamrl.errors import OccamRLError, ParameterError, require_integer
from occamrl.protocols import Floats
from occamrl.running.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SURE = 4.0  # standard errors from which on a misfit is named
WIDER = 0.3  # of the log of the width of the noise that fits to few draws may miss
MOST = 8  # simulators in which the page runs policies

Policy = Callable[[Floats, int], Floats] | str | None


class Worth(NamedTuple):
    """A mean return per episode: in the most plausible simulator, and its range over those that are left."""

    value: float
    low: float
    high: float
    rows: list[dict[str, Any]]  # for each simulator: its weight, the mean and its standard error

    def __str__(self) -> str:
        return (
            f"{format_number(self.value)} ({format_number(self.low)} to {format_number(self.high)})"
        )


class Answer:
    """What the data say so far: print it, ask what a policy is worth, write a ``page``."""

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
        self.planned = int(order[0])  # the heaviest of all, which the agent plans with
        self.member, self.parameters = (
            label_of(agent.members[self.index]),
            parameters(agent.members[self.index]),
        )
        self._played: dict[Any, Floats] = {}

    # Which simulator ------------------------------------------------------------------------------

    @property
    def verdict(self) -> Verdict:
        """Facts by name, and sentences."""
        found = Verdict(
            self.facts, threshold=self.threshold, member=self.member, parameters=self.parameters
        )
        found["status"], found.sentences = self.status, self.sentences
        return found

    @property
    def status(self) -> str:
        """Whether the class chosen is "at least" needed, or none fits: "misspecified"."""
        return "misspecified" if self.misspecified else "at least"

    def as_data(self) -> dict[str, Any]:
        """Return the answer as plain data, as JSON takes it."""
        facts = {
            name: getattr(self, name)
            for name in ("headline", "status", "chosen", "misspecified", "delta")
        }
        return facts | {
            "classes": self.rows,
            "simulator": self.member,
            "parameters": self.parameters,
            "sentences": list(self.sentences),
        }

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if not self.evidence["steps"]:
            return "Nothing has been observed yet."
        if self.misspecified:
            return "None of your simulators explains the data."
        classes = len(self.ladder.names)
        place = (
            f"{ordinal(self.chosen)} of {count_word(classes)} classes"
            if classes > 1
            else "the only class"
        )
        return f"You need {self.name!r} ({place})."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words."""
        returns = self.agent.returns
        if not self.evidence["steps"]:
            return (self.headline,)
        found = [self.headline, *self._which(), *self._next()]
        if returns.any():
            lately = returns[-max(1, len(returns) // 4) :]
            episodes = (
                "The last episode"
                if lately.size == 1
                else f"Each of the last {lately.size:,} episodes"
            )
            found.append(
                f"{episodes} earned {lately.mean():,.4g}{' on average' * (lately.size > 1)}."
            )
        off = self.agent.state["off"] / self.evidence["steps"]
        if off > 1e-6 * np.abs(returns).max(initial=1.0):
            found.append(
                f"The rewards that came differ from the ladder's reward by {off:.3g} per step on average."
            )
        return tuple(found)

    def _which(self) -> list[str]:
        """Say what was ruled out, and what is left."""
        facts, members, left = self.facts, len(self.agent.members), self.facts["alive"][-1]
        out = [
            f"{name!r} after {n:,} step{'s' * (n != 1)}"
            for name, n in zip(facts["names"], facts["rejected_after"], strict=True)
            if n is not None
        ]
        found = [f"Ruled out: {listed(out)}."] if out else []
        if self.misspecified:
            found.append(f"The most plausible is {self.member}. {self.misfit}")
            found.append("Meanwhile, plan with it, corrected by the mean of its errors.")
        else:
            found += [
                f"Its most plausible simulator is {self.member}; "
                f"{left:,} of {members:,} {'is' if left == 1 else 'are'} left.",
                f"A class that contains the truth is ruled out with probability at most {self.delta:g}.",
            ]
            if self.chosen < len(facts["names"]):
                found.append(
                    f"Richer classes are not excluded: {self.evidence['steps']:,} steps did not need them."
                )
        if added := len(self.agent.state["added"]):
            found.append(
                f"{added} simulators were added between listed ones; the guarantee is for those listed."
            )
            if (
                not self.misspecified
                and (self.evidence["rejected"][: len(self.ladder.members)] >= 0).all()
            ):
                found.append("All listed simulators are ruled out: those left were added.")
        return found

    def _next(self) -> list[str]:
        """Say what to do next."""
        if self.misspecified:
            return [
                "Next: add what is missing as a richer class, or list finer values of the parameters."
            ]
        return [str(ADVICE)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each class: its size, members left, the evidence against it, since when it is ruled out."""
        facts, names = (
            self.facts,
            ("class", "name", "size", "left", "evidence_against", "rejected_after"),
        )
        sizes = [int((self.evidence["level"] <= m).sum()) for m in range(len(facts["names"]))]
        columns = (
            facts["names"],
            sizes,
            facts["alive"],
            facts["statistics"],
            facts["rejected_after"],
        )
        return [
            dict(zip(names, row, strict=True))
            for row in zip(range(1, len(sizes) + 1), *columns, strict=True)
        ]

    # Where it misfits -----------------------------------------------------------------------------

    def strongest(self) -> tuple[int, Floats, Floats, Floats]:
        """Return the feature with the clearest effect on the errors, all effects, their z-scores and the noise."""
        beta, error, scale = errors.coefficients(self.evidence, self.index)
        strength = np.abs(beta) / error
        return int(strength.max(axis=1).argmax()), beta, strength, scale

    @property
    def misfit(self) -> str:
        """Where, in which coordinate and in which direction the member named misfits, in a sentence."""
        ladder, (k, beta, strength, scale) = self.ladder, self.strongest()
        if strength[k].max() < SURE:
            counted = errors.PRIOR + self.evidence["awake"][self.index]
            wide = np.sqrt(self.evidence["squares"][self.index, 1] / counted)
            j = int(np.abs(np.log(wide)).argmax())
            if abs(math.log(wide[j])) < max(WIDER, SURE / math.sqrt(2 * counted)):
                return "No linear misfit of its mean is visible."
            return f"Its mean fits; the noise of {ladder.features[j]} is {wide[j]:.2g} times as wide as it says."
        which = np.flatnonzero(strength[k] > 0.8 * strength[k].max())

        def off(error: Floats) -> str:
            names, signs = ladder.coordinates, ("lower", "higher")
            return listed(
                [
                    f"{names[i]} comes out {abs(error[i]):.3g} {signs[int(error[i] > 0)]}"
                    for i in which
                ]
            )

        size = (
            f"than it says ({np.abs(beta[k, which] / scale[which]).max():.2g} standard deviations)"
        )
        if k == 0:
            return f"On average {off(beta[0])} {size}."
        spread = k <= ladder.resolution.size
        up = "one typical spread above its middle" if spread else "at its upper end"
        down = "one below it" if spread else "at its lower end"
        high, low = off(beta[0] + beta[k]), off(beta[0] - beta[k])
        return f"Where {ladder.features[k - 1]} is {up}, {high}; {down}, {low} {size}."

    # What it is worth -----------------------------------------------------------------------------

    def worth_of(self, policy: Policy = None, *, runs: int = 8, most: int | None = None) -> Worth:
        """Return what a policy earns in an episode, by Monte Carlo in the simulators that are left.

        Parameters
        ----------
        policy : callable, name of a class, or None
            ``policy(states [N, n], step) -> actions [N, m]``; or the planner in the most plausible
            simulator of a class; by default in the most plausible of all, which takes a plan for
            every step.
        runs : int
            Episodes in each simulator.
        most : int, optional
            Only in so many of the simulators that are left, the most plausible: the range is then
            no bound.
        """
        return self._worth(self._returns(policy, runs, most))

    def compared_with(self, policy: Policy, *, runs: int = 8, most: int | None = None) -> Worth:
        """Return how much more the planner earns than a policy, simulator by simulator."""
        return self._worth(self._returns(None, runs, most) - self._returns(policy, runs, most))

    def price_of_simplicity(self, *, runs: int = 8, most: int | None = None) -> dict[str, Worth]:
        """Return what planning with the best simulator of each class that was ruled out would lose."""
        simpler = self.ladder.names[: self.chosen - (not self.misspecified)]
        return {name: self.compared_with(name, runs=runs, most=most) for name in simpler}

    def _worlds(self, most: int | None) -> list[tuple[str, float, Simulator]]:
        """Return what may be true: the simulators that are left, by weight, or the best one corrected."""
        if self.misspecified:
            return [(f"{self.member}, corrected", 1.0, self.agent.corrected(self.index))]
        members, left = self.agent.members, evidence.ranking(self.evidence)[:most]
        weight = np.exp(self.evidence["log_weight"][left])
        return [
            (label_of(members[i]), w, members[i])
            for i, w in zip(left, (weight / weight.sum()).tolist(), strict=True)
        ]

    def _returns(self, policy: Policy, runs: int, most: int | None) -> Floats:
        """Return what every run earned in each of the worlds [worlds, runs]; their noise is common to all policies."""
        most = most if most is None else require_integer("most", most, 1)
        agent, ladder, worlds = self.agent, self.ladder, self._worlds(most)
        key = (
            id(policy) if callable(policy) else repr(policy),
            require_integer("runs", runs, 2),
            len(worlds),
        )
        if key in self._played:
            return self._played[key]
        if policy is None:
            model = worlds[0][2]
        elif isinstance(policy, str) and policy in ladder.names:
            inside = np.flatnonzero(self.evidence["level"] <= ladder.names.index(policy))
            model = agent.members[int(inside[self.evidence["log_weight"][inside].argmax()])]
        elif not callable(policy):
            expected = f"a function policy(states, step), or a class of {', '.join(ladder.names)}"
            raise ParameterError("policy", got=repr(policy), expected=expected)
        bar = Progress("worth", len(worlds) * ladder.horizon, None, "steps")
        found, shape = np.zeros((len(worlds), runs)), (runs, ladder.actions.dimension)
        for n, (_, _, simulate) in enumerate(worlds):
            noise, own = generator(agent.seed, "worth"), generator(agent.seed, "worth", 1)
            states, warm = np.stack([ladder.first_state(noise) for _ in range(runs)]), [None] * runs
            for t in range(ladder.horizon):
                if callable(policy):
                    actions = checked("policy", policy, (states, t), shape)
                else:
                    actions = np.empty(shape)
                    for r in range(runs):
                        actions[r], warm[r] = agent.plan(
                            model, states[r], ladder.horizon - t, own, warm[r]
                        )
                after = simulate(states, actions, noise)
                found[n] += ladder.reward(states, actions, after)
                states = after
                bar.update(n * ladder.horizon + t + 1)
        bar.close()
        self._played[key] = found
        return found

    def _worth(self, found: Floats) -> Worth:
        """Return means over runs [worlds, runs], and their range."""
        mean, error = found.mean(axis=1), found.std(axis=1, ddof=1) / math.sqrt(found.shape[1])
        names = "simulator", "weight", "worth", "standard_error"
        labels, weights, _ = zip(*self._worlds(len(found)), strict=True)
        numbers = zip(labels, weights, mean.tolist(), error.tolist(), strict=True)
        rows = [dict(zip(names, row, strict=True)) for row in numbers]
        return Worth(
            float(mean[0]), float((mean - 2 * error).min()), float((mean + 2 * error).max()), rows
        )

    # Pictures and the page ------------------------------------------------------------------------

    def questions(self, runs: int) -> dict[str, list[str]]:
        """Return the answer as lines to four questions; worth is measured in ``runs`` episodes of each simulator."""
        found = {"Which model?": [self.headline, *self._which()]}
        how = (
            "corrected by the mean of its errors"
            if self.misspecified
            else "the most plausible that is left"
        )
        label = label_of(self.agent.members[self.planned])
        found["What to do?"] = [
            f"Plan with {label}, {how}: agent.act(state) does that at every step."
        ]
        if self.agent.acting != "plausible" and not self.misspecified:
            found["What to do?"] = [
                f"Plan by {self.agent.acting}, as agent.act(state) does; {label} is {how}."
            ]
        if runs:
            worth, prices = (
                self.worth_of(runs=runs, most=MOST),
                self.price_of_simplicity(runs=runs, most=MOST),
            )
            left = self.facts["alive"][-1]
            where = f"in the {MOST} most plausible of the" if left > MOST else "in the"
            where = (
                f"{where} {left:,} simulators that are left"
                if left > 1
                else "in the one simulator that is left"
            )
            where = "if the correction holds" if self.misspecified else where
            found["What is it worth?"] = [f"The planner earns {worth} per episode, {where}."]
            found["Does it matter?"] = [
                f"Planning with {name!r} alone would {_loss(v)}." for name, v in prices.items()
            ]
            found["Does it matter?"] = found["Does it matter?"] or [
                "There is nothing simpler to compare it with."
            ]
        return found | {"What next?": [each[6].upper() + each[7:] for each in self._next()]}

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class over time, on the current axes unless some are given."""
        return self._drawn("evidence", axes)

    def plot_predictions(self, axes: Axes | None = None) -> Axes:
        """Draw the last episode against what the heaviest simulator said a step before, two deviations either way."""
        return self._drawn("predictions", axes)

    def plot_misfit(self, axes: Axes | None = None) -> Axes:
        """Draw the errors of the last episode against what they depend on most, with what was learned of them."""
        return self._drawn("misfit", axes)

    def page(self, path: str | Path, *, runs: int = 8) -> Path:
        """Write the answer as one HTML page.

        ``runs`` episodes are planned in each simulator that is left to say what the planner is
        worth, and what simpler simulators would lose; 0 leaves that out.
        """
        written: Path = importlib.import_module("occamrl.report.simulators").write_page(
            self, path, runs
        )
        return written

    def _drawn(self, what: str, axes: Axes | None) -> Axes:
        if not self.evidence["steps"]:
            raise OccamRLError("there is nothing to draw: no step has been observed yet")
        drawn: Axes = getattr(importlib.import_module("occamrl.report.simulators"), f"draw_{what}")(
            self, axes
        )
        return drawn

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def _loss(price: Worth) -> str:
    """Return in words what a policy loses."""
    if price.low > 0.0:
        return f"earn {price} less"
    if price.high < 0.0:
        return f"earn {Worth(-price.value, -price.high, -price.low, price.rows)} more"
    return f"earn about as much (the difference is {price})"
