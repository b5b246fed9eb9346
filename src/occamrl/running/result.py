"""The result of a run, kept by block: what was earned, the exact regret where the truth is known, what was decided.

Between two plans nothing changes, so a block is one row whether it has ten episodes or a billion.
Curves are read off the blocks at any episode; they show every episode up to a million, and
log-spaced ones of longer runs.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from occamrl.answers.tables import table_of_rows as table_of_rows
from occamrl.answers.verdict import Verdict, verdict_of
from occamrl.control.ladder import SimulatorLadder
from occamrl.errors import NotAvailable, ParameterError
from occamrl.models.model import ParametricLadder
from occamrl.policies import stretches
from occamrl.protocols import Controller, Floats, Flow, Ints, Known, Learner, Plan, System

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

IfKnown = Any  # Floats or float, None where the truth is not known: of ``run``, where it always is, no check is needed

_NO_TABLE = (
    "no plan and no table of a policy: a controller acts step by step; see .answer, or "
    "orl.Agent(...).act"
)
EVERY_EPISODE = 10**6  # of which curves show all; beyond, some
POINTS_PER_DECADE = 1_000


class Cut(NamedTuple):
    """A block that the end of a run interrupted."""

    state: Any  # of the learner, before the block
    at: int | None  # where the episode before the block ended, if the next one begins there
    flows: dict[
        int, Flow
    ]  # what an environment has shown, by parts of the plan; {} in the simulator: play it anew


@dataclass(eq=False)
class Blocks:
    """What happened, piece by piece, in columns; a piece is a block, or an episode of a real environment.

    The driver writes them (:mod:`occamrl.running.run`), a result reads them.
    """

    episodes: list[int] = field(default_factory=list)
    regret: list[float] = field(
        default_factory=list
    )  # summed over the episodes; NaN where the truth is not known
    returns: list[float] = field(default_factory=list)  # realised, summed likewise
    pessimistic: list[int] = field(
        default_factory=list
    )  # episodes whose planned value was below the optimum
    plans: list[int] = field(
        default_factory=list
    )  # 1 where a plan was made, 0 where an earlier one went on
    phase: list[int] = field(default_factory=list)  # which of the phases
    phases: list[dict[str, Any]] = field(
        default_factory=list
    )  # of equal facts: these, latest diagnostics, history
    total_episodes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of :func:`occamrl.run` or :func:`occamrl.learn`.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), problem, episodes=50)
    >>> total, curve, policy = result.total_regret, result.cumulative_regret, result.policy()
    >>> bool(result.regret_at(50) == total)
    True

    Returns and regret are in the unit of the problem's rewards, as they were given.
    """

    label: str
    seed: int
    wall_time: float = 0.0  # seconds spent planning, playing and learning
    problem: str = ""  # fingerprint of the simulated problem
    environment: Any = None  # what is kept of a Gymnasium environment; None in the simulator
    agent: Any = field(repr=False)  # the user's Learner or Controller, as it was handed in
    known: Known | System = field(repr=False)  # a System of a controller
    state: Any = field(repr=False)  # of the agent
    blocks: Blocks = field(repr=False)
    cut: Cut | None = field(
        default=None, repr=False
    )  # the last block, if the end of the run cut it short
    at: int | None = field(
        default=None, repr=False
    )  # where the last episode ended, if the next one begins there
    drive: Any = field(
        default=None, repr=False
    )  # what an agent that is told step by step keeps between two calls

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
        """The episodes whose planned value was below the optimum: optimism failed. 0 where the truth is not known."""
        return sum(self.blocks.pessimistic)

    @cached_property
    def episodes(self) -> Ints:
        """The numbers (from 1) of the episodes that the curves show."""
        K = self.total_episodes
        if K <= EVERY_EPISODE:
            return np.arange(1, K + 1)
        points = int(np.ceil(POINTS_PER_DECADE * np.log10(K)))
        marks = np.unique(np.geomspace(1.0, K, points).astype(np.int64))
        return np.union1d(marks[marks < K], [K])

    def _each(self, column: list[float]) -> Floats:
        """Return the mean over its piece at each of the episodes that the curves show."""
        sizes = np.array(self.blocks.episodes, dtype=np.int64)
        return np.asarray(
            (np.array(column) / np.maximum(sizes, 1))[
                np.searchsorted(sizes.cumsum(), self.episodes)
            ]
        )

    @property
    def exact(self) -> bool:
        """Whether the truth is known, and the regret with it."""
        return self.environment is None or bool(self.environment.exact)

    @property
    def returns(self) -> Floats:
        """The realised sum of rewards of each episode, chance included; of a simulated block, the mean."""
        return self._each(self.blocks.returns)

    @property
    def total_return(self) -> float:
        """The realised sum of all rewards."""
        return float(np.sum(self.blocks.returns))

    @cached_property
    def regret(self) -> IfKnown:
        """The exact pseudo-regret of each of these episodes, V*_1(s_1) - V^pi_1(s_1), a mean over a block's starts."""
        return self._each(self.blocks.regret) if self.exact else None

    @cached_property
    def cumulative_regret(self) -> IfKnown:
        """The sum of the regret of all episodes up to and including each of these."""
        return self.regret_at(self.episodes)

    @property
    def total_regret(self) -> IfKnown:
        """The sum of the regret of all episodes."""
        return self.regret_at(self.total_episodes)

    def regret_at(self, episode: Any) -> IfKnown:
        """Return the cumulative regret after ``episode`` episodes, a number or an array of numbers up to K."""
        if not self.exact:
            return None
        return sum_of_pieces(self.blocks.episodes, self.blocks.regret, episode)

    def return_at(self, episode: Any) -> Any:
        """Return the realised sum of rewards after ``episode`` episodes, as :meth:`regret_at`."""
        return sum_of_pieces(self.blocks.episodes, self.blocks.returns, episode)

    @property
    def phases(self) -> pa.Table:
        """A row for each stretch of equal decisions: first, episodes, plans, regret, and what was decided."""
        return table_of_rows(self.phase_rows)

    @cached_property
    def phase_rows(self) -> list[dict[str, Any]]:
        """The rows of :attr:`phases`, as dictionaries."""
        phase, rows = np.array(self.blocks.phase, dtype=np.int64), []
        begins = np.flatnonzero(np.diff(phase, prepend=-1))
        columns: dict[str, list[Any]] = {
            "episodes": self.blocks.episodes,
            "plans": self.blocks.plans,
        }
        columns |= {"realised_return": self.blocks.returns} | (
            {"regret": self.blocks.regret} if self.exact else {}
        )
        sums = {
            name: np.add.reduceat(np.array(column), begins).tolist()
            for name, column in columns.items()
            if column
        }
        first = 1
        for i, row in enumerate(self.blocks.phases):
            totals = {name: column[i] for name, column in sums.items()}
            rows.append({"first": first, **totals, **row["facts"], **row["diagnostics"]})
            first += totals["episodes"]
        return rows

    @cached_property
    def next_plan(self) -> Plan:
        """What would be played next."""
        from occamrl.addresses import generator

        if not isinstance(self.agent, Learner):
            raise NotAvailable(_NO_TABLE)
        draw = generator(self.seed, "agent", self.total_episodes)
        return self.agent.plan(self.finite, self.state, draw)

    @property
    def finite(self) -> Known:
        """What a learner knows of its finite problem; a controller has none."""
        if not isinstance(self.known, Known):
            raise NotAvailable(_NO_TABLE)
        return self.known

    @cached_property
    def verdict(self) -> Verdict:
        """What a selector would decide now, with its diagnostics; print it for words. A single learner decides nothing."""
        return verdict_of(self)

    @cached_property
    def answer(self) -> Any:
        """The answer: which model is needed, what to do, what it is worth, and whether it matters; print it."""
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
        """Return the policy as a table, a row per state, in the names of states and actions; equal steps are joined."""
        policy, state_names, action_names = self.named_policy(states, actions)
        parts, rows = stretches(policy), []
        for s, name in enumerate(state_names):
            rows.append(
                {"state": name, **{part: action_names[policy[h, s]] for part, h in parts.items()}}
            )
        return table_of_rows(rows)

    def named_policy(
        self, states: Sequence[str] | None, actions: Sequence[str] | None
    ) -> tuple[Ints, list[str], list[str]]:
        """Return the policy [H, S], and the names of states and actions: given, the problem's or the environment's."""
        names = []
        known = self.finite
        for kind, given, size in (
            ("states", states, known.states),
            ("actions", actions, known.actions),
        ):
            if given is not None and len(given) != size:
                raise ParameterError(kind, got=f"{len(given)} names", expected=f"{size} names")
            own: Sequence[Any] = range(size)
            if known.names is not None:
                own = getattr(known.names, kind)
            elif self.environment is not None:
                own = self.environment.names(kind, size)
            names.append([str(each) for each in (own if given is None else given)])
        return self.policy(), names[0], names[1]

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue to one file of arrays and JSON, whole or not at all."""
        from occamrl.running.storage import save

        save(self, path)

    @classmethod
    def load(
        cls, path: str | Path, agent: Learner | Controller | None = None, problem: Any = None
    ) -> Result:
        """Return the result in a file; see :func:`occamrl.running.storage.load`."""
        from occamrl.running.storage import load

        return load(path, agent, problem)

    @property
    def table(self) -> pa.Table:
        """The curves, a row per episode that they show: episode, realised_return, regret, cumulative_regret."""
        import pyarrow as pa

        columns = {"episode": self.episodes, "realised_return": self.returns}
        if self.exact:
            columns |= {"regret": self.regret, "cumulative_regret": self.cumulative_regret}
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return :attr:`table` as a data frame of pandas."""
        return frame_of(self.table)

    def to_parquet(self, path: str | Path) -> None:
        """Write :attr:`table` to a Parquet file."""
        import pyarrow.parquet as pq

        pq.write_table(self.table, path)

    def plot(self, axes: Axes | None = None, **options: Any) -> Axes:
        """Draw the cumulative regret; or, where the truth is not known, smoothed returns.

        ``options`` are ``scale`` and ``width`` as of :meth:`Comparison.plot`, or those of a line:
        label, color, ...
        """
        drawn: Axes = importlib.import_module("occamrl.report.figures").draw_result(
            self, axes, **options
        )
        return drawn

    def plot_policy(self, axes: Axes | None = None, **names: Sequence[str]) -> Axes:
        """Draw the policy: a row per state, a column per step, a colour per action; ``states`` and ``actions`` name."""
        drawn: Axes = importlib.import_module("occamrl.report.figures").draw_policy(
            self, axes, **names
        )
        return drawn

    def page(self, path: str | Path) -> Path:
        """Write the answer as one HTML page: the verdict, the evidence over time, the policy."""
        if isinstance(self.known, System):
            page: Path = self.answer.page(path)
            return page
        written: Path = importlib.import_module("occamrl.report.page").write_page(self, path)
        return written

    def __repr__(self) -> str:
        lost = (
            f", total_regret={self.total_regret:,.6g}" if self.exact and self.total_episodes else ""
        )
        return f"Result({self.label}, episodes={self.total_episodes:,}, seed={self.seed}, plans={self.plans:,}{lost})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.verdict._repr_html_()}"


