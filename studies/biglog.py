"""A log in many Parquet files, read in several ways: ``python -m studies.biglog --rows 10000000``.

The log is that of a small shop, written to a folder of its own in ``--folder`` and removed; files
end in the middle of episodes. Each way of reading is measured by itself: seconds of all
its processes on a processor, seconds on the clock, the largest memory of the owner of the log and
of one of its workers, and whether the answer is that of one piece, to the last digit of the
evidence after every flow. ``killed`` kills a worker on the way; ``again`` reads a second time what
``keep=`` has kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import occamrl as orl
from studies.figures import table

DAYS = 11  # rows of an episode; after the last one nothing is known
WAYS = (
    "in one piece",
    "1 worker",
    "2 workers",
    "2 workers, killed",
    "Dask",
    "Dask, killed",
    "again",
)
RATE = 0.23
RUSH = 0.31


def shop(stock: int, order: int, *, rate: float, rush: float = 0.0) -> Iterator[Any]:
    """Return what may happen on a day: at most one customer, more often when the shelf is full."""
    filled = min(stock + order, 4)
    chance = rate + rush * (filled == 4)
    cost = 2.0 * (filled - stock) + 0.1 * filled
    yield 1.0 - chance, filled, -cost, False
    yield chance, max(filled - 1, 0), 5.0 * (filled > 0) - cost, False


def shop_ladder() -> Any:
    """Return the classes of models that are weighed."""
    bounds = {"rate": (0.1, 0.6), "rush": (0.0, 0.4)}
    model = orl.Model(shop, start=2, actions=[0, 1, 2], horizon=DAYS - 1, parameters=bounds)
    return model.ladder({"steady": ["rate"], "rushes": ["rate", "rush"]})


def months(first: int, count: int) -> pa.Table:
    """Return the days of some months, played by somebody who orders at random."""
    draw = np.random.default_rng([4_000, first])
    stock = np.full(count, 2)
    columns: dict[str, list[Any]] = {"stock": [], "order": [], "profit": []}
    for _ in range(DAYS):
        order = draw.choice([0, 0, 1, 2], size=count)
        filled = np.minimum(stock + order, 4)
        sold = (draw.random(count) < RATE + RUSH * (filled == 4)) & (filled > 0)
        columns["stock"].append(stock)
        columns["order"].append(order)
        columns["profit"].append(5.0 * sold - 2.0 * (filled - stock) - 0.1 * filled)
        stock = filled - sold
    rows: dict[str, Any] = {"month": np.repeat(np.arange(first, first + count), DAYS)}
    for name, days in columns.items():
        rows[name] = np.stack(days, axis=1).ravel()
    return pa.table(rows)


def write_log(folder: Path, rows: int, files: int) -> None:
    """Write the log; a file may end in the middle of a month."""
    size = rows // files
    ready = months(0, 0)
    month = 0
    for i in range(files):
        count = -(-(size - ready.num_rows) // DAYS)
        ready = pa.concat_tables([ready, months(month, count)])
        month += count
        pq.write_table(ready.slice(0, size), folder / f"part-{i:04d}.parquet")
        ready = ready.slice(size)


# One way, in a process of its own -----------------------------------------------------------------


def children() -> list[int]:
    """Return the processes that this one has begun."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def kill_one(after: float) -> None:
    """Kill a worker after some seconds."""
    time.sleep(after)
    for pid in children()[-1:]:
        os.kill(pid, signal.SIGKILL)
        print(f"killed {pid}", file=sys.stderr)


def measure(way: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Read and judge the log in one way."""
    columns = {"episode": "month", "state": "stock", "action": "order", "reward": "profit"}
    options: dict[str, Any] = {}
    cluster: Any = nullcontext()
    if way in ("1 worker", "again"):
        options = {"keep": folder.with_suffix(".kept")}
    elif way.startswith("2 workers"):
        options = {"workers": 2}
    elif way.startswith("Dask"):
        from distributed import LocalCluster

        sizes = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0}
        cluster = LocalCluster(**sizes, dashboard_address=None)
    begin = time.perf_counter()
    with cluster as opened:
        if way.startswith("Dask"):
            options = {"client": opened.scheduler_address}
        if way.endswith("killed"):
            threading.Thread(target=kill_one, args=(seconds,), daemon=True).start()
        log = orl.read_log(folder, columns, **options)
        answer = orl.select(log, shop_ladder())
        text = json.dumps([answer.history, log.report, str(answer)])
    clock = time.perf_counter() - begin
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "rows": log.rows,
        "cpu": own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime,
        "clock": clock,
        "owner": own.ru_maxrss / 1e3,
        "worker": others.ru_maxrss / 1e3,
        "answer": hashlib.sha256(text.encode()).hexdigest(),
    }


def main() -> None:
    """Write the log, read it in all ways, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--kill-after", type=float, default=8.0, help="seconds")
    parser.add_argument("--measure", choices=WAYS, help="one way, of a log that is there")
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.folder, options.kill_after)))
        return
    folder = Path(tempfile.mkdtemp(dir=options.folder)) / "log"
    folder.mkdir()
    try:
        write_log(folder, options.rows, options.files)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"{options.rows:,} rows in {options.files} files, {size:,.0f} MB\n")
        lines = []
        first = ""
        for way in options.ways:
            command = [sys.executable, "-m", "studies.biglog", "--measure", way]
            command += ["--folder", str(folder), "--kill-after", str(options.kill_after)]
            run = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603  # itself
            figures = json.loads(run.stdout)
            first = first or figures["answer"]
            seconds = (f"{figures['cpu']:.0f}", f"{figures['clock']:.0f}")
            memory = (f"{figures['owner']:.0f} MB", f"{figures['worker']:.0f} MB")
            same = "yes" if figures["answer"] == first else "no"
            lines.append((way, *seconds, *memory, same))
            print(lines[-1], file=sys.stderr)
        head = ("read", "seconds of processors", "on the clock", "owner", "largest worker", "same")
        print(table(head, lines))
    finally:
        shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
