r"""The answer: which model is needed, what to do, what that is worth, and whether it matters.

With probability :math:`1 - \delta` the truth is among the models that are not ruled out, at all
times. So for every policy at once, :math:`[\min, \max]` of :math:`V_P^\pi` over these P holds what
the policy is worth; two policies are compared model by model, :math:`V_P^\pi - V_P^{\pi_0}`, which
is sharper than subtracting intervals. Recommended is the policy with the largest guaranteed worth
among the optimal policies of models that are possible, and today's. *The price of simplicity* is
what the best policy of a class that was ruled out would lose. Where models *misfit* is told pair by
pair: :math:`\sum_o c_o \log(c_o/(N_{sa} P(o)))`. With real parameters the extremes are searched
for, not enumerated.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl import bellman
from occamrl.control.answer import Answer as SimulatorAnswer
from occamrl.control.controller import OccamControl
from occamrl.errors import OccamRLError
from occamrl.evidence.likelihood import Judgement, Possible, possible_members
from occamrl.learners.ucrl_vtr import UCRLVTR, law_of_starts
from occamrl.protocols import Floats, Ints, Known
from occamrl.running.policy import Policy, as_policy
from occamrl.running.result import table_of_rows
from occamrl.running.verdict import (
    USE_IT,
    count_of,
    estimated,
    format_number,
    listed,
    place,
    said,
    since,
    times,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CANDIDATES = 12  # policies among which one is recommended
_RANKED = 64  # models on which they are compared
_NAMED = 3  # pairs that a sentence names
_LISTED = 10  # pairs whose misfit is listed


class Amount(NamedTuple):
    """A best guess, and a range that holds the truth with probability 1 - delta, at all times."""

    value: float
    low: float
    high: float


class LinearEvidence:
    """The evidence of ARL-GEN on linear classes: which class is needed, no list of what is possible, no fits."""

    possible: Any = None

    def __init__(self, agent: Any, known: Known) -> None:
        self.agent, self.ladder, self.known = agent, agent.ladder, known

    def judge(self, state: Any) -> Judgement:
        """Return twice the excess of the losses in the place of likelihoods."""
        plan = self.agent.plan(self.known, state, np.random.default_rng(0))
        rows, slack = (
            max(1, state["episodes"] * self.known.horizon),
            math.log(1.0 / self.agent.delta),
        )
        against = (
            2.0 * rows * (np.array(plan.diagnostics["statistics"]) - plan.diagnostics["threshold"])
            + slack
        )
        left = [int(m >= plan.facts["chosen"]) for m in range(1, self.ladder.classes + 1)]
        return Judgement(against, left, [], int(state["novel"]), -against, -slack)

    def best(self, state: Any, m: int) -> tuple[bellman.Kernel | None, dict[str, Any]]:
        """Return no model and no parameters."""
        return None, {}

    def fitted(self, state: Any, m: int) -> None:
        """Return nothing: value rows do not count outcomes."""


class ValueEvidence(LinearEvidence):
    """The evidence of ARL-GEN on lists, which also tells what is possible and what fits best."""

    def __init__(self, agent: Any, known: Known) -> None:
        super().__init__(agent, known)
        self.base = UCRLVTR(family=self.ladder.family, delta=agent.delta, prior=self.ladder.prior)

    def judge(self, state: Any) -> Judgement:
        """Return twice the losses in the place of likelihoods."""
        losses = self.base.losses(state)[0]
        least = -2.0 * float(self.base.thresholds(state, losses[None])[0])
        found, z = -2.0 * losses, least + math.log(1.0 / self.agent.delta)
        against, left = z - self.ladder.largest(found), self.ladder.count(found >= least)
        return Judgement(against, left, [], int(state["novel"]), found, least)

    def possible(self, state: Any) -> Possible:
        """Return the members of the sharp set."""
        found = self.judge(state)
        inside = np.flatnonzero(found.scores >= found.least)
        return possible_members(self.ladder, self.known, inside, found.scores[inside])

    def best(self, state: Any, m: int) -> tuple[bellman.Kernel, dict[str, Any]]:
        """Return the member of class m, from 0, with the least loss."""
        found = np.where(self.ladder.level <= m, self.judge(state).scores, -np.inf)
        return self.ladder.family.kernel_of(int(found.argmax()), self.known), {}


class MoreData(NamedTuple):
    """How many more episodes would be needed, at the rate at which the log tells kernels apart; infinite: never."""

    half: float  # to exclude half of the kernels that are left outside the class chosen, if that is the right one
    never: int  # how many of them no such log can tell from the best kernel of the class chosen
    if_wrong: float  # to reject the class chosen, if the best kernel outside it is the truth


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """What the data say; print it, or write it as a page.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> result = orl.run(orl.Occam(ladder=orl.Ladder.of_problem(problem)), problem, episodes=100)
    >>> answer = result.answer
    >>> round(answer.interval[0], 2) <= round(answer.value, 2) <= round(answer.interval[1], 2)
    True
    """

    ladder: Any
    known: Known
    delta: float
    episodes: int
    steps: int
    evidence: str  # "likelihood" | "value"
    judge: Any  # what weighs the classes
    state: Any  # its data
    starts: Ints  # [S] the first states of episodes
    since: Mapping[int, int]  # after how many episodes each class that is ruled out, from 1, was so
    source: str = ""
    history: Sequence[Sequence[float]] = ()  # episodes, and the evidence against each class by then
    misfit: bool = (
        False  # whether no class explains the data although members are left, by value rows
    )
    changed: bool = False  # whether the class chosen is one of the second half of a run
    actions_seen: Floats | None = None  # [S, A] how often each was chosen, of logs
    more: MoreData | None = None

    # Which model ----------------------------------------------------------------------------------

    @cached_property
    def judgement(self) -> Judgement:
        """What the evidence says of the classes."""
        found: Judgement = self.judge.judge(self.state)
        return found

    @property
    def misspecified(self) -> bool:
        """Whether no model explains the data."""
        return self.misfit or not any(self.judgement.left)

    @property
    def left(self) -> list[int] | None:
        """How many models of each class are not ruled out; None for linear classes."""
        return None if self.judge.possible is None else self.judgement.left

    @cached_property
    def status(self) -> str:
        """Whether the class chosen is "decided", "at least" needed, or all larger ones possible too."""
        if self.misspecified:
            return "misspecified"
        left, m = self.judgement.left, self.chosen
        if m == len(left) or (
            self.left is not None
            and not hasattr(self.judge, "intervals")
            and left[m - 1] == left[-1]
        ):
            return "decided"
        return "at least" if m > 1 else "not enough data"

    @property
    def threshold(self) -> float:
        """The evidence above which a class is ruled out."""
        return math.log(1.0 / self.delta)

    def rejected_after(self, m: int) -> int | None:
        """Return since how many episodes class m, from 1, has been ruled out; None if it is not."""
        if "rejected" in self.state:  # for good
            return int(self.state["rejected"][m - 1]) or None
        return None if self.judgement.left[m - 1] and not self.misspecified else self.since.get(m)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of :attr:`table`, as dictionaries."""
        left: list[Any] = self.left or [None] * len(self.ladder.names)
        columns = zip(
            self.ladder.names, self.ladder.sizes, left, self.judgement.against.tolist(), strict=True
        )
        names = ("class", "name", "size", "left", "evidence_against", "rejected_after")
        each = ((m, *row, self.rejected_after(m)) for m, row in enumerate(columns, start=1))
        return [dict(zip(names, row, strict=True)) for row in each]

    @property
    def table(self) -> Any:
        """A row for each class: its size, how many models are left, the evidence against it, since when it is out."""
        return table_of_rows(self.rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the evidence against each class as it grew, on the current axes unless some are given."""
        drawn: Axes = importlib.import_module("occamrl.report.figures").draw_evidence(self, axes)
        return drawn

    @cached_property
    def chosen(self) -> int:
        """The smallest class that is not ruled out, from 1; where all are, the one that fits best, the largest."""
        return next(
            (m for m, left in enumerate(self.judgement.left, start=1) if left),
            len(self.ladder.names),
        )

    @property
    def model(self) -> str | None:
        """The name of the class that is needed; None if none fits."""
        return None if self.misspecified else str(self.ladder.names[self.chosen - 1])

    @cached_property
    def _best(self) -> tuple[bellman.Kernel, dict[str, Amount]]:
        kernel, parameters = self.judge.best(self.state, self.chosen - 1)
        return kernel, {name: Amount(*each) for name, each in parameters.items()}

    @property
    def parameters(self) -> dict[str, Amount]:
        """The parameters of that model, where they are real numbers: best guess, low, high."""
        return self._best[1]

    @property
    def at_bounds(self) -> list[str]:
        """The parameters whose best guess is at an end of their box: wider bounds may fit better."""
        found = []
        for name, best in self.parameters.items():
            low, high = self.ladder.model.box[name]
            if min(best.value - low, high - best.value) <= 1e-6 * (high - low):
                found.append(name)
        return found

    @cached_property
    def vague(self) -> bool:
        """Whether the data exclude less than a tenth of what the models allow."""
        if self.chosen > 1 or self.left is None:
            return False
        if hasattr(self.ladder, "model"):
            sizes = {name: high - low for name, (low, high) in self.ladder.model.box.items()}
            wide = [
                each.high - each.low > 0.9 * sizes[name] for name, each in self.parameters.items()
            ]
            return bool(wide) and all(wide)
        return bool(self.left[-1] > max(1.0, 0.9 * self.ladder.sizes[-1]))

    @cached_property
    def ruled_out(self) -> dict[str, tuple[int | None, float]]:
        """By class: after how many episodes, and how many times less likely than the best explanation it makes them."""
        found = {}
        for m in range(1, self.chosen + self.misspecified):
            against = float(self.judgement.against[m - 1])
            worse = math.exp(min(against, 700.0)) if against < math.inf else math.inf
            found[str(self.ladder.names[m - 1])] = (self.rejected_after(m), worse)
        return found

    # What to do, and what it is worth -------------------------------------------------------------

    @property
    def valued(self) -> bool:
        """Whether policies and their worth can be told: rewards are known, and so is what is possible."""
        return self.known.rewards_known and self.judge.possible is not None

    def _require_valued(self) -> None:
        if not self.known.rewards_known:
            raise OccamRLError(
                "no worth and no policy: rewards are not known; give known=mdp.known, or use orl.Model"
            )
        if not self.valued:
            raise OccamRLError(
                "no worth and no policy: linear classes have no list of what is possible"
            )

    @cached_property
    def possible(self) -> Possible:
        """The models that are not ruled out."""
        self._require_valued()
        found: Possible = self.judge.possible(self.state)
        return found

    @cached_property
    def law(self) -> Floats:
        """The law of the first state."""
        return law_of_starts(self.known, self.starts)

    def _worth(self, policy: Any) -> Callable[[bellman.Kernel], float]:
        return lambda kernel: float(self.law @ bellman.evaluate([kernel], policy)[0])

    def _amount(self, worth: Callable[[bellman.Kernel], float], *, change: bool = False) -> Amount:
        """Return a worth in the user's unit: under the best guess, and its range."""
        self._require_valued()
        low, high = (math.nan, math.nan) if self.misspecified else self.possible.range(worth)
        guess = worth(self._best[0])
        found = np.array([guess, min(low, guess), max(high, guess)])
        return Amount(
            *(self.known.unit.scale * found if change else self.known.amount(found)).tolist()
        )

    @cached_property
    def _recommended(self) -> Ints:
        """The policy with the largest guaranteed worth among optimal ones of what is possible, and today's."""
        self._require_valued()
        S, H = self.known.states, self.known.horizon
        own = bellman.solve([self._best[0]], S, H)[1]
        if self.misspecified:
            return own
        order = np.argsort(-self.possible.likelihood)
        spread = order[
            np.unique(np.linspace(0, order.size - 1, min(order.size, _RANKED)).astype(int))
        ]
        kernels = [self._best[0], *(self.possible.kernel(int(i)) for i in spread)]
        few = kernels[:: max(1, len(kernels) // _CANDIDATES)]
        policies = [own, *(bellman.solve([kernel], S, H)[1] for kernel in few[1:])]
        if self.today is not None:
            policies.append(self.today.argmax(axis=2))  # what was done most often
        different = list({policy.tobytes(): policy for policy in policies}.values())
        floor = [min(self._worth(policy)(kernel) for kernel in kernels) for policy in different]
        return different[int(np.argmax(floor))]

    @cached_property
    def policy(self) -> Policy:
        """What to do, in the states that can be reached under some model that is possible."""
        kernels = [self._best[0]]
        if not self.misspecified:
            kernels += [self.possible.kernel(i) for i in range(self.possible.level.size)]
        reached = np.zeros(self.known.states, bool)
        for kernel in kernels:
            here = self.law > 0.0
            for h in range(self.known.horizon):
                reached |= here
                pairs = np.flatnonzero(here) * self.known.actions + self._recommended[h, here]
                here = np.asarray(kernel.matrix[pairs].sum(axis=0)).ravel() > 0.0
        return Policy(self._recommended, self.known, reached & ~self.known.absorbing)

    @cached_property
    def worth(self) -> Amount:
        """What the policy earns in an episode: best guess, low, high."""
        return self._amount(self._worth(self._recommended))

    @property
    def value(self) -> float:
        """The best guess of what the policy earns in an episode."""
        return self.worth.value

    @property
    def interval(self) -> tuple[float, float]:
        """A range for that, over all that is still possible."""
        return self.worth.low, self.worth.high

    def compared_with(self, policy: Any) -> Amount:
        """Return how much more the recommended policy earns in an episode than another one.

        That may be a Policy, actions [H, S], probabilities [H, S, A], a dict from states to
        actions, or a function.
        """
        other, own = as_policy(policy, self.known), self._recommended
        return self._amount(
            lambda kernel: self._worth(own)(kernel) - self._worth(other)(kernel), change=True
        )

    @cached_property
    def today(self) -> Floats | None:
        """The policy that a log shows, as frequencies [H, S, A]; None without a log."""
        if self.actions_seen is None:
            return None
        share = np.where(self.known.allowed, 1e-9, 0.0) + self.actions_seen
        return np.tile(share / share.sum(axis=1, keepdims=True), (self.known.horizon, 1, 1))

    def worth_of(self, policy: Any) -> Amount:
        """Return what a policy, in any form that :meth:`compared_with` takes, earns in an episode."""
        return self._amount(self._worth(as_policy(policy, self.known)))

    @cached_property
    def simple_policies(self) -> dict[str, Ints]:
        """The best policy of each simpler class, by its name."""
        S, H, names = self.known.states, self.known.horizon, self.ladder.names[: self.chosen - 1]
        kernels = {str(name): self.judge.best(self.state, m)[0] for m, name in enumerate(names)}
        return {name: bellman.solve([kernel], S, H)[1] for name, kernel in kernels.items()}

    @cached_property
    def price_of_simplicity(self) -> dict[str, Amount]:
        """What the best policy of each simpler class would lose in an episode."""
        return {name: self.compared_with(policy) for name, policy in self.simple_policies.items()}

    @cached_property
    def misfits(self) -> list[dict[str, Any]]:
        """Where the best model misfits most: what it predicts and what was seen, by state and action."""
        found = self.judge.fitted(self.state, self.chosen - 1)
        if found is None:
            return []
        outcomes, seen, probability = found
        visits = np.add.reduceat(seen, outcomes.start[:-1])
        expected = visits[outcomes.pair] * probability
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(seen > 0, seen * np.log(seen / np.maximum(expected, 1e-300)), 0.0)
        by_pair, novel = np.add.reduceat(gain, outcomes.start[:-1]), self.state["novel"]
        every = visits + np.bincount(novel[:, 0].astype(int), novel[:, 2], visits.size)
        rows = [
            (pair, after, often, 0.0, math.inf)
            for pair, after, often, _ in novel[np.argsort(-novel[:, 2])]
        ]
        for pair in np.argsort(-by_pair)[:_LISTED]:
            own = slice(outcomes.start[pair], outcomes.start[pair + 1])
            worst = own.start + int(np.abs(seen[own] - expected[own]).argmax())
            if by_pair[pair] > 0.0:
                rows.append(
                    (pair, outcomes.next_state[worst], seen[worst], expected[worst], by_pair[pair])
                )
        found = []
        for pair, after, often, predicted, nats in rows[:_LISTED]:
            s, a = self.judge.pair_of(int(pair))
            row = {"state": self.known.state_name(s), "action": self.known.action_name(a)}
            row |= {
                "next state": self.known.state_name(int(after)),
                "seen": int(often),
                "of": int(every[int(pair)]),
            }
            found.append({**row, "predicted": float(predicted), "nats": float(nats)})
        return found

    @cached_property
    def to_try(self) -> list[dict[str, Any]]:
        """The pairs whose unknown outcomes widen the range of the worth most, and how often they were tried."""
        if self.misspecified:
            return []
        every = [self.possible.kernel(i) for i in range(min(self.possible.level.size, _RANKED))]
        worth = [self._worth(self._recommended)(kernel) for kernel in every]
        low, high = every[int(np.argmin(worth))], every[int(np.argmax(worth))]
        values = bellman.evaluate([self._best[0]], self._recommended)
        spread, here = np.zeros(self.known.states), self.law.copy()
        states = np.arange(self.known.states)
        for h in range(self.known.horizon):
            pair = states * self.known.actions + self._recommended[h]
            gaps = [
                bellman.lookahead(kernel, values[h + 1]).ravel()[pair] for kernel in (low, high)
            ]
            spread += here * np.abs(gaps[1] - gaps[0])
            here = self._best[0].matrix[pair].T @ here / self.known.discount
        found = []
        for s in np.argsort(-spread)[:_NAMED].tolist():
            if spread[s] > 0.0:
                action = self.known.action_name(int(self._recommended[0, s]))
                row = {
                    "state": self.known.state_name(s),
                    "action": action,
                    "share": float(spread[s] / spread.sum()),
                }
                found.append(row)
        return found

    # In words -------------------------------------------------------------------------------------

    def money(self, amount: float) -> str:
        """Return an amount in the user's unit."""
        return f"{format_number(amount)} {self.known.unit_name}".rstrip()

    def span(self, amount: Amount) -> str:
        """Return an amount with its range."""
        if math.isnan(amount.low):
            return f"{self.money(amount.value)} (no range: no model fits)"
        if amount.low == amount.high:  # one model is left
            return self.money(amount.value)
        return f"{self.money(amount.value)} ({format_number(amount.low)} to {format_number(amount.high)})"

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The answer for a person to read."""
        valued = (*self._earned(), *self._matters(), *self._wide()) if self.valued else ()
        return (*self._which(), *valued, *self.next_steps)

    @cached_property
    def gain(self) -> Amount | None:
        """How much more the recommended policy earns than the one that the log shows; None without a log."""
        return None if self.today is None else self.compared_with(self.today)

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if self.misspecified:
            return "None of your models fits the data."
        if not self.valued:
            return f"You need {self.model!r}."
        if self.vague:
            return f"The data rule out hardly anything yet ({count_of(self.steps, 'step')})."
        text = f"You need {self.model!r}: its policy earns {self.money(self.value)} per episode"
        if self.gain is None:
            return f"{text}."
        if self.gain.low < 0.0:
            return f"{text}; the data do not show yet that this is more than today's."
        return f"{text}, {self.money(self.gain.value)} more than today's."

    @cached_property
    def questions(self) -> dict[str, list[str]]:
        """The answer as lines to four questions."""
        found = {"Which model?": self._which()}
        if self.valued:
            found |= {"What to do?": self.policy.brief, "What is it worth?": self._earned()}
            found["Does it matter?"] = self._matters() or [
                "There is nothing simpler to compare it with."
            ]
        steps = [each[6].upper() + each[7:] for each in self.next_steps]  # without "Next: "
        return {**found, "What next?": [*steps, *(self._wide() if self.valued else [])]}

    def _which(self) -> list[str]:
        """Say which model is needed, and what was ruled out."""
        names, found = self.ladder.names, []
        if self.misspecified:
            blends = self.judgement.blends
            found.append(f"None of your models fits the data: even {names[-1]!r} is ruled out.")
            if blends:
                found.append(
                    f"Blends of the {names[blends[0] - 1]!r} models fit: the truth lies between your values."
                )
            if self.judgement.novel:
                found.append(
                    f"{self.judgement.novel:,} steps are transitions that every model calls impossible."
                )
            found += estimated(getattr(self.ladder, "draws", 0))
            for row in self.misfits[:_NAMED]:
                seen = f"was seen {row['seen']:,} of {row['of']:,} times; {format_number(row['predicted'])} were predicted"
                where = f"in state {said(row['state'])}, action {said(row['action'])}"
                found.append(f"It misfits {where}: next state {said(row['next state'])} {seen}.")
            return found
        values = [
            f"{name} {format_number(each.value)} ({format_number(each.low)} to {format_number(each.high)})"
            for name, each in self.parameters.items()
        ]
        model = f"{self.model!r} ({place(self.chosen, len(names))}){': ' + listed(values) if values else ''}."
        if self.vague:
            seen = count_of(self.steps, "step")
            return [
                f"The data ({seen}) rule out hardly anything yet. The simplest model that is left is {model}"
            ]
        found.append(f"You need {model}")
        for name in self.at_bounds:
            found.append(
                f"The best {name} is at the bound that you gave it, {format_number(self.parameters[name].value)}."
            )
        for name, (when, worse) in self.ruled_out.items():
            after = "" if when is None else f" after {count_of(when, 'episode')}"
            worse_by, limit = times(math.log(worse)), f"{1.0 / self.delta:,.0f}"
            why = f"by now it explains the data {worse_by} times worse than the best explanation"
            why += f" (the limit is {limit} times)"
            if self.evidence == "value":
                why = "it predicts the value of next states too badly"
            elif math.isinf(worse):
                why = "it calls impossible what was seen"
            found.append(f"{name!r} was ruled out{after}: {why}.")
        if self.chosen == 1 and len(names) > 1:
            found.append("It is the simplest, and nothing in the data speaks against it so far.")
        if self.status in ("at least", "not enough data"):
            found.append("Richer models are not excluded: they are not needed to explain the data.")
        if self.more is not None and math.isfinite(self.more.if_wrong):
            more = count_of(round(self.more.if_wrong), "more such episode")
            found.append(f"If it is too simple, about {more} would show it.")
        if self.more is not None and self.more.never:
            found.append(
                f"{self.more.never:,} richer models predict the same at every step: only other data can tell."
            )
        return found

    def _earned(self) -> list[str]:
        """Say what the policy is worth."""
        return [f"The recommended policy earns {self.span(self.worth)} per episode."]

    def _matters(self) -> list[str]:
        """Say what it is worth against today's and against those of simpler models."""
        found = []
        if self.gain is not None:
            less = self.gain.value < 0.0
            gain = Amount(-self.gain.value, -self.gain.high, -self.gain.low) if less else self.gain
            found.append(
                f"It earns {self.span(gain)} {'less' if less else 'more'} than today's, estimated from the log."
            )
        for name, loss in self.price_of_simplicity.items():
            text = f"earn {self.span(loss)} less" if loss.value > 0.0 else "do about as well"
            found.append(f"The best policy of {name!r} would {text}.")
        return found

    def _wide(self) -> list[str]:
        """Say what would narrow a wide range."""
        width, scale = (
            self.worth.high - self.worth.low,
            max(abs(self.worth.value), self.known.unit.scale),
        )
        if width > 0.1 * scale and self.to_try:
            pairs = [
                f"action {said(row['action'])} in state {said(row['state'])}" for row in self.to_try
            ]
            return [f"The range is wide; to narrow it, try {listed(pairs)}."]
        return []

    @cached_property
    def next_steps(self) -> list[str]:
        """What to do next."""
        if not self.misspecified:
            gain = self.gain if self.valued else None
            if gain is not None and gain.low < 0.0:
                return [
                    "Next: keep today's policy while you collect more data: this one may earn less."
                ]
            if gain is None and self.vague:
                return ["Next: collect more data before you rely on it."]
            if self.changed:
                return ["Next: the class changed lately; collect more data before you rely on it."]
            return [USE_IT]
        if self.judgement.blends:
            return ["Next: list finer values, or fit real parameters (orl.Model)."]
        if self.judgement.novel:
            return [
                "Next: allow what happened in your models; or look for a variable that is missing from the state."
            ]
        if self.ladder.finite:  # nothing tells whether values between those listed would do
            return [
                "Next: fit real parameters (orl.Model): finer values may do. If not, a variable may be missing."
            ]
        return ["Next: add a richer class, or look for a variable that is missing from the state."]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page: the model, the policy, what it is worth, the evidence."""
        written: Path = importlib.import_module("occamrl.report.page").write_page(self, path)
        return written

    def as_data(self) -> dict[str, Any]:
        """Return the answer as plain data, as JSON takes it."""
        names = [
            "model",
            "chosen",
            "status",
            "misspecified",
            "parameters",
            "ruled_out",
            "history",
            "episodes",
            "delta",
        ]
        names += ["evidence", "headline", "sentences"]
        names += ["value", "interval", "price_of_simplicity", "misfits"] if self.valued else []
        data = {"classes": self.rows, **{name: getattr(self, name) for name in names}}
        if self.valued:
            data["policy"] = self.policy.rows
        found: dict[str, Any] = json.loads(
            json.dumps(data, default=str), parse_constant=lambda _: None
        )
        return found


def answer_of(result: Any) -> Any:
    """Return the answer of a run's result."""
    agent, known, state = result.agent, result.known, result.state
    if isinstance(agent, OccamControl):
        return SimulatorAnswer(agent, state, result.returns)
    ladder = getattr(agent, "ladder", None)
    if hasattr(agent, "evidence") and ladder is not None:
        judge, evidence = agent.evidence(known), "likelihood"
    elif ladder is not None and "gram" in state:
        judge, evidence = (
            (ValueEvidence if ladder.finite else LinearEvidence)(agent, known),
            "value",
        )
    else:
        expected = "answers need a selector over a ladder: orl.Occam(ladder=...), or orl.ARLGen(ladder=...)"
        raise OccamRLError(
            f"{type(agent).__name__} has no evidence about a ladder of models; {expected}"
        )
    rows = [row for row in result.phase_rows if row.get("statistics")]
    out: dict[int, int] = {}
    for row in rows:
        last = row["first"] + row["episodes"] - 1
        out |= dict.fromkeys(
            range(row["chosen"], ladder.classes + 1), last
        )  # they were not ruled out yet
    now = {**result.next_plan.facts, **result.next_plan.diagnostics}
    told = [
        point for phase in result.blocks.phases for point in phase.get("history", ()) if point[0]
    ]
    told += [[result.total_episodes, *now["statistics"]]] if result.total_episodes else []
    history = [[math.inf if each is None else each for each in point] for point in told]
    changed = since(rows, "chosen", now["chosen"], result.total_episodes) > max(
        result.total_episodes / 2, 1
    )
    return Answer(
        ladder=ladder,
        known=known,
        delta=agent.delta,
        episodes=result.total_episodes,
        steps=int(state["count"].sum())
        if "count" in state
        else result.total_episodes * known.horizon,
        evidence=evidence,
        judge=judge,
        state=state,
        starts=state.get("starts", np.zeros(known.states, np.int64)),
        source="the simulator" if result.environment is None else result.environment.name,
        history=history if evidence == "likelihood" else (),
        since=out,
        misfit=bool(now.get("misspecified", False)),
        changed=changed,
    )
