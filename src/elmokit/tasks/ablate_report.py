"""The old name of `elmokit.tasks.ablate.report`; it goes with version 0.3."""

import warnings

from elmokit.tasks.ablate.report import summarise

__all__ = ["summarise"]

warnings.warn("elmokit.tasks.ablate_report is now elmokit.tasks.ablate", DeprecationWarning, stacklevel=2)
