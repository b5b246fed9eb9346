"""Pages of Parquet files: what their headers declare, looked at before Arrow takes memory for it.

A column chunk is a sequence of pages, each a header (of Thrift's compact protocol) and its content.
Arrow takes as much memory as a header says that a page unpacks to, and room for as many entries of
a dictionary as it says there are. A header is believed up to what the footer says of the chunk,
which :func:`occamrl.logs.table.parquet_file` has held against the size of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_SLACK = 1024  # bytes by which some writers miscount what a chunk unpacks to
_LONGEST_NUMBER = 10  # bytes
_DICTIONARY = 7  # the fields of a page's header that say how many values it has
_VALUES = (5, 8)
# kinds of fields
_NO_CONTENT = (1, 2)  # true and false
_BYTE = 3
_INTEGERS = (4, 5, 6)
_DOUBLE = 7
_TEXT = 8
_STRUCT = 12

Fields = dict[int, "int | Fields"]


def check_pages(file: IO[bytes], metadata: pq.FileMetaData, names: Sequence[str]) -> None:
    """Refuse pages of some columns that declare more than their chunk; a ValueError says what."""
    size = file.seek(0, 2)
    total = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        if group.num_rows < 0:
            raise ValueError(f"a row group of {group.num_rows} rows")
        total += group.num_rows
        for k in range(group.num_columns):
            chunk = group.column(k)
            if chunk.path_in_schema not in names:
                continue
            if chunk.num_values != group.num_rows:
                values = f"{chunk.num_values} values of {chunk.path_in_schema!r:.80}"
                raise ValueError(f"{values} in {group.num_rows} rows")
            _check_chunk(file, chunk, size)
    if total != metadata.num_rows:
        raise ValueError(f"{metadata.num_rows} rows, and row groups of {total}")


def _check_chunk(file: IO[bytes], chunk: pq.ColumnChunkMetaData, size: int) -> None:
    """Walk through the pages of a chunk, from header to header."""
    place = chunk.data_page_offset
    if chunk.has_dictionary_page:
        place = min(place, chunk.dictionary_page_offset)
    left = chunk.num_values
    unpacked = chunk.total_uncompressed_size + _SLACK
    while left > 0:
        if not 0 < place < size:
            raise ValueError(f"a page that begins at byte {place} of {size}")
        file.seek(place)
        header = _fields(file)
        larger = _number(header, 2)
        stored = _number(header, 3)
        unpacked -= larger
        if larger < 0 or stored < 0 or unpacked < 0:
            raise ValueError(
                f"a page that declares {larger:,} bytes, in a column chunk of "
                f"{chunk.total_uncompressed_size:,}"
            )
        dictionary = header.get(_DICTIONARY)
        if isinstance(dictionary, dict) and not 0 <= _number(dictionary, 1) <= larger:
            raise ValueError(f"a dictionary of {_number(dictionary, 1):,} values in {larger} bytes")
        for field in _VALUES:
            page = header.get(field)
            if isinstance(page, dict):
                values = _number(page, 1)
                left -= values
                if values < 0 or left < 0:
                    raise ValueError(f"a page of {values:,} values, more than its chunk has left")
        place = file.tell() + stored


def _number(fields: Fields, field: int) -> int:
    number = fields.get(field)
    if not isinstance(number, int):
        raise ValueError("a page whose header lacks its sizes")
    return number


def _fields(file: IO[bytes], depth: int = 0) -> Fields:
    """Return the whole numbers and structures of a structure, by the numbers of its fields."""
    fields: Fields = {}
    field = 0
    while (head := _byte(file)) != 0:
        step, kind = divmod(head, 16)
        field = field + step if step else _integer(file)
        if kind in _INTEGERS:
            fields[field] = _integer(file)
        elif kind == _TEXT:
            file.seek(_natural(file), 1)
        elif kind == _STRUCT and depth < 3:
            fields[field] = _fields(file, depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            file.seek(1 if kind == _BYTE else 8, 1)
        elif kind not in _NO_CONTENT:
            raise ValueError("a page whose header is none")
    return fields


def _byte(file: IO[bytes]) -> int:
    content = file.read(1)
    if not content:
        raise ValueError("a page whose header is cut off")
    return content[0]


def _natural(file: IO[bytes]) -> int:
    """Return a number written seven bits a byte, the lowest first."""
    number = 0
    for i in range(_LONGEST_NUMBER):
        part = _byte(file)
        number |= (part & 127) << 7 * i
        if part < 128:
            return number
    raise ValueError("a page whose header has a number without end")


def _integer(file: IO[bytes]) -> int:
    """Return a number whose lowest bit is its sign."""
    number = _natural(file)
    return (number >> 1) ^ -(number & 1)
