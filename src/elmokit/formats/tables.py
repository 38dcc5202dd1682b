"""Text columns of tables: Parquet files (pyarrow) and `datasets` datasets, read as streams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError, InputError, MissingExtraError
from elmokit.formats.records import Unit, require_fields, unit_of, values_of
from elmokit.formats.streams import STDIN, ReadReport

_BATCH_ROWS = 256


def read_parquet(path: str | Path, *, field: str = "text", report: ReadReport | None = None) -> Iterator[Unit]:
    """A column of a Parquet file, row group by row group: strings are text, lists of strings are tokens."""
    for unit, _ in read_parquet_with(path, (), field=field, report=report):
        yield unit


def read_parquet_with(
    path: str | Path, keep: Sequence[str], *, field: str = "text", report: ReadReport | None = None
) -> Iterator[tuple[Unit, tuple[str, ...]]]:
    """The same, with the values of the columns `keep`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"{path} is a Parquet file", extra="parquet") from error
    if str(path) == STDIN:
        raise InputError("Parquet cannot be read from standard input, since its index is at the end; give a file")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file; check the path (relative to {Path.cwd()})")
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            if field not in table.schema_arrow.names:
                known = ", ".join(map(repr, table.schema_arrow.names))
                raise FormatError(f"{path}: has no column {field!r}; its columns are {known}; choose one of them")
            require_fields(keep, table.schema_arrow.names, str(path))
            columns = [field, *(name for name in keep if name in table.schema_arrow.names and name != field)]
            row, before, size = 0, report.consumed if report else 0, Path(path).stat().st_size
            for batch in table.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                for record in batch.to_pylist():
                    row += 1
                    if report is not None:
                        report.consumed = before + size * row // table.metadata.num_rows
                    place = f"{path}, row {row}"
                    yield unit_of(record, field, place, report), values_of(record, keep, place, str(path))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not a readable Parquet file ({error}); copy or download it again") from error


def read_dataset(dataset: Any, *, field: str = "text", report: ReadReport | None = None) -> Iterator[Unit]:
    """A column of anything that iterates over rows (dicts): a `datasets` dataset, streaming or not, or a list."""
    if isinstance(dataset, Mapping):
        raise InputError(
            f"this is a set of splits ({', '.join(map(str, dataset))}), not a dataset; choose one, as in data['train']"
        )
    names = getattr(dataset, "column_names", None)
    if names and field in names and hasattr(dataset, "select_columns"):
        dataset = dataset.select_columns([field])  # the other columns (images, audio) need not be decoded
    for number, row in enumerate(_rows(dataset), 1):
        if not isinstance(row, Mapping):
            raise InputError(f"row {number} is a {type(row).__name__}, expected a mapping with the field {field!r}")
        yield unit_of(row, field, f"dataset, row {number}", report)


def _rows(dataset: Any) -> Iterable[Any]:
    if not isinstance(dataset, Iterable):
        raise InputError(f"got a {type(dataset).__name__}, expected a dataset or another iterable of rows")
    return dataset
