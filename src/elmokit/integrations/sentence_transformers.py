"""ELMo as the first module of a Sentence Transformer.

module = ElmoModule()
model = SentenceTransformer(modules=[module, Pooling(module.get_embedding_dimension())])
model.encode(["One sentence.", "Another one."])     # (2, D)
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmokit.encoders import Elmo
from elmokit.encoders.features import mix_layers
from elmokit.errors import MissingExtraError, WeightsError
from elmokit.formats.atomic import atomic_path
from elmokit.integrations.models import Model, encoder_for, name_of
from elmokit.tasks.layers import TunedLayers, at_least_one
from elmokit.text import Sentence

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise MissingExtraError(f"sentence-transformers is needed ({error})", extra="sentence-transformers") from error

__all__ = ["ElmoModule"]

FOLDER, MIX = "elmo", "mix.safetensors"  # inside the folder of the Sentence Transformer
LONGEST = 1000  # characters of a word; all words of a batch take the room of the longest


class ElmoModule(InputModule):  # type: ignore[misc]
    """Texts to token vectors, which a `Pooling` makes one vector of.

    model      what `load_encoder` takes, or an encoder; None for the bundled model
    layers     which layers, in the grammar of `elmokit.layers`; "mix", the default, is trained with the rest
    fine_tune  train the biLM, too; it is frozen otherwise

    It is saved with its model, unless that is bundled with elmokit. sentence-transformers loads modules of other
    packages if trust_remote_code=True says so.
    """

    config_file_name = "elmokit_config.json"
    config_keys = ("model_name", "fingerprint", "layers", "fine_tune")
    save_in_root = True

    def __init__(
        self, model: Model = None, *, layers: str = "mix", fine_tune: bool = False, device: str = "auto"
    ) -> None:
        super().__init__()
        self.encoder, self.layers, self.fine_tune = encoder_for(model, device=device), layers, fine_tune
        self.tuned = TunedLayers(self.encoder) if fine_tune else None
        self.mix = mix_layers(layers, depth=self.encoder.depth, width=self.encoder.width)
        self.register_buffer("anchor", torch.zeros(()), persistent=False)  # knows where the module is

    @property
    def model_name(self) -> str:
        """What the model is loaded by, where it is not saved with the module."""
        return name_of(self.encoder)

    @property
    def fingerprint(self) -> str:
        """That of the model as it was given."""
        return self.encoder.fingerprint

    def get_embedding_dimension(self) -> int:
        """D, the width of a token's vector."""
        return self.mix.width

    get_word_embedding_dimension = get_embedding_dimension  # its name before version 6

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> dict[str, Tensor]:
        """Texts as numbers: the characters of each word (B, T, C), and which positions are words (B, T)."""
        texts = [f"{prompt or ''}{text}" for text in inputs]
        most = None if self.encoder.longest_word is None else max(self.encoder.longest_word, LONGEST)
        words = [[word[:most] for word in self.encoder.tokenizer.tokenize(text).tokens] for text in texts]
        longest = max((len(word) for row in words for word in row), default=1)
        shape = len(words), max([1, *map(len, words)])  # one position at least, if only of padding
        table = np.zeros(shape, dtype=f"<U{max(longest, 1)}")  # (B, T)
        mask = np.zeros(table.shape, dtype=np.int64)
        for k, row in enumerate(words):
            table[k, : len(row)], mask[k, : len(row)] = row, 1
        characters = table.view(np.int32).reshape(*shape, table.itemsize // 4)  # (B, T, C)
        return {"input_ids": torch.from_numpy(characters), "attention_mask": torch.from_numpy(mask)}

    def tokenize(self, texts: list[str], **kwargs: Any) -> dict[str, Tensor]:
        """`preprocess` under its name before version 6."""
        return self.preprocess(texts, **kwargs)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `token_embeddings` (B, T, D)."""
        characters = np.ascontiguousarray(features["input_ids"].cpu().numpy().astype(np.int32))  # (B, T, C)
        mask = features["attention_mask"]  # (B, T)
        lengths = mask.sum(dim=1).tolist()
        B, T, C = characters.shape
        table = characters.view(f"<U{C}").reshape(B, T)
        sentences = [Sentence.of(row[:n].tolist()) for row, n in zip(table, lengths, strict=True)]
        device = self.anchor.device
        stack = self.encoder.run(sentences).inner() if self.tuned is None else self.tuned.stack(sentences, device)
        stack = at_least_one(stack)
        vectors: Tensor = self.mix(
            type(stack)(stack.values.to(device, torch.float32), stack.mask.to(device), stack.names)
        )  # (B, T, D), with fewer positions where the rows are a slice of a longer batch
        features["token_embeddings"] = torch.nn.functional.pad(vectors, (0, 0, 0, T - vectors.shape[1]))
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Writes configuration, mix and model."""
        self.save_config(output_path)
        encoder = self.encoder if self.tuned is None else self.tuned.as_encoder()
        if isinstance(encoder, Elmo) and (self.tuned is not None or name_of(encoder) == encoder.source):
            encoder.save_pretrained(Path(output_path) / FOLDER)
        with atomic_path(Path(output_path) / MIX) as draft:
            save_file({name: values.contiguous() for name, values in self.mix.state_dict().items()}, draft)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "ElmoModule":
        """From a folder or a hub id."""
        options = {key: kwargs.get(key) for key in ("token", "cache_folder", "revision", "local_files_only")}
        options["local_files_only"] = bool(options["local_files_only"])
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **options)
        folder = Path(cls.load_dir_path(model_name_or_path, subfolder=subfolder, **options))
        held = (folder / FOLDER).is_dir()
        model = Elmo.from_pretrained(folder / FOLDER) if held else encoder_for(config["model_name"])
        if not (held and config["fine_tune"]) and model.fingerprint != config["fingerprint"]:
            raise WeightsError(f"{folder}: saved with another {config['model_name']} than the one that is here now")
        made = cls(model, layers=config["layers"], fine_tune=config["fine_tune"])
        made.mix.load_state_dict(load_file(folder / MIX))
        return made
