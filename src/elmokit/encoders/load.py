"""`load_encoder`: any model by one name. What it is, is told by a prefix, or by what lies there."""

import re
from pathlib import Path
from typing import Any

import torch

from elmokit.config import read_json
from elmokit.encoders.alignment import BESIDE, Alignment
from elmokit.encoders.elmo.encoder import Elmo
from elmokit.encoders.encoder import Encoder
from elmokit.encoders.static.encoder import Static, Unknown
from elmokit.encoders.static.table import is_table
from elmokit.encoders.syllables import Syllables
from elmokit.encoders.transformer.encoder import Transformer
from elmokit.encoders.transformer.runner import Subwords
from elmokit.errors import FormatError, InputError
from elmokit.text import Tokenizer
from elmokit.weights.catalogue import is_name
from elmokit.weights.load import HUB_ID, bundled_models

PREFIXES = {
    "elmo": "elmo",
    "transformers": "transformer",
    "bert": "transformer",
    "gpt": "transformer",
    "static": "static",
    "aligned": "aligned",
    "syllables": "syllables",
}
STATIC_SUFFIXES = (".txt", ".vec", ".bin", ".kv", ".model", ".wordvectors")  # .kv and .model: gensim's, told why not
COMPRESSED = re.compile(r"\.(gz|xz|zst|bz2)$")


def load_encoder(
    source: str | Path | None = None,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "default",
    tokenizer: str | Tokenizer | None = None,
    allow_other_tokenizer: bool = False,
    subwords: Subwords | None = None,
    unknown: Unknown | None = None,
) -> Encoder:
    """An encoder from whatever `source` names.

    nothing, or the name of a bundled model              ELMo
    a folder                                             ELMo or a transformers model, by its config.json
    a file                                               ELMo (an archive, .hdf5) or static vectors (.txt, .vec, .bin)
    allennlp:NAME, nlpl:NUMBER, manylangs:CODE           ELMo: a published model of the catalogue, fetched once
    organisation/name on the Hugging Face hub            ELMo or a transformers model, by its config.json
    bert:NAME, gpt:NAME, transformers:NAME               a transformers model: a folder or a name on the hub
    static:FILE, elmo:SOURCE                             as they say
    syllables:SOURCE                                     words with spaces in them read as their parts, and averaged
    aligned:FOLDER                                       a model mapped into another's space, by an alignment's folder

    `subwords` is for transformers models, `unknown` for static vectors, `allow_other_tokenizer` for ELMo.
    """
    kind, place = source_kind(source, revision=revision, local_files_only=local_files_only)
    if subwords is not None and kind != "transformer":
        raise InputError(f"subwords={subwords!r} is for transformers models, but {source or 'the model'} is none")
    if unknown is not None and kind != "static":
        raise InputError(f"unknown={unknown!r} is for static vectors, but {source or 'the model'} are none")
    if kind == "aligned":
        alignment = Alignment.read(str(place))
        inside = Path(str(place)).resolve().parent
        model = inside.parent if inside.name == BESIDE else alignment.about.source_name
        return load_encoder(
            model, device=device, dtype=dtype, tokenizer=tokenizer, allow_other_tokenizer=allow_other_tokenizer
        ).aligned(alignment)
    if kind == "syllables":
        inner = load_encoder(
            place, device=device, dtype=dtype, tokenizer=tokenizer, allow_other_tokenizer=allow_other_tokenizer
        )
        return Syllables(inner)
    if kind == "transformer":
        return Transformer.from_pretrained(
            str(place),
            revision=revision,
            local_files_only=local_files_only,
            device=device,
            dtype=dtype,
            tokenizer=tokenizer or "english",
            subwords=subwords,
        )
    if kind == "static":
        return Static.from_pretrained(
            str(place), device=device, dtype=dtype, tokenizer=tokenizer or "english", unknown=unknown or "zero"
        )
    return Elmo.from_pretrained(
        place,
        revision=revision,
        local_files_only=local_files_only,
        device=device,
        dtype=dtype,
        tokenizer=tokenizer,
        allow_other_tokenizer=allow_other_tokenizer,
    )


def source_kind(
    source: str | Path | None, *, revision: str | None = None, local_files_only: bool = False
) -> tuple[str, str | Path | None]:
    """Which encoder (a value of `PREFIXES`), and the source without its prefix; hub ids are fetched."""
    if source is None:
        return "elmo", None
    name = str(source)
    prefix, colon, rest = name.partition(":")
    if colon and prefix in PREFIXES:
        return PREFIXES[prefix], rest
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_kind(path), path
    if path.is_file():
        stem = COMPRESSED.sub("", path.name)
        return "static" if is_table(path) or Path(stem).suffix in STATIC_SUFFIXES else "elmo", path
    if name in bundled_models() or is_name(name):
        return "elmo", name
    if HUB_ID.fullmatch(name):
        from elmokit.weights.hub import fetch

        folder = fetch(name, revision=revision, local_files_only=local_files_only)
        return _folder_kind(folder), folder
    raise InputError(
        f"no model {name!r}: not a bundled model ({', '.join(bundled_models()) or 'there are none'}), not a folder or "
        "file on this machine, not a hub id of the form organisation/name; a transformers model of that name is "
        f"transformers:{name}"
    )


def _folder_kind(folder: Path) -> str:
    """transformers' configurations name a model type; ELMo's, of whichever tool, do not."""
    config = folder / "config.json"
    if not config.is_file():
        return "elmo"
    try:
        return "transformer" if "model_type" in read_json(config, dict[str, Any]) else "elmo"
    except FormatError:
        return "elmo"  # whose reader says what is wrong with it
