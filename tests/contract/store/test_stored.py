"""A damaged operation in the store is reported as a trouble of the store."""

import pytest

from oplogd.errors import OperationError, StoreUnavailableError
from oplogd.model.operation import decode_data
from oplogd.store import decode_stored
from tests.kits.models.operations import operation


def test_stored_data_is_decoded() -> None:
    data = operation(type_="video", id_="1", parents=["a"]).data.decode()
    assert decode_stored(data) == decode_data(data)


@pytest.mark.parametrize("text", ["", "{", '{"type":"video"}', "[]"])
def test_damaged_data_makes_the_store_unavailable(text: str) -> None:
    with pytest.raises(OperationError, match=r"^data: "):
        decode_data(text)
    with pytest.raises(StoreUnavailableError, match="damaged operation, restore a sound copy: "):
        decode_stored(text)
