"""Classes of dynamics with fitted parameters: how often they err, how soon they tell.

    python -m studies.dynamics --part validity      one table of docs/dynamics.md
    python -m studies.dynamics --part data          writes docs/data/cart.csv

Each part prints a table; ``chaos`` needs ``pip install --no-deps dysts==0.1``, ``sindy`` pysindy.
Noise, starts and actions have addresses, so that a part prints the same numbers everywhere but for
digits that rounding decides.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from scipy.stats import binom, binomtest

import occamrl as orl
from occamrl.addresses import Address
from occamrl.evidence.regression import RegressionEvidence, RegressionState
from occamrl.evidence.regression_fits import Predictor
from occamrl.evidence.regression_report import hints_of
from occamrl.evidence.simulator_worlds import mean_interval
from occamrl.protocols import Floats, Transition
from studies.figures import DOCS, Size, each, table

Truth = Callable[[Floats, Floats], Floats]  # states [N, n], actions [N, m] -> means [N, n]
Rng = np.random.Generator
QUICK = orl.CEM(candidates=32, elites=6, horizon=15, particles=1)
_ESCAPED = 1e3  # where a chaotic system has left its attractor
SMOOTH = 0.05  # seconds of a step of the cart


def cart(
    states: Floats, actions: Floats, *, mass: float = 1.0, viscous: float = 0.0, dry: float = 0.0
) -> Floats:
    """Push a cart; dry friction is smoothed at low speed."""
    x, v = states.T
    push = actions[:, 0] - viscous * v - dry * np.tanh(v / 0.05)
    after = v + SMOOTH * push / mass
    return np.stack([x + SMOOTH * after, after], axis=1)


def bowl(states: Floats, actions: Floats, *, power: int = 1) -> Floats:
    """Push a ball in a bowl whose force grows with a power of the distance."""
    x, v = states.T
    after = v + 0.1 * (actions[:, 0] - 0.5 * v - np.sign(x) * np.abs(x) ** power)
    return np.stack([x + 0.1 * after, after], axis=1)


class Waves:
    """A network with one hidden layer of fixed random weights, its last layer fitted by ridge."""

    def hidden(self, inputs: Floats) -> Floats:
        """Return the hidden layer."""
        rng = np.random.default_rng(0)
        weights = rng.normal(size=(inputs.shape[1], 100))
        waves = np.tanh(inputs @ weights + rng.normal(size=100))
        return np.column_stack([np.ones(len(inputs)), inputs, waves])

    def fit(self, inputs: Floats, targets: Floats) -> None:
        """Fit the last layer."""
        hidden = self.hidden(inputs)
        gram = hidden.T @ hidden + 0.01 * np.eye(hidden.shape[1])
        self.weights = np.linalg.solve(gram, hidden.T @ targets)

    def predict(self, inputs: Floats) -> Floats:
        """Return predictions."""
        return np.asarray(self.hidden(inputs) @ self.weights)


NOISES: dict[str, Callable[[Rng, Floats], Floats]] = {
    "normal": lambda rng, s: rng.normal(size=s.size),
    "t3": lambda rng, s: rng.standard_t(3, size=s.size) / np.sqrt(3),
    "uniform": lambda rng, s: np.sqrt(3) * rng.uniform(-1, 1, s.size),
    "grows with speed": lambda rng, s: rng.normal(size=s.size) * (0.5 + np.abs(s[-1])),
    "skewed": lambda rng, s: rng.exponential(size=s.size) - 1,
    "one for both": lambda rng, s: np.full(s.size, rng.normal()),
}


def rolled(
    truth: Truth,
    seed: int,
    steps: int,
    noise: str = "normal",
    sd: Any = 0.02,
    adaptive: bool = False,
    start: Any = (0.0, 0.0),
) -> list[Transition]:
    """Return a run under random actions, held for three steps, or such that answer the state."""
    rng = np.random.default_rng(seed)
    state = np.array(start, float)
    run = []
    action = np.zeros(1)
    for step in range(steps):
        if step % 3 == 0:
            action = rng.uniform(-2, 2, 1)
        played = np.clip(action - state[:1] - state[-1:], -2, 2) if adaptive else action
        after = truth(state[None], played[None])[0] + sd * NOISES[noise](rng, state)
        run.append(Transition(state, played, None, after, False, Address(seed, step), step))
        state = after
    return run


def weighed(
    dynamics: orl.Dynamics, run: list[Transition], delta: float = 0.05
) -> tuple[RegressionEvidence, RegressionState]:
    """Return the evidence and its state after a run."""
    evidence = dynamics.evidence(None, delta)
    state = evidence.begin()
    evidence.add_steps(state, run)
    return evidence, state


def log_of(run: list[Transition]) -> dict[str, Any]:
    """Return a run as a log."""
    return {
        "states": np.array([step.state for step in run]),
        "actions": np.array([step.action for step in run]),
        "next_states": np.array([step.next_state for step in run]),
    }


class Case(NamedTuple):
    """A truth, a ladder, and which class is right, from 0."""

    truth: Truth
    classes: dict[str, Any]
    right: int

    @property
    def dynamics(self) -> orl.Dynamics:
        """The ladder."""
        return orl.Dynamics(self.classes, state=["x", "v"], action=["u"])


CARTS = {
    "free": orl.GreyBox(cart, mass=(0.5, 3)),
    "friction": orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2)),
    "and dry": orl.GreyBox(cart, mass=(0.5, 3), viscous=(0, 2), dry=(0, 2)),
}
POWERS = {f"degree {degree}": orl.Polynomial(degree) for degree in (1, 2, 3)}
CASES = {
    "linear": Case(bowl, POWERS, 0),
    "cubic": Case(partial(bowl, power=3), POWERS, 2),
    "cart, friction": Case(partial(cart, mass=1.37, viscous=0.6), CARTS, 1),
    "cart, dry friction": Case(partial(cart, mass=1.37, viscous=0.3, dry=0.6), CARTS, 2),
}


def data(size: Size) -> str:
    """Write the log of a cart with friction that the documentation reads."""
    rng = np.random.default_rng(0)
    lines = ["run,time,x,v,u"]
    for run in range(6):
        state = np.zeros(2)
        action = np.zeros(1)
        for step in range(200):
            if step % 5 == 0:
                action = np.round(np.clip(rng.uniform(-3, 3, 1) - 0.6 * state[0], -3, 3), 3)
            row = (run, f"{SMOOTH * step:.2f}", *np.round(state, 5).tolist(), action[0])
            lines.append(",".join(map(str, row)))
            mean = cart(state[None], action[None], mass=1.37, viscous=0.6)[0]
            state = np.round(mean + np.array([0.001, 0.01]) * rng.normal(size=2), 5)
    if not size.tiny:
        (DOCS / "data" / "cart.csv").write_text("\n".join(lines) + "\n")
    return table(("file", "rows"), [("docs/data/cart.csv", len(lines) - 1)])


# Validity -----------------------------------------------------------------------------------------


def validity(size: Size) -> str:
    """Count how often the right class is ruled out in 120 steps; half of the runs are adaptive."""
    rows = []
    for name, noise in [(name, noise) for name in size.some(CASES) for noise in size.some(NOISES)]:
        case = CASES[name]
        count = size.seeds(200 if noise == "normal" else 40)

        def peak(seed: int, case: Case = case, noise: str = noise) -> float:
            run = rolled(case.truth, seed, 120, noise, adaptive=seed % 2 == 1)
            _, state = weighed(case.dynamics, run)
            return float(state["peak"][case.right])

        peaks = np.array(each(size, count, peak, f"{name}, {noise}"))
        cells = []
        for delta in (0.05, 0.5):
            lost = int((peaks >= np.log(1 / delta)).sum())
            p = binomtest(lost, count, delta, alternative="greater").pvalue
            cells += [f"{lost} of {count}", f"{p:.2g}"]
        rows.append((name, noise, *cells))
    header = ("right class", "noise", "out at .05", "p", "out at .5", "p")
    return table(header, rows)


def controls(size: Size) -> str:
    """Count the same for tests that are broken on purpose, and logs that break assumptions."""
    case = CASES["linear"]
    count = size.seeds(50)
    honest = Predictor.step

    def peeking(self: Predictor, phi: Floats, offset: Floats, y: Floats) -> Any:
        location = honest(self, phi, offset, y)[1].mean(axis=0)
        return honest(self, phi, offset + 0.5 * (y - location), y)

    def measured(run: list[Transition]) -> list[Transition]:
        rng = np.random.default_rng(1)
        errors = 0.1 * rng.normal(size=(len(run) + 1, 2))
        spoiled = []
        for number, step in enumerate(run):
            before = step.state + errors[number]
            spoiled.append(
                step._replace(state=before, next_state=step.next_state + errors[number + 1])
            )
        return spoiled

    def lost(change: Callable[[list[Transition]], list[Transition]]) -> int:
        def one(seed: int) -> bool:
            _, state = weighed(case.dynamics, change(rolled(case.truth, seed, 240)))
            return bool(state["rejected"][0] >= 0)

        return sum(each(size, count, one, "controls"))

    rows: list[tuple[object, ...]] = [("none", f"{lost(list)} of {count}")]
    Predictor.step = peeking  # type: ignore[method-assign]  # broken on purpose
    try:
        rows.append(("predictions have seen half of the outcome", f"{lost(list)} of {count}"))
    finally:
        Predictor.step = honest  # type: ignore[method-assign]  # mended
    rows.append(("states are measured with error", f"{lost(measured)} of {count}"))
    return table(("what is broken", "right class out at .05"), rows)


# Power --------------------------------------------------------------------------------------------


def criteria(evidence: RegressionEvidence, state: RegressionState) -> dict[str, int]:
    """Return the classes, from 0, that AIC and BIC choose by their largest likelihoods."""
    steps = state["steps"] - state["burned"]
    scores: dict[str, list[float]] = {"AIC": [], "BIC": []}
    for m, size in enumerate(evidence.ladder.sizes):
        best = float(evidence._likelihoods(state, m).sum(axis=2).max(axis=0)[0])
        free = (size or 0) + evidence.n
        scores["AIC"].append(2 * free - 2 * best)
        scores["BIC"].append(np.log(steps) * free - 2 * best)
    return {name: int(np.argmin(values)) for name, values in scores.items()}


def power(size: Size) -> str:
    """Count which class is chosen after 200 and 1,000 steps, and when the last wrong one fell."""
    rows = []
    count = size.seeds(20)
    for name in size.some(CASES):
        case = CASES[name]

        def one(seed: int, case: Case = case) -> tuple[list[list[bool]], float]:
            run = rolled(case.truth, seed, size.episodes(1000))
            chosen = []
            after = np.inf
            for steps in (200, 1000):
                evidence, state = weighed(case.dynamics, run[:steps])
                ours = evidence.judge(state).chosen - 1
                others = criteria(evidence, state)
                chosen.append([pick == case.right for pick in (ours, *others.values())])
                fell = state["rejected"][: case.right]
                if (fell >= 0).all() and fell.size:
                    after = min(after, float(fell.max()))
            return chosen, after

        results = each(size, count, one, name)
        right = np.array([chosen for chosen, _ in results]).sum(axis=0)
        when = np.median([after for _, after in results])
        cells = [f"{number} of {count}" for number in right.ravel()]
        rows.append((name, "never" if np.isinf(when) else f"{when:.0f}", *cells))
    header = ("right class", "steps until all smaller are out", "right at 200", "AIC", "BIC")
    return table((*header, "right at 1,000", "AIC", "BIC"), rows)


THRESHOLDS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)


def sindy(size: Size) -> str:
    """Count how often pysindy finds the class, by its threshold, in the runs of ``power``.

    Of the bowls its class is the degree of the terms that it keeps. Of the carts it is offered the
    terms of all classes, for place, speed and action, and its class is the smallest that has all
    that it keeps of the change of speed.
    """
    import pysindy  # type: ignore[import-not-found, unused-ignore]  # not one of our tools

    held = [{"u"}, {"u", "v"}, {"u", "v", "dry v"}]

    def chosen(name: str, run: dict[str, Any], threshold: float) -> int:
        library = pysindy.PolynomialLibrary(degree=3)
        if name.startswith("cart"):
            terms = [lambda value: value, lambda value: np.tanh(value / 0.05)]
            names = [lambda of: of, lambda of: f"dry {of}"]
            library = pysindy.CustomLibrary(library_functions=terms, function_names=names)
        optimizer = pysindy.STLSQ(threshold=threshold, alpha=1e-6)
        model = pysindy.SINDy(optimizer=optimizer, feature_library=library)
        changes = run["next_states"] - run["states"]
        model.fit(
            run["states"], t=1.0, x_dot=changes, u=run["actions"], feature_names=["x", "v", "u"]
        )
        kept = np.array(model.coefficients()) != 0.0
        if name.startswith("cart"):
            terms_kept = set(np.array(model.get_feature_names())[kept[1]])
            return next((m for m, terms in enumerate(held) if terms_kept <= terms), -1)
        degrees = np.asarray(library.powers_).sum(axis=1)
        return int(degrees[kept.any(axis=0)].max(initial=0)) - 1

    rows = []
    count = size.seeds(10)
    for name in size.some(CASES):
        case = CASES[name]
        for steps in (200, 1000):

            def one(seed: int, case: Case = case, name: str = name, steps: int = steps) -> Any:
                run = log_of(rolled(case.truth, seed, size.episodes(1000))[:steps])
                return [chosen(name, run, threshold) == case.right for threshold in THRESHOLDS]

            right = np.array(each(size, count, one, name)).sum(axis=0)
            rows.append((name, steps, *(f"{number}" for number in right)))
    return table(("right class", "steps", *(f"{threshold:g}" for threshold in THRESHOLDS)), rows)


def lists(size: Size) -> str:
    """Compare with lists of simulators that hold the truth, and that do not."""
    task: dict[str, Any] = {
        "reward": lambda s, a, after: -(after[:, 0] ** 2),
        "horizon": 10**6,
        "actions": orl.Box(-2, 2),
        "start": [0.0, 0.0],
    }

    def step(states: Floats, actions: Floats, rng: Rng, **parameters: float) -> Floats:
        noise: Floats = 0.02 * rng.normal(size=states.shape)
        return cart(states, actions, **parameters) + noise

    count = size.seeds(10)
    rows = []
    for name, masses in (("lists 1.37 and .6", (1.0, 1.37, 1.8)), ("lists 1, 1.8", (1.0, 1.8))):
        frictions = (0.3, 0.6, 0.9) if 1.37 in masses else (0.3, 0.9)
        free = [partial(step, mass=mass) for mass in masses]
        rubbed = [partial(step, mass=m, viscous=f) for m in masses for f in frictions]
        ladder = orl.SimulatorLadder({"free": free, "friction": rubbed}, **task)

        def one(seed: int, ladder: orl.SimulatorLadder = ladder) -> tuple[Any, bool]:
            evidence = ladder.evidence(None, 0.05)
            state = evidence.begin()
            for transition in rolled(CASES["cart, friction"].truth, seed, size.episodes(400)):
                evidence.add(state, transition)
            judgement = evidence.judge(state)
            return judgement.rejected_after[0], judgement.misspecified

        results = each(size, count, one, name)
        fell = [np.inf if after is None else after for after, _ in results]
        none = sum(bool(outside) for _, outside in results)
        rows.append((f"a list that {name}", f"{np.median(fell):.0f}", f"{none} of {count}"))

    def fitted(seed: int) -> tuple[float, bool]:
        run = rolled(CASES["cart, friction"].truth, seed, size.episodes(400))
        evidence, state = weighed(
            orl.Dynamics(dict(list(CARTS.items())[:2]), state=["x", "v"], action=["u"]), run
        )
        judgement = evidence.judge(state)
        after = judgement.rejected_after[0]
        return np.inf if after is None else float(after), judgement.misspecified

    results = each(size, count, fitted, "fitted")
    none = sum(outside for _, outside in results)
    median = np.median([after for after, _ in results])
    rows.append(("fitted", f"{median:.0f}", f"{none} of {count}"))
    return table(("friction", "steps until 'free' is out", "nothing left after 400"), rows)


def ranges(size: Size) -> str:
    """Count how often joint ranges of parameters hold the truth, and how wide they are."""
    truth = {"mass": 1.37, "viscous": 0.6}
    case = CASES["cart, friction"]
    count = size.seeds(100)
    rows = []
    for noise in size.some(("normal", "t3", "grows with speed", "uniform")):

        def one(seed: int, noise: str = noise) -> tuple[bool, float]:
            evidence, state = weighed(case.dynamics, rolled(case.truth, seed, 300, noise))
            held = True
            for name, interval in evidence.parameters(state, 1).items():
                held = held and interval.low <= truth[name] <= interval.high
            interval = evidence.parameters(state, 1)["mass"]
            run = log_of(rolled(case.truth, seed, 300, noise))
            # least squares: the push over the change of speed, at a fixed time
            change = run["next_states"][:, 1] - run["states"][:, 1]
            phi = np.column_stack([run["actions"][:, 0], run["states"][:, 1]])
            weights, squares, _, _ = np.linalg.lstsq(phi, change, rcond=None)
            error = np.sqrt(squares[0] / 298 * np.linalg.inv(phi.T @ phi)[0, 0])
            width = SMOOTH * 2 * 1.96 * error / weights[0] ** 2
            return held, float((interval.high - interval.low) / width)

        results = each(size, count, one, noise)
        held = sum(inside for inside, _ in results)
        wider = np.median([ratio for _, ratio in results])
        rows.append((noise, f"{held} of {count}", f"{wider:.1f}"))
    return table(("noise", "both ranges hold", "width of mass over least squares'"), rows)


# Gymnasium and chaos ------------------------------------------------------------------------------


def pendulum(states: Floats, actions: Floats, *, mass: float, length: float) -> Floats:
    """Swing as Pendulum-v1 does, limit of the speed included."""
    angle = np.arctan2(states[:, 1], states[:, 0])
    pull = 15 / length * np.sin(angle) + 3 / (mass * length**2) * actions[:, 0]
    speed = np.clip(states[:, 2] + 0.05 * pull, -8, 8)
    angle = angle + 0.05 * speed
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1)


def pole(
    states: Floats, actions: Floats, *, cart_mass: float, pole_mass: float, force: float
) -> Floats:
    """Balance as CartPole-v1 does."""
    x, v, angle, spin = states.T
    sine, cosine = np.sin(angle), np.cos(angle)
    total = cart_mass + pole_mass
    push = (force * (2 * actions[:, 0] - 1) + pole_mass * 0.5 * spin**2 * sine) / total
    turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - pole_mass * cosine**2 / total))
    pull = push - pole_mass * 0.5 * turn * cosine / total
    return np.stack(
        [x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn], axis=1
    )


def valley(states: Floats, actions: Floats, *, power: float, slope: float) -> Floats:
    """Drive as MountainCarContinuous-v0 does, walls and limits included."""
    x, v = states.T
    v = np.clip(v + power * np.clip(actions[:, 0], -1, 1) - slope * np.cos(3 * x), -0.07, 0.07)
    x = np.clip(x + v, -1.2, 0.6)
    return np.stack([x, np.where((x == -1.2) & (v < 0), 0.0, v)], axis=1)


def acrobot(states: Floats, actions: Floats, *, mass: float, length: float) -> Floats:
    """Swing as Acrobot-v1 does: two links, Runge and Kutta's step, limits of the speeds."""

    def flow(s: Floats) -> Floats:
        one, two, spin_one, spin_two = s.T
        d1 = mass * 0.25 + mass * (length**2 + 0.25 + length * np.cos(two)) + 2.0
        d2 = mass * (0.25 + length * 0.5 * np.cos(two)) + 1.0
        phi2 = mass * 0.5 * 9.8 * np.sin(one + two)
        phi1 = -mass * length * 0.5 * spin_two**2 * np.sin(two)
        phi1 = phi1 - 2 * mass * length * 0.5 * spin_two * spin_one * np.sin(two)
        phi1 = phi1 + (mass * 0.5 + mass * length) * 9.8 * np.sin(one) + phi2
        torque = actions[:, 0] - 1.0
        drive = torque + d2 / d1 * phi1 - mass * length * 0.5 * spin_one**2 * np.sin(two) - phi2
        second = drive / (mass * 0.25 + 1.0 - d2**2 / d1)
        first = -(d2 * second + phi1) / d1
        return np.stack([spin_one, spin_two, first, second], axis=1)

    one = np.arctan2(states[:, 1], states[:, 0])
    two = np.arctan2(states[:, 3], states[:, 2])
    s = np.stack([one, two, states[:, 4], states[:, 5]], axis=1)
    k1 = flow(s)
    k2 = flow(s + 0.1 * k1)
    k3 = flow(s + 0.1 * k2)
    k4 = flow(s + 0.2 * k3)
    s = s + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    one, two = s[:, 0], s[:, 1]
    fast = np.clip(s[:, 2], -4 * np.pi, 4 * np.pi), np.clip(s[:, 3], -9 * np.pi, 9 * np.pi)
    return np.stack([np.cos(one), np.sin(one), np.cos(two), np.sin(two), *fast], axis=1)


