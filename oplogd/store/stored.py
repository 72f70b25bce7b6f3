"""Operations as a store holds them."""

from oplogd.errors import OperationError, StoreUnavailableError
from oplogd.model.operation import Data, decode_data


def decode_stored(text: str) -> Data:
    """Decode the data of a stored operation. Raises StoreUnavailableError if it is damaged."""
    try:
        return decode_data(text)
    except OperationError as error:
        raise StoreUnavailableError(
            f"the store holds a damaged operation, restore a sound copy: {error.reason}"
        ) from None
