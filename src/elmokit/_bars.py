"""A progress bar that prints nothing where it is not shown."""

from rich.progress import Progress


class Bar(Progress):
    """rich's bar; its versions up to 14 end even one that is switched off with an empty line."""

    def stop(self) -> None:
        if not self.disable:
            super().stop()
