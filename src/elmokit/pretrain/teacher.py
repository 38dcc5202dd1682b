"""A trained model whose layers another one learns to predict while it trains as a language model.

Each layer of the learner, times a learnt matrix, is compared with the same layer of the teacher. The matrices are
needed in training only, so the two models may have different widths.
"""

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.chars import CodecSpec
from elmokit.errors import ConfigError
from elmokit.nn.bilm import BiLM, BiLMConfig, State
from elmokit.weights import Pretrained
from elmokit.weights.storage import digest_tensors


class Teacher:
    """A frozen biLM over the learner's own windows. Not a module: it is in no checkpoint and has no gradients."""

    def __init__(self, pretrained: Pretrained, *, dtype: torch.dtype, device: torch.device) -> None:
        self.config = pretrained.config
        self.bilm = BiLM(pretrained.config)
        self.bilm.load_state_dict({name: values.float() for name, values in pretrained.tensors.items()})
        self.bilm.to(device, dtype).eval().requires_grad_(False)

    @torch.no_grad()
    def layers(self, types: Tensor, which: Tensor, keep: Tensor, state: State, rows: int) -> tuple[list[Tensor], State]:
        """All layers, token vectors first, each (R, N, P) of the teacher; and the state to carry on with."""
        x = self.bilm.tokens(types)[which]
        steps = (rows,) * (which.shape[1] // rows)
        layers, ended = self.bilm.run(x, steps, state, keep=keep.to(x.dtype).expand(len(x), -1))
        return [x, *layers], ended


class Comparison(nn.Module):
    """Layers of the learner against those of the teacher: the share of the teacher's variance that is not predicted."""

    def __init__(self, learner: BiLMConfig, teacher: BiLMConfig) -> None:
        super().__init__()
        n, R = learner.n_layers + 1, len(learner.directions)
        shape = (R, learner.lstm.projection_dim, teacher.lstm.projection_dim)
        self.maps = nn.ParameterList(torch.zeros(shape) for _ in range(n))
        self.offsets = nn.ParameterList(torch.zeros(R, 1, shape[2]) for _ in range(n))

    def forward(self, mine: list[Tensor], theirs: list[Tensor]) -> Tensor:
        """The mean over layers; 1 is what a constant reaches, 0 is exact."""
        parts = []
        for x, y, by, offset in zip(mine, theirs, self.maps, self.offsets, strict=True):
            missed = torch.bmm(x, by.to(x.dtype)).float() + offset - y  # (R, N, P of the teacher)
            spread = y.float() - y.float().mean(dim=1, keepdim=True)
            parts.append(missed.square().mean() / spread.square().mean().clamp_min(1e-12))
        return torch.stack(parts).mean()


def check_teacher(teacher: Pretrained, learner: BiLMConfig, codec: CodecSpec) -> None:
    """Both must read the same rows of words in the same directions, through as many layers."""

    def facts(config: BiLMConfig, read: CodecSpec) -> dict[str, Any]:
        rows = {"input": read.kind, "max_characters": config.tokens.max_characters}
        return {**rows, "n_layers": config.n_layers, "directions": "+".join(config.directions)}

    pairs = zip(facts(teacher.config, teacher.codec).items(), facts(learner, codec).values(), strict=True)
    other = [f"{name} {theirs} there, {mine} here" for (name, theirs), mine in pairs if theirs != mine]
    if not other and teacher.codec != codec:
        other = ["another vocabulary or alphabet"]
    if other:
        raise ConfigError(
            f"{teacher.source}: cannot teach this model ({'; '.join(other)}); expected a teacher that reads the same "
            "input in the same directions, through as many layers"
        )


def digest_model(pretrained: Pretrained) -> str:
    """Identifies a model, wherever it was read from."""
    digest = hashlib.blake2b(repr((pretrained.config, pretrained.codec)).encode(), digest_size=8)
    tensors = dict(pretrained.tensors)
    if pretrained.softmax is not None:
        tensors |= {f"softmax.{name}": values for name, values in pretrained.softmax.named.items()}
        digest.update("\n".join(pretrained.vocabulary or ()).encode("utf-8", "surrogatepass"))
    digest_tensors(digest, tensors)
    return digest.hexdigest()
