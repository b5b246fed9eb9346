"""Tables as they come, and their cells: batches of columns, and codes, numbers, flags and dates made of them.

A table is anything that has columns: a Parquet or CSV file, an Arrow table, a data frame of pandas
or Polars, a mapping of arrays, a list of rows, a Minari dataset. It gives the columns that are
asked for in batches of Arrow arrays, or of lists where Arrow does not take the objects. A cell that
cannot be read is refused with its column and row.
"""

from __future__ import annotations

import csv
import datetime
import importlib
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import InvalidInput, OccamRLError, ParameterError
from occamrl.protocols import Floats, Ints

BLOCK = 2**17  # rows that are read at once
MISSING, END = (
    -1,
    -2,
)  # codes of what no label was given for: nothing, and the next state of an episode that ended
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?")

Columns = Mapping[str, Any]  # Arrow arrays by column, or lists of objects that Arrow does not take


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""

    @property
    def where(self) -> str:
        """The column and the row in words."""
        return self.field if self.index is None else f"{self.field} in row {self.index[0]} (from 0)"


class Table(NamedTuple):
    """Something that has columns, and gives those that are asked for in batches, as often as it is asked."""

    names: Sequence[str]
    batches: Callable[[Sequence[str]], Iterable[Columns]]
    source: str = "log"


def refuse(
    field: str, bad: Any, values: Any, expected: str, rows: Any, error: type[LogError] = LogError
) -> None:
    """Refuse the first row that is marked; ``rows`` are the numbers of the rows, or that of the first."""
    for row in np.flatnonzero(bad)[:1].tolist():
        number = rows + row if isinstance(rows, int) else int(rows[row])
        value = str(values[row]) if isinstance(values[row], np.datetime64) else values[row]
        value = value.item() if isinstance(value, np.generic) else value
        raise error(field, index=(number,), got=f"{value!r:.80}", expected=expected)


# Labels -------------------------------------------------------------------------------------------


def label_of(value: Any) -> Any:
    """Return a value as a label: a text that is written as a number is that number, what is missing is None.

    >>> label_of(" 4.0 ") == label_of("4") == 4, label_of("007"), label_of(("2", "Mon")), label_of(float("nan"))
    (True, '007', (2, 'Mon'), None)
    """
    if isinstance(value, str):
        value = value.strip()
        if _NUMBER.fullmatch(value):
            return float(value) if set(value) & set(".eE") else int(value)
        return {"true": True, "false": False, "": None}.get(value.lower(), value)
    if isinstance(value, tuple):
        return tuple(label_of(part) for part in value)
    gone = value is None or type(value).__name__ in ("NAType", "NaTType") or value != value  # NaN
    return None if gone else value


def coded(field: str, column: Any, first: int) -> tuple[Ints, list[Any]]:
    """Return a column as codes, MISSING where there is no value, and the label of each code."""
    if isinstance(column, list):
        seen: dict[Any, int] = {}
        plain = [tuple(value) if isinstance(value, list) else value for value in column]
        try:
            codes = np.array([seen.setdefault(value, len(seen)) for value in plain], np.int64)
        except TypeError:
            bad = [type(value).__hash__ is None for value in plain]
            refuse(field, bad, plain, "text, numbers, true or false, or tuples of them", first)
            raise
        values = list(seen)
    else:
        coded = column.dictionary_encode()
        codes, values = (
            coded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False),
            coded.dictionary.to_pylist(),
        )
    advice = "a label: text, a number, true or false; name dates in order_by=, and give a weekday or month as a number"
    dates = np.array(
        [
            isinstance(value, (datetime.date, datetime.time, datetime.timedelta))
            for value in [*values, 0]
        ]
    )
    if dates.any():
        refuse(field, dates[codes], [str(values[c]) for c in codes], advice, first)
    labels = [label_of(value) for value in values]
    known = np.array(
        [*(MISSING if label is None else c for c, label in enumerate(labels)), MISSING]
    )
    return known[codes], labels


