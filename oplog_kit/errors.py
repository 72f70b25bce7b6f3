"""The errors of relay and pipe. Messages name no secret."""


class ProgramError(Exception):
    """Base of these errors. The message is for people."""


class ConfigError(ProgramError):
    """A setting cannot be used. The message names it and says what to do."""
