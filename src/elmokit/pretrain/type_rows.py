"""Word types to the rows that the token encoder reads, on the device that trains."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import ByteCodec, Codec, Rows, WordCodec
from elmokit.pretrain.corpus.lexicon import Lexicon
from elmokit.pretrain.windows import BOS_ID, EOS_ID

TABLE_BYTES = 4 * 2**30  # a lexicon whose rows take more than this on a GPU has them made on the host instead
_BLOCK = 2**16


class TypeRows:
    """Rows of a lexicon's words. On a GPU all of them are kept there, so that a step sends word numbers only."""

    def __init__(self, lexicon: Lexicon, codec: Codec, *, device: torch.device) -> None:
        self.lexicon, self.codec, self.device = lexicon, codec, device
        self.table: Tensor | None = None
        kind = torch.int16 if isinstance(codec, ByteCodec) else torch.int32  # bytes and marks are below 262
        size = kind.itemsize * codec.width * len(lexicon)
        # A word-level model's table is small, and looking each word up again in every step would be slow.
        if isinstance(codec, WordCodec) or (device.type == "cuda" and size <= TABLE_BYTES):
            self.table = torch.empty(len(lexicon), codec.width, dtype=kind, device=device)
            for k in range(0, len(lexicon), _BLOCK):
                block = np.arange(k, min(k + _BLOCK, len(lexicon)))
                self.table[k : k + len(block)] = torch.from_numpy(self._make(block)).to(device, kind)

    def __call__(self, types: NDArray[np.int64]) -> Tensor:
        """(U,) to (U, W) int32."""
        if self.table is not None:
            return self.table[torch.from_numpy(types).to(self.device, non_blocking=True)].int()
        return torch.from_numpy(self._make(types)).to(self.device, non_blocking=True)

    def _make(self, types: NDArray[np.int64]) -> Rows:
        rows = self.lexicon.rows(types, self.codec)
        rows[types == BOS_ID], rows[types == EOS_ID] = self.codec.begin, self.codec.end  # each codec has its own
        return rows
