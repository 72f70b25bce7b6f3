"""All mistakes in a settings file, each with its line."""

from oplogc.http.answers import printable


class Mistakes:
    """Mistakes in one file, told once each, in the order of its lines."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: set[tuple[int, str, str]] = set()

    def add(self, path: str, sentence: str, line: int = 0) -> None:
        """``path``: of the setting; may be empty. ``line``: 0 if it is not known."""
        self._found.add((line, printable(path), printable(sentence)))

    @property
    def paths(self) -> set[str]:
        return {path for _, path, _ in self._found}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __str__(self) -> str:
        """Return a line for each mistake."""
        return "\n".join(map(self._located, sorted(self._found)))

    def _located(self, mistake: tuple[int, str, str]) -> str:
        line, path, sentence = mistake
        place = f"{self._file}:{line}" if line else self._file
        if path:
            return f"{place}: {path}: {sentence}"
        return f"{place}: {sentence}" if line else sentence  # of a variable
