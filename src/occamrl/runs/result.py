"""The result of a run: exact regret, episode by episode, and what the agent decided on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occamrl.contracts import Agent, Floats, Ints
from occamrl.problems.finite_mdp import FiniteMDP
from occamrl.runs.drawing import plot_regret
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.recording import Recorder

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


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