GYMS: dict[str, tuple[list[str], orl.GreyBox]] = {
    "Pendulum-v1": (["cos", "sin", "speed"], orl.GreyBox(pendulum, mass=(0.3, 3), length=(0.3, 3))),
    "CartPole-v1": (
        ["x", "v", "angle", "spin"],
        orl.GreyBox(pole, cart_mass=(0.2, 5), pole_mass=(0.02, 0.5), force=(2, 50)),
    ),
    "MountainCarContinuous-v0": (
        ["x", "v"],
        orl.GreyBox(valley, power=(1e-4, 1e-2), slope=(1e-4, 1e-2)),
    ),
    "Acrobot-v1": (
        ["cos 1", "sin 1", "cos 2", "sin 2", "spin 1", "spin 2"],
        orl.GreyBox(acrobot, mass=(0.5, 2), length=(0.5, 2)),
    ),
}


def played(name: str, seed: int, steps: int) -> list[Transition]:
    """Return steps of an environment under random actions."""
    env = gym.make(name)
    env.action_space.seed(seed)
    state, _ = env.reset(seed=seed)
    run = []
    begun = 0
    for step in range(steps):
        action: Any = env.action_space.sample()
        after, _, terminated, truncated, _ = env.step(action)
        chosen = np.atleast_1d(np.asarray(action, float))
        address = Address(seed, step)
        one = np.asarray(state, float), chosen, None, np.asarray(after, float)
        run.append(Transition(*one, bool(terminated or truncated), address, step - begun))
        state = after
        if terminated or truncated:
            state, _ = env.reset()
            begun = step + 1
    return run


