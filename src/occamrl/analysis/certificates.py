r"""Certificates: what the theory promises, measured, each beside a version that is broken on purpose.

A certificate plays runs with numbered seeds and keeps two numbers of each, a value and the bound that it is promised to
respect. A claim turns these into a verdict:

=============  ======================================================  ===============================================
claim          promise                                                 interval, verdict
=============  ======================================================  ===============================================
:class:`Rate`  a run fails with probability at most delta              Clopper and Pearson; its lower end <= delta
:class:`None_` no plan, no run is ever on the wrong side               Clopper and Pearson; not one
:class:`Most`  the value is at most the bound in every run             smallest and largest ratio; the largest <= 1
:class:`Mean`  the mean is at most the bound                           Student's t; its lower end <= bound
:class:`Near`  a published figure is one more run of this kind         Student's t, for one more run; it is inside
=============  ======================================================  ===============================================

All intervals have the level 1 - 2 * 0.001, so a promise that is kept is refuted by chance once in a thousand times at
most. The *control* is judged by the same claim and must be refuted: otherwise the certificate would prove nothing.

Measurements are kept one file per certificate, with a hash of the sources they were made with; a certificate that was
measured with these sources and as many runs is not measured again.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.stats import beta as beta_law
from scipy.stats import t as student

from occamrl import seeding
from occamrl._core import compile as compiling  # its full name in a source would make that part of the cache's key
from occamrl._core.arena import field
from occamrl._core.rows import REWARD
from occamrl.errors import RecordError, require_choice
from occamrl.experiments.execution import environment
from occamrl.experiments.records import FolderLock
from occamrl.learners.radii import ELLIPSOIDS, ellipsoid_width
from occamrl.learners.rewards import RewardsLinear, RewardsPerPair
from occamrl.learners.ucrl_vtr import ALIVE, UCRLVTR
from occamrl.learners.ucrl_vtr_lin import UCRLVTRLin
from occamrl.models.features import FeatureMap
from occamrl.models.finite import FiniteFamily
from occamrl.problems.mdp import BernoulliRewards, FiniteMDP
from occamrl.protocols import Floats, Learner
from occamrl.running.players import CompiledPlayer
from occamrl.running.storage import make_folder, read_sealed, seal, there, write_whole

LEVEL = 1e-3  # at which a kept promise is refuted by chance, at most
MOST_CONTROLS = 400  # runs of a control: it fails often, so fewer are enough

Samples = list[tuple[float, float]]  # a value and its bound, for every run


# ------------------------------------------------------------------------------------------------------------- claims


class Finding(NamedTuple):
    """What the samples of a certificate come to."""

    text: str
    value: float
    low: float  # of the interval
    high: float
    bound: float
    holds: bool


class Claim(Protocol):
    """A promise about samples."""

    def judge(self, samples: Samples) -> Finding:
        """Return what was measured, and whether it can be as promised."""


def clopper_pearson(count: int, trials: int) -> tuple[float, float]:
    """Return the exact interval of a probability at level 1 - 2 LEVEL from ``count`` events in ``trials``."""
    low = float(beta_law.ppf(LEVEL, count, trials - count + 1)) if count else 0.0
    high = float(beta_law.ppf(1.0 - LEVEL, count + 1, trials - count)) if count < trials else 1.0
    return low, high


class Rate(Claim):
    """A run fails with probability at most delta; samples are (failed, delta)."""

    def judge(self, samples: Samples) -> Finding:
        """Compare delta with the exact interval of the probability."""
        failed, bound = int(sum(value for value, _ in samples)), samples[0][1]
        low, high = clopper_pearson(failed, len(samples))
        return Finding(f"{failed:,} of {len(samples):,} runs", failed / len(samples), low, high, bound, low <= bound)


@dataclass(frozen=True)
class None_(Claim):
    """Nothing is ever on the wrong side; samples are (how many are, how many there were)."""

    what: str = "plans"

    def judge(self, samples: Samples) -> Finding:
        """Count them."""
        wrong, trials = (int(sum(column)) for column in zip(*samples, strict=True))
        low, high = clopper_pearson(wrong, max(1, trials))
        return Finding(f"{wrong:,} of {trials:,} {self.what}", wrong / max(1, trials), low, high, 0.0, wrong == 0)


class Most(Claim):
    """The value is at most the bound, in every run."""

    def judge(self, samples: Samples) -> Finding:
        """Return the largest ratio of value and bound."""
        ratios = np.array([value / bound for value, bound in samples])
        value, bound = samples[int(ratios.argmax())]
        low, high = float(ratios.min()), float(ratios.max())
        return Finding(f"{value:,.4g} of {bound:,.4g}, at worst", high, low, high, 1.0, high <= 1.0)


class Mean(Claim):
    """The mean over runs is at most the bound."""

    def judge(self, samples: Samples) -> Finding:
        """Compare the bound with Student's interval of the mean."""
        (values, bounds), n = np.array(samples).T, len(samples)
        wide = float(student.ppf(1.0 - LEVEL, n - 1) * values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
        mean, bound = float(values.mean()), float(bounds.mean())
        return Finding(f"mean of {n} runs", mean, mean - wide, mean + wide, bound, mean - wide <= bound)


class Near(Claim):
    """The bound, a published figure of one run, could be one more of these runs."""

    def judge(self, samples: Samples) -> Finding:
        """Compare the figure with Student's interval for one more run."""
        (values, bounds), n = np.array(samples).T, len(samples)
        wide = float(student.ppf(1.0 - LEVEL, n - 1) * values.std(ddof=1) * math.sqrt(1.0 + 1.0 / n))
        mean, figure = float(values.mean()), float(bounds[0])
        low, high = mean - wide, mean + wide
        return Finding(f"one more of {n} runs", mean, low, high, figure, low <= figure <= high)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A promise, how it is measured, and a version that must be refuted.

    ``measure(broken, seeds)`` plays a run for each seed, of the control if ``broken``. ``runs`` are those of a full
    measurement, ``few`` those of a quick one.
    """

    name: str
    section: str
    statement: str
    source: str  # the paper's number, or that of docs/mathematics.md
    claim: Claim
    control: str
    runs: int
    few: int
    measure: Callable[[bool, range], Samples]


CERTIFICATES: dict[str, Certificate] = {}


def promise(
    section: str, name: str, statement: str, source: str, claim: Claim, control: str, runs: int, few: int
) -> Callable[[Callable[[bool, range], Samples]], Callable[[bool, range], Samples]]:
    """Enter a function that measures in the list of certificates."""

    def enter(measure: Callable[[bool, range], Samples]) -> Callable[[bool, range], Samples]:
        CERTIFICATES[name] = Certificate(
            name=name,
            section=section,
            statement=statement,
            source=source,
            claim=claim,
            control=control,
            runs=runs,
            few=few,
            measure=measure,
        )
        return measure

    return enter


# -------------------------------------------------------------------------------------------------- confidence sets
COVERAGE = "Confidence sets"
EPISODES = 40
DELTA = 0.3  # of ellipsoids: large, so that the promise is a tight one
FINITE_DELTA = 0.05  # of families: a small family loses its truth seldom even when it may


class Player(CompiledPlayer):
    """The compiled loop on a state at hand, a few episodes at a time, without the cost of ``run``."""

    def __init__(self, learner: Learner, mdp: FiniteMDP, seed: int, state: Any = None) -> None:
        super().__init__(learner, mdp.known, learner.begin(mdp.known) if state is None else state)
        self.truth, self.episode = mdp.truth, 0
        self.keys = (seeding.key(seed, "environment"), seeding.key(seed, "agent"))

    def play(self, episodes: int = 1) -> Played:
        """Go on for some episodes."""
        regret, returns = np.empty(episodes), np.empty(episodes)
        plans, pessimistic = self.simulate(self.truth, self.keys, self.episode, regret, returns)
        self.episode += episodes
        return Played(plans, pessimistic, regret, returns)


class Played(NamedTuple):
    """What the compiled loop reports."""

    plans: int
    pessimistic: int
    regret: Floats
    returns: Floats


class Coverage(NamedTuple):
    """What a run comes to."""

    left: bool  # the truth was outside before some episode
    pessimistic_when_covered: int  # plans
    pessimistic: int


class Case(NamedTuple):
    """A learner that plans before every episode, its problem, and the test whether a state's set holds the truth."""

    learner: Any
    mdp: FiniteMDP
    covers: Callable[[Player], bool]

    def play(self, seed: int, episodes: int = EPISODES) -> Coverage:
        """Look at the set that each episode was planned with."""
        player, left, broken, pessimistic = Player(self.learner, self.mdp, seed), False, 0, 0
        for _ in range(episodes):
            short = player.play().pessimistic
            inside = self.covers(player)
            left |= not inside
            pessimistic += short
            broken += short if inside else 0
        return Coverage(left, broken, pessimistic)


def rewards_covered(learner: Any, mdp: FiniteMDP, player: Player) -> bool:
    """Say whether no mean reward is above the one that the plan counts on."""
    known = isinstance(learner.rewards, str)
    return known or not (field(player.model, REWARD) < mdp.truth.base_reward - 1e-12).any()


def linear_case(kind: str = "dense", **options: Any) -> Case:
    """Return UCRL-VTR-LIN on a mixture of three kernels and the ellipsoids of theta*, one per step that has its own."""
    draw = np.random.default_rng([1, 7])
    kernels = draw.dirichlet(np.ones(4), size=(3, 4, 2))
    phi = np.ascontiguousarray(np.moveaxis(kernels, 0, -1))
    thetas, reward = draw.dirichlet(np.ones(3))[np.newaxis], draw.random((4, 2))
    features, horizon = FeatureMap(phi), 4
    more: dict[str, Any] = {"initial_state": [0.5, 0.0, 0.0, 0.5]}
    if kind == "per step":
        thetas = np.random.default_rng(2).dirichlet(np.ones(3), size=4)
        options["kernel"] = "per_step"
    if "rewards" in options or kind == "per step":
        more = {"reward_noise": BernoulliRewards()}
        if options.get("rewards") == "linear":
            psi = np.concatenate([reward[..., None], np.random.default_rng(0).normal(size=(4, 2, 2))], axis=-1)
            options["rewards"] = RewardsLinear(features=psi, norm_bound=1.0, **options.pop("linear"))
    transition: Any = np.stack([phi @ theta for theta in thetas]) if kind == "per step" else phi @ thetas[0]
    if kind == "one-hot":
        features, thetas = FeatureMap.tabular(states=4, actions=2), transition.reshape(1, -1)
    elif kind == "transition rewards":
        reward, more = np.random.default_rng(3).random((4, 2, 4)), {}
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=horizon, **more)
    bound = float(np.linalg.norm(thetas, axis=1).max())
    learner = UCRLVTRLin(features=features, norm_bound=bound, delta=DELTA, replan=0.0, **options)
    return Case(learner, mdp, lambda player: in_ellipsoids(learner, mdp, thetas, player))


