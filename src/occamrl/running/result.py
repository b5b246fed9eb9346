"""The result of a run, kept by block: what was earned, what was lost, what was decided.

Between two plans nothing changes, so a block is one row whether it has ten episodes or a billion.
Regret is exact where the truth is known. Curves are read off the blocks at any episode; they show
every episode up to a million, and log-spaced ones of longer runs.
"""

from __future__ import annotations

import copy
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from occamrl.addresses import generator
from occamrl.answers.tables import Row, frame_of, table_of_rows
from occamrl.answers.verdict import Verdict, verdict_of
from occamrl.control.dynamics import Dynamics
from occamrl.control.ladder import SimulatorLadder
from occamrl.errors import NotAvailable, ParameterError, as_array, require_kind
from occamrl.models.model import ParametricLadder
from occamrl.naming import printable_name
from occamrl.policies import stretches
from occamrl.protocols import Floats, Flow, Ints, Known, Plan, State, System

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

# Floats or a float, None where the truth is not known; and an EnvironmentInfo, None in the
# simulator. Of ``run`` and ``learn`` everybody knows which, and a type with None in it would
# demand a check of all.
IfKnown = Any
IfReal = Any

EVERY_EPISODE = 10**6  # of which curves show all; beyond, some
POINTS_PER_DECADE = 1_000


class Cut(NamedTuple):
    """A block that the end of a run interrupted.

    ``flows`` are what an environment has shown of it, by parts of the plan; the simulator, where
    there are none, plays it anew.
    """

    state: State  # of the learner, before the block
    at: int | None  # where the episode before the block ended, if the next one begins there
    flows: dict[int, Flow]


class Phase(TypedDict):
    """A stretch of blocks whose plans have equal facts."""

    facts: Row
    diagnostics: Row  # the latest
    history: NotRequired[list[list[float]]]  # rows of (episodes before, statistic of each class)


