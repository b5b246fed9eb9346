"""What came of learning in a real environment: realised returns, decisions, exact regret where it can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from occamrl.contracts import Agent, Floats, Ints, Known, PhaseOutcome
from occamrl.environments.spaces import Codec
from occamrl.environments.tables import RewardMap
from occamrl.errors import OccamRLError
from occamrl.runs.drawing import plot_regret
from occamrl.runs.phases import PhaseWalk
from occamrl.runs.recording import Recorder
from occamrl.runs.result import table_of_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


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