def in_ellipsoids(learner: UCRLVTRLin, mdp: FiniteMDP, thetas: Floats, player: Player) -> bool:
    """Say whether every theta*_h [T, d] is in its ellipsoid (M9 to M11), and every mean reward below its bound."""
    if not rewards_covered(learner, mdp, player):
        return False
    model, state, blocks, k = player.model, player.state, learner.features.blocks, player.episode - 1
    sigmas, estimates = np.split(state.sigma, len(thetas)), np.split(state.theta, len(thetas))
    for theta, sigma, estimate in zip(thetas, sigmas, estimates, strict=True):
        error, distance, logdet = estimate - theta, 0.0, -theta.size * math.log(learner.lam)
        for b, n in enumerate(blocks.size):
            matrix = sigma[blocks.matrix_start[b] : blocks.matrix_start[b + 1]].reshape(n, n)
            part = error[blocks.vector_start[b] : blocks.vector_start[b + 1]]
            distance += float(part @ matrix @ part)
            logdet += float(np.linalg.slogdet(matrix)[1])
        width = ellipsoid_width(
            ELLIPSOIDS[learner.radius],
            learner.weights == "range",
            model.unit,
            mdp.horizon,
            0,
            k,
            theta.size,
            logdet,
            learner.level(mdp.known),
            learner.lam,
            learner.norm_bound,
            learner.paper_constant,
        )
        if distance > float(learner.scale * width) ** 2:
            return False
    return True


