r"""Learning on the box itself: values at anchor states, acting and regressing where the system is.

The truth is :math:`P^* = \sum_j \theta^*_j P_j` on a box. Values are kept at the vertices of a grid, the anchors, and
continued by interpolation, so every V in play is one fixed function on the box and

.. math:: \phi_V(s,a)_j = \int V(y)\, P_j(dy \mid s, a)

is an integral at the *true* state s, wherever it is. With y = V(s'), rows obey :math:`E[y] = \langle\phi_V(s,a),
\theta^*\rangle` without any error of discretisation: the grid enters the plans, not the confidence set.

**Integrals that are not exact.** Rows are range-weighted by the range of V over all anchors, so targets have range 1.
Let e_t bound the error of every coordinate of row t (:mod:`occamrl.runs.box_system`). Because theta* is on the simplex
the mean is off by at most e_t, which is what :mod:`occamrl.runs.inexact` carries into every radius and every decision.
Draws take half of delta, the agent the other half.

**Plans** are those of :class:`UCRLVTRLin` on the candidates' kernels over the anchors. They are optimistic up to the
errors of interpolation, :math:`\sum_h \|(1 - I) V^*_h\|`, and of the integrals at the anchors, at most their total
variation times the range of V at each step. Both vanish as the grid and the rule get finer; neither is in the radius.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from occamrl import contracts, seeding
from occamrl.continuous.grid import Grid
from occamrl.continuous.transitions import Transition
from occamrl.contracts import Floats
from occamrl.errors import OccamRLError, ParameterError, RewardError, require_number
from occamrl.kernels.episodes import PLANNED
from occamrl.learners.linear_state import PLANS
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.problems.checks import require_integer
from occamrl.runs.anchored_files import load_anchored, save_anchored
from occamrl.runs.box_choice import Choice, choose
from occamrl.runs.box_statistics import BoxStatistics
from occamrl.runs.box_system import BoxSystem
from occamrl.runs.inexact import Inexact, InexactLearner, InexactState, width
from occamrl.runs.interaction import ROUNDING
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.result import table_of_rows
from occamrl.runs.stepping import open_episode

if TYPE_CHECKING:
    import pyarrow as pa


class Anchored(BoxStatistics):
    """An agent on a box that someone else steps: ``begin(state)``, then ``act()`` and ``record(next_state)`` H times.

    Parameters
    ----------
    models : sequence of Transition
        The d candidates. All :class:`Sampled`: integrals are taken by fresh draws at every state met. Otherwise by
        their rules, whose error is ``error``.
    grid : Grid
        The anchors.
    actions : array [A, m] or [A]
    reward : callable
        ``reward(states [N, n], action [m]) -> [N]`` in [0, 1], known.
    horizon
        H.
    episodes : int
        How many are planned; with inexact integrals c is chosen for them. Fewer or more are as valid.
    agent : callable
        What learns, called with ``features`` over the anchors (one coordinate per candidate), ``norm_bound``, ``delta``
        and ``replan``: UCRLVTRLin, ARLLinDim, ARLLinNorm or ARLLin, ``partial(ARLLinDim, ...)``, or a function that
        returns one of these or an ARLGen on a LinearLadder over the features.
    delta, norm_bound, regularization, replan
        Of the agent; ``regularization`` only where it is given.
    error : float
        Of the rules, in total variation over the anchors (``quadrature_error`` estimates it).
    names : sequence of str, optional
        Of the candidates, for reports.
    seed : int
        Of the draws.
    """

    def __init__(
        self,
        *,
        models: Sequence[Transition],
        grid: Grid,
        actions: ArrayLike,
        reward: Callable[[Floats, Floats], Floats],
        horizon: int,
        episodes: int,
        agent: Callable[..., contracts.Agent] = UCRLVTRLin,
        delta: float = 0.05,
        norm_bound: float = 1.0,
        regularization: float | str | None = None,
        replan: float = 0.2,
        error: float = 0.0,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.system = BoxSystem(
            models=models, grid=grid, actions=actions, reward=reward, horizon=horizon, error=error, names=names
        )
        require_number("delta", delta, 0.0, 1.0, open_low=True)
        self.seed, self.delta = require_integer("seed", seed, 0), delta
        self.level = delta / 2.0 if self.system.drawn else delta  # of the agent, and of the draws where there are some
        self.temperature = self.system.temperature(require_integer("episodes", episodes, 1) * horizon, self.level)
        self.norm_bound, self.lam = norm_bound, 1.0 if regularization is None else regularization
        given = {} if regularization is None else {"regularization": regularization}
        shared = {"features": self.system.features, "norm_bound": norm_bound, "delta": self.level, "replan": replan}
        self.agent = _made(agent, {**shared, **given})
        self.known = self.system.known
        self._start()

    def _start(self) -> None:
        self.walk = PhaseWalk(Inexact(self.agent, self.system.dimension, self.temperature), self.known)
        self.episode, self.plans = 0, 0  # finished ones; made
        self._step: int | None = None
        self._state, self._returned, self._planned = np.zeros((1, self.grid.dimensions)), 0.0, 0
        self._returns: list[float] = []
        self._chosen: Choice | None = None
        self._key, self._policy = seeding.key(self.seed, "agent"), np.zeros((self.horizon, self.grid.size), np.int64)
        self._arm()

    def fresh(self, seed: int) -> Self:
        """Return an agent with the same parameters that has seen nothing, without taking the integrals again."""
        made = copy.copy(self)
        made.seed = require_integer("seed", seed, 0)
        made._start()
        return made

    @property
    def grid(self) -> Grid:
        """The anchors."""
        return self.system.grid

    @property
    def actions(self) -> Floats:
        """The actions [A, m]."""
        return self.system.action_grid

    @property
    def horizon(self) -> int:
        """H."""
        return self.system.horizon

    # What was learned -------------------------------------------------------------------------------------------------

    @property
    def values(self) -> Floats:
        """The values of the plan in play, at the anchors [H + 1, S]; of a phase without one yet, its first."""
        state: InexactState = self.walk.state
        if not state.planning.counters[PLANS]:
            state = copy.deepcopy(state)
            self._plan(state)
        return state.planning.values

    @property
    def phases(self) -> pa.Table:
        """One row per phase: epoch, label, episodes, plans, realised return, and what was decided."""
        kept = [{name: fact for name, fact in row.items() if name != "regret"} for row in self.walk.rows]
        return table_of_rows(kept)

    @property
    def returns(self) -> Floats:
        """The realised sum of rewards of every episode."""
        return np.array(self._returns)

    # An episode -------------------------------------------------------------------------------------------------------

    @property
    def _learner(self) -> InexactLearner:
        learner: Any = self.walk.phase.learner  # Inexact hands out no other
        return learner  # type: ignore[no-any-return]

    def _arm(self) -> None:
        """Make ready what an episode needs beside the state."""
        state: InexactState = self.walk.state
        self._model = self._learner.armed(self.walk.model, state)
        self._width = width(self._model, state.planning)

    def begin(self, state: ArrayLike) -> None:
        """Begin an episode; replan when the log-determinant has grown enough (M12)."""
        first = self.system.inside(state, "state")
        self.end()
        news = self._plan(self.walk.state)
        self._arm()
        self._planned = int(bool(news & PLANNED))
        self.plans += self._planned
        self._state, self._step, self._chosen, self._returned = first, 0, None, 0.0

    def _plan(self, state: InexactState) -> int:
        """Enter the rows so far, and plan if it is time to; return PLANNED | CHANGED bits."""
        self._learner.refresh(state)
        model = self._learner.armed(self.walk.model, state)
        return int(open_episode(model, state.planning, 0, self._key, self.episode, self._policy))

    def planned_value(self, state: ArrayLike) -> float:
        """Return V_1 of the plan in play, interpolated."""
        return float(self.grid.interpolate(self.values[0], self.system.inside(state, "state"))[0])

    def act(self) -> int:
        """Return the number of the best action at the true state, by its own optimistic value (M11)."""
        if self._chosen is None:
            step, state = self._begun(), self.walk.state.planning

            def stream(a: int) -> np.random.Generator | None:
                return seeding.stream(self.seed, "anchored", self.episode, step, a) if self.system.drawn else None

            values = self.values[step + 1]
            self._chosen = choose(self.system, self._learner, state, values, self._width, self._state, stream)
        return self._chosen.action

    @property
    def reward_in_play(self) -> float:
        """The known reward of the action at the current state."""
        self.act()
        return 0.0 if self._chosen is None else self._chosen.reward

    def _begun(self) -> int:
        """Return the step of the episode under way."""
        if self._step is None:
            raise OccamRLError("no episode is under way; call begin(state) first")
        return self._step

    def record(self, next_state: ArrayLike, reward: float | None = None) -> None:
        """Learn from the state that followed the action; ``reward``, if given, must be the known one."""
        self.act()
        step, chosen, after = self._begun(), self._chosen, self.system.inside(next_state, "next_state")
        if chosen is None:
            raise OccamRLError("no action was chosen")
        if reward is not None:
            self._require_known(reward, chosen.reward, step)
        if chosen.spread > 0.0:
            target = float(self.grid.interpolate(self.values[step + 1], after)[0])
            target = (target - chosen.middle) / chosen.spread
            self._learner.enter(self.walk.state, chosen.x, target, self.row_error(self.rows + 1))
        self._returned += chosen.reward
        self._state, self._step, self._chosen = after, step + 1, None
        if self._step == self.horizon:
            self.end()

    def _require_known(self, reward: float, known: float, step: int) -> None:
        number = isinstance(reward, (int, float, np.integer, np.floating)) and not isinstance(reward, bool)
        if not (number and 0.0 <= reward <= 1.0 and abs(reward - known) <= ROUNDING):
            expected = f"{known:.6g}, the known reward of state {self._state[0].tolist()}"
            raise RewardError("reward", index=(self.episode, step), got=repr(reward), expected=expected)

    def end(self) -> None:
        """Close the episode under way, if there is one; steps that were not taken give no rows."""
        if self._step is not None:
            self._step, self._chosen, self.episode = None, None, self.episode + 1
            self._returns.append(self._returned)
            self.walk.note(self._planned, np.array([self._returned]), np.array([np.nan]))
        self._turn()

    def _turn(self) -> None:
        """Enter the next phase where one is due; where nothing can be decided any more, stay as before and say so."""
        if self.walk.remaining != 0:
            return
        before = copy.deepcopy(self.walk.to_tree())
        try:
            self.walk.turn()
        except OccamRLError:
            self.walk = PhaseWalk.from_tree(self.walk.selector, self.known, before)
            raise

    # Files ------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything learned to one file, without pickle; :meth:`load` reads it."""
        save_anchored(self, path)

    def load(self, path: str | Path) -> None:
        """Go on from a file written by an agent with the same parameters; what follows is the same to the bit.

        Raises
        ------
        CheckpointError
            Naming the file: truncated, changed, of another kind, or of another agent. This one is then as it was.
        """
        load_anchored(self, path)

    def position(self) -> dict[str, Any]:
        """Return where the agent is, apart from what it has learned."""
        where = {"episode": self.episode, "step": self._step, "state": self._state.copy()}
        counts = {"plans": self.plans, "planned": self._planned, "returned": self._returned}
        return {**where, **counts, "returns": self.returns}

    def go_on(self, walk: PhaseWalk, position: dict[str, Any]) -> None:
        """Take over what was learned, and where."""
        self.walk, self.episode, self.plans = walk, position["episode"], position["plans"]
        self._step, self._state, self._chosen = position["step"], position["state"], None
        self._planned, self._returned = position["planned"], position["returned"]
        self._returns = position["returns"].tolist()
        self._arm()


def _made(agent: Callable[..., contracts.Agent], given: dict[str, Any]) -> contracts.Agent:
    """Return the agent that is made from the arguments; what does not take them is refused."""
    try:
        inspect.signature(agent).bind(**given)
    except (TypeError, ValueError) as error:
        got, expected = f"{agent!r:.80}: {error}", f"a function or class that takes {', '.join(given)}"
        raise ParameterError("agent", got=got, expected=expected) from None
    return agent(**given)
