"""The result of a run: what the agent earned, its exact regret where the truth is known, and what it decided.

:class:`Recorder` keeps all episodes at first, then log-spaced ones, with exact totals throughout. Which episodes are
kept does not depend on how long a run will be or how it is cut into pieces.
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from occamrl import seeding
from occamrl.envs.spaces import Codec, codec_from_plain
from occamrl.envs.wrapper import FiniteEnvironment, RewardMap, reward_map
from occamrl.errors import CheckpointError, OccamRLError, ParameterError, as_path, require_integer
from occamrl.protocols import ESTIMATION, Agent, Field, Floats, Ints, Known, RuledBases
from occamrl.running.phases import PhaseWalk, running_total

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from occamrl.problems.mdp import FiniteMDP
    from occamrl.protocols import Problem

# Of Floats or of float, or None where the truth is not known. Any, so that users of ``run``, where it always is, need
# no check that cannot fail.
IfKnown = Any

KEEP_ALL_UNTIL = 1_000_000
POINTS_PER_DECADE = 1_000
_MOST_POINTS = 2_000  # in a figure
_MOST_NAMED = 8  # coordinates or classes that a sentence lists
_MOST_STATES = 60  # whose names a picture shows


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


def kept_episodes(first: int, last: int, keep_all_until: int = KEEP_ALL_UNTIL) -> Ints:
    """Return the numbers (from 1) of the kept episodes in [first, last]."""
    every = np.arange(first, min(last, keep_all_until) + 1, dtype=np.int64)
    if last <= keep_all_until:
        return every
    low = max(first, keep_all_until + 1)
    j = np.arange(np.floor(POINTS_PER_DECADE * np.log10(low)) - 1, np.ceil(POINTS_PER_DECADE * np.log10(last)) + 2)
    marks = np.unique(np.floor(10.0 ** (j / POINTS_PER_DECADE)).astype(np.int64))
    return np.concatenate([every, marks[(marks >= low) & (marks <= last)]])


class Recorder:
    """Collects curves chunk by chunk; sums run one episode after another, so chunks do not matter to the last bit."""

    def __init__(self, keep_all_until: int = KEEP_ALL_UNTIL) -> None:
        self.keep_all_until, self.episodes = keep_all_until, 0
        self.totals = np.zeros(2)  # of regret and realised returns
        self.last = np.zeros(4)  # number, regret, cumulative regret and realised return of the last episode
        self._kept = 0
        self._curves = np.zeros((4, 0))  # the same of the episodes that are kept

    def add(self, regret: Floats, returns: Floats) -> None:
        """Take in the next episodes."""
        if not regret.size:
            return
        first = self.episodes + 1
        self.episodes += regret.size
        cumulative = np.cumsum(np.concatenate([self.totals[:1], regret]))[1:]
        self.totals[:] = cumulative[-1], running_total(self.totals[1], returns)
        self.last[:] = self.episodes, regret[-1], cumulative[-1], returns[-1]
        kept = kept_episodes(first, self.episodes, self.keep_all_until)
        size = self._kept + kept.size
        if size > self._curves.shape[1]:  # make room, doubling, so that many short chunks cost no more than a few long
            self._curves = np.append(self.kept, np.zeros((4, max(size, 2 * self._kept) - self._kept)), axis=1)
        for row, curve in enumerate((kept, regret, cumulative, returns)):
            self._curves[row, self._kept : size] = curve if row == 0 else curve[kept - first]
        self._kept = size

    @property
    def kept(self) -> Floats:
        """The curves [4, n] of the episodes that are kept."""
        return self._curves[:, : self._kept]

    def curves(self) -> Floats:
        """Return episode numbers, regret, cumulative regret and realised returns [4, n], ending with the last one."""
        ends = self._kept == 0 or self.kept[0, -1] < self.episodes
        return np.append(self.kept, self.last[:, None], axis=1) if self.episodes and ends else self.kept.copy()

    def to_tree(self) -> dict[str, Any]:
        """Return everything as plain data and arrays."""
        sizes = {"keep_all_until": self.keep_all_until, "episodes": self.episodes}
        return {**sizes, "totals": self.totals, "last": self.last, "curves": self.kept.copy()}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Recorder:
        """Return the recorder of a tree."""
        made, curves = cls(require_integer("recorder.keep_all_until", tree["keep_all_until"], 0)), tree["curves"]
        made.episodes = require_integer("recorder.episodes", tree["episodes"], 0)
        for name, shape in (("totals", (2,)), ("last", (4,)), ("curves", (4, np.size(curves) // 4))):
            Field(name, shape, 0.0, 0.0).require_kind(tree[name], "recorder")
        numbers = np.append(0.0, curves[0])
        if (numbers != np.floor(numbers)).any() or (np.diff(numbers) <= 0).any() or numbers[-1] > made.episodes:
            raise CheckpointError("recorder.curves", got="another order", expected="increasing numbers of episodes")
        if not all(np.isfinite(curve).all() or np.isnan(curve).all() for curve in curves):  # where no truth is known
            raise CheckpointError("recorder.curves", got="numbers that are not finite", expected="finite ones")
        made.totals, made.last, made._curves, made._kept = tree["totals"], tree["last"], curves, curves.shape[1]
        return made


class Verdict(dict[str, Any]):
    """What a selector would decide now: its facts by name, and ``sentences`` that a person can read.

    ``print(verdict)`` prints the sentences.
    """

    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of :func:`occamrl.run` or :func:`occamrl.learn`.

    >>> import occamrl as orl
    >>> problem = orl.make_problem("river-swim", states=3)
    >>> result = orl.run(orl.Greedy(features=orl.FeatureMap.tabular(states=3, actions=2)), problem, episodes=50)
    >>> total, curve, policy = result.total_regret, result.cumulative_regret, result.policy()

    ``run`` keeps every episode up to the first million and log-spaced ones after that, ``learn`` every one; totals are
    always over all episodes. Returns and regret are in the unit of the environment's rewards.
    """

    label: str
    seed: int
    plans: int = 0
    pessimistic_episodes: int = 0  # whose planned value was below V*_1(s_1), where that is known: optimism failed
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
    def _curves(self) -> Floats:
        return self.recorder.curves()

    @property
    def _scale(self) -> float | None:
        """From the learner's unit of regret to the environment's; None where regret is not known."""
        info = self.environment
        return 1.0 if info is None else info.rewards.scale if info.exact else None

    @property
    def total_episodes(self) -> int:
        """The number K of episodes played."""
        return self.recorder.episodes

    @cached_property
    def episodes(self) -> Ints:
        """The numbers (from 1) of the episodes that the curves show."""
        return np.asarray(self._curves[0].astype(np.int64))

    @property
    def returns(self) -> Floats:
        """The realised sum of rewards of each of these episodes: what happened, chance included."""
        return np.asarray(self._curves[3])

    @property
    def total_return(self) -> float:
        """The realised sum of all rewards."""
        return float(self.recorder.totals[1])

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
        return None if self._scale is None else float(self.recorder.totals[0]) * self._scale

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
        rows, end = [dict(row) for row in self.walk.rows if row["episodes"]], 0
        for row in rows:
            first, end = end, end + row["episodes"]
            row["first_episode"] = first + 1
            if self.environment is not None:  # the walk keeps the learner's account; this is the environment's
                row["realised_return"] = float(self.returns[first:end].sum())
                regret = row.pop("regret")
                if self._scale is not None:
                    row["regret"] = regret * self._scale
        return table_of_rows(rows)

    @property
    def verdict(self) -> Verdict:
        """What a selector would decide now, with its grounds (``chosen``, ``statistics``, ...); print it for words.

        A single learner decides nothing.
        """
        fork = self.walk.fork()
        found = Verdict()
        if fork.phase.episodes is not None:
            if fork.played:
                fork.finish()
            found.update(fork.phase.facts)
        found.sentences = tuple(_sentences(self, found))
        return found

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
        return table_of_rows(policy_rows(self, start, states, actions))

    def plot_policy(
        self,
        axes: Axes | None = None,
        *,
        start: int | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> Axes:
        """Draw the policy: a row per state, a column per step, a colour per action."""
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        axes = current_axes(axes)
        policy, state_names, action_names = named_policy(self, start, states, actions)
        palette = colormaps["tab20" if len(action_names) > 10 else "tab10"]
        colours = [palette(a % palette.N) for a in range(len(action_names))]
        edges = np.arange(len(policy) + 1) + 0.5, np.arange(len(state_names) + 1) - 0.5
        axes.pcolormesh(*edges, policy.T, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5)
        every = -(-len(state_names) // _MOST_STATES)
        axes.set_yticks(range(0, len(state_names), every), _as_text(state_names[::every]), fontsize="x-small")
        axes.invert_yaxis()
        axes.set(xlabel="step", ylabel="state")
        axes.locator_params(axis="x", integer=True)
        used = [int(a) for a in np.unique(policy)]
        handles, labels = [Patch(color=colours[a]) for a in used], _as_text([action_names[a] for a in used])
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, title="action")
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

    def to_pandas(self) -> Any:
        """Return :meth:`to_table` as a data frame of pandas."""
        return data_frame(self.to_table())

    def to_parquet(self, path: str | Path) -> None:
        """Write the curves to a Parquet file; a file of that name is replaced only once the new one is whole."""
        import pyarrow.parquet as pq

        from occamrl.running.files import write_whole

        buffer = io.BytesIO()
        pq.write_table(self.to_table(), buffer)
        write_whole(as_path("path", path), buffer.getvalue())

    def plot(self, axes: Axes | None = None, **style: Any) -> Axes:
        """Draw cumulative regret over episodes, on the current axes unless some are given.

        Where regret is not known: smoothed returns with two standard errors, and the class in play beneath.
        """
        axes = current_axes(axes)
        if self._scale is None:
            draw_returns(self, axes, **style)
            return axes
        dress(axes)
        at = thin(self.episodes)
        axes.plot(self.episodes[at], self.cumulative_regret[at], **{"label": self.label, **style})
        return axes

    def page(self, path: str | Path, **names: Sequence[str] | None) -> Path:
        """Write a page for a colleague; ``states`` and ``actions`` are their names, as for :meth:`policy_table`."""
        write = importlib.import_module("occamrl.report.answer").write_answer  # above this module
        return Path(write(self, as_path("path", path), **names))

    def _repr_html_(self) -> str:
        lines = [repr(self), *self.verdict.sentences]
        return "".join(f"<p>{html.escape(line)}</p>" for line in lines) + self._picture()

    def _picture(self) -> str:
        """Return a small curve as SVG: cumulative regret, or smoothed returns."""
        if self._scale is None:
            x, y, _ = smoothed(self.returns, 100)
        else:
            x, y = self.episodes, self.cumulative_regret
        name = "return of an episode" if self._scale is None else "cumulative regret"
        return html_curves({name: (x, y)}, f"{name}, {self.total_episodes:,} episodes")

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


def counted(number: int, noun: str) -> str:
    """Return "1 episode", "2,000 episodes"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of texts as lines: the first column to the left, the others to the right."""
    columns = []
    for i, name in enumerate(rows[0]):
        texts = [name, *(row[name] for row in rows)]
        width = max(map(len, texts))
        columns.append([text.rjust(width) if i else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line) for line in zip(*columns, strict=True))


def html_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of texts as an HTML table, for notebooks."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row.values()) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def html_curves(given: Mapping[str, Any], title: str) -> str:
    """Return small curves (x >= 0, y) by their names, on the same axes, as SVG with a title, for notebooks."""
    curves = {name: (x[thin(x, 100)], y[thin(x, 100)]) for name, (x, y) in given.items() if x.size > 1}
    if not curves:
        return ""
    last, high = max(float(x[-1]) for x, _ in curves.values()), max(float(y.max()) for _, y in curves.values())
    low = min(0.0, *(float(y.min()) for _, y in curves.values()))
    lines, names = "", []
    for (name, (x, y)), colour in zip(curves.items(), itertools.cycle(_COLOURS), strict=False):
        across, up = 300.0 * x / last, 90.0 - 80.0 * (y - low) / max(high - low, 1e-12)
        points = " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(across, up, strict=True))
        lines += f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
        names.append(f'<span style="color:{colour}">{html.escape(name)}</span>')
    title = html.escape(f"{title}, up to {high:,.4g}")
    legend = f"<p>{', '.join(names)}</p>" if len(names) > 1 else ""
    return f'<svg width="320" height="100" role="img"><title>{title}</title>{lines}</svg><p>{title}</p>{legend}'


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


def data_frame(table: pa.Table) -> Any:
    """Return a table as a data frame of pandas, which this package does without otherwise."""
    if importlib.util.find_spec("pandas") is None:
        raise OccamRLError("a data frame needs pandas: pip install pandas")
    return table.to_pandas()


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


def _sentences(result: Result, facts: dict[str, Any]) -> list[str]:
    if not result.total_episodes:
        return ["No episode has been played yet."]
    if "chosen" in facts:
        found = _class_sentences(result, facts)
    elif "active" in facts:
        found = _feature_sentences(result)
    elif "norm_bound" in facts:
        found = [f"The norm of the parameter is at most {facts['norm_bound']:.4g}, by the data so far."]
    elif isinstance(result.agent, RuledBases):
        found = _turn_sentences(result, result.agent)
    else:
        found = [f"{result.label} plays one model: nothing was selected."]
    return [*found, _earned(result)]


def class_names(result: Result) -> list[str]:
    """Return the names of the classes of a result's ladder: those it was given, or F_1, F_2, ..."""
    return list(result.agent.ladder.names)  # type: ignore[union-attr]  # only agents with a ladder choose a class


def _class_sentences(result: Result, facts: dict[str, Any]) -> list[str]:
    names, m = class_names(result), int(facts["chosen"])
    since, played, delta = int(facts["since"]), result.total_episodes, float(getattr(result.agent, "delta", math.nan))
    if facts.get("outside"):
        began = facts.get("outside_since")
        when = "" if began is None else f" since episode {began:,}"
        return [
            f"No class of the ladder explains the data{when}: {names[-1]!r}, the largest, is rejected too.",
            f"Meanwhile {facts.get('playing', names[-1])} is played, which fits best.",
            f"If a class does hold the truth, this report is wrong with probability at most {delta:g}.",
            "Next: add a richer class to the ladder, or look for transitions that its models rule out.",
        ]
    why = "It is the smallest class: nothing in the data speaks against it so far."
    if m > 1:
        smaller = _listed([repr(name) for name in names[: m - 1]])
        why = f"{smaller} {'is' if m == 2 else 'are'} rejected by the data; with probability at least {1 - delta:g} "
        why += "the smallest class that holds the truth is never rejected."
    after = "keep it; were it too small, it would cost reward until the data reject it."
    if m == len(names) > 1:
        after = "this is the largest class, so nothing richer was tested; if it may be too simple, add a richer one."
    elif since > max(played / 2, 1):
        after = "the class changed lately; play on before relying on it."
    first = f"{names[m - 1]!r} is in play, class {m} of {len(names)}, since episode {since:,} of {played:,}."
    return [first, why, f"Next: {after}"]


def _feature_sentences(result: Result) -> list[str]:
    rows = [row for row in result.phases.to_pylist() if row["label"] != ESTIMATION]
    active, d = rows[-1]["active"], len(rows[-1]["estimate"])
    same = list(itertools.takewhile(lambda row: row["active"] == active, reversed(rows)))
    begin, shown = same[-1]["first_episode"], _listed([str(j) for j in active])
    return [
        f"{len(active)} of {d} features are in play since episode {begin:,} of {result.total_episodes:,}: {shown}.",
        "Features outside are not proved to be zero: each is smaller than the threshold of its phase "
        f"({rows[-1]['threshold']:.3g} at most now).",
    ]


def _turn_sentences(result: Result, arena: RuledBases) -> list[str]:
    """Return how often each base of an arena played."""
    plays = result.state["plays"]
    most = max(range(len(plays)), key=plays.__getitem__)
    counts = [f"{i} ({type(base).__name__}) {plays[i - 1]:,}" for i, base in enumerate(arena.bases, start=1)]
    return [
        f"{type(arena.rule).__name__} chose among {len(plays)} bases before every episode; base {most + 1} "
        f"({type(arena.bases[most]).__name__}) played most, {plays[most]:,} of {sum(plays):,} episodes.",
        f"Episodes of each: {_listed(counts)}.",
    ]


def _earned(result: Result) -> str:
    """Return what the run earned lately, and its regret if that is known."""
    values = result.returns[-max(1, result.returns.size // 10) :]
    spread = f" +- {values.std(ddof=1) / math.sqrt(values.size):.2g}" if values.size > 1 else ""
    some = f"The last {values.size:,} episodes" if values.size > 1 else "The last episode"
    text = f"{some} earned {values.mean():,.4g}{spread}{' each' if values.size > 1 else ''}"
    if result.total_regret is None:
        return text + "; what the best policy would have earned is not known here."
    return text + f"; all {result.total_episodes:,} lost {result.total_regret:,.4g} against the best policy."


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, cut after a few."""
    if len(names) > _MOST_NAMED:
        return ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED} more"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "none"


def smoothed(returns: Floats, most: int = 200) -> tuple[Ints, Floats, Floats]:
    """Return (episode, mean, standard error) of a window that moves over the episodes, a twentieth of them long."""
    width = min(returns.size, max(10, returns.size // 20))
    ends = np.unique(np.linspace(width, returns.size, most).astype(np.int64))
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (returns, returns**2))
    mean = (sums[ends] - sums[ends - width]) / width
    spread = np.maximum((squares[ends] - squares[ends - width]) / width - mean**2, 0.0)
    return ends, mean, np.sqrt(spread / max(1, width - 1))


def _as_text(names: Sequence[str]) -> list[str]:
    """Return names that a picture shows as they are: what is between dollar signs is no formula."""
    return [name.replace("$", r"\$") for name in names]


def draw_returns(result: Result, axes: Axes, **style: Any) -> None:
    """Draw smoothed returns with two standard errors, and the class in play beneath where one is chosen."""
    ends, mean, error = smoothed(result.returns)
    (line,) = axes.plot(ends, mean, **{"label": result.label, **style})
    axes.fill_between(ends, mean - 2 * error, mean + 2 * error, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="episode", ylabel="return of an episode")
    axes.spines[["top", "right"]].set_visible(False)
    rows = [row for row in result.phases.to_pylist() if row.get("chosen") is not None]
    if not rows:
        return
    divide: Any = importlib.import_module("mpl_toolkits.axes_grid1").make_axes_locatable  # it has no types
    names, chosen = class_names(result), [int(row["chosen"]) for row in rows]
    begins = [  # a class may change in the middle of a phase
        max(1, int(row["since"])) if i and chosen[i] != chosen[i - 1] and row.get("since") else row["first_episode"]
        for i, row in enumerate(rows)
    ]
    below = divide(axes).append_axes("bottom", size="22%", pad=0.12, sharex=axes)
    below.step([*begins, result.total_episodes], [*chosen, chosen[-1]], where="post", color=line.get_color())
    below.set_yticks(range(1, len(names) + 1), _as_text(names), fontsize="x-small")
    below.set(ylim=(0.5, len(names) + 0.5), xlabel="episode")
    below.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("")
    axes.tick_params(labelbottom=False)


def named_policy(
    result: Result, start: int | None, states: Sequence[str] | None, actions: Sequence[str] | None
) -> tuple[Ints, list[str], list[str]]:
    """Return the policy in play [H, S], and the names of states and actions: given, or the environment's own."""
    known, info = result.known, result.environment
    named = []
    for name, given, size in (("states", states, known.states), ("actions", actions, known.actions)):
        if given is not None and (not isinstance(given, Sequence) or len(given) != size):
            got = f"{len(given)} names" if isinstance(given, Sequence) else f"{given!r:.80}"
            raise ParameterError(name, got=got, expected=f"{size} names")
        codec = None if info is None else (info.observation if name == "states" else info.action)
        own = [str(codec.decode(i) if codec is not None and i < codec.size else i) for i in range(size)]
        named.append(own if given is None else [str(each) for each in given])
    return result.policy(start), named[0], named[1]


def policy_rows(
    result: Result, start: int | None, states: Sequence[str] | None, actions: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return one row per state with the action of every step; equal neighbouring steps are joined."""
    policy, state_names, action_names = named_policy(result, start, states, actions)
    cuts = [0, *(h for h in range(1, len(policy)) if (policy[h] != policy[h - 1]).any()), len(policy)]
    found = []
    for s, name in enumerate(state_names):
        row: dict[str, Any] = {"state": name}
        for first, end in itertools.pairwise(cuts):
            row[f"step {first + 1}" + (f" to {end}" if end > first + 1 else "")] = action_names[policy[first, s]]
        found.append(row)
    return found
