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

from occamrl.control.contract import call_checked
from occamrl.control.controller import ControlState, OccamControl
from occamrl.errors import OccamRLError, ParameterError, require_integer
from occamrl.evidence.simulated import label_of
from occamrl.evidence.simulator_worlds import Act, mean_and_error
from occamrl.protocols import ErrorMisfit, Floats, RewardMisfit
from occamrl.running.progress import Progress
from occamrl.running.verdict import USE_IT, Verdict, count, format_number, listed, ordinal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    def __init__(self, controller: OccamControl, state: ControlState, returns: Floats) -> None:
        self.controller = controller
        self.ladder = controller.ladder
        self.delta = controller.delta
        self.weigher = controller.evidence()
        self.evidence = self.weigher.kind
        self.state = state
        self.returns = returns
        self.history = state["history"]
        self.threshold = math.log(1 / self.delta)
        self.judgement = self.weigher.judge(state)
        self.chosen = self.judgement.chosen  # from 1
        self.misspecified = self.judgement.misspecified
        self.name = self.ladder.names[self.chosen - 1]  # of the class that is needed
        simulators = self.weigher.simulators(state)
        self.simulators = len(simulators)
        members = state["members"]
        self.member = label_of(simulators[members.heaviest(self.chosen - 1)])
        self.planned = label_of(simulators[int(members.ranking[0])])  # the heaviest of all
        intervals = self.weigher.parameters(state, self.chosen - 1)
        self.parameters = {name: interval.value for name, interval in intervals.items()}
        self.worlds = self.weigher.worlds(state)

    @property
    def facts(self) -> dict[str, Any]:
        """What was decided, by name."""
        return {
            "names": list(self.ladder.names),
            "chosen": self.chosen,
            "misspecified": self.misspecified,
            "statistics": self.judgement.against.tolist(),
            "alive": list(self.judgement.alive),
            "rejected_after": list(self.judgement.rejected_after),
        }

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
        if not self.state["steps"]:
            return "Nothing has been observed yet."
        if self.misspecified:
            return "None of your simulators explains the data."
        classes = len(self.ladder.names)
        place = (
            f"{ordinal(self.chosen)} of {count(classes)} classes"
            if classes > 1
            else "the only class"
        )
        return f"You need {self.name!r} ({place})."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer in words."""
        returns = self.returns
        if not self.state["steps"]:
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
        for misfit in self.weigher.misfits(self.state, self.chosen - 1):
            if isinstance(misfit, RewardMisfit):
                found.append(
                    "The rewards that came differ from the ladder's reward by "
                    f"{misfit.gap:.3g} per step on average."
                )
        return tuple(found)

    def _which(self) -> list[str]:
        """Say what was ruled out, and what is left."""
        facts, members, left = self.facts, self.simulators, self.facts["alive"][-1]
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
                    f"Richer classes are not excluded: {self.state['steps']:,} steps did not need them."
                )
        if added := len(self.state["added"]):
            found.append(
                f"{added} simulators were added between listed ones; the guarantee is for those listed."
            )
            if (
                not self.misspecified
                and (self.state["members"].rejected[: len(self.ladder.members)] >= 0).all()
            ):
                found.append("All listed simulators are ruled out: those left were added.")
        return found

    def _next(self) -> list[str]:
        """Say what to do next."""
        if self.misspecified:
            return [
                "Next: add what is missing as a richer class, or list finer values of the parameters."
            ]
        return [USE_IT]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each class: its size, members left, the evidence against it, since when it is ruled out."""
        facts, names = (
            self.facts,
            ("class", "name", "size", "left", "evidence_against", "rejected_after"),
        )
        level = self.state["members"].level
        sizes = [int((level <= m).sum()) for m in range(len(facts["names"]))]
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

    @property
    def misfit(self) -> str:
        """Where, in which coordinate and in which direction the member named misfits."""
        for misfit in self.weigher.misfits(self.state, self.chosen - 1):
            if isinstance(misfit, ErrorMisfit):
                return misfit_sentence(misfit)
        return "No linear misfit of its mean is visible."

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
        return self._worth(self._policy(policy), None, runs, most)

    def compared_with(self, policy: Policy, *, runs: int = 8, most: int | None = None) -> Worth:
        """Return how much more the planner earns than a policy, simulator by simulator."""
        return self._worth(self._policy(None), self._policy(policy), runs, most)

    def price_of_simplicity(self, *, runs: int = 8, most: int | None = None) -> dict[str, Worth]:
        """Return what planning with the best simulator of each class that was ruled out would lose."""
        simpler = self.ladder.names[: self.chosen - (not self.misspecified)]
        return {name: self.compared_with(name, runs=runs, most=most) for name in simpler}

    def _policy(self, policy: Policy) -> Act:
        """Return a policy, or the planner in the heaviest world or that of a class, as a function."""
        if policy is None:
            return self.worlds.recommend(None)
        if isinstance(policy, str) and policy in self.ladder.names:
            return self.worlds.policy(self.worlds.best(self.ladder.names.index(policy)))
        if not callable(policy):
            expected = (
                f"a function policy(states, step), or a class of {', '.join(self.ladder.names)}"
            )
            raise ParameterError("policy", got=repr(policy), expected=expected)
        given: Act = policy

        def checked(states: Floats, step: int) -> Floats:
            shape = (len(states), self.ladder.actions.dimension)
            return call_checked("policy", given, (states, step), shape)

        return checked

    def _worth(self, policy: Act, other: Act | None, runs: int, most: int | None) -> Worth:
        """Return what a policy earns, or how much more than another: means and their range."""
        self.worlds.runs = require_integer("runs", runs, 2)
        if most is not None:
            require_integer("most", most, 1)
        worlds = self.worlds.worlds[:most]
        bar = Progress("worth", len(worlds), None, "simulators")
        rows: list[dict[str, Any]] = []
        for done, world in enumerate(worlds, start=1):
            returns = self.worlds.returns(policy, world)
            if other is not None:
                returns = returns - self.worlds.returns(other, world)
            mean, error = mean_and_error(returns)
            rows.append(
                {
                    "simulator": world.label,
                    "weight": world.weight,
                    "worth": mean,
                    "standard_error": error,
                }
            )
            bar.update(done)
        bar.close()
        low = min(row["worth"] - 2 * row["standard_error"] for row in rows)
        high = max(row["worth"] + 2 * row["standard_error"] for row in rows)
        return Worth(rows[0]["worth"], low, high, rows)

    # Pictures and the page ------------------------------------------------------------------------

    def questions(self, runs: int) -> dict[str, list[str]]:
        """Return the answer as lines to four questions; worth is measured in ``runs`` episodes of each simulator."""
        found = {"Which model?": [self.headline, *self._which()]}
        how = (
            "corrected by the mean of its errors"
            if self.misspecified
            else "the most plausible that is left"
        )
        label = self.planned
        found["What to do?"] = [
            f"Plan with {label}, {how}: agent.act(state) does that at every step."
        ]
        if self.controller.acting != "plausible" and not self.misspecified:
            found["What to do?"] = [
                f"Plan by {self.controller.acting}, as agent.act(state) does; {label} is {how}."
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
        if not self.state["steps"]:
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


def misfit_sentence(misfit: ErrorMisfit) -> str:
    """Say how the errors of a simulator are not as it says."""
    if misfit.wider is not None:
        name = misfit.coordinates[0]
        return f"Its mean fits; the noise of {name} is {misfit.wider:.2g} times as wide as it says."
    size = f"than it says ({misfit.deviations:.2g} standard deviations)"
    high = _errors(misfit.coordinates, misfit.at_high)
    if not misfit.feature:
        return f"On average {high} {size}."
    up = "at its upper end" if misfit.of_action else "one typical spread above its middle"
    down = "at its lower end" if misfit.of_action else "one below it"
    low = _errors(misfit.coordinates, misfit.at_low)
    return f"Where {misfit.feature} is {up}, {high}; {down}, {low} {size}."


def _errors(coordinates: tuple[str, ...], errors: tuple[float, ...]) -> str:
    words = []
    for name, error in zip(coordinates, errors, strict=True):
        words.append(f"{name} comes out {abs(error):.3g} {'higher' if error > 0 else 'lower'}")
    return listed(words)
