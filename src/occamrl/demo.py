"""The demonstration: how slippery is the lake? One selector and its answer, then a comparison."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

from occamrl.experiments.comparison import compare
from occamrl.files import make_folder, write_whole
from occamrl.learners.occam import Occam
from occamrl.models.ladder import Ladder
from occamrl.problems.lakes import FrozenLake
from occamrl.running.run import run
from occamrl.selectors.arl_gen import ARLGen
from occamrl.selectors.references import largest, smallest

EPISODES = 1_000
SEEDS = 3


def demonstrate(folder: Path, say: Callable[[str], None] = print) -> Path:
    """Print the answers, write the figure and the page; return the path of the figure."""
    from matplotlib.figure import Figure

    began = time.perf_counter()
    problem = FrozenLake(slip=(6, 6))
    ladder = Ladder.of_problem(problem)
    classes = [f"{name} ({n})" for name, n in zip(ladder.names, ladder.sizes, strict=True)]
    say(f"FrozenLake 4x4: how slippery is the ice? Candidate models: {' < '.join(classes)}.\n")

    result = run(Occam(ladder=ladder), problem, episodes=EPISODES, progress=False)
    say(f"Occam, {EPISODES:,} episodes:")
    say("".join(f"  {line}\n" for line in str(result.answer).splitlines()))

    selector = Occam(ladder=ladder)
    agents = {
        "Occam": selector,
        "Occam, largest class": largest(selector),
        "Occam, smallest class": smallest(selector),
        "ARL-GEN": ARLGen(ladder=ladder),
    }
    comparison = compare(agents, problem, episodes=EPISODES, seeds=SEEDS, progress=False)
    say(str(comparison))

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    comparison.plot(figure.subplots(), scale="loglog")
    make_folder(folder)
    picture = folder / "demo.png"
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150)
    write_whole(picture, drawn.getvalue())
    page = result.page(folder / "answer.html")
    seconds = time.perf_counter() - began
    say(f"\nThe figure: {picture}\nThe answer as a page: {page}\n{seconds:.1f} s in all.")
    return picture
