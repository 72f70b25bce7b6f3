"""Why consumers were not connected, and how many."""

from typing import Literal

from oplogd.shared.tally import Tally, tally

# Why a consumer was not connected. ``session``: its cookie or token has expired or is wrong. A page
# open for long sends an expired one first. ``no_password``: some clients send their password only
# after a refused request without it. ``shards``: a log is read in too many numbers of shards.
Refusal = Literal[
    "max_clients",
    "max_clients_per_address",
    "store",
    "password",
    "session",
    "no_password",
    "bad_request",
    "shards",
]


@tally
class RefusedConsumers(Tally):
    """The number of refused consumers by reason: see ``Refusal``."""

    max_clients: int
    max_clients_per_address: int
    store: int
    password: int
    session: int
    no_password: int
    bad_request: int
    shards: int
