"""What `options_file` and `weight_file` may be: two files, their web addresses, or any model that elmokit reads."""

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from elmokit.errors import InputError, WeightsError
from elmokit.weights import Pretrained, load_pretrained

Named = str | Path | None


class ConfigurationError(InputError):
    """Arguments or input that cannot be used as given; the one error that users of AllenNLP's ELMo had to catch."""


def load_model(options_file: Named, weight_file: Named) -> Pretrained:
    """The model of the two files. One of them alone may be a folder, an archive or a hub id; none is the bundled model.

    AllenNLP's own default, the original model at its web address, is given here by that address. Literal `<S>` and
    `</S>` are boundaries whether or not a vocabulary lists them.
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
    folder = Path(torch.hub.get_dir()) / "elmokit"
    # One folder per address, since the options and weights of many models have the same names.
    kept = folder / hashlib.sha256(address.encode()).hexdigest()[:16] / address.rpartition("/")[2]
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(address, str(kept), progress=False)
        except OSError as error:
            raise WeightsError(
                f"{address}: cannot be fetched ({error}); older addresses may be gone. Get the file elsewhere and give "
                f"its path"
            ) from None
    return kept
