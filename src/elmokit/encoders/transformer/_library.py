"""Models and tokenizers of the transformers library. The one file that knows it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from elmokit.errors import MissingExtraError, WeightsError
from elmokit.weights.hub import not_reached, why_local

_ONE_AT_A_TIME = threading.Lock()  # how much the library says is set for the whole process


class Loaded(NamedTuple):
    """What a model's files make."""

    network: nn.Module
    tokenizer: Any


def load_transformer(source: str | Path, *, revision: str | None, local_files_only: bool) -> Loaded:
    """A model and its tokenizer from a folder or the hub. Code in a repository is not run, pickles are not read."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtraError(f"{source} is a transformers model", extra="transformers") from error

    path = Path(source).expanduser()
    name = str(path) if path.is_dir() else str(source)
    reason = None if path.is_dir() else why_local(local_files_only=local_files_only)
    where = {"revision": revision, "local_files_only": reason is not None, "trust_remote_code": False}
    with _quiet(logging), _told(str(source), reason):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **where)
        network, report = transformers.AutoModel.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **where
        )
    if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        raise WeightsError(
            f"{source}: {len(missing)} weights of the {type(network).__name__} are not in the files, {missing[0]!r} "
            "among them, and would be random; config.json and the weights seem to belong to different models"
        )
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    return Loaded(network, tokenizer)


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the library's progress bars and notes on unused heads; as it was afterwards."""
    with _ONE_AT_A_TIME:
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()


@contextmanager
def _told(source: str, reason: str | None) -> Iterator[None]:
    """One line for whatever goes wrong; `reason` is why only the hub's cache was looked into."""
    try:
        yield
    except Exception as error:  # the library raises whatever the layers below it do
        if reason is not None and isinstance(error, OSError):
            raise not_reached(source, reason) from error
        told = " ".join(str(error).split())
        raise WeightsError(
            f"{source}: transformers cannot read it ({type(error).__name__}: {told[:300]}); expected a folder or hub "
            "id with config.json, a tokenizer and weights as .safetensors (pickled ones are not read)"
        ) from error
