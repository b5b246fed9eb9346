# What occamrl uses of pyarrow.csv.
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Self

from pyarrow import DataType, RecordBatch

class ReadOptions:
    def __init__(
        self,
        *,
        use_threads: bool | None = None,
        block_size: int | None = None,
        skip_rows: int | None = None,
        column_names: Sequence[str] | None = None,
    ) -> None: ...

class ParseOptions:
    def __init__(self, *, newlines_in_values: bool | None = None) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        column_types: Mapping[str, DataType] | None = None,
        include_columns: Sequence[str] | None = None,
        null_values: Sequence[str] | None = None,
        strings_can_be_null: bool | None = None,
    ) -> None: ...

class CSVStreamingReader:
    def __iter__(self) -> Iterator[RecordBatch]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *arguments: object) -> None: ...

def open_csv(
    input_file: str | PathLike[str],
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> CSVStreamingReader: ...
