"""What the preflight of a ladder found (M26), to be shown before a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

_REMEDIES = {
    "safe": "optimism over all kernels that are left (safe=True)",
    "guard": "play the largest class in about sqrt(k) of k episodes (guard=True)",
}


class Search(NamedTuple):
    """What to look for, and how long; see :func:`occamrl.confidence.preflight.preflight`."""

    episodes: int
    delta: float
    start: int
    truths: int
    members: int
    least_loss: float | None
    seed: int


@dataclass(frozen=True)
class BlindPair:
    """A kernel that would confirm itself although another is the truth."""

    rung: int  # the class of the first kernel, from 1
    member: int  # P, as a member of the ladder's family
    truth: int  # Q, likewise
    truth_class: int
    loss_per_episode: float  # how much less P's policy earns under Q than Q's own
    episodes_to_reject: float  # until the rows of P's policy reject every kernel of the class


@dataclass(frozen=True)
class Preflight:
    """What was found; ``print`` it before a run."""

    sizes: list[int]
    episodes: int
    delta: float
    pairs_tried: int
    blind: list[BlindPair]
    rejection: list[float]  # median episodes to reject F_m when the truth is outside it
    remedy: str = "none"  # "safe" or, on a LinearLadder, "guard" where there are blind pairs
    classes: list[str] = field(default_factory=list)  # in words
    grid: float = 0.0  # how far a kernel of the box may be from the nearest point of a cover
    grid_episodes: float = math.inf  # after which the grid's term in the test outweighs that of the noise

    @property
    def worst_loss(self) -> float:
        """The most that a blind pair loses per episode."""
        return max((pair.loss_per_episode for pair in self.blind), default=0.0)

    @property
    def safe(self) -> bool:
        """Whether ARL-GEN should be optimistic over all kernels that are left."""
        return self.remedy == "safe"

    @property
    def options(self) -> dict[str, bool]:
        """The remedy as parameters of ARL-GEN."""
        return {} if self.remedy == "none" else {self.remedy: True}

    def __str__(self) -> str:
        sizes = " < ".join(self.classes) if self.classes else f"{' < '.join(map(str, self.sizes))} kernels"
        lines = [f"Ladder of {sizes}, {self.episodes:,} episodes, delta {self.delta:g}"]
        for m, episodes in enumerate(self.rejection, start=1):
            lines.append(f"  class {m}, if wrong, is rejected after about {_text(episodes)} episodes of its own policy")
        if not self.blind:
            lines.append(f"  no blind pairs among {self.pairs_tried:,} tried: selection at any time will do")
        else:
            worst = max(self.blind, key=lambda pair: pair.loss_per_episode)
            lines.append(
                f"  {len(self.blind):,} blind pairs among {self.pairs_tried:,} tried: a wrong class can confirm itself."
            )
            lines.append(
                f"  Worst: kernel {worst.member} of class {worst.rung} under kernel {worst.truth} of class "
                f"{worst.truth_class} loses {worst.loss_per_episode:.3g} an episode, unnoticed for "
                f"{_text(worst.episodes_to_reject)} episodes"
            )
            lines.append(f"  remedy: {_REMEDIES[self.remedy]}")
        if self.grid > 0.0:
            fine = "fine enough" if self.grid_episodes > self.episodes else "too coarse for this run"
            lines.append(
                f"  grid: kernels up to {self.grid:.3g} from the nearest point; after about "
                f"{_text(self.grid_episodes)} episodes that, not noise, limits what can be told apart: {fine}"
            )
        return "\n".join(lines)


def _text(episodes: float) -> str:
    return "infinitely many" if math.isinf(episodes) else f"{episodes:,.0f}"
