"""What `options_file` and `weight_file` may be: two files, their web addresses, or any model that elmokit reads."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    return _with_forget_bias(replace(model, codec=replace(model.codec, boundary_tokens=True)))


def _with_forget_bias(model: Pretrained) -> Pretrained:
    """The same model with the forget bias in its weights, where AllenNLP has it."""
    if not model.config.lstm.forget_bias:
        return model
    tensors = dict(model.tensors)
    for k in range(model.config.n_layers):
        tensors[f"lstm.{k}.bias"] = bias = tensors[f"lstm.{k}.bias"].to(torch.float32, copy=True)  # (R, 4H)
        bias.chunk(4, dim=1)[2].add_(model.config.lstm.forget_bias)
    lstm = replace(model.config.lstm, forget_bias=0.0)
    return replace(model, tensors=tensors, config=replace(model.config, lstm=lstm))


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


def read_params(params: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from a configuration: numbers and truth values may be strings, a list's items too.

    AllenNLP's Params are emptied, as its own `from_params` did.
    """
    given = dict(params)
    given.pop("type", None)
    if strange := sorted(given.keys() - kinds.keys()):
        raise ConfigurationError(f"Extra parameters passed: {', '.join(strange)}; known are {', '.join(kinds)}")
    if hasattr(params, "assert_empty"):
        for name in list(params):
            params.pop(name)  # type: ignore[attr-defined]
    return {name: _convert(name, value, kinds[name]) for name, value in given.items()}


def _convert(name: str, value: Any, kind: Any) -> Any:
    if value is None or kind in (str, list):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_convert(name, item, kind) for item in value]
    if kind is bool:
        truth = {"true": True, "false": False}.get(value if isinstance(value, str) else str(value).lower())
        if truth is None:
            raise ConfigurationError(f"{name} is {value!r}; expected true or false")
        return truth
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} is {value!r}; expected a number") from None
