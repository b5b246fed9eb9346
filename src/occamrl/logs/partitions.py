"""Folders of Parquet files that are counted file by file, side by side, and gone on with.

A *part* of a log are the episodes that begin in one of its files; the last of them may end in the
next file. A part is read as a log of its own, twice, like every log: to check every row, and to
count flows for some models. Where flows end depends on the number of episodes before, so that a
part is told where to cut. The counts of parts are put together in the order of the files: the
same flows as in one piece, bit by bit, whoever counted them, in any order.

What a part has counted is a file, by whose name it is found again: a digest of what was asked, and
of the sizes, times and numbers of rows of the files that were read. Tasks are those of the pool of
processes, or of Dask (``experiments/``), which bring a lost one to another worker.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from occamrl.arrays import Ints
from occamrl.errors import OccamRLError, ParameterError, Stopped, as_path, require_kind
from occamrl.experiments.pool import Event, Listener, Pool, TaskPool, follow
from occamrl.experiments.records import locked
from occamrl.files import Entry, make_folder
from occamrl.logs.log import OF_MODELS, Choices, Log, cut_flows, flow_ends
from occamrl.logs.repairs import Matching, Repairs, contradicted
from occamrl.logs.table import (
    Columns,
    Episodes,
    Labels,
    LogError,
    Table,
    parquet_batches,
    parquet_file,
    parquet_paths,
)
from occamrl.protocols import Flow, Known, Outcomes, RewardMap
from occamrl.running.storage import FORMAT, canonical, read_objects, sha256, write_objects


class Part(NamedTuple):
    """The episodes that begin in a file; files are those with rows, in order. Plain data."""

    before: str | None  # the file before, whose last episode may go on
    file: str
    after: str | None
    rows_before: int  # in all files before
    rows: int
    roles: Mapping[str, Sequence[str]]
    choices: Sequence[Any]
    first_step: int | None  # 0 or 1, as the log counts


class Counted(NamedTuple):
    """What the rows of a part are."""

    rows: int
    episodes: int
    longest: int
    states: list[Hashable]  # as they were met
    actions: list[Hashable]
    ids: Ints  # of its episodes
    repairs: Repairs


# In a worker --------------------------------------------------------------------------------------


def count_part(file: str, part: Sequence[Any], say: Listener, stop: Callable[[], bool]) -> Any:
    """Check the rows of a part, and write what they are to a file."""

    def count() -> list[Any]:
        log = _log_of(Part(*part), say, stop)
        log.count()
        states = list(log.states.codes)
        actions = list(log.actions.codes)
        sizes = (log.rows, log.episodes, log.longest)
        return [Counted(*sizes, states, actions, _ids(log.met), log.repairs)]

    return _write(file, count)


def count_flows(
    file: str,
    part: Sequence[Any],
    counted: str,
    models: str,
    sizes: Sequence[int],
    cuts: Sequence[int],
    say: Listener,
    stop: Callable[[], bool],
) -> Any:
    """Count the flows of a part for some models, and write them to a file.

    ``sizes`` are the rows, and the length of the longest episode, of the whole log.
    """

    def count() -> list[Any]:
        log = _log_of(Part(*part), say, stop)
        log.rows = sizes[0]
        log.longest = sizes[1]
        labels: Counted = read_objects(_entry(counted))[0]
        log.states.take(labels.states)
        log.actions.take(labels.actions)
        known, outcomes, rewards, log.repairs = read_objects(_entry(models))
        log.repairs.drop(OF_MODELS)
        matching = Matching(log, known, outcomes, rewards)
        flows = list(cut_flows(map(matching.match, log.blocks()), cuts))
        log.repairs.drop(set(log.repairs.totals) - set(OF_MODELS))
        return [flows, log.repairs]

    return _write(file, count)


def _write(file: str, count: Callable[[], list[Any]]) -> dict[str, Any]:
    """Write what was counted; return what is wrong with the log, in plain data."""
    try:
        write_objects(_entry(file), *count())
    except LogError as error:
        fields = {"got": str(error.got), "expected": str(error.expected), "index": error.index}
        return {"field": error.field, **fields}
    return {}


def _entry(file: str) -> Entry:
    return Entry.inside(Path(file))


def _log_of(part: Part, say: Listener, stop: Callable[[], bool]) -> Log:
    """Return a part as a log that is not yet read."""
    names = part.roles["episode"]
    skipped = 0
    if part.before is not None:
        skipped = _leading_rows(part.before, part.file, names)
    borrowed = 0
    if part.after is not None:
        borrowed = _leading_rows(part.file, part.after, names)
    if borrowed and skipped == part.rows:
        expected = (
            "episodes that begin in a file and end there or in the next one; read it in one piece, "
            "without workers=, client= and keep=, or write larger files"
        )
        raise LogError(part.file, got="a part of one episode and nothing else", expected=expected)

    def batches(wanted: Sequence[str]) -> Iterator[Columns]:
        pieces = [_rows_of(part.file, wanted, skipped, part.rows)]
        if part.after is not None:
            pieces.append(_rows_of(part.after, wanted, 0, borrowed))
        for batch in itertools.chain.from_iterable(pieces):
            if stop():
                raise Stopped("between two blocks of rows")
            say({"event": "progress", "text": part.file})
            yield batch

    table = Table(list(names), batches, part.file, part.rows_before + skipped)
    log = Log(table, part.roles, None, Choices(*part.choices))
    log.first_step = part.first_step
    return log


def _rows_of(file: str, wanted: Sequence[str], first: int, end: int) -> Iterator[Columns]:
    """Yield the rows of a file from ``first`` up to ``end``."""
    done = 0
    for batch in parquet_batches(Path(file), wanted):
        size = len(batch[wanted[0]])
        rows = slice(max(first - done, 0), max(end - done, 0))
        if rows.start < min(rows.stop, size):
            yield {name: column[rows] for name, column in batch.items()}
        done += size
        if done >= end:
            return


def _leading_rows(before: str, file: str, names: Sequence[str]) -> int:
    """Return how many rows a file begins with that belong to the last episode of another."""
    labels = Labels()
    for batch in parquet_batches(Path(before), names):
        last = {name: column[-1:] for name, column in batch.items()}
    labels.encode(names, last, 0)
    if not labels.codes:
        return 0  # an empty cell, which is refused where it is read
    labels.take([list(labels.codes)[-1]])
    leading = 0
    for batch in parquet_batches(Path(file), names):
        others = np.flatnonzero(labels.encode(names, batch, leading) != 0)
        if others.size:
            return leading + int(others[0])
        leading += len(batch[names[0]])
    return leading


def _ids(met: Episodes) -> Ints:
    """Return a number for each episode: whole numbers stand for themselves, others a digest."""
    if met.ids:
        return np.concatenate(met.ids)
    numbers: list[int] = []
    for label in met.labels.codes:
        if isinstance(label, (int, float)) and label == int(label) and abs(label) < 2**53:
            numbers.append(int(label))
        else:
            digest = hashlib.blake2b(repr(label).encode(), digest_size=8).digest()
            numbers.append(int.from_bytes(digest, "big", signed=True))
    return np.array(numbers, np.int64)


# In the process that owns the log -----------------------------------------------------------------


class FolderLog(Log):
    """A log in a folder of Parquet files, counted by several processes or on a Dask cluster."""

    def __init__(
        self, folder: Any, log: Log, workers: int, client: Any, keep: Any, progress: bool | None
    ) -> None:
        super().__init__(log.table, log.roles, log.order_by, log.choices)
        option = "keep"
        if workers > 1:
            option = "workers"
        if client is not None:
            option = "client"
        path = None
        if isinstance(folder, (str, Path)):
            path = as_path("log", folder)
        if path is None or not path.is_dir():
            expected = "nothing: only a folder of Parquet files is counted file by file"
            raise ParameterError(
                option, got=f"a log that is no folder: {log.source}", expected=expected
            )
        if self.order_by is not None or "episode" not in self.roles:
            expected = (
                "files in order, with a column that names episodes, and none in order_by= or time: "
                "others are read in one piece"
            )
            raise ParameterError(option, got="rows to put in order", expected=expected)
        if client is not None and workers > 1:
            raise ParameterError("workers", got=workers, expected="none: the client has its own")
        self.files = parquet_paths(path)
        self.workers = workers
        self.client = client
        self.progress = progress
        self._kept = keep is not None
        if keep is None:
            # counts in no folder of the user's go with the log
            keep = tempfile.mkdtemp(prefix="occamrl-")
            weakref.finalize(self, shutil.rmtree, keep, ignore_errors=True)
        self.keep = as_path("keep", keep).resolve()
        make_folder(self.keep)
        self._parts: list[Part] = []
        self._counts: list[str] = []  # the file of each part

    def check(self) -> None:
        """Read all of it once, part by part."""
        if "step" in self.roles:
            next(self.blocks(), None)  # which shows whether steps count from 0 or from 1
        self._parts = self._cut()
        names = [f"rows-{self._digest(part, [])}.npz" for part in self._parts]
        self._counts = [str(self.keep / name) for name in names]
        tasks: list[list[Any]] = []
        for name, part in zip(self._counts, self._parts, strict=True):
            tasks.append([name, part])
        self._play("count_part", "read_log", tasks)
        repairs = Repairs()
        ids: list[Ints] = []
        for counted in self._counted():
            self.rows += counted.rows
            self.episodes += counted.episodes
            self.longest = max(self.longest, counted.longest)
            self.states.take(counted.states)
            self.actions.take(counted.actions)
            ids.append(counted.ids)
            repairs.merge(counted.repairs)
        self._refuse_same_episodes(ids)
        self.require_rows()
        self.repairs.update(repairs)

    def _counted(self) -> Iterator[Counted]:
        for name in self._counts:
            (counted,) = read_objects(_entry(name))
            yield counted

    def _cut(self) -> list[Part]:
        """Return the parts of the log: a file with rows each."""
        sizes: dict[str, int] = {}
        for path in self.files:
            with parquet_file(path) as opened:
                if opened.metadata.num_rows:
                    sizes[str(path.resolve())] = opened.metadata.num_rows
        files = list(sizes)
        rows = list(sizes.values())
        begins = np.cumsum([0, *rows]).tolist()
        parts: list[Part] = []
        for before, file, after in zip([None, *files], files, [*files[1:], None], strict=False):
            i = len(parts)
            plain = {role: list(names) for role, names in self.roles.items()}
            place = (before, file, after, begins[i], rows[i])
            parts.append(Part(*place, plain, list(self.choices), self.first_step))
        return parts

    def _digest(self, part: Part, asked: list[Any]) -> str:
        """Return the digest of what is asked of a part, and of the files that it reads."""
        files: list[Any] = []
        for file in (part.before, part.file, part.after):
            if file is not None:
                status = Path(file).stat()
                files.append([file, status.st_size, status.st_mtime_ns])
        return sha256(canonical({"format": FORMAT, "part": part, "files": files, "asked": asked}))

    def _refuse_same_episodes(self, ids: Sequence[Ints]) -> None:
        """Refuse an episode that comes back in another file."""
        if not ids:
            return
        part = np.repeat(np.arange(len(ids)), [numbers.size for numbers in ids])
        order = np.argsort(np.concatenate(ids), kind="stable")
        same = np.flatnonzero(np.diff(np.concatenate(ids)[order]) == 0)
        if same.size:
            first, second = part[order[same[0] : same[0] + 2]].tolist()
            file = Path(self._parts[first].file).name
            expected = f"the rows of an episode together: one of {file} comes back after others"
            raise LogError(self._parts[second].file, got="an episode again", expected=expected)

    def _play(self, function: str, label: str, tasks: Sequence[list[Any]]) -> None:
        """Play the tasks whose results are not kept yet; raise why the first part is refused."""
        todo = [task for task in tasks if not _entry(task[0]).exists()]
        events: dict[int, Event] = {}
        checked = 0

        def take(number: int, event: Event) -> None:
            nonlocal checked
            if event["event"] in ("done", "failed"):
                events[number] = event
            # the first one in the order of the files, as in one piece
            while checked in events:
                _raise_refusal(events[checked])
                checked += 1

        if not todo:
            return
        with locked(self.keep) as lock:
            name = f"{__name__}:{function}"
            pool: TaskPool = Pool(name, min(self.workers, len(todo)), (), [lock])
            if self.client is not None:
                # An extra: most installations do not have Dask.
                from occamrl.experiments.dask import DaskPool

                pool = DaskPool(name, self.client, self.keep, ())
            stopped = follow(label, "files", pool, todo, self.progress, take)
        if stopped:
            advice = "name a folder, keep=, to go on from there the next time"
            if self._kept:
                advice = f"they are kept in {self.keep}, and the same call goes on from there"
            done = len(tasks) - len(todo) + len(events)
            raise KeyboardInterrupt(f"stopped; {done} of {len(tasks)} files are counted: {advice}")

    def flows(
        self, known: Known, outcomes: Outcomes | None = None, rewards: RewardMap | None = None
    ) -> Iterator[Flow]:
        """Yield its episodes as flows, as :meth:`Log.flows` does."""
        self.repairs.drop(OF_MODELS)
        written = Entry.inside(self.keep / f"{uuid.uuid4().hex}.npz")
        write_objects(written, known, outcomes, rewards, self.repairs)
        models = Entry.inside(self.keep / f"models-{sha256(written.read())}.npz")
        written.move(models)
        # Models may cut episodes, or leave out their rows: how many are left is counted first where
        # that was so, and flows again where it moves their ends.
        expected = [counted.episodes for counted in self._counted()]
        results = self._count_flows(models, expected)
        episodes = [sum(flow.episodes for flow in _flows_in(name)[0]) for name in results]
        if episodes != expected:
            results = self._count_flows(models, episodes)
        for name in results:
            self.repairs.merge(_flows_in(name)[1])
        if contradicted(self.repairs, self.rows):
            # in one piece it is said which row is one too many, and why
            yield from super().flows(known, outcomes, rewards)
            return
        parts: list[Flow] = []
        done = 0
        ends = flow_ends()
        end = next(ends)
        for name in results:
            for flow in _flows_in(name)[0]:
                parts.append(flow)
                done += flow.episodes
                if done == end:
                    yield Flow.joined(parts)
                    parts = []
                    end = next(ends)
        if parts:
            yield Flow.joined(parts)

    def _count_flows(self, models: Entry, episodes: Sequence[int]) -> list[str]:
        """Return the files with the flows of each part, cut where those of the log end."""
        total = sum(episodes)
        ends = np.array(list(itertools.takewhile(lambda end: end < total, flow_ends())), np.int64)
        begin = 0
        tasks: list[list[Any]] = []
        for part, counted, size in zip(self._parts, self._counts, episodes, strict=True):
            if Path(counted).name != f"rows-{self._digest(part, [])}.npz":
                expected = "the file that was read before; read the log anew"
                raise LogError(part.file, got="another file by now", expected=expected)
            cuts = ends[(ends > begin) & (ends < begin + size)] - begin
            begin += size
            asked = [[self.rows, self.longest], cuts.tolist()]
            name = self.keep / f"flows-{self._digest(part, [models.name, *asked])}.npz"
            tasks.append([str(name), part, counted, str(models.path), *asked])
        self._play("count_flows", "count", tasks)
        return [task[0] for task in tasks]


def _flows_in(name: str) -> tuple[list[Flow], Repairs]:
    flows, repairs = read_objects(_entry(name))
    require_kind("flows", flows, list)
    return flows, repairs


def _raise_refusal(event: Event) -> None:
    """Raise what a part was refused for."""
    if event["event"] == "failed":
        raise OccamRLError(event["text"])
    refusal = event["result"]
    if refusal:
        index = refusal.pop("index")
        raise LogError(**refusal, index=None if index is None else tuple(index))
