"""Leases: poll, show, release."""

from collections.abc import Sequence

from fastapi import Depends, FastAPI, Response

from oplogd.leases import rules
from oplogd.model.lease import lease_name
from oplogd.store import Store
from oplogd.store.leases import Lease, LeaseRequest
from oplogd.watch.lease_counters import LeaseCounters
from oplogd.web.access.caller import Caller
from oplogd.web.describe.document import BODY_ERRORS, ERRORS, described
from oplogd.web.describe.parameters import LeaseName
from oplogd.web.http.cursors import key_in
from oplogd.web.v1.pages import MORE, Asked, asked_page, listed
from oplogd.web.v1.requests import Api, answer, json_body, shown

LEASES = "/v1/leases"
LEASE = f"{LEASES}/{{lease}}"

# A note of which every character is escaped, and the other members.
_MAX_BYTES = 64 * 1024


def add_leases(app: FastAPI, api: Api, store: Store, counters: LeaseCounters) -> None:
    async def usable(caller: Caller = Depends(api.writer), name: str = Depends(name_of)) -> str:
        """Return a lease that the client may acquire and release. Raises Problem."""
        caller.require_lease(name)
        return name

    @app.post(LEASE)
    @described("leases", *BODY_ERRORS, body=rules.LeasePollBody, answer=rules.LeasePolled)
    async def poll_lease(
        caller: Caller = Depends(api.writer),
        name: str = Depends(usable),
        asked: rules.LeasePollBody = json_body(api.bodies, rules.parse_poll, _MAX_BYTES),
    ) -> Response:
        """Poll a lease: acquire, extend or look at it.

        Acquires the lease with the next term if it has no holder or has expired. Extends it for its
        holder, with the same term, or with the next one if `refresh` is true. Changes nothing if
        it has another holder. The first poll creates the lease. The lease stays for ever, and its
        term never falls. A poll soon after the last one may leave the expiry as it is.
        """
        api.require_still(caller)
        request = LeaseRequest(name, asked.holder, asked.ttl_ms, asked.refresh, asked.note)
        lease = await api.confirmed(store.leases.poll(request))
        counters.add_poll(asked.holder, lease)
        return answer(rules.polled(lease, asked.holder))

    @app.get(LEASE)
    @described("leases", *ERRORS, 404, answer=rules.LeaseShown)
    async def show_lease(
        caller: Caller = Depends(api.reader), name: str = Depends(name_of)
    ) -> Response:
        """Show a lease.

        A released lease has no holder: null. An expired lease keeps its holder and term until it is
        acquired again, and publishing with this term is still possible.
        """
        caller.require_lease_shown(name)
        return shown(rules.shown(await store.leases.find(name)))

    @app.get(LEASES)
    @described("leases", *ERRORS, answer=list[rules.LeaseShown], headers=MORE)
    async def list_leases(
        caller: Caller = Depends(api.reader), asked: Asked = Depends(asked_page)
    ) -> Response:
        """List the leases that were ever held, sorted by name.

        Only leases that the client may use or see are shown.
        """

        async def seen(found: Sequence[Lease]) -> list[Lease]:
            return [each for each in found if caller.right.may_show_lease(each.name)]

        return await listed(asked, read_page, lambda each: each.name, show_page, seen)

    async def read_page(after: str, limit: int) -> list[Lease]:
        return await store.leases.select(key_in(after, str) or "", limit)

    async def show_page(found: Sequence[Lease]) -> list[rules.LeaseShown]:
        return [rules.shown(each) for each in found]

    @app.delete(LEASE)
    @described(
        "leases", *BODY_ERRORS, 404, 409, body=rules.LeaseReleaseBody, answer=rules.LeaseReleased
    )
    async def release_lease(
        caller: Caller = Depends(api.writer),
        name: str = Depends(usable),
        asked: rules.LeaseReleaseBody = json_body(api.bodies, rules.parse_release, _MAX_BYTES),
    ) -> Response:
        """Release a lease.

        Any client may acquire it at once. Publishing with its term is refused. A repeated request
        gets the same answer until the lease is acquired again.
        """
        api.require_still(caller)
        lease = await api.confirmed(store.leases.release(name, asked.holder, asked.term))
        counters.add_release(name)
        return answer(rules.released(lease))


async def name_of(lease: LeaseName) -> str:
    """Return the lease in a request's path. Raises TopicError."""
    return lease_name(lease)
