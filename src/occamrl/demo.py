"""The demonstration: how slippery is the lake? One selector and its answer, then a comparison with a figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from occamrl.experiments.comparison import compare
from occamrl.files import make_folder
from occamrl.learners.occam import Occam
from occamrl.models.ladder import Ladder
from occamrl.problems.lakes import FrozenLake
from occamrl.protocols import Learner
from occamrl.running.run import run
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.references import largest, smallest

EPISODES, SEEDS = 1_000, 3


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Run the demonstration, print its answers, write its figure and its page; return the path of the figure."""
    from matplotlib.figure import Figure

    began = time.perf_counter()
    problem = FrozenLake(slip=(6, 6))
    ladder = Ladder.of_problem(problem)
    sizes = " < ".join(
        f"{name} ({size})" for name, size in zip(ladder.names, ladder.sizes, strict=True)
    )
    say(f"FrozenLake 4x4: how slippery is the ice? Candidate models: {sizes}.\n")
    result = run(Occam(ladder=ladder), problem, episodes=EPISODES, progress=False)
    say(f"Occam, {EPISODES:,} episodes:")
    say("".join(f"  {sentence}\n" for sentence in result.verdict.sentences))
    agents: dict[str, Learner] = {"Occam": Occam(ladder=ladder), "ARL-GEN": ARLGen(ladder=ladder)}
    agents |= {
        "largest class": largest(agents["ARL-GEN"]),
        "smallest class": smallest(agents["ARL-GEN"]),
    }
    found = compare(agents, problem, episodes=EPISODES, seeds=SEEDS, progress=False)
    say(str(found))
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    found.plot(figure.subplots(), scale="loglog")
    make_folder(folder)
    picture = folder / "demo.png"
    figure.savefig(picture, dpi=150)
    page = result.page(folder / "answer.html")
    say(
        f"\nThe figure: {picture}\nThe answer as a page: {page}\n{time.perf_counter() - began:.1f} s in all."
    )
    return picture
