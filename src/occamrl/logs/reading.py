"""Logs from wherever they are: a Parquet file, or a Minari dataset."""

from __future__ import annotations

from pathlib import Path

from occamrl.logs.episodes import Log
from occamrl.logs.minari import read_minari
from occamrl.logs.parquet import read_parquet

MINARI = "minari:"


def read_log(source: str | Path) -> Log:
    """Return the log in a Parquet file, or in the local Minari dataset ``minari:ID``.

    Raises
    ------
    LogError
        With the column and the first row that is wrong.
    """
    text = str(source)
    return read_minari(text.removeprefix(MINARI)) if text.startswith(MINARI) else read_parquet(text)
