"""Bytes to Sentences: compressed streams, plain text, JSON lines, CoNLL-U, column files, tables; and atomic writing."""

from elmokit.formats.atomic import atomic_folder, atomic_path, atomic_write, sweep_drafts, write_text
from elmokit.formats.cache import default_cache, open_cache
from elmokit.formats.columns import ColumnSentence, read_columns
from elmokit.formats.conllu import ConlluSentence, read_conllu
from elmokit.formats.inputs import Format, expand_inputs, format_of
from elmokit.formats.jsonl import Unit, read_jsonl
from elmokit.formats.read import read_sentences, sentence_of
from elmokit.formats.streams import ReadReport, open_bytes, read_lines
from elmokit.formats.tables import read_dataset, read_parquet

__all__ = [
    "ColumnSentence", "ConlluSentence", "Format", "ReadReport", "Unit", "atomic_folder", "atomic_path",
    "atomic_write", "default_cache", "expand_inputs", "format_of", "open_bytes", "open_cache", "read_columns",
    "read_conllu", "read_dataset", "read_jsonl", "read_lines", "read_parquet", "read_sentences", "sentence_of",
    "sweep_drafts", "write_text",
]  # fmt: skip
