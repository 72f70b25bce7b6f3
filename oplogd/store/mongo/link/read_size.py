"""Bounding the size of a read. No I/O."""

# Most characters of keys and parents in one read, approximately. A single longer document is still
# read.
READ_CHARACTERS = 1_000_000

_FIRST_DOCUMENTS = 200

# Characters of a document besides those of its key and parents.
_OVERHEAD = 50


class ReadSize:
    """Estimates how many documents to ask for at a time.

    The server sends whole batches, up to 16 MB, even if the reader stops in the middle of one.
    """

    def __init__(self) -> None:
        self._mean = 0.0

    def documents(self, limit: int, characters: int = READ_CHARACTERS) -> int:
        """Return how many documents have about this many characters, at most ``limit`` + 1.

        The one past the limit saves the request for the end.
        """
        fitting = int(characters / self._mean) + 2 if self._mean else _FIRST_DOCUMENTS
        return min(limit + 1, fitting)

    def saw(self, characters: int, documents: int) -> None:
        """Rises immediately, decays slowly: batches are rather too small than too large."""
        if documents:
            mean = (characters + _OVERHEAD * documents) / documents
            self._mean = max(mean, self._mean + (mean - self._mean) / 4) if self._mean else mean
