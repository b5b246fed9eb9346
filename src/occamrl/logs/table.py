"""Tables as they come, and their cells: batches of columns, in codes, numbers, flags and dates.

A table is anything that has columns: a Parquet or CSV file, an Arrow table, a data frame of pandas
or Polars, a mapping of arrays, a list of rows, a Minari dataset. It gives the columns that are
asked for in batches of Arrow arrays, or of lists where Arrow does not take the objects. A cell that
cannot be read is refused with its column and row.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from occamrl.errors import InvalidInput, OccamRLError, ParameterError, as_path
from occamrl.files import names_in
from occamrl.logs.pages import check_pages
from occamrl.naming import FORMULA_MARK
from occamrl.protocols import Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from minari import EpisodeData, MinariDataset

BLOCK = 2**17  # rows that are read at once
MISSING = -1  # the code of a cell without a label
END = -2  # the code of the next state of an episode that ended
_LARGEST_GROUP = 2**28  # bytes that a row group of a Parquet file may take, however small that is
_DENSEST = 200  # times what the file has that a larger one may take
_LONGEST_HEADER = 2**20  # bytes of the names of a CSV file
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Array: TypeAlias = NDArray[Any]  # of whatever a user's table holds
Values: TypeAlias = Sequence[object] | Array
Column: TypeAlias = "pa.Array | list[object]"
Columns: TypeAlias = Mapping[str, Column]


class LogError(InvalidInput):
    """A log cannot be used; ``field`` is the column, ``index`` the row, counted from 0."""

    @property
    def where(self) -> str:
        """The column and the row in words."""
        if self.index is None:
            return self.field
        return f"{self.field} in row {self.index[0]} (from 0)"


class Table(NamedTuple):
    """Something that has columns, and gives those that are asked for in batches, repeatedly."""

    names: Sequence[str]
    batches: Callable[[Sequence[str]], Iterable[Columns]]
    source: str = "log"
    first_row: int = 0  # the number of its first row, where it is a part of another


def refuse(
    field: str,
    bad: Sequence[bool] | NDArray[np.bool_],
    values: Values | None,
    expected: str,
    rows: int | Ints,
    error: type[LogError] = LogError,
) -> None:
    """Refuse the first row that is marked; ``rows`` are the numbers of all, or of the first.

    Without ``values`` its cell is empty.
    """
    marked = np.flatnonzero(bad)
    if not marked.size:
        return
    row = int(marked[0])
    number = rows + row if isinstance(rows, int) else int(rows[row])
    value = None if values is None else values[row]
    # That a number or date is one of NumPy's is of no interest to whoever reads the message.
    if isinstance(value, np.datetime64):
        value = np.datetime_as_string(value, "s").removesuffix("T00:00:00")
    elif isinstance(value, np.generic):
        value = value.item()
    raise error(field, index=(number,), got=f"{value!r:.80}", expected=expected)


# Labels -------------------------------------------------------------------------------------------


class CodedColumn(NamedTuple):
    """Labels in codes; a code that no row has may stand for None."""

    codes: Ints  # of each row; MISSING where its cell is empty
    labels: Sequence[Hashable]  # that the codes 0, 1, ... stand for


def label_of(value: Any) -> Any:
    """Return a value as a label: a text that is written as a number is that number.

    What is missing is None.

    >>> label_of(" 4.0 ") == label_of("4") == 4, label_of("007"), label_of(("2", "Mon"))
    (True, '007', (2, 'Mon'))
    >>> label_of(float("nan")) is None
    True
    """
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            return float(text) if set(text) & set(".eE") else int(text)
        return {"true": True, "false": False, "": None}.get(text.lower(), text)
    if isinstance(value, tuple):
        return tuple(label_of(part) for part in value)
    # pandas has two objects of its own for what is missing; NaN alone differs from itself.
    if type(value).__name__ in ("NAType", "NaTType") or value != value:
        return None
    return value


def read_labels(field: str, column: Column, first: int) -> CodedColumn:
    """Return a column of labels in codes; dates are refused, as every one of them would be new."""
    if isinstance(column, list):
        codes, values = _code_objects(field, column, first)
    else:
        encoded = column.dictionary_encode()
        dictionary = encoded.dictionary
        if encoded is column:
            # it was made for other rows too: its values may be in any order, and not all occur
            encoded = encoded.indices.dictionary_encode()
            dictionary = dictionary.take(encoded.dictionary)
        codes = encoded.indices.fill_null(MISSING).to_numpy(zero_copy_only=False)
        values = dictionary.to_pylist()
    dates = (datetime.date, datetime.time, datetime.timedelta)
    # The code MISSING is -1, which picks the entry that is appended.
    is_date = np.array([*(isinstance(value, dates) for value in values), False])
    if is_date.any():
        advice = (
            "a label: text, a number, true or false; "
            "name dates in order_by=, and give a weekday or month as a number"
        )
        refuse(field, is_date[codes], [str(values[code]) for code in codes], advice, first)
    labels = [label_of(value) for value in values]
    present = np.arange(len(labels) + 1)
    present[[*(label is None for label in labels), True]] = MISSING
    return CodedColumn(present[codes], labels)


def _code_objects(field: str, column: list[object], first: int) -> tuple[Ints, list[object]]:
    """Return the codes of objects that Arrow does not take, and the objects that they stand for."""
    keys = [tuple(value) if isinstance(value, list) else value for value in column]
    unhashable = [type(key).__hash__ is None for key in keys]
    refuse(field, unhashable, keys, "text, numbers, true or false, or tuples of them", first)
    met: dict[object, int] = {}
    codes = [met.setdefault(key, len(met)) for key in keys]
    return np.array(codes, np.int64), list(met)


def tuple_labels(columns: Sequence[CodedColumn]) -> CodedColumn:
    """Return several columns as one, whose labels are the tuples of their cells.

    A row with an empty cell in any column has the code MISSING. Tuples are numbered in the order
    in which they are first met.
    """
    complete = np.all([column.codes != MISSING for column in columns], axis=0)
    # A number for each tuple: comparing numbers is ten times as fast as comparing rows. It is made
    # small again after every column, so that it cannot overflow.
    key = np.zeros(np.count_nonzero(complete), np.int64)
    for column in columns:
        key = key * len(column.labels) + column.codes[complete]
        key = np.unique(key, return_inverse=True)[1]
    first_row = np.unique(key, return_index=True)[1]
    order = np.argsort(first_row)
    codes = np.full(complete.size, MISSING)
    codes[complete] = np.argsort(order)[key]
    labels = []
    for row in np.flatnonzero(complete)[first_row[order]]:
        labels.append(tuple(column.labels[column.codes[row]] for column in columns))
    return CodedColumn(codes, labels)


class Labels:
    """Labels, numbered in the order in which they were met."""

    def __init__(self) -> None:
        self.codes: dict[Hashable, int] = {}

    def encode(self, names: Sequence[str], batch: Columns, first: int) -> Ints:
        """Return the codes of some rows; those of several columns are those of tuples."""
        columns = [read_labels(name, batch[name], first) for name in names]
        column = columns[0] if len(columns) == 1 else tuple_labels(columns)
        codes = np.full(len(column.labels) + 1, MISSING)  # the last is what MISSING picks
        for code, label in enumerate(column.labels):
            if label is not None:
                codes[code] = self.codes.setdefault(label, len(self.codes))
        return codes[column.codes]

    def take(self, labels: Iterable[Hashable]) -> None:
        """Give labels that were met elsewhere a number, unless they have one."""
        for label in labels:
            self.codes.setdefault(label, len(self.codes))

    def look_up(self, names: Sequence[Hashable]) -> Ints:
        """Return the index of each code in a list of names, MISSING where it is not in it.

        END and MISSING stay what they are.
        """
        index: dict[Hashable, int] = {}
        for i, name in enumerate(names):
            index.setdefault(label_of(name), i)  # of equal names the first
        return np.array([*(index.get(label, MISSING) for label in self.codes), END, MISSING])

    def decode(self, codes: Ints) -> Array:
        """Return the labels of codes, as integers where all are; None where there is none."""
        labels = list(self.codes)
        if all(isinstance(label, int) for label in labels) and (codes >= 0).all():
            return np.array(labels, np.int64)[codes]
        objects = np.full(len(labels) + 2, None, object)  # END and MISSING pick the last two
        for code, label in enumerate(labels):
            objects[code] = label
        return objects[codes]


class Episodes:
    """The episodes of a table, numbered as they are met.

    Whole numbers that never decrease, as most logs have them, are not kept in a dictionary, which
    would take more memory than the steps themselves.
    """

    def __init__(self) -> None:
        self.ids: list[Ints] = []  # of whole numbers that never decreased: each once, by batch
        self.count = 0
        self.labels = Labels()

    def encode(self, names: Sequence[str], batch: Columns, first: int) -> Ints:
        """Return the number of the episode of each row."""
        ids = _whole_numbers(names, batch)
        if ids is not None and not self.labels.codes:
            last = self.ids[-1][-1] if self.ids else ids[0] - 1
            steps = np.diff(ids, prepend=last)
            if (steps >= 0).all():
                begins = steps > 0
                codes = self.count - 1 + np.cumsum(begins)
                if begins.any():
                    self.ids.append(ids[begins])
                self.count += int(begins.sum())
                return codes
        # From here on they are labels; those met before keep their numbers.
        for id_ in itertools.chain.from_iterable(part.tolist() for part in self.ids):
            self.labels.codes.setdefault(id_, len(self.labels.codes))
        self.ids.clear()
        return self.labels.encode(names, batch, first)

    def ranks(self) -> Ints:
        """Return the place of each episode among all, by name: numbers before texts."""
        if not self.labels.codes:
            return np.arange(self.count)
        keys = []
        for label in self.labels.codes:
            parts = label if isinstance(label, tuple) else (label,)
            keys.append([(isinstance(part, str), part) for part in parts])
        return np.argsort(sorted(range(len(keys)), key=keys.__getitem__))


def _whole_numbers(names: Sequence[str], batch: Columns) -> Ints | None:
    """Return a single column of whole numbers without an empty cell; None if it is none."""
    import pyarrow as pa

    column = batch[names[0]]
    if len(names) > 1 or isinstance(column, list):
        return None
    if not pa.types.is_integer(column.type) or column.null_count:
        return None
    return column.to_numpy(zero_copy_only=False).astype(np.int64)


# Columns of other kinds ---------------------------------------------------------------------------


def read_numbers(field: str, column: Column, first: int, expected: str) -> Floats:
    """Return a column of numbers, NaN where one is missing."""
    import pyarrow as pa

    try:
        numbers = pa.array(column).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:  # texts, or numbers of kinds that Arrow does not mix
        cells = column if isinstance(column, list) else column.to_pylist()
        values = [label_of(cell) for cell in cells]
        allowed = (int, float, np.number, type(None))
        refuse(field, [not isinstance(value, allowed) for value in values], values, expected, first)
        numbers = np.array([math.nan if value is None else value for value in values], np.float64)
    refuse(field, np.isinf(numbers), numbers, expected, first)
    return np.asarray(numbers, np.float64)


def read_flags(field: str, column: Column, first: int) -> NDArray[np.bool_]:
    """Return a column of true and false, or 1 and 0."""
    codes, labels = read_labels(field, column, first)
    labels = [*labels, None]  # which MISSING picks
    bad = np.array([label not in (0, 1) for label in labels])
    if bad[codes].any():
        refuse(field, bad[codes], [labels[code] for code in codes], "true or false", first)
    return np.array([bool(label) for label in labels])[codes]


def read_order(field: str, column: Column, first: int) -> Array:
    """Return a column of numbers or dates as numbers that can be compared."""
    import pyarrow as pa

    expected = (
        "a number or a date (as text: 2026-01-31, with a time if needed), in one form in all rows"
    )
    array = pa.array(column)
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    refuse(field, array.is_null().to_numpy(zero_copy_only=False), None, expected, first)
    kinds = [pa.timestamp("ns"), pa.timestamp("ns", "UTC")]
    if not pa.types.is_date(array.type) and not pa.types.is_timestamp(array.type):
        kinds = [pa.int64(), pa.float64(), *kinds]
    for kind in kinds:
        try:
            return np.asarray(array.cast(kind).to_numpy(zero_copy_only=False))
        except pa.ArrowException:
            continue
    # No form fits all rows: tell the first that is not written as row 0, or is in no calendar.
    texts = [str(value) for value in array.to_pylist()]
    form = _NUMBER.fullmatch if _NUMBER.fullmatch(texts[0]) else _DATE.match
    refuse(field, [not form(text) for text in texts], texts, expected, first)
    for kind in kinds[-2:]:
        fits = []
        for text in texts:
            try:
                pa.array([text]).cast(kind)
                fits.append(True)
            except pa.ArrowException:
                fits.append(False)
        if fits[0]:
            refuse(field, [not each for each in fits], texts, expected, first)
    raise LogError(field, index=(first,), got=repr(texts[0]), expected=expected)


def joined(field: str, parts: Sequence[Array]) -> Array:
    """Return the parts of a column as one; refuse those of different kinds."""
    kinds = {part.dtype.kind in "mM" for part in parts}
    if len(kinds) > 1:
        expected = "numbers or dates, in one form in all rows"
        raise LogError(field, got="numbers and dates", expected=expected)
    return np.concatenate(parts)


# Tables -------------------------------------------------------------------------------------------


def parquet_file(path: Path, texts: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file; one that says it grows out of proportion is refused unread.

    Columns of texts that are named are read as codes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        size = path.stat().st_size
        file = pq.ParquetFile(path, read_dictionary=list(texts))
        # Of columns Arrow tells the sizes too, and of damaged ones it ends the process.
        groups = range(file.metadata.num_row_groups)
        largest = max((file.metadata.row_group(i).total_byte_size for i in groups), default=0)
    # of a damaged file any text may be none
    except (OSError, ValueError, pa.ArrowException) as error:
        expected = "a whole Parquet file, or one whose name ends in .csv"
        raise LogError(path, got=f"{error!s:.200}", expected=expected) from error
    if largest > max(_LARGEST_GROUP, _DENSEST * size):
        expected = (
            f"at most {_LARGEST_GROUP:,} bytes, or {_DENSEST} times what the file has; write it "
            "anew with smaller row groups: "
            "pyarrow.parquet.write_table(..., row_group_size=100_000)"
        )
        got = f"a row group of {largest:,} bytes in a file of {size:,}"
        raise LogError(path, got=got, expected=expected)
    return file


def parquet_batches(path: Path, names: Sequence[str]) -> Iterator[Columns]:
    """Yield the columns of a Parquet file, some rows at a time."""
    import pyarrow as pa

    with parquet_file(path) as file:
        schema = file.schema_arrow
    texts: list[str] = []
    for name in names:
        if name not in schema.names:
            expected = "the columns of the first file of the folder in all"
            raise LogError(path, got=f"no column {name!r:.80}", expected=expected)
        # a long text that a file has once, and says of many rows, takes memory once
        if schema.field(name).type in (pa.string(), pa.large_string(), pa.binary()):
            texts.append(name)
    with parquet_file(path, texts) as file:
        try:
            with path.open("rb") as pages:
                check_pages(pages, file.metadata, names)
            for batch in file.iter_batches(BLOCK, columns=names):
                batch.validate(full=True)  # damage need not be seen as a page is read
                yield {name: batch.column(name) for name in names}
        except (OSError, ValueError, pa.ArrowException) as error:
            expected = "pages as they were written; the file is damaged"
            raise LogError(path, got=f"{error!s:.200}", expected=expected) from error


def _read_parquet(paths: Sequence[Path], source: str) -> Table:
    """Read Parquet files one after another, some rows at a time."""

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        for path in paths:
            yield from parquet_batches(path, names)

    with parquet_file(paths[0]) as first:
        return Table(first.schema_arrow.names, batches, source)


def parquet_paths(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder by name; refuse others, which would be left out."""
    paths = []
    for name in names_in(folder, links=True):
        # Writers keep what is not of the table under such names.
        if name.startswith((".", "_")):
            continue
        path = folder / name
        if path.suffix.lower() != ".parquet" or not path.is_file():
            expected = "files whose names end in .parquet alone, and no folders"
            raise LogError(folder, got=f"{name!r:.80}", expected=expected)
        paths.append(path)
    if not paths:
        raise LogError(folder, got="an empty folder", expected="Parquet files in it")
    return paths