def gymnasium(size: Size) -> str:
    """Say which class is enough for Gymnasium's environments of classic control."""
    rows = []
    for name in size.some(GYMS):
        state_names, box = GYMS[name]
        classes: dict[str, Any] = {"linear": orl.Polynomial(1), "quadratic": orl.Polynomial(2)}
        classes["grey box"] = box
        dynamics = orl.Dynamics(classes, state=state_names, action=["u"])
        fell = []
        identified: list[str] = []
        for seed in range(size.seeds(5)):
            evidence, state = weighed(dynamics, played(name, seed, size.episodes(600)))
            fell.append(state["rejected"].tolist())
            flat = evidence.flat(state, 2)
            identified.append("; ".join(shape or ", ".join(names) for names, shape in flat))
        cells = []
        for column in np.array(fell).T:
            out = column[column >= 0]
            few = "never" if not out.size else f"{out.min()} to {out.max()}"
            cells.append(
                few if out.size in (0, column.size) else f"{few} ({out.size} of {column.size})"
            )
        rows.append((name, *cells, max(set(identified), key=identified.count) or "-"))
    return table(("environment", "linear", "quadratic", "grey box", "identified only"), rows)


CHAOS = (
    "Lorenz", "Rossler", "Chen", "Halvorsen", "Rucklidge", "SprottA", "SprottB", "SprottC",
    "SprottD", "SprottE", "SprottF", "SprottG", "SprottJ", "SprottK", "SprottM", "SprottN",
    "Finance", "GenesioTesi", "Arneodo", "RabinovichFabrikant",
)  # fmt: skip