def near_truth() -> tuple[Floats, Floats]:
    """Return eight kernels of which the data speak against the first, the truth, now and then; and rewards."""
    draw = np.random.default_rng([2, 8])
    kernels = draw.dirichlet(np.ones(3), size=(8, 3, 2))
    return 0.7 * kernels[0] + 0.3 * kernels, draw.random((3, 2))


def finite_case(members: Sequence[int] = (0,), **options: Any) -> Case:
    """Return UCRL-VTR on kernels that are hard to tell apart; several ``members`` are the true kernels of the steps."""
    kernels, reward = near_truth()
    noise = {"reward_noise": BernoulliRewards()} if "rewards" in options or len(members) > 1 else {}
    if len(members) > 1:
        options["kernel"] = "per_step"
    transition: Any = kernels[list(members)] if len(members) > 1 else kernels[members[0]]
    mdp = FiniteMDP(transition=transition, reward=reward, horizon=6, **noise)
    learner = UCRLVTR(family=FiniteFamily(kernels), delta=FINITE_DELTA, **options)

    def covers(player: Player) -> bool:
        if not rewards_covered(learner, mdp, player):
            return False
        if len(members) > 1 or not learner.counted:
            return all(player.state.inside[t, member] == 1 for t, member in enumerate(members))
        return members[0] in losses_inside(player.state)

    return Case(learner, mdp, covers)


