"""What goes wrong, in words the user can act on. Every error says what it got, what it expected and what to do."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

__all__ = ["ConfigError", "ElmokitError", "FormatError", "InputError", "MissingExtraError", "WeightsError"]


class ElmokitError(Exception):
    """Base of all errors that elmokit raises on purpose. The command line prints it in one line and exits with 2."""


class InputError(ElmokitError):
    """Text or arguments that cannot be used as given."""


class FormatError(InputError):
    """A file whose contents are not what its format promises; names the file and, where there is one, the line."""


class ConfigError(ElmokitError):
    """A configuration with a missing, unknown or impossible field."""


class WeightsError(ElmokitError):
    """A model file that is missing, damaged, or does not fit its configuration."""


class ElmokitWarning(UserWarning):
    """Something to know that does not stop the work. The command line prints it in one line."""


class MissingExtraError(ElmokitError):
    """An optional library is needed for what was asked; the message holds the pip line that installs it."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what}: run  pip install 'elmokit[{extra}]'")


@contextmanager
def needing(libraries: Collection[str], what: str, *, extra: str) -> Iterator[None]:
    """Where one of these libraries is not installed, the error says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in libraries:
            raise
        raise MissingExtraError(f"{what} needs {missing.name}, which is not installed", extra=extra) from None