def chaos(size: Size) -> str:
    """Count the polynomial degree that is chosen for chaotic systems, an Euler step at a time."""
    import scipy.signal

    # dysts 0.1 looks for this window where older SciPy had it.
    scipy.signal.blackmanharris = scipy.signal.windows.blackmanharris  # type: ignore[attr-defined]  # new there
    import dysts.flows  # type: ignore[import-untyped, import-not-found, unused-ignore]  # not one of our tools

    rows = []
    for name in size.some(CHAOS):
        system = getattr(dysts.flows, name)()
        start = np.array(system.ic, float)

        def truth(states: Floats, actions: Floats, system: Any = system) -> Floats:
            rates: Floats = np.array([system.rhs(s, 0.0) for s in states])
            moved: Floats = states + system.period / 200 * rates
            return moved

        spread = np.array([truth(start[None], start[None])[0] - start])
        rng = np.random.default_rng(0)
        run = []
        state = start
        sd = 0.0
        for step in range(size.episodes(800)):
            mean = truth(state[None], state[None])[0]
            if step < 50:
                spread = np.concatenate([spread, (mean - state)[None]])
                sd = 0.01 * np.sqrt((spread**2).mean(axis=0))
            after = mean + (0.0 if step < 50 else sd) * rng.normal(size=state.size)
            if np.abs(after).max() > _ESCAPED:
                break
            run.append(Transition(state, np.zeros(0), None, after, False, Address(0, step), step))
            state = after
        classes = {f"degree {degree}": orl.Polynomial(degree) for degree in (1, 2, 3)}
        names = [f"x{i}" for i in range(state.size)]
        evidence, told = weighed(orl.Dynamics(classes, state=names, action=[]), run[50:])
        judgement = evidence.judge(told)
        after_steps = [when for when in judgement.rejected_after if when is not None]
        aic = criteria(evidence, told)["AIC"] + 1
        which = "none" if judgement.misspecified else judgement.chosen
        rows.append((name, len(run), which, max(after_steps, default="-"), aic))
    return table(
        ("system", "steps", "degree that is enough", "smaller ones out after", "AIC"), rows
    )


