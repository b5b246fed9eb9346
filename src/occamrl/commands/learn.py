"""The options of ``occamrl learn``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from occamrl.commands.telling import Json, print_lines, told


def learn(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="A registered Gymnasium environment.")],
    ladder: Annotated[str, typer.Option(help="A TOML file of models, or the name of a shipped ladder.")],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes, in all.")],
    seed: Annotated[int, typer.Option(min=0)] = 0,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode, instead of the ladder's.")] = None,
    options: Annotated[list[str] | None, typer.Option("--with", help="key=value for the environment.")] = None,
    modules: Annotated[list[str] | None, typer.Option("--import", help="Import a module that registers it.")] = None,
    delta: Annotated[float, typer.Option(help="How often the verdict may be wrong.")] = 0.05,
    rewards: Annotated[
        str | None,
        typer.Option(help="known, or estimated: bernstein, hoeffding; instead of the ladder's."),
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="stationary or per_step, instead of the ladder's.")] = None,
    safe: Annotated[bool, typer.Option(help="Be optimistic over all models that are left.")] = False,
    compare: Annotated[bool, typer.Option(help="Also play the oracle, the largest and the smallest class.")] = False,
    checkpoint: Annotated[Path | None, typer.Option(help="Save there, and go on from there.")] = None,
    as_json: Json = False,
) -> None:
    """Learn in a Gymnasium environment and say which rung of a ladder of models it needs."""
    with told(as_json):
        from occamrl.commands.learning import learn_and_tell, lines

        for found in learn_and_tell(
            env_id,
            ladder,
            episodes=episodes,
            seed=seed,
            horizon=horizon,
            options=options or (),
            modules=modules or (),
            delta=delta,
            rewards=rewards,
            kernel=kernel,
            safe=safe,
            compare=compare,
            checkpoint=checkpoint,
            tell=None if as_json else lambda line: typer.echo(line, err=True),
        ):
            print_lines(found if as_json else lines(found))