class Labels:
    """Labels, numbered in the order in which they were met."""

    def __init__(self) -> None:
        self.codes: dict[Hashable, int] = {}

    def encode(self, names: Sequence[str], batch: Columns, first: int) -> Ints:
        """Return the codes of some rows; those of several columns are those of tuples."""
        keys, labels = coded(names[0], batch[names[0]], first)
        for k, name in enumerate(names[1:]):
            others, more = coded(name, batch[name], first)
            gone = (keys == MISSING) | (others == MISSING)
            pairs, keys = np.unique(
                np.where(gone, MISSING, keys * len(more) + others), return_inverse=True
            )
            parts = [None if pair < 0 else divmod(pair, len(more)) for pair in pairs.tolist()]
            labels = [
                at and ((*labels[at[0]],) if k else (labels[at[0]],)) + (more[at[1]],)
                for at in parts
            ]
        codes = [
            MISSING if label is None else self.codes.setdefault(label, len(self.codes))
            for label in labels
        ]
        return np.array([*codes, MISSING], np.int64)[keys]

    def look_up(self, names: Sequence[Hashable]) -> Ints:
        """Return what each code is in a list of names, MISSING where it is not in it; END and MISSING stay."""
        book = {label_of(name): i for i, name in reversed(list(enumerate(names)))}
        return np.array(
            [*(book.get(label, MISSING) for label in self.codes), END, MISSING], np.int64
        )

    def decoded(self, codes: Ints) -> NDArray[Any]:
        """Return the labels of codes, as integers where all are; None where there is none."""
        labels = list(self.codes)
        whole = all(isinstance(label, int) for label in labels) and (codes >= 0).all()
        array = np.empty(len(labels) + 2, np.int64 if whole else object)
        array[: len(labels)] = labels if whole else np.fromiter(labels, object, len(labels))
        array[len(labels) :] = 0 if whole else None
        return array[codes]


class Episodes:
    """The episodes of a table, numbered as they are met; numbers that never decrease are not kept in a dictionary."""

    def __init__(self) -> None:
        self.ids, self.count, self.labels = [np.zeros(0, np.int64)], 0, Labels()

    def encode(self, names: Sequence[str], batch: Columns, first: int) -> Ints:
        """Return the number of the episode of each row."""
        column = batch[names[0]]
        whole = (
            len(names) == 1
            and not isinstance(column, list)
            and str(column.type).startswith(("int", "uint"))
        )
        if whole and not column.null_count and not self.labels.codes:
            ids, last = column.to_numpy(zero_copy_only=False).astype(np.int64), self.ids[-1][-1:]
            steps = np.diff(ids, prepend=last if last.size else ids[:1] - 1)
            if (steps >= 0).all():
                self.ids += [ids[steps > 0]] if steps.any() else []
                codes = self.count - 1 + np.cumsum(steps > 0)
                self.count += int((steps > 0).sum())
                return codes
        for known in np.concatenate(self.ids).tolist() if not self.labels.codes else ():
            self.labels.codes[known] = len(self.labels.codes)
        return self.labels.encode(names, batch, first)

    def ranks(self) -> Ints:
        """Return the place of each episode among all, by name: numbers before texts."""
        labels = [label if isinstance(label, tuple) else (label,) for label in self.labels.codes]
        if not labels:
            return np.arange(self.count)
        keys = [[(isinstance(part, str), part) for part in label] for label in labels]
        return np.argsort(sorted(range(len(keys)), key=keys.__getitem__))


# Columns of other kinds ---------------------------------------------------------------------------


def floats(field: str, column: Any, first: int, expected: str) -> Floats:
    """Return a column of numbers, NaN where one is missing."""
    import pyarrow as pa

    try:
        found = pa.array(column).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        values = [
            label_of(value)
            for value in (column if isinstance(column, list) else column.to_pylist())
        ]
        bad = [
            not (value is None or isinstance(value, (int, float, np.number))) for value in values
        ]
        refuse(field, bad, values, expected, first)
        found = np.array([math.nan if value is None else value for value in values], np.float64)
    refuse(field, np.isinf(found), found, expected, first)
    return np.asarray(found, np.float64)