# Do you need a neural network? --------------------------------------------------------------------


def staircase(states: Floats, actions: Floats) -> Floats:
    """Follow a table of eight values."""
    values = np.array([0.5, -0.3, 0.8, -0.6, 0.4, -0.8, 0.2, -0.5])
    place = np.clip(((states[:, 0] + 2) * 2).astype(int), 0, 7)
    return np.stack([values[place] + 0.6 * actions[:, 0]], axis=1)


FIVE: dict[str, Truth] = {
    "linear": lambda s, a: 0.8 * s + 0.3 * a,
    "polynomial": lambda s, a: 0.9 * s - 0.15 * s**3 + 0.4 * a,
    "trigonometric": lambda s, a: s + 0.5 * np.sin(s) * np.cos(s) - 0.4 * s + 0.5 * a,
    "table": staircase,
    "tanh": lambda s, a: np.tanh(2 * s + a) - 0.5 * np.tanh(3 * s - 1),
}


def network(size: Size) -> str:
    """Say whether a network is needed, and how it fares inside and outside the visited range."""
    classes: dict[str, Any] = {
        "linear": orl.Polynomial(1),
        "cubic": orl.Polynomial(3),
        "trigonometric": orl.Terms(
            {
                "1": lambda s, a: np.ones(len(s)),
                "s": lambda s, a: s[:, 0],
                "a": lambda s, a: a[:, 0],
                "sin": lambda s, a: np.sin(s[:, 0]),
                "sin 2": lambda s, a: np.sin(2 * s[:, 0]),
                "cos": lambda s, a: np.cos(s[:, 0]),
            }
        ),
        "network": orl.Rival(Waves),
    }
    rows = []
    for name in size.some(FIVE):
        truth = FIVE[name]
        run = rolled(truth, 0, size.episodes(1200), sd=0.03, start=(0.0,))
        dynamics = orl.Dynamics(classes, state=["x"], action=["u"])
        answer = orl.select(log_of(run), dynamics)
        evidence: Any = answer.weigher
        quality = answer.later_errors
        gain = "-"
        if quality is not None and answer.model != "network":
            errors = quality.classes[-1]
            gain = f"{100 * errors.gain:.0f} %" + ("" if errors.surely else ", not clear")
        cells = []
        fresh = log_of(rolled(truth, 99, 2000, sd=0.03, start=(0.0,)))
        states = np.array([step.state for step in run])
        middle = (states.max() + states.min()) / 2
        half = (states.max() - states.min()) / 2
        rng = np.random.default_rng(9)
        side = rng.choice([-1.0, 1.0], (2000, 1))
        beyond = middle + side * rng.uniform(half, 2 * half, (2000, 1))
        places_of = {"inside": fresh["states"], "outside": beyond}
        for where, places in places_of.items():
            actions = fresh["actions"] if where == "inside" else rng.uniform(-2, 2, places.shape)
            for m in (answer.chosen - 1, 3):
                simulate = evidence.simulator(answer.state, m)
                quiet = Quiet()
                error = simulate(places, actions, quiet) - truth(places, actions)
                cells.append(f"{np.sqrt((error**2).mean()):.2g}")
        rows.append((name, answer.model, gain, *cells))
    header = ("truth", "enough", "gain of the network", "error inside", "network", "outside")
    return table((*header, "network"), rows)