def _csv_header(path: Path) -> list[str]:
    """Return the names in the first line of a CSV file; other signs than commas are refused."""
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        line = file.readline(_LONGEST_HEADER)
    sign = max(",;\t|", key=line.count)  # a comma unless there are more of another
    got = ""
    if sign != ",":
        got = f"columns that seem to be separated by {sign!r}"
    elif "\ufffd" in line:
        got = "text that is not UTF-8"
    if got:
        expected = (
            "commas and UTF-8: export it so, "
            f"or pass pandas.read_csv(..., sep={sign!r}, encoding=...)"
        )
        raise LogError(str(path), got=got, expected=expected)
    return [name.strip() for name in next(csv.reader([line]), [])]


def _plain_texts(column: pa.Array) -> pa.Array:
    """Return texts without the apostrophes of :func:`occamrl.naming.csv_cell`."""
    from pyarrow import compute

    return compute.replace_substring_regex(column, FORMULA_MARK, r"\1")


def _read_csv(path: Path) -> Table:
    """Read a CSV file, some rows at a time; every value is text, as it may be a label."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header = _csv_header(path)

    def batches(names: Sequence[str]) -> Iterator[Columns]:
        reading = arrow_csv.ReadOptions(
            use_threads=False,
            column_names=header,
            skip_rows=1,
            block_size=max(BLOCK * 32, 2**12),  # bytes
        )
        converting = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names,
            null_values=["", "nan", "NaN"],
            strings_can_be_null=True,
        )
        try:
            with arrow_csv.open_csv(
                path,
                read_options=reading,
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=converting,
            ) as reader:
                for batch in reader:
                    yield {name: _plain_texts(batch.column(name)) for name in names}
        except (OSError, pa.ArrowException) as error:
            expected = "a CSV file in UTF-8, with a value for each name"
            got = f"{error!s:.200}"
            row = re.search("Row #([0-9]+)", str(error))
            if row is None:
                raise LogError(str(path), got=got, expected=expected) from error
            # Arrow counts lines from 1, that of the names included.
            index = (int(row[1]) - 2,)
            raise LogError("values", index=index, got=got, expected=expected) from error

    return Table(header, batches, str(path))


def _start_of(field: str, space: Any) -> int:
    """Return the smallest value of a Discrete space; a dataset may bring its own kind of space."""
    if not hasattr(space, "n"):
        raise LogError(field, got=space, expected="a Discrete space")
    return int(getattr(space, "start", 0))


def _read_dataset(dataset: MinariDataset, source: str = "minari") -> Table:
    """Read a dataset with Discrete spaces, some episodes at a time; states are counted from 0."""
    first_state = _start_of("observation_space", dataset.observation_space)
    first_action = _start_of("action_space", dataset.action_space)
    names = ("episode", "state", "action", "next_state", "reward", "terminated")

    def steps_of(k: int, episode: EpisodeData) -> tuple[Array, ...]:
        observations = np.asarray(episode.observations)
        actions = np.asarray(episode.actions)
        one_dimensional = observations.ndim == actions.ndim == 1
        if not one_dimensional or observations.size != actions.size + 1:
            got = f"observations {observations.shape}, actions {actions.shape}"
            raise LogError(f"episode {k}", got=got, expected="T + 1 and T whole numbers")
        states = observations.astype(np.int64) - first_state
        return (
            np.full(actions.size, k),
            states[:-1],
            actions.astype(np.int64) - first_action,
            states[1:],
            np.asarray(episode.rewards),
            np.asarray(episode.terminations),
        )

    def batches(_: Sequence[str]) -> Iterator[Columns]:
        import pyarrow as pa

        episodes = enumerate(dataset.iterate_episodes())
        while block := list(itertools.islice(episodes, 1024)):
            steps = [steps_of(k, episode) for k, episode in block]
            columns = [pa.array(np.concatenate(parts)) for parts in zip(*steps, strict=True)]
            yield dict(zip(names, columns, strict=True))

    return Table(names, batches, source)


def _arrow(column: Any) -> Column:
    """Return a column in memory as an Arrow array, or as a list where Arrow does not take it."""
    import pyarrow as pa

    if hasattr(column, "to_arrow"):  # Polars, which need not be installed
        column = column.to_arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        array = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return list(column)
    if pa.types.is_nested(array.type):
        return array.to_pylist()
    return array


def _read_memory(source: Any) -> Table:
    """Read what has columns by name."""
    rows = isinstance(source, (list, tuple))
    if rows and source and all(isinstance(row, Mapping) for row in source):
        every = dict.fromkeys(itertools.chain.from_iterable(source))
        source = {name: [row.get(name) for row in source] for name in every}
    elif rows or isinstance(source, np.ndarray) or not hasattr(source, "__getitem__"):
        expected = (
            "a path, a data frame, an Arrow table, a mapping of columns "
            "or a list of rows (mappings)"
        )
        raise ParameterError("log", got=f"{source!r:.100}", expected=expected)

    def batches(wanted: Sequence[str]) -> Iterator[Columns]:
        columns = {name: _arrow(source[name]) for name in wanted}
        sizes = {name: len(column) for name, column in columns.items()}
        if len({*sizes.values()}) > 1:
            got = f"columns of lengths {sizes}"
            raise LogError("rows", got=got, expected="one value per row in each")
        for first in range(0, max(sizes.values()), BLOCK):
            yield {name: column[first : first + BLOCK] for name, column in columns.items()}

    # Arrow tables have column_names, data frames columns; a mapping is its own list of names.
    names = getattr(source, "column_names", getattr(source, "columns", source))
    return Table(list(names), batches)


def _load_minari(name: str) -> Table:
    """Read a Minari dataset that lies on this machine."""
    try:
        import minari

        dataset = minari.load_dataset(name.removeprefix("minari:"))
    except ModuleNotFoundError as error:
        advice = 'reading Minari datasets needs Minari: pip install "minari[hdf5]"'
        raise OccamRLError(advice) from error
    except (ValueError, KeyError, OSError) as error:
        got = f"{name!r}: {error}"
        raise LogError("dataset", got=got, expected="a Minari dataset here") from error
    return _read_dataset(dataset, name)


def open_table(source: Any) -> Table:
    """Return a path, data frame, Arrow table, mapping, list of rows or dataset as a table."""
    if isinstance(source, str) and source.startswith("minari:"):
        return _load_minari(source)
    if hasattr(source, "iterate_episodes"):  # Minari, which need not be installed
        return _read_dataset(source)
    if isinstance(source, (str, Path)):
        path = as_path("log", source)
        if path.is_dir():
            return _read_parquet(parquet_paths(path), str(path))
        if not path.is_file():
            got = "no regular file" if path.exists() else "no such file"
            expected = "a Parquet or CSV file, a folder of Parquet files, or minari:ID"
            raise LogError(path, got=got, expected=expected)
        if path.suffix.lower() in _SPREADSHEETS:
            expected = (
                "a CSV or Parquet file: save the sheet as CSV (UTF-8), "
                "or pass pandas.read_excel(...), a data frame"
            )
            raise LogError(str(path), got="a spreadsheet", expected=expected)
        return (
            _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet([path], str(path))
        )
    return _read_memory(source)
