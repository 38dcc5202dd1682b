"""Rows of scores to probabilities in place, beside one separate score per row for the target: sampled softmax's inner
loop.

The plain version serves any device; on CUDA a Triton kernel does it in one read and one write of the scores, which
are by far the largest thing in a training step.
"""

import torch
from torch import Tensor

ROW_LIMIT = 32768  # scores of one row that a kernel holds at once


def softmax_rows_(scores: Tensor, shift: Tensor, ids: Tensor, targets: Tensor, own: Tensor) -> Tensor:
    """Overwrites scores (n, S) with each row's softmax([own ; scores + shift]) without `own`; returns log sums (n,).

    A column whose id is the row's target is an accidental hit and counts as minus infinity.
    """
    if scores.is_cuda and scores.shape[1] <= ROW_LIMIT:
        from elmokit.kernels.triton.softmax import triton_softmax_rows_  # Triton comes with torch's CUDA builds only

        return triton_softmax_rows_(scores, shift, ids, targets, own)
    full = scores.to(shift.dtype) + shift  # (n, S)
    full.masked_fill_(ids[None, :] == targets[:, None], -torch.inf)
    log_sum = torch.logaddexp(torch.logsumexp(full, dim=1), own)  # (n,)
    scores.copy_((full - log_sum[:, None]).exp_())
    return log_sum