@dataclass(eq=False)
class Blocks:
    """What happened, piece by piece, in columns.

    A piece is a block, or an episode of a real environment. The driver writes them
    (:mod:`occamrl.running.run`), a result reads them.
    """

    episodes: list[int] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)  # summed; NaN where the truth is not known
    returns: list[float] = field(default_factory=list)  # realised, summed
    pessimistic: list[int] = field(default_factory=list)  # episodes planned below the optimum
    plans: list[int] = field(default_factory=list)  # 1 where one was made, 0 where it went on
    phase: list[int] = field(default_factory=list)  # which of the phases
    phases: list[Phase] = field(default_factory=list)
    total_episodes: int = 0

    def copy(self) -> Blocks:
        """Return a copy that may be written to; only the last phase ever changes."""
        return Blocks(
            list(self.episodes),
            list(self.regret),
            list(self.returns),
            list(self.pessimistic),
            list(self.plans),
            list(self.phase),
            [*self.phases[:-1], *copy.deepcopy(self.phases[-1:])],
            self.total_episodes,
        )

    def drop_last(self) -> None:
        """Take back the last piece."""
        self.total_episodes -= self.episodes.pop()
        self.regret.pop()
        self.returns.pop()
        self.pessimistic.pop()
        self.plans.pop()
        self.phase.pop()
        last_phase = self.phase[-1] if self.phase else -1
        del self.phases[last_phase + 1 :]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of :func:`occamrl.run` or :func:`occamrl.learn`.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> features = orl.FeatureMap.tabular(states=3, actions=2)
    >>> result = orl.run(orl.Greedy(features=features), problem, episodes=50)
    >>> total, curve, policy = result.total_regret, result.cumulative_regret, result.policy()
    >>> bool(result.regret_at(50) == total)
    True

    Returns and regret are in the unit of the problem's rewards, as they were given.
    """

    label: str
    seed: int
    wall_time: float = 0.0  # seconds spent planning, playing and learning
    problem: str = ""  # fingerprint of the simulated problem
    environment: IfReal = None  # what is kept of a Gymnasium environment
    agent: Any = field(repr=False)  # the user's Learner or Controller, as it was handed in
    known: Known | System = field(repr=False)  # a System of a controller
    state: State = field(repr=False)  # of the agent
    blocks: Blocks = field(repr=False)
    # The last block, if the end of the run cut it short.
    cut: Cut | None = field(default=None, repr=False)
    # Where the last episode ended, if the next one begins there.
    at: int | None = field(default=None, repr=False)
    # What an agent that is told step by step keeps between two calls.
    drive: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_kind("label", self.label, str)
        require_kind("blocks", self.blocks, Blocks)
        if self.known is not None:  # a controller of the user's may know it later
            require_kind("known", self.known, (Known, System))

    # Totals and curves ----------------------------------------------------------------------------

    @property
    def total_episodes(self) -> int:
        """The number K of episodes played."""
        return self.blocks.total_episodes

    @property
    def plans(self) -> int:
        """The number of plans made."""
        return sum(self.blocks.plans)

    @property
    def pessimistic_episodes(self) -> int:
        """The episodes whose planned value was below the optimum: there optimism failed.

        0 where the truth is not known.
        """
        return sum(self.blocks.pessimistic)

    @property
    def exact(self) -> bool:
        """Whether the truth, and so the regret, is known."""
        return self.environment is None or bool(self.environment.exact)

    @cached_property
    def episodes(self) -> Ints:
        """The numbers (from 1) of the episodes that the curves show."""
        K = self.total_episodes
        if K <= EVERY_EPISODE:
            return np.arange(1, K + 1)
        points = int(np.ceil(POINTS_PER_DECADE * np.log10(K)))
        marks = np.unique(np.geomspace(1.0, K, points).astype(np.int64))
        return np.union1d(marks[marks < K], [K])

    def _per_episode(self, sums: list[float]) -> Floats:
        """Return the mean over its piece at each of the episodes that the curves show."""
        sizes = np.array(self.blocks.episodes, dtype=np.int64)
        means = np.array(sums) / np.maximum(sizes, 1)
        piece = np.searchsorted(sizes.cumsum(), self.episodes)
        return np.asarray(means[piece])

    @property
    def returns(self) -> Floats:
        """The sum of rewards that each episode earned; within a block, their mean."""
        return self._per_episode(self.blocks.returns)

    @property
    def total_return(self) -> float:
        """The sum of all rewards that were earned."""
        return float(np.sum(self.blocks.returns))

    def return_at(self, episode: Any) -> Any:
        """Return the realised sum of rewards after ``episode`` episodes, as :meth:`regret_at`."""
        return sum_of_pieces(self.blocks.episodes, self.blocks.returns, episode)

    @cached_property
    def regret(self) -> IfKnown:
        """The exact pseudo-regret of each of these episodes, V*_1(s_1) - V^pi_1(s_1).

        Of a block, the mean over its starts.
        """
        return self._per_episode(self.blocks.regret) if self.exact else None

    @cached_property
    def cumulative_regret(self) -> IfKnown:
        """The sum of the regret of all episodes up to and including each of these."""
        return self.regret_at(self.episodes)

    @property
    def total_regret(self) -> IfKnown:
        """The sum of the regret of all episodes."""
        return self.regret_at(self.total_episodes)

    def regret_at(self, episode: Any) -> IfKnown:
        """Return the cumulative regret after ``episode`` episodes.

        A number or an array of numbers up to K.
        """
        if not self.exact:
            return None
        return sum_of_pieces(self.blocks.episodes, self.blocks.regret, episode)

    # Decisions ------------------------------------------------------------------------------------

    @property
    def phases(self) -> pa.Table:
        """A row for each stretch of episodes with the same decisions."""
        return table_of_rows(self.phase_rows)

    @cached_property
    def phase_rows(self) -> list[Row]:
        """The rows of :attr:`phases`, as dictionaries."""
        if not self.blocks.phases:
            return []
        begins = np.flatnonzero(np.diff(self.blocks.phase, prepend=-1))
        columns: dict[str, Sequence[float]] = {
            "episodes": self.blocks.episodes,
            "plans": self.blocks.plans,
            "realised_return": self.blocks.returns,
        }
        if self.exact:
            columns["regret"] = self.blocks.regret
        sums = {
            name: np.add.reduceat(np.array(column), begins).tolist()
            for name, column in columns.items()
        }
        rows = []
        first = 1
        for number, phase in enumerate(self.blocks.phases):
            totals = {name: column[number] for name, column in sums.items()}
            rows.append({"first": first, **totals, **phase["facts"], **phase["diagnostics"]})
            first += totals["episodes"]
        return rows

    @cached_property
    def next_plan(self) -> Plan:
        """What would be played next."""
        known = self.finite
        draw = generator(self.seed, "agent", self.total_episodes)
        plan: Plan = self.agent.plan(known, self.state, draw)
        return plan

    @property
    def finite(self) -> Known:
        """What a learner knows of its finite problem; a controller has none."""
        if not isinstance(self.known, Known):
            raise NotAvailable(
                "no plan and no table of a policy: a controller acts step by step; see .answer, or "
                "orl.Agent(...).act"
            )
        return self.known

    @cached_property
    def verdict(self) -> Verdict:
        """What a selector would decide now, with its diagnostics; print it for sentences.

        A single learner decides nothing.
        """
        return verdict_of(self)

    @cached_property
    def answer(self) -> Any:
        """Which model is needed, what to do, how much it earns, whether it matters; print it."""
        from occamrl.answers.answer import answer_of

        return answer_of(self)

    def policy(self) -> Ints:
        """Return the actions [H, S] of the next episode; of a random policy, the likeliest ones.

        Where plans depend on the start, and that is not known, it is the one for the law of starts.
        """
        policy = self.next_plan.part(self.at).policy
        return np.asarray(policy if policy.ndim == 2 else policy.argmax(axis=2))

    def policy_table(
        self, *, states: Sequence[str] | None = None, actions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the policy as a table, a row per state; equal steps are joined.

        In the names of states and actions: given, the problem's or the environment's.
        """
        policy, state_names, action_names = self.named_policy(states, actions)
        rows = []
        for state, name in enumerate(state_names):
            row = {"state": name}
            for title, step in stretches(policy).items():
                row[title] = action_names[policy[step, state]]
            rows.append(row)
        return table_of_rows(rows)

    def named_policy(
        self, states: Sequence[str] | None, actions: Sequence[str] | None
    ) -> tuple[Ints, list[str], list[str]]:
        """Return the policy [H, S], and the names of states and actions."""
        known = self.finite
        own_states: Sequence[object] = range(known.states)
        own_actions: Sequence[object] = range(known.actions)
        if known.names is not None:
            own_states = known.names.states
            own_actions = known.names.actions
        elif self.environment is not None:
            own_states = self.environment.names("states", known.states)
            own_actions = self.environment.names("actions", known.actions)
        state_names = names_or(own_states, "states", states)
        return self.policy(), state_names, names_or(own_actions, "actions", actions)

    # Files, tables and pictures -------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue to one file of arrays and JSON, or nothing at all."""
        from occamrl.running.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path, agent: Any = None, problem: Any = None) -> Result:
        """Return the result in a file; see :func:`occamrl.running.storage.load`."""
        from occamrl.running.storage import load

        return load(path, agent, problem)

    @property
    def table(self) -> pa.Table:
        """The curves, a row per episode that they show: realised_return, and regret if known."""
        import pyarrow as pa

        columns = {"episode": self.episodes, "realised_return": self.returns}
        if self.exact:
            columns["regret"] = self.regret
            columns["cumulative_regret"] = self.cumulative_regret
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return :attr:`table` as a data frame of pandas."""
        return frame_of(self.table)

    def to_parquet(self, path: str | Path) -> None:
        """Write :attr:`table` to a Parquet file."""
        import pyarrow.parquet as pq

        pq.write_table(self.table, path)

    def plot(self, axes: Axes | None = None, **options: Any) -> Axes:
        """Draw the cumulative regret or, if the truth is not known, smoothed returns.

        ``options`` are ``scale`` and ``width`` as of :meth:`Comparison.plot`, or those of a line:
        label, color, ...
        """
        from occamrl.answers.figures import draw_result

        return draw_result(self, axes, **options)

    def plot_policy(self, axes: Axes | None = None, **names: Sequence[str]) -> Axes:
        """Draw the policy: a row per state, a column per step, a colour per action.

        ``states`` and ``actions`` name them.
        """
        from occamrl.answers.figures import draw_policy

        return draw_policy(self, axes, **names)

    def plot_map(
        self, cells: Sequence[Sequence[object]], axes: Axes | None = None, **options: Any
    ) -> Axes:
        """Draw the policy of one step as arrows on a map, whose cells are the first states.

        >>> import occamrl as orl
        >>> lake = orl.make_problem("frozen-lake")
        >>> result = orl.run(orl.Occam(ladder=orl.Ladder.of_problem(lake)), lake, episodes=20)
        >>> lines = ["SFFF", "FHFH", "FFFH", "HFFG"]  # or env.unwrapped.desc
        >>> drawn = result.plot_map(lines, actions=["left", "down", "right", "up"])

        ``actions`` names them in order, where they have no names; arrows are drawn for left, right,
        up, down, west, east, north and south. ``step`` counts from 1. There is no arrow in the
        cells H, C and G (hole, cliff and goal) of a map.
        """
        from occamrl.answers.maps import draw_map

        return draw_map(self, cells, axes, **options)

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page: the verdict, the evidence over time, the policy."""
        if isinstance(self.known, System):
            page: Path = self.answer.page(path)
            return page
        from occamrl.answers.page import write_page

        return write_page(self, path)

    def __repr__(self) -> str:
        text = f"{printable_name(self.label)}, episodes={self.total_episodes:,}, seed={self.seed}"
        text += f", plans={self.plans:,}"
        if self.exact and self.total_episodes:
            text += f", total_regret={self.total_regret:,.6g}"
        return f"Result({text})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.verdict._repr_html_()}"


