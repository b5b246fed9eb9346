"""The result of a run: what the agent earned, its exact regret where the truth is known, and what it decided."""

from __future__ import annotations

import html
import importlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl import seeding
from occamrl.envs.spaces import Codec, codec_from_plain
from occamrl.envs.wrapper import FiniteEnvironment, RewardMap, reward_map
from occamrl.errors import CheckpointError, require_integer
from occamrl.protocols import Agent, Floats, Ints, Known
from occamrl.running import answer
from occamrl.running.answer import Verdict
from occamrl.running.phases import PhaseWalk, Recorder

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from occamrl.problems.mdp import FiniteMDP
    from occamrl.protocols import Problem

# Of Floats or of float, or None where the truth is not known. Any, so that users of ``run``, where it always is, need
# no check that cannot fail.
IfKnown = Any

_MOST_POINTS = 2_000  # in a figure


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvironmentInfo:
    """The Gymnasium environment of a run: enough to go on, or to act, without the environment object."""

    name: str
    rewards: RewardMap
    observation: Codec
    action: Codec
    exact: bool  # whether the environment's truth was known, and regret with it
    why_not: str = ""

    @classmethod
    def of(cls, environment: FiniteEnvironment) -> EnvironmentInfo:
        """Return what is kept of an environment."""
        names = ("name", "rewards", "observation", "action", "why_not")
        return cls(**{name: getattr(environment, name) for name in names}, exact=environment.mdp is not None)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        codecs = {"observation": self.observation.to_plain(), "action": self.action.to_plain()}
        return {**vars(self), **codecs, "rewards": list(self.rewards)}

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> EnvironmentInfo:
        """Return what :meth:`to_plain` wrote, checked."""
        if [type(data[name]) for name in ("name", "exact", "why_not")] != [str, bool, str]:
            raise CheckpointError("environment", got=data, expected="its name, whether regret is exact, why not")
        codecs = {name: codec_from_plain(data[name]) for name in ("observation", "action")}
        return cls(**{**data, **codecs, "rewards": reward_map(data["rewards"])})


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of :func:`occamrl.run` or :func:`occamrl.learn`.

    ``run`` keeps every episode up to the first million and log-spaced ones after that, ``learn`` every one; totals are
    always over all episodes. Returns and regret are in the unit of the environment's rewards.
    """

    label: str
    seed: int
    plans: int = 0
    pessimistic_episodes: int = 0  # simulated ones whose planned value was below V*_1(s_1): optimism failed
    wall_time: float = 0.0  # seconds spent playing, without compilation
    steps: int = 0  # taken in the environment
    start: int = 0  # where most episodes begin, as far as is known
    cut_short: tuple[int, ...] = ()  # episodes (from 1) of which an environment showed only a first part
    environment: EnvironmentInfo | None = None  # None in the simulator
    problem: str = ""  # fingerprint of the simulated problem
    agent: Agent = field(repr=False)
    walk: PhaseWalk = field(repr=False)  # where to continue from
    recorder: Recorder = field(repr=False)  # regret in the learner's unit, returns in the environment's

    @cached_property
    def _curves(self) -> tuple[Ints, Floats, Floats, Floats]:
        return self.recorder.curves()

    @property
    def _scale(self) -> float | None:
        """From the learner's unit of regret to the environment's; None where regret is not known."""
        if self.environment is None:
            return 1.0
        return self.environment.rewards.scale if self.environment.exact else None

    @property
    def total_episodes(self) -> int:
        """The number K of episodes played."""
        return self.recorder.episodes

    @property
    def episodes(self) -> Ints:
        """The numbers (from 1) of the episodes that the curves show."""
        return self._curves[0]

    @property
    def returns(self) -> Floats:
        """The realised sum of rewards of each of these episodes: what happened, chance included."""
        return self._curves[3]

    @property
    def total_return(self) -> float:
        """The realised sum of all rewards."""
        return self.recorder.total_return

    @cached_property
    def regret(self) -> IfKnown:
        """The exact pseudo-regret V*_1(s_1) - V^{pi_k}_1(s_1) of each of these episodes."""
        return None if self._scale is None else self._curves[1] * self._scale

    @cached_property
    def cumulative_regret(self) -> IfKnown:
        """The sum of the regret of all episodes up to and including each of these."""
        return None if self._scale is None else self._curves[2] * self._scale

    @property
    def total_regret(self) -> IfKnown:
        """The sum of the regret of all episodes."""
        return None if self._scale is None else self.recorder.total_regret * self._scale

    @property
    def known(self) -> Known:
        """What the agent knew of the problem."""
        return self.walk.known

    @property
    def state(self) -> Any:
        """The state of the learner that played last."""
        return self.walk.state

    @property
    def phases(self) -> pa.Table:
        """One row per phase: epoch, label, episodes, plans, realised return, regret if known, what was decided."""
        rows = [dict(row) for row in self.walk.rows if row["episodes"]]
        for row, end in zip(rows, np.cumsum([row["episodes"] for row in rows]).tolist(), strict=True):
            row["first_episode"] = end - row["episodes"] + 1
        if self.environment is not None:  # the walk keeps the learner's account; this is the environment's
            ends = np.cumsum([row["episodes"] for row in rows])
            for row, end in zip(rows, ends, strict=True):
                row["realised_return"] = float(self.returns[end - row["episodes"] : end].sum())
                regret = row.pop("regret")
                if self._scale is not None:
                    row["regret"] = regret * self._scale
        return table_of_rows(rows)

    @property
    def verdict(self) -> Verdict:
        """What a selector would decide now, with its grounds (``chosen``, ``statistics``, ...); print it for words."""
        return answer.verdict(self)

    def policy(self, start: int | None = None) -> Ints:
        """Return the actions [H, S] of the next episode, if it begins in ``start`` (by default, where most begin)."""
        start = self.start if start is None else require_integer("start", start, 0, most=self.known.states - 1)
        player = self.walk.fork().player
        player.reserve(1)
        actions = np.zeros((self.known.horizon, self.known.states), dtype=np.int64)
        player.open(start, seeding.key(self.seed, "agent"), self.total_episodes, actions)
        return actions

    def policy_table(
        self, start: int | None = None, *, states: Sequence[str] | None = None, actions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the policy as a table, a row per state and a column per step, in the names of states and actions."""
        return table_of_rows(answer.policy_rows(self, start, states, actions))

    def plot_policy(
        self,
        axes: Axes | None = None,
        *,
        start: int | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> Axes:
        """Draw the policy: a row per state, a column per step, a colour per action."""
        axes = current_axes(axes)
        answer.draw_policy(self, axes, start, states, actions)
        return axes

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue to one file of arrays and JSON, whole or not at all."""
        from occamrl.running.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path, agent: Agent | None = None, mdp: FiniteMDP | Problem | None = None) -> Result:
        """Return the result in a file; see :func:`occamrl.running.storage.load`."""
        from occamrl.running.storage import load

        return load(path, agent, mdp)

    def to_table(self) -> pa.Table:
        """Return the curves as a table: episode, regret and cumulative_regret if known, realised_return."""
        import pyarrow as pa

        about = {"label": self.label, "seed": self.seed, "plans": self.plans, "total_regret": self.total_regret}
        known = {"regret": self.regret, "cumulative_regret": self.cumulative_regret} if self._scale is not None else {}
        table = pa.table({"episode": self.episodes, **known, "realised_return": self.returns})
        return table.replace_schema_metadata({"occamrl": json.dumps(about)})

    def to_parquet(self, path: str | Path) -> None:
        """Write the curves to a Parquet file; a file of that name is replaced only once the new one is whole."""
        import pyarrow.parquet as pq

        from occamrl.running.files import write_whole

        buffer = io.BytesIO()
        pq.write_table(self.to_table(), buffer)
        write_whole(Path(path), buffer.getvalue())

    def plot(self, axes: Axes | None = None, **style: Any) -> Axes:
        """Draw cumulative regret over episodes, on the current axes unless some are given.

        Where regret is not known: smoothed returns with two standard errors, and the class in play beneath.
        """
        axes = current_axes(axes)
        if self._scale is None:
            answer.draw_returns(self, axes, **style)
            return axes
        dress(axes)
        at = thin(self.episodes)
        axes.plot(self.episodes[at], self.cumulative_regret[at], **{"label": self.label, **style})
        return axes

    def page(
        self, path: str | Path, *, states: Sequence[str] | None = None, actions: Sequence[str] | None = None
    ) -> Path:
        """Write a page for a colleague: the question, the answer, the evidence, the policy, what was assumed."""
        write = importlib.import_module("occamrl.report.answer").write_answer  # above this module
        written: Path = write(self, Path(path), states=states, actions=actions)
        return written

    def _repr_html_(self) -> str:
        lines = [repr(self), *self.verdict.sentences]
        return "".join(f"<p>{html.escape(line)}</p>" for line in lines) + self._picture()

    def _picture(self) -> str:
        """Return a small curve as SVG: cumulative regret, or smoothed returns."""
        if self._scale is None:
            x, y, _ = answer.smoothed(self.returns, 100)
        else:
            at = thin(self.episodes, 100)
            x, y = self.episodes[at], self.cumulative_regret[at]
        if x.size < 2:
            return ""
        low, high = min(float(y.min()), 0.0), float(y.max())
        across, up = 300.0 * x / x[-1], 90.0 - 80.0 * (y - low) / max(high - low, 1e-12)
        points = " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(across, up, strict=True))
        name = "return of an episode" if self._scale is None else "cumulative regret"
        title = f"{name}, {self.total_episodes:,} episodes, up to {high:,.4g}"
        line = f'<polyline fill="none" stroke="#0072B2" stroke-width="1.5" points="{points}"/>'
        return f'<svg width="320" height="100" role="img"><title>{title}</title>{line}</svg><p>{title}</p>'

    def __repr__(self) -> str:
        parts = [self.label, f"{self.total_episodes:,} episodes"]
        if self.environment is not None:
            parts = [f"{self.label} in {self.environment.name}", parts[1], f"{self.steps:,} steps"]
            if self.total_episodes:
                parts.append(f"realised return {self.total_return / self.total_episodes:,.4g} an episode")
        if self.total_regret is not None:
            parts.append(f"regret {self.total_regret:,.2f}")
        if self.cut_short:
            parts.append(f"{len(self.cut_short)} episodes cut short")
        return f"Result({', '.join(parts)}, {self.plans:,} plans, {self.wall_time:.2f} s)"


def thin(episodes: Ints, points: int = _MOST_POINTS) -> Ints:
    """Return the positions of about ``points`` episodes, half spread evenly, half in the logarithm; 0: all."""
    size = episodes.size
    if points == 0 or size <= points:
        return np.arange(size)
    even = np.linspace(0, size - 1, max(points // 2, 2))
    early = np.geomspace(1, size, max(points // 2, 2)) - 1
    return np.unique(np.round(np.concatenate([even, early])).astype(np.int64))


def current_axes(axes: Axes | None) -> Axes:
    """Return the axes, or those that pyplot draws on, as functions of matplotlib do."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.gca()
    return axes


def text_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of texts as lines: the first column to the left, the others to the right."""
    names = list(rows[0])
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in names]
    lines = [dict(zip(names, names, strict=True)), *rows]
    return "\n".join(
        "  ".join(
            f"{row[name]:{'<' if name == names[0] else '>'}{width}}" for name, width in zip(names, widths, strict=True)
        )
        for row in lines
    )


def html_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of texts as an HTML table, for notebooks."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row.values()) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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


def table_of_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows of facts as a table; a fact that a row lacks is null, facts of different kinds are JSON texts."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        facts = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(facts)
        except (ValueError, TypeError, OverflowError):  # what pyarrow's own errors derive from, and large integers
            columns[name] = pa.array([None if fact is None else json.dumps(fact) for fact in facts])
    return pa.table(columns)