def known_by_ladder(agent: object) -> Known | System | None:
    """Return what the ladder of an agent says of the system that it models; None without a model."""
    ladder = getattr(agent, "ladder", None)  # an agent may be a user's, and have none
    if isinstance(ladder, ParametricLadder):
        return ladder.model.known
    if isinstance(ladder, SimulatorLadder):
        return ladder.system
    return None


def sum_of_pieces(episodes: Sequence[int], amounts: Sequence[float], at: Any) -> Any:
    """Return the cumulative amount after ``at`` episodes of a run in pieces, each of which spreads its own evenly."""
    ends = np.concatenate([[0], np.cumsum(np.array(episodes, dtype=np.int64))])
    sums = np.concatenate([[0.0], np.cumsum(np.array(amounts))])
    found = np.asarray(at)
    if found.dtype.kind not in "iu" or (found.size and (found.min() < 0 or found.max() > ends[-1])):
        raise ParameterError(
            "episode", got=f"{at!r:.80}", expected=f"whole numbers from 0 to {ends[-1]:,}"
        )
    after = np.searchsorted(ends, found)  # the piece that each lies in
    before = np.maximum(after - 1, 0)
    share = (found - ends[before]) / np.maximum(ends[after] - ends[before], 1)
    sums = np.where(share >= 1.0, sums[after], sums[before] + share * (sums[after] - sums[before]))
    return sums if found.ndim else float(sums)


def frame_of(table: pa.Table) -> Any:
    """Return a table as a data frame of pandas, which is not one of the packages that this one needs."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        expected = "pandas: `pip install pandas`; without it, .table is the same as a pyarrow table"
        raise ParameterError("to_pandas", got="no pandas", expected=expected) from None
    return pandas.DataFrame(table.to_pydict())
