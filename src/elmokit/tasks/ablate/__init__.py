"""What the layers of an encoder are worth to a task: the same network trained with and without them."""

from elmokit.tasks.ablate.report import summarise
from elmokit.tasks.ablate.run import Plan, pick_variants, run_ablation

__all__ = ["Plan", "pick_variants", "run_ablation", "summarise"]