def losses_inside(state: Any) -> dict[int, float]:
    """Return the loss of every member in the confidence set of the plan in play, up to a common constant."""
    left = int(state.counters[ALIVE])
    inside = state.inside[0, :left] == 1 if state.inside.size else np.isfinite(state.loss[0, :left])
    pairs = zip(state.members[:left], state.loss[0, :left], inside, strict=True)
    return {int(member): float(loss) for member, loss, holds in pairs if holds}


PER_STEP = (0, 3, 5, 2, 6, 1)  # members of near_truth
SHARE = {"share": 0.9}  # most of delta for the rewards, which are then what can fail


def per_pair(bound: str, **options: Any) -> dict[str, Any]:
    """Return the option for rewards that are estimated per pair."""
    return {"rewards": RewardsPerPair(bound=bound, **options)}


class Covered(NamedTuple):
    """A confidence set: where it is stated, the learner that uses it, and how it is broken."""

    source: str
    what: str
    make: Callable[..., Case]
    options: dict[str, Any]
    broken: dict[str, Any]
    control: str = "a twentieth of the slack"


UNWEIGHTED = {"radius": "unweighted", "weights": "none"}
PAPER = {"radius": "paper", "weights": "none"}
SMALL = {"scale": 0.05}
SETS = {
    "finite-paper": Covered(
        "M4, M6; appendix A.1", "the paper's ball of a finite family", finite_case, PAPER, {"scale": 0.002},
        "a 500th of beta",
    ),
    "finite-ball": Covered("M4, M7", "the ball with sharp constants", finite_case, UNWEIGHTED, SMALL),
    "finite-sharp": Covered("M24", "the sharp set of a finite family", finite_case, {}, SMALL),
    "finite-prior": Covered(
        "M22, M24", "the sharp set with a prior against the truth", finite_case,
        {"prior": np.array([0.01, *[0.99 / 7] * 7])}, {"scale": 0.0}, "no slack",
    ),
    "ellipsoid-paper": Covered(
        "M10; section 3", "the paper's ellipsoid", linear_case, {**PAPER, "clip": "horizon"}, {"scale": 0.005},
        "a 200th of the radius",
    ),
    "ellipsoid-sharp": Covered("M11", "the sharp ellipsoid", linear_case, {}, SMALL, "a twentieth of the radius"),
    "ellipsoid-unweighted": Covered(
        "M11, second form", "the ellipsoid without weights", linear_case, UNWEIGHTED, SMALL, "a twentieth of the radius"
    ),
    "rewards-hoeffding": Covered(
        "radii: hoeffding", "every mean reward, by Hoeffding", linear_case, per_pair("hoeffding", **SHARE),
        per_pair("hoeffding", scale=0.05), "a twentieth of the width",
    ),
    "rewards-bernstein": Covered(
        "radii: bernstein", "every mean reward, by Bernstein", linear_case, per_pair("bernstein", **SHARE),
        per_pair("bernstein", scale=0.05), "a twentieth of the width",
    ),
    "rewards-linear": Covered(
        "M11 for rewards", "every mean reward, by regression", linear_case, {"rewards": "linear", "linear": SHARE},
        {"rewards": "linear", "linear": SMALL}, "a twentieth of the width",
    ),
    "per-step-linear": Covered(
        "M11, per step", "one ellipsoid per step", linear_case, {"kind": "per step"}, SMALL, "a twentieth of the radius"
    ),
    "per-step-finite": Covered("M24, per step", "one sharp set per step", finite_case, {"members": PER_STEP}, SMALL),
}  # fmt: skip