def flags(field: str, column: Any, first: int) -> NDArray[np.bool_]:
    """Return a column of true and false, or 1 and 0."""
    codes, labels = coded(field, column, first)
    labels.append(None)
    bad = np.array([label not in (0, 1) for label in labels])
    refuse(
        field,
        bad[codes],
        [labels[c] for c in codes] if bad[codes].any() else (),
        "true or false",
        first,
    )
    return np.array([bool(label) for label in labels])[codes]


def ordered(field: str, column: Any, first: int) -> NDArray[Any]:
    """Return a column of numbers or dates as numbers that can be compared."""
    import pyarrow as pa

    expected = (
        "a number or a date (as text: 2026-01-31, with a time if needed), in one form in all rows"
    )
    array: Any = pa.array(column) if isinstance(column, list) else column
    array = array.dictionary_decode() if hasattr(array, "dictionary_decode") else array
    refuse(
        field, array.is_null().to_numpy(zero_copy_only=False), [None] * len(array), expected, first
    )
    times = [pa.timestamp("ns"), pa.timestamp("ns", "UTC")]
    for kind in (
        times
        if str(array.type).startswith(("date", "timestamp"))
        else [pa.int64(), pa.float64(), *times]
    ):
        try:
            return np.asarray(array.cast(kind).to_numpy(zero_copy_only=False))
        except pa.ArrowException:
            continue
    values = [str(value) for value in array.to_pylist()]
    form = (
        _NUMBER.fullmatch if _NUMBER.fullmatch(values[0]) else re.compile(r"\d{4}-\d\d-\d\d").match
    )
    odd = [not form(value) for value in values]
    refuse(field, odd if any(odd) else [True], values, expected, first)
    raise AssertionError


# Tables -------------------------------------------------------------------------------------------


