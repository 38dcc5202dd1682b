"""The one error of AllenNLP's that users of its ELMo had reason to catch."""

from elmokit.errors import InputError


class ConfigurationError(InputError):
    """Arguments or input that cannot be used as given."""