def set_case(name: str, broken: bool) -> Case:
    """Return the learner, problem and test behind a confidence set, or those of its control."""
    about = SETS[name]
    return about.make(**{**about.options, **(about.broken if broken else {})})


def _coverage(name: str) -> Callable[[bool, range], Samples]:
    def measure(broken: bool, seeds: range) -> Samples:
        case = set_case(name, broken)
        return [(float(case.play(seed).left), case.learner.delta) for seed in seeds]

    return measure


for _name, _about in SETS.items():
    promise(
        COVERAGE,
        f"coverage-{_name}",
        f"The truth stays in {_about.what} in all episodes with probability 1 - delta",
        _about.source,
        Rate(),
        _about.control,
        4000,
        300,
    )(_coverage(_name))


# ---------------------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Record:
    """A certificate that was measured."""

    certificate: Certificate
    finding: Finding
    control: Finding
    runs: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the promise stands and the control was refuted."""
        return self.finding.holds and not self.control.holds

    @property
    def verdict(self) -> str:
        """What became of it, in words."""
        if not self.finding.holds:
            return "REFUTED"
        return "holds" if self.good else "NOT SHOWN: the control is not refuted"


def measure(name: str, runs: int) -> dict[str, Any]:
    """Measure a certificate and its control; return plain data."""
    began, about = time.perf_counter(), CERTIFICATES[name]
    claim, control = about.measure(False, range(runs)), about.measure(True, range(min(runs, MOST_CONTROLS)))
    plain = [[[float(number) for number in sample] for sample in samples] for samples in (claim, control)]
    seconds = round(time.perf_counter() - began, 3)
    return {"certificate": name, "runs": runs, "claim": plain[0], "control": plain[1], "seconds": seconds}


def _judge(data: dict[str, Any]) -> Record:
    about = CERTIFICATES[data["certificate"]]
    judged = [about.claim.judge([(value, bound) for value, bound in data[key]]) for key in ("claim", "control")]
    return Record(about, judged[0], judged[1], data["runs"], data["seconds"])


def certify(
    folder: Path,
    names: Sequence[str] = (),
    *,
    quick: bool = False,
    workers: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Measure certificates, all by default, in worker processes; return them in the order of the list.

    Parameters
    ----------
    folder : Path
        Made if it is missing. Certificates that were measured there with these sources are not measured again.
    names : sequence of str
        Some certificates only.
    quick : bool
        Fewer runs.
    workers : int, optional
        One per processor by default; 1 measures in this process.
    say : callable
        Is told a line when a certificate has been measured.
    """
    for name in names:
        require_choice("certificate", name, tuple(CERTIFICATES))
    chosen = [about for about in CERTIFICATES.values() if not names or about.name in names]
    sources, runs = compiling.sources_hash(start="analysis/certificates.py"), {}
    found: dict[str, Record] = {}

    def keep(data: dict[str, Any]) -> None:
        write_whole(folder / f"{data['certificate']}.json", seal({**data, "sources": sources}))
        take(data, "")

    def take(data: dict[str, Any], note: str) -> None:
        record = found[data["certificate"]] = _judge(data)
        finding = record.finding
        interval = f"{finding.text} [{finding.low:.4g}, {finding.high:.4g}], bound {finding.bound:.4g}"
        when = note or f"{record.seconds:.1f} s"
        say(f"[{len(found)}/{len(chosen)}] {record.certificate.name}: {record.verdict}; {interval} ({when})")

    make_folder(folder)
    with FolderLock(folder / "lock"):
        waiting = []
        for about in chosen:
            runs[about.name] = about.few if quick else about.runs
            earlier = _earlier(folder / f"{about.name}.json", about.name, runs[about.name], sources)
            if earlier is None:
                waiting.append(about.name)
            else:
                take(earlier, "measured before")
        count = min(len(waiting), workers or os.cpu_count() or 1)
        if count <= 1:
            for name in waiting:
                keep(measure(name, runs[name]))
        else:
            with _processes(count) as pool:
                pending: set[Future[dict[str, Any]]] = {pool.submit(measure, name, runs[name]) for name in waiting}
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        keep(future.result())
    return [found[about.name] for about in chosen]