def _parquet(path: Path) -> Table:
    """Read a Parquet file, some rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        for batch in pq.ParquetFile(path).iter_batches(BLOCK, columns=names):
            yield {name: batch.column(name) for name in names}

    try:
        return Table(pq.ParquetFile(path).schema_arrow.names, batches, str(path))
    except (OSError, pa.ArrowException) as error:
        raise LogError(
            str(path), got=error, expected="a Parquet file, or one whose name ends in .csv"
        ) from error


def _csv(path: Path) -> Table:
    """Read a CSV file with a line of names, some rows at a time; every value is text, as it may be a label."""
    import pyarrow as pa

    reader: Any = importlib.import_module("pyarrow.csv")
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        line = file.readline()
    sign = max(",;\t|", key=line.count)  # a comma unless there are more of another
    if sign != "," or "\ufffd" in line:
        got = (
            "text that is not UTF-8"
            if sign == ","
            else f"columns that seem to be separated by {sign!r}"
        )
        expected = f"commas and UTF-8: export it so, or pass pandas.read_csv(..., sep={sign!r}, encoding=...)"
        raise LogError(str(path), got=got, expected=expected)
    header = [name.strip() for name in next(csv.reader([line]), [])]

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        texts, nothing = dict.fromkeys(names, pa.string()), ["", "nan", "NaN"]
        kinds = {
            "column_types": texts,
            "include_columns": names,
            "null_values": nothing,
            "strings_can_be_null": True,
        }
        block = max(BLOCK * 32, 2**12)
        one_by_one = reader.ReadOptions(
            use_threads=False, column_names=header, skip_rows=1, block_size=block
        )
        try:
            with reader.open_csv(
                path, read_options=one_by_one, convert_options=reader.ConvertOptions(**kinds)
            ) as rows:
                for batch in rows:
                    yield {name: batch.column(name) for name in names}
        except (OSError, pa.ArrowException) as error:
            row = re.search("Row #([0-9]+)", str(error))
            field, index = ("values", (int(row[1]) - 2,)) if row else (str(path), None)
            expected = "a CSV file in UTF-8, with a value for each name"
            raise LogError(field, index=index, got=f"{error!s:.200}", expected=expected) from error

    return Table(header, batches, str(path))


def _minari(dataset: Any, source: str = "minari") -> Table:
    """Read a Minari dataset with Discrete spaces, some episodes at a time; a start other than 0 is taken off."""
    offsets = []
    for kind in ("observation_space", "action_space"):
        if not hasattr(space := getattr(dataset, kind), "n"):
            raise LogError(kind, got=space, expected="a Discrete space")
        offsets.append(int(getattr(space, "start", 0)))
    columns = ("episode", "state", "action", "next_state", "reward", "terminated")

    def rows(k: int, episode: Any) -> tuple[NDArray[Any], ...]:
        seen, chosen = np.asarray(episode.observations), np.asarray(episode.actions)
        if seen.ndim != 1 or chosen.ndim != 1 or seen.size != chosen.size + 1:
            got = f"observations {seen.shape}, actions {chosen.shape}"
            raise LogError(f"episode {k}", got=got, expected="T + 1 and T whole numbers")
        states, actions = seen.astype(np.int64) - offsets[0], chosen.astype(np.int64) - offsets[1]
        about = np.asarray(episode.rewards), np.asarray(episode.terminations)
        return np.full(actions.size, k), states[:-1], actions, states[1:], *about

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        import pyarrow as pa

        episodes = enumerate(dataset.iterate_episodes())
        while held := [rows(*each) for each in itertools.islice(episodes, 1024)]:
            arrays = [pa.array(np.concatenate(column)) for column in zip(*held, strict=True)]
            yield dict(zip(columns, arrays, strict=True))

    return Table(columns, batches, source)


def _arrow(column: Any) -> Any:
    """Return a column in memory as an Arrow array, or as a list where Arrow does not take what it holds."""
    import pyarrow as pa

    if hasattr(column, "to_arrow"):  # Polars
        column = column.to_arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        array = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return list(column)
    return array.to_pylist() if str(array.type).startswith(("list", "struct")) else array


def _in_memory(source: Any) -> Table:
    """Read what has columns by name."""
    if (
        isinstance(source, (list, tuple))
        and source
        and all(isinstance(row, Mapping) for row in source)
    ):
        source = {
            name: [row.get(name) for row in source]
            for name in dict.fromkeys(n for row in source for n in row)
        }
    if not hasattr(source, "__getitem__") or isinstance(source, (list, tuple)):
        expected = "a path, a data frame, an Arrow table, a mapping of columns or a list of rows (mappings)"
        raise ParameterError("log", got=f"{source!r:.100}", expected=expected)

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        columns = {name: _arrow(source[name]) for name in names}
        sizes = {name: len(column) for name, column in columns.items()}
        if len({*sizes.values()}) > 1:
            raise LogError(
                "rows", got=f"columns of lengths {sizes}", expected="one value per row in each"
            )
        for first in range(0, max(sizes.values()), BLOCK):
            yield {name: column[first : first + BLOCK] for name, column in columns.items()}

    return Table(list(getattr(source, "column_names", getattr(source, "columns", source))), batches)


def open_table(source: Any) -> Table:
    """Return a path, a data frame, an Arrow table, a mapping, a list of rows or a Minari dataset as a table."""
    if isinstance(source, str) and source.startswith("minari:"):
        try:
            dataset = importlib.import_module("minari").load_dataset(source.removeprefix("minari:"))
        except ModuleNotFoundError as error:
            raise OccamRLError(
                'reading Minari datasets needs Minari: pip install "minari[hdf5]"'
            ) from error
        except (ValueError, KeyError, OSError) as error:
            raise LogError(
                "dataset", got=f"{source!r}: {error}", expected="a Minari dataset here"
            ) from error
        return _minari(dataset, source)
    if hasattr(source, "iterate_episodes"):
        return _minari(source)
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            raise LogError(
                str(source), got="no such file", expected="a Parquet or CSV file, or minari:ID"
            )
        return _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)
    return _in_memory(source)
