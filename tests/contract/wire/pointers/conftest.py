"""Pointers and their messages never lie in a capped collection."""

from tests.contract.wire.store_kinds import EACH_DRIVER, kinds_of_store

store_kind = kinds_of_store(EACH_DRIVER)