def _earlier(path: Path, name: str, runs: int, sources: str) -> dict[str, Any] | None:
    """Return an earlier measurement if it is one of this certificate, with as many runs and the same sources."""
    if not there(path):
        return None
    try:
        data = read_sealed(path)
    except RecordError:  # damaged: it is measured again
        return None
    same = (data.get("certificate"), data.get("runs"), data.get("sources")) == (name, runs, sources)
    return data if same else None


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give worker processes with one thread of linear algebra each; they end at once when the block is left early."""
    before, kept = set(multiprocessing.active_children()), dict(os.environ)
    os.environ.update(environment())  # the processes inherit it
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), signal.signal, _IGNORE_CTRL_C)
    try:
        yield pool
        pool.shutdown()
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        for name in set(os.environ) - set(kept):
            del os.environ[name]
        os.environ.update(kept)


_IGNORE_CTRL_C = (signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends them


# ------------------------------------------------------------------------------------------------------------- tables


def rows_of(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the table: name, statement, source, measured, interval, bound, verdict, control."""
    rows = []
    for record in records:
        about, found, broken = record.certificate, record.finding, record.control
        interval = f"{number(found.value)} [{number(found.low)}, {number(found.high)}]"
        control = f"{about.control}: {broken.text}, {number(broken.value)}"
        control += " refuted" if not broken.holds else " NOT refuted"
        rows.append((about.name, about.statement, about.source, found.text, interval, number(found.bound),
                     record.verdict, control))  # fmt: skip
    return rows


def number(value: float) -> str:
    """Return a number with as many digits as a table needs."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def as_data(records: Sequence[Record]) -> dict[str, Any]:
    """Return everything for a program."""
    return {
        record.certificate.name: {
            "verdict": record.verdict,
            "good": record.good,
            "runs": record.runs,
            "seconds": record.seconds,
            "measured": record.finding._asdict(),
            "control": record.control._asdict(),
        }
        for record in records
    }


def lines(records: Sequence[Record]) -> list[str]:
    """Return the table for a terminal: a section after the other, three lines for each certificate."""
    text, section = [], ""
    for record, row in zip(records, rows_of(records), strict=True):
        if record.certificate.section != section:
            section = record.certificate.section
            text += ["", section.upper()]
        name, statement, source, measured, interval, bound, verdict, control = row
        text += [
            f"  {verdict:8} {statement} ({source})",
            f"           {measured}: {interval}, bound {bound}   [{name}]",
            f"           control, {control}",
        ]
    good = sum(record.good for record in records)
    return [*text, "", f"{good} of {len(records)} promises hold, and their controls are refuted."]


def markdown(records: Sequence[Record]) -> str:
    """Return docs/certificates.md."""
    good, minutes = sum(record.good for record in records), sum(record.seconds for record in records) / 60.0
    text, section = [_MARKDOWN.format(good=good, count=len(records), minutes=minutes)], ""
    for record, row in zip(records, rows_of(records), strict=True):
        if record.certificate.section != section:
            section = record.certificate.section
            text += [f"\n## {section}\n", f"| {' | '.join(_HEADINGS)} |", "| --- " * len(_HEADINGS) + "|"]
        _, *rest = (cell.replace("|", "\\|").replace("*", "\\*") for cell in row)
        text.append(f"| {' | '.join(rest)} |")
    return "\n".join(text) + "\n"


_HEADINGS = ("promise", "source", "measured", "value, interval", "bound", "verdict", "control")
_MARKDOWN = """# Certificates

Written by `occamrl certify --write docs/certificates.md`: every promise of [the mathematics](mathematics.md), measured,
each beside a version that is broken on purpose and must be refuted by the same test. {good} of {count} promises hold
and have their control refuted; this took {minutes:.0f} minutes of processor time. Intervals have the level 99.8 %, so
that a promise that is kept is refuted by chance once in a thousand times at most. `occamrl certify --quick` measures
the same with fewer runs.
"""