class Quiet(np.random.Generator):
    """A generator that draws zeros, so that simulators return their means."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return zeros."""
        return np.zeros(size)


# Spoiled logs -------------------------------------------------------------------------------------


def spoiled_log(kind: str, seed: int, steps: int) -> dict[str, Any]:
    """Return a log of the cart with friction in which something is wrong, and its clock."""
    rng = np.random.default_rng(seed)
    state = np.zeros(2)
    states, actions = [], []
    drift = 0.0
    action = np.zeros(1)
    clock = [0.0]
    for step in range(steps):
        if step % 3 == 0:
            action = rng.uniform(-2, 2, 1)
        states.append(state)
        actions.append(action)
        drift = 0.98 * drift + 0.05 * rng.normal()
        pushed = action + (drift if kind == "slow disturbance" else 0.0)
        after = cart(state[None], pushed[None], mass=1.37, viscous=0.6)[0]
        late = 1.0
        if kind == "jitter":
            late = rng.uniform(0.7, 1.3)
            after = state + (after - state) * late
        clock.append(clock[-1] + SMOOTH * late)
        state = after + 0.01 * rng.normal(size=2)
        if kind == "a limit":
            state[1] = np.clip(state[1], -0.5, 0.5)
    log = {"states": np.array(states), "actions": np.array(actions), "time": np.array(clock[:-1])}
    if kind == "sensor noise":
        log["states"] = log["states"] + 0.05 * rng.normal(size=log["states"].shape)
    if kind == "lost rows":
        kept = rng.random(len(states)) > 0.1
        log = {name: column[kept] for name, column in log.items()}
    return log


