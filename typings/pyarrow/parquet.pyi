# What occamrl uses of pyarrow.parquet.
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import IO, Any, Self

from pyarrow import BufferReader, RecordBatch, Schema, Table

class Statistics:
    @property
    def has_min_max(self) -> bool: ...
    @property
    def min(self) -> Any: ...
    @property
    def max(self) -> Any: ...

class ColumnChunkMetaData:
    @property
    def statistics(self) -> Statistics | None: ...
    path_in_schema: str
    num_values: int
    has_dictionary_page: bool
    dictionary_page_offset: int
    data_page_offset: int
    total_uncompressed_size: int

class RowGroupMetaData:
    def column(self, i: int) -> ColumnChunkMetaData: ...
    num_columns: int
    @property
    def total_byte_size(self) -> int: ...
    @property
    def num_rows(self) -> int: ...

class FileMetaData:
    @property
    def num_rows(self) -> int: ...
    @property
    def num_row_groups(self) -> int: ...
    def row_group(self, i: int) -> RowGroupMetaData: ...

class ParquetFile:
    def __init__(
        self,
        source: str | PathLike[str] | IO[bytes] | BufferReader,
        *,
        read_dictionary: Sequence[str] | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *arguments: object) -> None: ...
    @property
    def metadata(self) -> FileMetaData: ...
    @property
    def schema_arrow(self) -> Schema: ...
    def read(self, columns: Sequence[str] | None = None, use_threads: bool = True) -> Table: ...
    def iter_batches(
        self,
        batch_size: int,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[RecordBatch]: ...

def read_schema(where: str | PathLike[str]) -> Schema: ...
def read_table(source: str | PathLike[str], *, columns: Sequence[str] | None = None) -> Table: ...
def write_table(
    table: Table,
    where: str | PathLike[str] | IO[bytes],
    *,
    compression: str = "snappy",
    **kwargs: Any,
) -> None: ...
