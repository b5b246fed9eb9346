r"""ARL-GEN: selection among nested families of any kind (Ghosh et al. 2022, section 3; M13, M15, M25).

    phases i = 1, 2, ...
        test the classes F_1 < ... < F_M on all rows so far
        play UCRL-VTR on the smallest class that is accepted

**Lists of kernels.** One learner (:class:`~occamrl.learners.ucrl_vtr.NestedUCRLVTR`) keeps the confidence set B of
M24 over F_M with the prior of M25 and plays the smallest class that meets it; classes are tested when the data have
grown by ``test_growth``, inside a phase as well. Phases have 2^i episodes and report what was found.

**A linear class or an aggregation on top.** Each test begins a phase. Rows of all phases are kept in the coordinates of
F_M, whatever class plays, and class m is accepted iff

.. math:: \min_{F_m} L \le L_\lambda(\theta_M) + \tfrac{R^2}{4}\big(\log\det(\Sigma_M/\lambda) + 2\log(1/\delta)\big)

(the linear form of M15), plus what a truth between the points of a cover may cost. The bound holds at all times at
once, so testing often costs no confidence. Linear classes and aggregations are played by UCRL-VTR-LIN on all rows,
finite ones below them by UCRL-VTR on the rows of their own plans. With one kernel per step the rows of each step are
tested by themselves, each at its part of delta, and a class has to be accepted at all steps.

Rewards take no part in a test: the targets of its rows are values alone, which were fixed before the outcome.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from occamrl._core.arena import field, model_of, resumed
from occamrl._core.regression import stacked
from occamrl._core.rows import COUNTERS, EPISODES, GRAM, GRAM_PAIRS, GRAM_SQUARES, GRAM_XY, MOST, MOST_ROWS, PlanState
from occamrl.errors import ParameterError, require_choice, require_kind
from occamrl.learners import ucrl_vtr, ucrl_vtr_lin
from occamrl.learners.rewards import (
    Rewards,
    RewardStatistics,
    continue_rewards,
    require_observed,
    require_rewards,
    reward_rows,
    reward_statistics,
)
from occamrl.learners.ucrl_vtr import (
    ALIVE,
    CLASS,
    CLASS_SINCE,
    COORDINATE,
    FORM_BLOCKS,
    FORM_OF,
    IMPOSSIBLE,
    LOSS,
    MEMBERS,
    PAIRS,
    ROWS,
    SUM_OF_SQUARES,
    FiniteModel,
    NestedUCRLVTR,
    example_ladder,
)
from occamrl.learners.ucrl_vtr_lin import LinearStatistics, UCRLVTRLin, require_gram
from occamrl.models.family import unpacked
from occamrl.models.finite import level, off_grid
from occamrl.models.ladder import Ladder, dense
from occamrl.protocols import Field, Floats, Ints, Kernel, Known, Learner, Phase, PhaseOutcome, Selector, require_parts
from occamrl.selectors.references import on_class, own_parameters

_LAMBDA = 1.0  # of all regressions: the default of UCRLVTRLin
_LAST_EPOCH = 62  # of phases of 2^i episodes
_MOST_COORDINATES = 2000  # of the test for a truth outside F_M


@dataclass(frozen=True, kw_only=True, eq=False)
class ARLGen(Selector):
    """Play UCRL-VTR on the smallest class of a ladder that the data do not contradict.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("patchy-ice")
    >>> agent = orl.ARLGen(ladder=orl.Ladder.of_problem(problem))
    >>> result = orl.run(agent, problem, episodes=30)
    >>> result.phases["chosen"][-1].as_py()
    1

    Parameters
    ----------
    ladder : Ladder
        Nested classes F_1 < ... < F_M.
    delta : float
        The smallest class that holds the true kernel is rejected with probability at most delta, over all tests
        together.
    safe : bool
        Be optimistic over all of the confidence set, whatever the class (M25); ``chosen`` is then a report. Needs no
        separability: choose it when :func:`occamrl.preflight` finds blind pairs. Only for lists of kernels; on other
        ladders it is what playing F_M is.
    guard : bool
        Be optimistic over all of the confidence set in the episodes 1, 4, 9, ..., about sqrt(k) of k (M25). Where F_M
        is not a list: play F_M in phases of their own, about sqrt(k) of k episodes in all.
    test_growth : float
        A test is made when the data have grown by this factor (0: before every episode, only for lists of kernels).
    scale : float
        Of the base learner, see :class:`UCRLVTR`. Where F_M is not a list, ``scale`` multiplies what the test allows
        above the best loss too; below 1 the guarantee is lost.
    replan : float, optional
        Of the base learner; by default 0 for lists of kernels and 0.2 otherwise.
    rewards, kernel
        Of the base learner: unknown rewards, and one kernel per step, the true class then being the smallest that holds
        all of them.

    Notes
    -----
    ``result.phases`` has one row per phase: the class ``chosen`` at its beginning and ``since`` when it is in play,
    every statistic T_m (M13), the ``threshold``, the ``margin`` by which the loss of the class chosen is below it, the
    ``separation`` (the mean squared distance, over all rows and steps, between the best kernel and the nearest one of
    the largest class rejected), the slack ``beta`` of the confidence set, the ``misfit`` (by how much the best loss of
    F_M exceeds what noise explains, with confidence 1 - delta), and whether the data show that the truth is ``outside``
    F_M: a positive misfit or, on lists of kernels, a target beyond the range that its kernels allow (M23).
    """

    given = ("order",)

    ladder: Ladder
    delta: float = 0.05
    safe: bool = False
    guard: bool = False
    test_growth: float = 0.1
    replan: float | None = None
    scale: float = 1.0
    rewards: Rewards = "known"
    kernel: Kernel = "stationary"

    def __post_init__(self) -> None:
        require_rewards(self.rewards)
        require_choice("kernel", self.kernel, ("stationary", "per_step"))
        require_kind("ladder", self.ladder, Ladder)
        for name in ("safe", "guard"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ParameterError(name, got=getattr(self, name), expected="True or False")
        if self.safe and self.guard:
            raise ParameterError("guard", got=True, expected="False: safe=True is always optimistic over all classes")
        _ = self._evidence  # checks the other parameters

    @cached_property
    def _evidence(self) -> MemberEvidence | RegressionEvidence:
        return MemberEvidence(self) if self.ladder.finite else RegressionEvidence(self)

    @property
    def guarantee(self) -> str:
        """What is proved of its regret."""
        return "valid" if self.safe else "valid if separable"

    def start(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return self._evidence.begin(known)

    def next_phase(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes, and play the smallest that is accepted."""
        return self._evidence.next(known, memory)

    def finish_phase(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep what the phase taught."""
        self._evidence.finish(known, memory, phase, outcome)

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        self._evidence.resume(known, memory)

    @classmethod
    def examples(cls, mdp: Any) -> Sequence[Selector]:
        """Small instances on a problem, for the contract checks."""
        ladder = example_ladder(mdp)
        return [cls(ladder=ladder), cls(ladder=ladder, safe=True), cls(ladder=ladder, guard=True, replan=0.2)]


class MemberEvidence:
    """Evidence on lists of kernels: the losses of all members, kept by one learner for the whole run."""

    def __init__(self, selector: ARLGen) -> None:
        self.learner, self.ladder = NestedUCRLVTR(**own_parameters(selector, NestedUCRLVTR)), selector.ladder

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data."""
        return {"epoch": 1, "state": self.learner.begin(known)}

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        require_parts("memory", memory, {"epoch": (1, _LAST_EPOCH), "state": PlanState})
        fresh, learner = self.learner.begin(known), self.learner
        memory["state"] = resumed(learner, known, model_of(learner, known), fresh, memory["state"])

    def next(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Go on, for twice as many episodes as before."""
        i, state = memory["epoch"], memory.pop("state")
        facts = self._facts(known, model_of(self.learner, known), state)
        return Phase(self.learner, state, 2**i, epoch=i, label=f"F_{facts['chosen']}", facts=facts)

    def finish(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the learner's state, the rows that wait entered."""
        memory["epoch"] += 1
        memory["state"] = outcome.state
        if not self.learner.counted:
            ucrl_vtr.enter_rows(model_of(self.learner, known), outcome.state)

    def _facts(self, known: Known, model: FiniteModel, state: Any) -> dict[str, Any]:
        """Return every T_m (M13), the threshold and what follows; losses are less the sum of y^2, ``squares``."""
        counters, classes = field(state, COUNTERS), self.ladder.classes
        total, since = int(counters[EPISODES]) * known.horizon, max(1, int(counters[CLASS_SINCE]))
        statistics, threshold, margin, beta = [0.0] * classes, None, None, float(model.slack)
        more: dict[str, Any] = {"separation": None, "misfit": None, "outside": bool(counters[IMPOSSIBLE] > 0)}
        if total:
            if model.counted:
                least, bounds, more = self._counted(model, state, total)
                beta = float(bounds[0] - least[-1, 0])
            else:  # values are solved with each plan, and so are the classes tested
                least = self._smallest(self.ladder.level, field(state, LOSS).T)
                bounds = np.empty(least.shape[1])
                ucrl_vtr.thresholds(model, state, bounds)
            squares, scale = float(field(state, SUM_OF_SQUARES).sum()), 1.0 / total
            statistics = [float(scale * (loss + squares)) for loss in least.sum(axis=1)]
            threshold = _plain(scale * (bounds.sum() + squares))
            margin = _plain((bounds - least[counters[CLASS]]).min())
        return {
            "chosen": int(counters[CLASS]) + 1,
            "statistics": statistics,
            "threshold": threshold,
            "margin": margin,
            **more,
            "beta": _plain(beta),
            "since": since,
        }

    def _smallest(self, first: Ints, losses: Floats) -> Floats:
        """Return the smallest loss of every class [M, T], given those of some members [n, T] and their first class."""
        ends = np.searchsorted(first, np.arange(self.ladder.classes + 1))  # members are in the order of their classes
        least = [losses[a:b].min(axis=0, initial=np.inf) for a, b in itertools.pairwise(ends)]
        return np.asarray(np.minimum.accumulate(least))

    def _counted(self, model: FiniteModel, state: Any, total: int) -> tuple[Floats, Floats, dict[str, Any]]:
        """Test the classes where values are solved beforehand; return losses, bounds and facts of such a test."""
        counters, ladder = field(state, COUNTERS), self.ladder
        bound = float(ucrl_vtr.test_now(model, state))
        losses = field(state, LOSS)[0, : counters[ALIVE]]
        members = field(state, MEMBERS)[: counters[ALIVE]]
        least, rejected = self._smallest(ladder.level[members], losses[:, None]), int(counters[CLASS])
        best, separation = int(members[np.argmin(losses)]), None
        if rejected:  # the classes rejected have no kernel left that could tell
            size = ladder.sizes[rejected - 1]
            loss, distance = np.zeros(size), np.zeros(size)
            ucrl_vtr.losses_of(model, state, np.arange(size), best, loss, distance)
            least[:rejected] = self._smallest(ladder.level[:size], loss[:, None])[:rejected]
            separation = float(distance.min() / total)
        misfit = self._misfit(model, state, best) - off_grid(model.reach, float(field(state, ROWS)[0]), model.delta)
        outside = bool(misfit > 0.0) or bool(counters[IMPOSSIBLE] > 0)
        return least, np.array([bound]), {"separation": separation, "misfit": misfit, "outside": outside}

    def _misfit(self, model: FiniteModel, state: Any, best: int) -> float:
        """Return by how much the loss of the best kernel exceeds what noise explains, but for a term of covers.

        The alternatives are all kernels of F_M, with even weights, and a mean added at every (s, a): what is left of
        the targets there tells whether one was needed.
        """
        pairs, blocks = field(state, PAIRS), field(model, FORM_BLOCKS)[field(model, FORM_OF)]
        coordinate = field(model, COORDINATE)
        at = np.minimum(blocks[:, :1] + np.arange(pairs.shape[1] - 2), coordinate.size - 1)
        predicted = (pairs[:, 2:] * model.own[coordinate[at], best]).sum(axis=1)
        delta = level(model.reach, model.delta) / self.ladder.family.size
        return unexplained(pairs[:, 0], pairs[:, 1] - predicted, 0.0, delta)


def unexplained(count: Floats, total: Floats, least: float, delta: float) -> float:
    """Return by how much the best kernel's loss exceeds what noise explains; above 0: the truth is none of them.

    The alternative gives every cell a mean of its own: theta in R^cells, one-hot rows. By
    the Gaussian mixture behind M11 (lambda = 1), with probability 1 - delta at all times
    L(P*) <= min_theta {L(theta) + |theta|^2} + (1/4) sum_c log(1 + N_c) + (1/2) log(1/delta). For losses less sum y^2
    the minimum is - sum_c Y_c^2/(N_c + 1), Y_c the sum of a cell's N_c targets. Targets must have range 1 (M23).
    """
    fit = -(total**2 / (count + 1.0)).sum()
    return float(least - (fit + 0.25 * np.log1p(count).sum() + 0.5 * np.log(1.0 / delta)))


def _plain(value: float) -> float | None:
    """Return a number as it is written down; None for what is not finite."""
    return float(value) if np.isfinite(value) else None


class RegressionEvidence:
    """Evidence where the largest class is linear or an aggregation: all rows in its coordinates."""

    def __init__(self, selector: ARLGen) -> None:
        self.selector, self.ladder = selector, selector.ladder
        if selector.safe:
            expected = "False where the largest class is not a list; play F_M, or use the guard"
            raise ParameterError("safe", got=True, expected=expected)
        if not (isinstance(selector.test_growth, (int, float)) and 0.0 < selector.test_growth < math.inf):
            expected = "a number > 0 where the largest class is not a list"
            raise ParameterError("test_growth", got=selector.test_growth, expected=expected)
        replan = 0.2 if selector.replan is None else selector.replan
        shared = {"replan": replan, "record": self.ladder.features}  # every class records rows in those coordinates
        self._learners: list[Any] = [on_class(selector, m, shared) for m in range(1, self.ladder.classes + 1)]
        self._full: UCRLVTRLin = self._learners[-1]

    def begin(self, known: Known) -> dict[str, Any]:
        """Return the memory before any data: the rows of all phases in the largest class, step after step."""
        sums: dict[str, Any] = {each.name: np.zeros(each.shape) for each in self._sums(known)}
        numbers = {"epoch": 1, "episodes": 0, "chosen": 0, "since": 1, "audits": 0, "audit": False}
        return {**numbers, **sums, "squares": 0.0, "rewards": None}

    def _sums(self, known: Known) -> list[Field]:
        """Return the sums over rows in the memory: sum x x^T, sum y x, and of each (s, a) those of GRAM_PAIRS."""
        blocks, steps = stacked(self.ladder.features.blocks, self._full.steps(known)), self._full.steps(known)
        shapes = {
            "gram": (int(blocks.matrix_start[-1]),),
            "xy": (int(blocks.vector_start[-1]),),
            "pairs": (steps * known.states * known.actions, 2 + int(blocks.size.max())),
        }
        return [Field(name, shape, -MOST, MOST) for name, shape in shapes.items()]

    def resume(self, known: Known, memory: dict[str, Any]) -> None:
        """Refuse a memory, as from a file, that no run could have left."""
        blocks = stacked(self.ladder.features.blocks, self._full.steps(known))
        observed = (reward_rows(self.selector.rewards, known), known.states * known.actions)
        finite = {f"state {m}": m for m in range(1, self.ladder.classes) if self.ladder.rung(m).finite}
        kept = {name: m for name, m in finite.items() if isinstance(memory, dict) and name in memory}
        fields = {
            **dict.fromkeys(("epoch", "episodes", "since", "audits"), (0, MOST_ROWS)),
            "chosen": (0, self.ladder.classes),
            "audit": {False, True},
            **{each.name: each for each in self._sums(known)},
            "squares": (0.0, MOST),
            "rewards": RewardStatistics | None,
            **dict.fromkeys(kept, PlanState),
        }
        require_parts("memory", memory, fields)
        require_gram("memory.gram", blocks, memory["gram"])
        if memory["rewards"] is not None:
            require_observed(memory["rewards"], observed)
        for name, m in kept.items():
            learner = self._learners[m - 1]
            memory[name] = resumed(learner, known, model_of(learner, known), learner.begin(known), memory[name])

    def next(self, known: Known, memory: dict[str, Any]) -> Phase:
        """Test the classes on all rows so far, and play the smallest that is accepted."""
        tau, classes = memory["episodes"], self.ladder.classes
        chosen, facts = self._test(known, memory)
        if chosen != memory["chosen"]:
            memory["chosen"], memory["since"] = chosen, tau + 1
        audit = self.selector.guard and chosen < classes and math.isqrt(tau) > memory["audits"]
        episodes, m = max(1, math.ceil(self.selector.test_growth * tau)), chosen
        if audit:
            episodes, m = math.isqrt(tau) - memory["audits"], classes
            memory["audits"] += episodes
        memory["audit"] = audit
        learner = self._learners[m - 1]
        found = {"chosen": chosen, **facts, "since": memory["since"]}
        label = f"F_{m}, audit" if audit else f"F_{m}"
        state = self._state(known, memory, m, learner)
        return Phase(learner, state, episodes, epoch=memory["epoch"], label=label, facts=found)

    def finish(self, known: Known, memory: dict[str, Any], phase: Phase, outcome: PhaseOutcome) -> None:
        """Keep the rows of the phase; an audit belongs to the epoch that follows."""
        state, learner = outcome.state, phase.learner
        model = model_of(learner, known)
        if isinstance(learner, UCRLVTRLin):
            ucrl_vtr_lin.enter_rows(model, state)
        else:
            ucrl_vtr.enter_rows(model, state)
            memory[f"state {memory['chosen']}"] = state  # audits are played by a linear class
        for name, number in (("gram", GRAM), ("xy", GRAM_XY), ("pairs", GRAM_PAIRS)):
            memory[name] = memory[name] + field(state, number)
        memory["squares"] += float(field(state, GRAM_SQUARES)[0])
        memory["rewards"] = reward_statistics(state)
        memory["episodes"] += outcome.episodes
        memory["epoch"] += 0 if memory["audit"] else 1

    def _state(self, known: Known, memory: dict[str, Any], m: int, learner: Learner) -> Any:
        """Return the state to play from: all rows for a linear class, those of its own plans for a finite one."""
        if not isinstance(learner, UCRLVTRLin):
            state = memory.pop(f"state {m}", None)
            if state is None:
                state = learner.begin(known)
            for number in (GRAM, GRAM_XY, GRAM_SQUARES, GRAM_PAIRS):
                field(state, number)[...] = 0.0
            continue_rewards(state, memory["rewards"], due=True)  # rewards are those of all phases
            return state
        own = None
        if memory["episodes"]:
            rows = self._by_step(known, memory)
            each = (self.ladder.statistics(m, row["gram"], row["xy"]) for row in rows)
            gram, xy = (np.concatenate(parts) for parts in zip(*each, strict=True))
            own = LinearStatistics(gram, xy, memory["episodes"], len(rows), memory["rewards"])
        return learner.begin(known, own)

    def _test(self, known: Known, memory: dict[str, Any]) -> tuple[int, dict[str, object]]:
        """Return the class to play and what was found."""
        if not memory["episodes"]:
            nothing: dict[str, object] = dict.fromkeys(("threshold", "margin", "separation", "misfit", "beta"))
            return 1, {"statistics": [0.0] * self.ladder.classes, **nothing, "outside": False}
        total, unit = memory["episodes"] * known.horizon, float(model_of(self._full, known).unit)
        delta, rows = self._full.level(known), self._by_step(known, memory)
        losses = np.array([self.losses(row) for row in rows])  # [T, M]
        allowed = np.array(
            [self.bound(row, float(loss[-1]), unit, delta) for row, loss in zip(rows, losses, strict=True)]
        )
        accepted = (losses <= allowed).all(axis=0)
        chosen = 1 + int(np.argmax(accepted)) if accepted.any() else self.ladder.classes
        misfit = _largest(
            self.misfit(row, float(loss[-1]), unit, delta) for row, loss in zip(rows, losses, strict=True)
        )
        separation = (losses[:, chosen - 2] - losses[:, -1]).sum() / total if chosen > 1 else None
        return chosen, {
            "statistics": [float((loss + memory["squares"]) / total) for loss in losses.sum(axis=0)],
            "threshold": float((allowed[:, chosen - 1].sum() + memory["squares"]) / total),
            "margin": float((allowed - losses)[:, chosen - 1].min()),
            "separation": None if separation is None else float(separation),
            "misfit": misfit,
            "beta": _largest(self._beta(row, chosen, unit, delta) for row in rows),
            "outside": misfit is not None and misfit > 0.0,
        }

    def _by_step(self, known: Known, memory: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the memory with the rows of each step alone; as it is for a stationary kernel."""
        steps, names = self._full.steps(known), ("gram", "xy", "pairs")
        each = zip(*(np.split(memory[name], steps) for name in names), strict=True)
        return [{**memory, **dict(zip(names, rows, strict=True))} for rows in each]

    def losses(self, rows: dict[str, Any]) -> Floats:
        """Return min over F_m of L, less sum y^2, for every m."""
        every = range(1, self.ladder.classes + 1)
        return np.array([self.ladder.smallest_loss(m, rows["gram"], rows["xy"]) for m in every])

    def bound(self, rows: dict[str, Any], least: float, unit: float, delta: float) -> Floats:
        """Return the largest loss, less sum y^2, with which each class is accepted [M] (M15)."""
        m = self.ladder.classes
        own, logdet = self._solve(m, *self.ladder.statistics(m, rows["gram"], rows["xy"]))
        theta = np.asarray(self.ladder.embeddings[-1] @ own)
        fit = -float(rows["xy"] @ theta)  # L_lambda(theta_M) less sum y^2
        noise = 2.0 * math.log(1.0 / level(max(self.ladder.reach), delta))
        sharp = fit + 0.25 * unit**2 * (logdet + noise)
        count = float(rows["pairs"][:, 0].sum())
        between = np.array([off_grid(reach, count, delta) for reach in self.ladder.reach])
        return np.asarray(least + self.selector.scale * (sharp - least) + self.selector.scale * unit**2 * between)

    def misfit(self, rows: dict[str, Any], least: float, unit: float, delta: float) -> float | None:
        """Return by how much the best loss of F_M exceeds what noise explains; above 0: the truth is outside F_M.

        F_M is tested like any class below it (M15), against itself with a mean added for every (s, a). With probability
        1 - delta at all times, L(P*) is at most the right side for that larger class, be P* in F_M or any other kernel
        whose outcomes F_M allows.
        """
        features, (pairs, width) = self.ladder.features, rows["pairs"].shape
        d, of = features.dimension, features.blocks.of
        if d + pairs > _MOST_COORDINATES or unit <= 0.0:  # without any range there are no rows
            return None
        cross = np.zeros((d, pairs))
        for sa in range(pairs):
            first, n = int(features.blocks.vector_start[of[sa]]), int(features.blocks.size[of[sa]])
            cross[first : first + n, sa] = rows["pairs"][sa, 2 : 2 + min(n, width - 2)]
        own = dense(unpacked(features.blocks, rows["gram"]))
        gram = np.block([[own, cross], [cross.T, np.diag(rows["pairs"][:, 0])]])
        xy = np.concatenate([rows["xy"], rows["pairs"][:, 1]])
        sigma = gram / _LAMBDA + np.eye(d + pairs)
        fit = -float(xy @ np.linalg.solve(sigma, xy)) / _LAMBDA
        logdet = float(np.linalg.slogdet(sigma)[1])
        return (least - fit) / unit**2 - 0.25 * (logdet + 2.0 * math.log(1.0 / delta))

    def _solve(self, m: int, gram: Floats, xy: Floats) -> tuple[Floats, float]:
        """Return Sigma^-1 xy and logdet(Sigma/lambda) of a class, block by block (M8)."""
        theta, logdet, begin = np.zeros(xy.size), 0.0, 0
        for part in self.ladder.rung(m).parts():
            n = part.stop - part.start
            sigma = gram[begin : begin + n * n].reshape(n, n) / _LAMBDA + np.eye(n)
            theta[part] = np.linalg.solve(sigma, xy[part]) / _LAMBDA
            logdet += float(np.linalg.slogdet(sigma)[1])
            begin += n * n
        return theta, logdet

    def _beta(self, rows: dict[str, Any], m: int, unit: float, delta: float) -> float | None:
        """Return the squared width of a linear class's ellipsoid (M11) at the beginning of the phase."""
        rung = self.ladder.rung(m)
        if rung.finite:
            return None
        logdet = self._solve(m, *self.ladder.statistics(m, rows["gram"], rows["xy"]))[1]
        noise = 0.25 * unit**2 * (logdet + 2.0 * math.log(1.0 / delta))
        return float(self.selector.scale**2 * (noise + _LAMBDA * rung.norm_bound**2))


def _largest(numbers: Iterable[float | None]) -> float | None:
    """Return the largest number; None if one is missing."""
    every = list(numbers)
    some = [number for number in every if number is not None]
    return max(some) if len(some) == len(every) else None