def spoiled(size: Size) -> str:
    """Count what is said of logs with errors of measurement, gaps and more, and of their clocks."""
    rows = []
    count = size.seeds(5)
    kinds = ("nothing", "sensor noise", "lost rows", "jitter", "slow disturbance", "a limit")
    for kind in size.some(kinds):

        def one(seed: int, kind: str = kind) -> tuple[str, list[str], str]:
            log = spoiled_log(kind, seed, size.episodes(1200))
            clock = log.pop("time")
            answer = orl.select(log, CASES["cart, friction"].dynamics)
            evidence: Any = answer.weigher
            hints = {hint.of for hint in hints_of(evidence, answer.state, answer.chosen - 1)}
            columns = {
                "time": clock, "x": log["states"][:, 0], "v": log["states"][:, 1],
                "u": log["actions"][:, 0],
            }  # fmt: skip
            named = {"episode": None, "time": "time", "state": ["x", "v"], "action": "u"}
            try:
                read = orl.read_log(columns, named, every=SMOOTH)
                model = orl.select(read, CASES["cart, friction"].dynamics).model
                gaps = [part for part in str(read).split("; ") if "gap" in part]
                said = "; ".join([model or "none fits", *gaps])
            except orl.InvalidInput as error:
                said = f"refused: {str(error).split(':')[0]}"
            return answer.model or "none fits", sorted(hints), said

        results = each(size, count, one, kind)
        cells = []
        for said in (
            [model for model, _, _ in results],
            [h for _, hints, _ in results for h in hints],
        ):
            counts = [f"{name} ({said.count(name)} of {count})" for name in sorted(set(said))]
            cells.append("; ".join(counts) or "none")
        rows.append((kind, *cells, results[0][2]))
    return table(("what is wrong", "class", "hints", "with the clock (first seed)"), rows)


# Acting -------------------------------------------------------------------------------------------


