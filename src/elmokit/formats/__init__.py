"""Bytes to Sentences: compressed streams, plain text, JSON lines, CoNLL-U, column files, tables."""

from elmokit.formats.columns import ColumnSentence, read_columns
from elmokit.formats.conllu import ConlluSentence, read_conllu
from elmokit.formats.read import Format, expand_inputs, format_of, read_sentences
from elmokit.formats.records import Unit, read_jsonl
from elmokit.formats.streams import ReadReport, read_lines
from elmokit.formats.tables import read_dataset, read_parquet

__all__ = [
    "ColumnSentence", "ConlluSentence", "Format", "ReadReport", "Unit", "expand_inputs", "format_of", "read_columns",
    "read_conllu", "read_dataset", "read_jsonl", "read_lines", "read_parquet", "read_sentences",
]  # fmt: skip