def known_by_ladder(agent: object) -> Known | System | None:
    """Return what the ladder of an agent says of what it models; None without a model."""
    ladder = getattr(agent, "ladder", None)  # an agent may be a user's, and have none
    if isinstance(ladder, ParametricLadder):
        return ladder.model.known
    if isinstance(ladder, (SimulatorLadder, Dynamics)):
        return ladder.known
    return None


def names_or(own: Sequence[object], kind: str, chosen: Sequence[str] | None) -> list[str]:
    """Return the names that a user chose for states or actions, or their own."""
    if chosen is not None and len(chosen) != len(own):
        raise ParameterError(kind, got=f"{len(chosen)} names", expected=f"{len(own)} names")
    return [str(name) for name in (own if chosen is None else chosen)]


def sum_of_pieces(episodes: Sequence[int], amounts: Sequence[float], at: Any) -> Any:
    """Return the cumulative amount after ``at`` episodes of a run in pieces.

    Each piece spreads its own amount evenly.
    """
    ends = np.concatenate([[0], np.cumsum(np.array(episodes, dtype=np.int64))])
    sums = np.concatenate([[0.0], np.cumsum(np.array(amounts))])
    asked = as_array("episode", at)
    whole = asked.dtype.kind in "iu"
    if not whole or (asked.size and (asked.min() < 0 or asked.max() > ends[-1])):
        expected = f"whole numbers from 0 to {ends[-1]:,}"
        raise ParameterError("episode", got=f"{at!r:.80}", expected=expected)
    last = np.searchsorted(ends, asked)  # the end of the piece that each lies in
    first = np.maximum(last - 1, 0)
    share = (asked - ends[first]) / np.maximum(ends[last] - ends[first], 1)
    between = sums[first] + share * (sums[last] - sums[first])
    # Not the interpolated number at the end of a piece: that could differ in its last digit.
    reached = np.where(share >= 1.0, sums[last], between)
    return reached if asked.ndim else float(reached)
