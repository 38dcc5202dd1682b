"""What `options_file` and `weight_file` may be: two files, their web addresses, or any model that elmokit reads."""

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from elmokit.errors import InputError, WeightsError
from elmokit.weights import Pretrained, load_pretrained
from elmokit.weights.fetch import fetch_file

Named = str | Path | None


class ConfigurationError(InputError):
    """Arguments or input that cannot be used as given; the one error that users of AllenNLP's ELMo had to catch."""


def load_model(options_file: Named, weight_file: Named) -> Pretrained:
    """The model of the two files. One of them alone may be a folder, an archive, a catalogue name or a hub id.

    Without any it is the bundled model; AllenNLP's own default, the original model, is given here by its address or as
    `allennlp:original`. Literal `<S>` and `</S>` are boundaries whether or not a vocabulary lists them.
    """
    model = _load(options_file, weight_file)
    return replace(model, codec=replace(model.codec, boundary_tokens=True))


def _load(options_file: Named, weight_file: Named) -> Pretrained:
    options, weights = _local(options_file), _local(weight_file)
    if options is not None and weights is not None:
        return load_pretrained(options=options, weights=weights, softmax=False)
    if weights is None and str(options).endswith(".json"):
        raise WeightsError(f"options_file is {options}, but there is no weight_file; give both files of the model")
    return load_pretrained(weights if options is None else options, softmax=False)


def _local(name: Named) -> Named:
    """The file itself, or for an address the copy that was fetched on first use."""
    if not str(name).startswith(("http://", "https://")):
        return name
    address = str(name)
    digest, file = hashlib.sha256(address.encode()).hexdigest()[:16], address.rpartition("/")[2]
    kept = Path(torch.hub.get_dir()) / "elmokit" / digest / file  # where elmokit 0.1.0 kept it
    return kept if kept.is_file() else fetch_file(address)