def swing_reward(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Return the reward of Pendulum-v1."""
    angle = np.arctan2(states[:, 1], states[:, 0])
    paid: Floats = angle**2 + 0.1 * states[:, 2] ** 2 + 0.001 * actions[:, 0] ** 2
    return -paid


def swing_start(rng: Rng) -> Floats:
    """Return a first state of Pendulum-v1."""
    angle = rng.uniform(-np.pi, np.pi)
    return np.array([np.cos(angle), np.sin(angle), rng.uniform(-1, 1)])


def room(states: Floats, actions: Floats, rng: Rng) -> Floats:
    """Heat a room in noisy weather."""
    air, wall = states.T
    after = air + 0.15 * (wall - air) + 1.5 * actions[:, 0] + 0.05 * (5 - air)
    wall = wall + 0.05 * (air - wall)
    noise: Floats = rng.normal(size=states.shape) * [0.5, 0.1]
    return np.stack([after, wall], axis=1) + noise


def comfort(states: Floats, actions: Floats, next_states: Floats) -> Floats:
    """Pay for discomfort and heat."""
    paid: Floats = (next_states[:, 0] - 20) ** 2 + 2.0 * actions[:, 0]
    return -paid


def common(size: Size) -> str:
    """Compare plans under common and under fresh noise, and a thermostat."""

    def fresh(states: Floats, actions: Floats, rng: Rng) -> Floats:
        return room(states, actions, np.random.Generator(rng.bit_generator))

    count = size.seeds(10)
    rows = []
    hours = size.episodes(48)
    simulators: dict[str, Any] = {"common numbers": room, "fresh numbers": fresh}
    paid: dict[str, list[float]] = {}
    for name, simulate in [*simulators.items(), ("a thermostat", None)]:
        for seed in range(count):
            world = np.random.default_rng(seed)
            rng = np.random.default_rng(100 + seed)
            state = np.array([16.0, 15.0])
            warm = None
            earned = 0.0
            for hour in range(hours):
                action = np.array([1.0 if state[0] < 20 else 0.0])
                if simulate is not None:
                    left = hours - hour
                    action, warm = QUICK.plan(
                        simulate, comfort, state, left, orl.Box(0, 1), rng, warm
                    )
                after = room(state[None], action[None], world)[0]
                earned += float(comfort(state[None], action[None], after[None])[0])
                state = after
            paid.setdefault(name, []).append(earned)
    for name, values in paid.items():
        difference = np.array(values) - np.array(paid["common numbers"])
        error = difference.std(ddof=1) / np.sqrt(count) if count > 1 else 0.0
        rows.append((name, f"{np.mean(values):.0f}", f"{difference.mean():.0f} ± {error:.0f}"))
    return table(("planner", "return", "difference"), rows)


def crashes(size: Size) -> str:
    """Say how often intervals of simulated worth hold, exactly: a crash costs 1, all else nothing.

    All numbers of crashes among the episodes are gone through.
    """
    rows = []
    for runs in size.some((8, 50, 400)):
        for chance in size.some((0.004, 0.05, 0.3)):
            cells = []
            for bounds in (None, (-1.0, 0.0)):
                held = 0.0
                for count in range(runs + 1):
                    drawn = np.repeat([-1.0, 0.0], [count, runs - count])
                    low, high = mean_interval(drawn, bounds)
                    if low <= -chance <= high:
                        held += float(binom.pmf(count, runs, chance))
                cells.append(f"{100 * held:.1f} %")
            none, _ = mean_interval(np.zeros(runs), (-1.0, 0.0))
            rows.append((runs, f"{100 * chance:g} %", *cells, f"{none + 0.0:.2g}"))
    header = ("episodes", "crash", "Student's holds", "with bounds", "its low end without a crash")
    return table(header, rows)


def cost(size: Size) -> str:
    """Measure CPU time a step: of the evidence, of a log and one by one, and of an action."""
    five = {f"p{number}": (0.5, 2.0) for number in range(5)}

    def chain(states: Floats, actions: Floats, **values: float) -> Floats:
        p = [values[name] for name in five]
        x, v = states.T
        after = v + 0.1 * (p[0] * actions[:, 0] - p[1] * v - p[2] * np.sin(p[3] * x) - p[4] * x)
        return np.stack([x + 0.1 * after, after], axis=1)

    def drawn(states: Floats, actions: Floats, rng: Rng, mass: float) -> Floats:
        noise: Floats = 0.02 * rng.normal(size=states.shape)
        return cart(states, actions, mass=mass) + noise

    task: dict[str, Any] = {
        "reward": lambda s, a, after: -(after[:, 0] ** 2),
        "horizon": 200,
        "actions": orl.Box(-2, 2),
        "start": [0.0, 0.0],
    }
    nets = [("net", "second", "third", "fourth")[:count] for count in (1, 2, 4)]
    ladders: dict[str, Any] = {
        "linear (4 terms)": {"linear": orl.Polynomial(1)},
        "degree 3 (20 terms)": {"cubic": orl.Polynomial(3)},
        "degree 5 (56 terms)": {"quintic": orl.Polynomial(5)},
        "grey box, 1 parameter": {"free": CARTS["free"]},
        "grey box, 3 parameters": {"dry": CARTS["and dry"]},
        "grey box, 5 parameters": {"chain": orl.GreyBox(chain, **five)},
        "a rival": dict.fromkeys(nets[0], orl.Rival(Waves)),
        "two rivals": dict.fromkeys(nets[1], orl.Rival(Waves)),
        "four rivals": dict.fromkeys(nets[2], orl.Rival(Waves)),
        "a list of 10 simulators": 10,
        "a list of 50 simulators": 50,
    }
    rows = []
    steps = size.episodes(1000)
    run = rolled(CASES["cart, dry friction"].truth, 0, steps)
    for name in size.some(ladders):
        ladder = ladders[name]
        if isinstance(ladder, int):
            members = [partial(drawn, mass=float(m)) for m in np.linspace(0.5, 3, ladder)]
            ladder = orl.SimulatorLadder({"listed": members}, **task)
        else:
            ladder = orl.Dynamics(ladder, state=["x", "v"], action=["u"]).system(**task)
        cells = []
        for width in (steps, 1):
            evidence = copy.copy(ladder).evidence(None, 0.05)
            state = evidence.begin()
            began = time.process_time()
            for first in range(0, steps, width):
                evidence.add_steps(state, run[first : first + width])
            cells.append(f"{1e3 * (time.process_time() - began) / steps:.2f} ms")
        agent = orl.Agent(orl.OccamControl(ladder=ladder))
        for step in run[:100]:
            agent.observe(step.state, step.action, None, step.next_state)
        began = time.process_time()
        for _ in range(10):
            agent.act(run[100 % len(run)].state)
        cells.append(f"{1e3 * (time.process_time() - began) / 10:.0f} ms")
        rows.append((name, *cells))
    header = ("class, beside the memory", "of a log", "one by one", "an action, planned by CEM()")
    return table(header, rows)


PARTS: dict[str, Callable[[Size], str]] = {
    part.__name__: part
    for part in (
        data, validity, controls, power, sindy, lists, ranges, gymnasium, chaos, network, spoiled,
        common, crashes, cost,
    )
}  # fmt: skip


def main() -> None:
    """Print the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", required=True)
    parser.add_argument("--seeds", type=int, default=10**9)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    for part in options.part:
        print(PARTS[part](Size(tiny=options.tiny, most_seeds=options.seeds)))


if __name__ == "__main__":
    main()
