"""The result of a run: exact regret, episode by episode, and what the agent decided on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl.envs.spaces import Codec
from occamrl.envs.wrapper import RewardMap
from occamrl.errors import OccamRLError
from occamrl.problems.mdp import FiniteMDP
from occamrl.protocols import Agent, Floats, Ints, Known, PhaseOutcome
from occamrl.running.phases import PhaseWalk, Recorder

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


# ----------------------------------------------------------------------------------------------------
# Drawing the regret curve of a run.


_MOST_POINTS = 2_000


def thin(episodes: Ints) -> Ints:
    """Return indices of at most a few thousand points, spread evenly and in the logarithm."""
    if episodes.size <= _MOST_POINTS:
        return np.arange(episodes.size)
    even = np.linspace(0, episodes.size - 1, _MOST_POINTS // 2)
    early = np.geomspace(1, episodes.size, _MOST_POINTS // 2) - 1
    return np.unique(np.concatenate([even, early]).astype(np.int64))


def new_axes() -> Axes:
    """Return the axes of a new figure, drawn without any window system."""
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.0), layout="constrained").subplots()


def dress(axes: Axes, title: str = "") -> None:
    """Label the axes of a regret curve."""
    axes.set_xlabel("episode")
    axes.set_ylabel("cumulative regret")
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    if title:
        axes.set_title(title, loc="left", fontsize="medium")


def plot_regret(episodes: Ints, cumulative_regret: Floats, axes: Axes | None = None, **style: Any) -> Axes:
    """Draw cumulative regret over episodes, on new axes unless some are given."""
    if axes is None:
        axes = new_axes()
        dress(axes)
    at = thin(episodes)
    axes.plot(episodes[at], cumulative_regret[at], **style)
    return axes


# ----------------------------------------------------------------------------------------------------
# The result of a run: exact regret, episode by episode, and what the agent decided on the way.


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a run.

    ``regret[i]`` is the exact pseudo-regret V*_1(s_1) - V^{pi_k}_1(s_1) of episode k = ``episodes[i]`` (from 1) and
    ``cumulative_regret[i]`` the sum up to and including it. Every episode is kept up to the first million, log-spaced
    ones after that; totals are always over all episodes. ``returns`` are realised sums of rewards.
    """

    episodes: Ints
    regret: Floats
    cumulative_regret: Floats
    returns: Floats
    total_regret: float
    total_return: float
    plans: int
    pessimistic_episodes: int  # episodes whose planned value was below V*_1(s_1): optimism failed
    wall_time: float  # seconds
    seed: int
    label: str
    agent: Agent = field(repr=False)
    mdp: FiniteMDP = field(repr=False)
    walk: PhaseWalk = field(repr=False)  # where to continue from
    recorder: Recorder = field(repr=False)

    @classmethod
    def of(cls, recorder: Recorder, walk: PhaseWalk, **about: Any) -> Result:
        """Return the result of what was recorded."""
        episodes, regret, cumulative, returns = recorder.curves()
        return cls(
            episodes=episodes,
            regret=regret,
            cumulative_regret=cumulative,
            returns=returns,
            total_regret=recorder.total_regret,
            total_return=recorder.total_return,
            walk=walk,
            recorder=recorder,
            **about,
        )

    @property
    def total_episodes(self) -> int:
        """The number K of episodes played."""
        return self.recorder.episodes

    @property
    def state(self) -> Any:
        """The state of the learner that played last: a NamedTuple of arrays."""
        return self.walk.state

    @property
    def phases(self) -> pa.Table:
        """One row per phase: epoch, label, episodes, regret, plans, and what was decided."""
        return table_of_rows([row for row in self.walk.rows if row["episodes"]])

    def to_table(self) -> pa.Table:
        """Return the curves as a table: episode, regret, cumulative_regret, realised_return."""
        import pyarrow as pa

        about = {"label": self.label, "seed": self.seed, "plans": self.plans, "total_regret": self.total_regret}
        table = pa.table(
            {
                "episode": self.episodes,
                "regret": self.regret,
                "cumulative_regret": self.cumulative_regret,
                "realised_return": self.returns,
            }
        )
        return table.replace_schema_metadata({"occamrl": json.dumps(about)})

    def to_parquet(self, path: str | Path) -> None:
        """Write the curves to a Parquet file; a file of that name is replaced only once the new one is whole."""
        import pyarrow.parquet as pq

        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        try:
            pq.write_table(self.to_table(), partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def plot(self, axes: Axes | None = None, **style: Any) -> Axes:
        """Draw cumulative regret over episodes."""
        return plot_regret(self.episodes, self.cumulative_regret, axes, **{"label": self.label, **style})

    def __repr__(self) -> str:
        return (
            f"Result({self.label}, {self.total_episodes:,} episodes, regret {self.total_regret:,.2f}, "
            f"{self.plans:,} plans, {self.wall_time:.2f} s)"
        )


def table_of_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows of facts as a table; a fact that a row lacks is null."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(facts: list[Any]) -> Any:
    """Return a column of facts; facts of different kinds become JSON texts."""
    import pyarrow as pa

    try:
        return pa.array(facts)
    except (ValueError, TypeError):  # what pyarrow's own errors derive from
        return pa.array([None if fact is None else json.dumps(fact) for fact in facts])


# ----------------------------------------------------------------------------------------------------
# What came of learning in a real environment: realised returns, decisions, exact regret where it can be told.


@dataclass(frozen=True, kw_only=True, eq=False)
class Place:
    """Where the learning took place: enough to go on, or to act, without the environment object."""

    name: str
    known: Known
    rewards: RewardMap
    observation: Codec
    action: Codec
    exact: bool  # whether the environment's truth was known, and regret with it
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """The result of :func:`occamrl.learn`. Returns and regret are in the environment's own unit."""

    label: str
    place: Place
    seed: int
    steps: int  # taken in the environment
    cut_short: tuple[int, ...]  # episodes (from 1) of which only a first part was seen
    plans: int
    wall_time: float
    agent: Agent = field(repr=False)
    walk: PhaseWalk = field(repr=False)
    recorder: Recorder = field(repr=False)  # regret in the learner's unit, returns in the environment's

    @property
    def total_episodes(self) -> int:
        """The number K of episodes played."""
        return self.recorder.episodes

    @property
    def episodes(self) -> Ints:
        """1 ... K."""
        return self.recorder.curves()[0]

    @property
    def returns(self) -> Floats:
        """The realised sum of rewards of every episode: what happened, chance included."""
        return self.recorder.curves()[3]

    @property
    def total_return(self) -> float:
        """The realised sum of all rewards."""
        return self.recorder.total_return

    @property
    def regret(self) -> Floats | None:
        """The exact pseudo-regret V*_1(s_1) - V^{pi_k}_1(s_1) of every episode; None where the truth is not known."""
        return self.recorder.curves()[1] * self.place.rewards.scale if self.place.exact else None

    @property
    def cumulative_regret(self) -> Floats | None:
        """Its running sum."""
        return self.recorder.curves()[2] * self.place.rewards.scale if self.place.exact else None

    @property
    def total_regret(self) -> float | None:
        """Its sum."""
        return self.recorder.total_regret * self.place.rewards.scale if self.place.exact else None

    @property
    def state(self) -> Any:
        """The state of the learner that played last: a NamedTuple of arrays."""
        return self.walk.state

    @property
    def phases(self) -> pa.Table:
        """One row per phase: epoch, label, episodes, plans, realised return, regret if known, what was decided."""
        rows, begin = [], 0
        _, regret, _, returns = self.recorder.curves()
        for row in self.walk.rows:
            if not row["episodes"]:
                continue
            part = slice(begin, begin + row["episodes"])
            begin = part.stop
            measured = {"regret": float(regret[part].sum()) * self.place.rewards.scale} if self.place.exact else {}
            kept = {name: fact for name, fact in row.items() if name != "regret"}
            rows.append({**kept, "realised_return": float(returns[part].sum()), **measured})
        return table_of_rows(rows)

    @property
    def verdict(self) -> dict[str, Any]:
        """What a selector would decide now, with its grounds (``chosen``, ``statistics``, ...); {} for a learner."""
        fork = self.walk.fork()
        if fork.phase.episodes is None:
            return {}
        if fork.played:
            outcome = PhaseOutcome(fork.played, fork.plans, fork.returned, fork.state)
            fork.selector.finish_phase(fork.known, fork.memory, fork.phase, outcome)
            return dict(fork.selector.next_phase(fork.known, fork.memory).facts)
        return dict(fork.phase.facts)

    def plot(self, axes: Axes | None = None, **style: Any) -> Axes:
        """Draw cumulative regret over episodes, where it is known."""
        curve = self.cumulative_regret
        if curve is None:
            raise OccamRLError(f"no exact regret to draw: {self.place.why_not}")
        return plot_regret(self.episodes, curve, axes, **{"label": self.label, **style})

    def __repr__(self) -> str:
        parts = [f"{self.total_episodes:,} episodes, {self.steps:,} steps"]
        if self.total_episodes:
            parts.append(f"realised return {self.total_return / self.total_episodes:,.4g} an episode")
        if self.total_regret is not None:
            parts.append(f"exact regret {self.total_regret:,.2f}")
        if self.cut_short:
            parts.append(f"{len(self.cut_short)} episodes cut short")
        return f"Learned({self.label} in {self.place.name}: {', '.join(parts)})"
