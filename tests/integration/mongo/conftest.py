"""A database for each test."""

from tests.kits.mongo.fixtures import (
    capped_url,
    clock,
    database,
    make_store,
    place,
    plain_url,
    pool,
    wire,
)

__all__ = ["capped_url", "clock", "database", "make_store", "place", "plain_url", "pool", "wire"]
