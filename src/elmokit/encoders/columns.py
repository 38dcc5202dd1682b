"""`Columns`: a column of texts in, a column of vectors out, for the tables of datasets, pandas and polars."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.encoders.encoder import Encoder

EXPECTED = "a batch of datasets' map, or a DataFrame or Series of pandas or polars"


class Columns:
    """A function of tables; made by `Encoder.columns`. It may be pickled, and called from any number of threads."""

    def __init__(
        self, encoder: "Encoder", text: str, *, output: str, tokens: bool = False, options: Mapping[str, Any]
    ) -> None:
        self.encoder, self.text, self.output, self.tokens, self.options = encoder, text, output, tokens, dict(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r} -> {self.output!r}, {self.encoder!r})"

    def __call__(self, table: Any) -> Any:
        """datasets: {output: vectors}, which `map` adds; a DataFrame: with the new column; a Series: the new column."""
        kind = type(table).__module__.partition(".")[0]
        if isinstance(table, Mapping):
            return {self.output: self.vectors(list(self._column(table, table)))}
        if kind not in ("pandas", "polars"):
            raise InputError(f"a {type(table).__name__} was given, expected {EXPECTED}")
        frame = hasattr(table, "columns")
        column = self._column(table, table.columns) if frame else table
        made = (_pandas_series if kind == "pandas" else _polars_series)(self, column)
        if not frame:
            return made
        return table.assign(**{self.output: made}) if kind == "pandas" else table.with_columns(made)

    def _column(self, table: Any, names: Any) -> Any:
        if self.text not in names:
            raise InputError(f"no column {self.text!r}; the table has {', '.join(map(str, names))}")
        return table[self.text]

    def vectors(self, texts: Sequence[Any]) -> list[Any]:
        """One array per row, (D,) or with `tokens` (T, D); None where the text is missing (None, NaN, pandas' NA)."""
        rows: list[Any] = [None] * len(texts)
        there = [k for k, text in enumerate(texts) if not _is_missing(text)]
        given = [list(texts[k]) if isinstance(texts[k], np.ndarray) else texts[k] for k in there]
        encode = self.encoder.encode_tokens if self.tokens else self.encoder.encode
        for k, vectors in zip(there, encode(given, **self.options), strict=True):
            rows[k] = vectors
        return rows


def _is_missing(text: Any) -> bool:
    return text is None or (isinstance(text, float) and text != text) or type(text).__name__ in ("NAType", "NaTType")


def _pandas_series(columns: Columns, column: Any) -> Any:
    import pandas

    return pandas.Series(columns.vectors(column.tolist()), index=column.index, name=columns.output, dtype=object)


def _polars_series(columns: Columns, column: Any) -> Any:
    """Arrays of a fixed width where there is one vector per row, else lists of lists."""
    import polars

    rows = columns.vectors(column.to_list())
    if columns.tokens:
        kind: Any = polars.List(polars.List(polars.Float32))
    else:
        width = columns.encoder.encode([], **columns.options).shape[1:]
        kind = polars.Array(polars.Float32, width)
        if all(row is not None for row in rows) and rows:
            return polars.Series(columns.output, np.stack(rows), dtype=kind)
    return polars.Series(columns.output, [None if row is None else row.tolist() for row in rows], dtype=kind)
