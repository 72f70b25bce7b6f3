"""The SQL of ages: see ``Ages``. ``:now`` and ``:ages`` tell the present."""

import json

from oplogd.clock.ages import Present


def given(present: Present) -> dict[str, int | str]:
    """Return the parameters that tell the present."""
    return {"now": present.ms, "ages": present.ages.text}


def ends(present: Present) -> dict[str, int | str]:
    """Return the parameters of ``is_over``."""
    return {
        "spans": json.dumps(present.spans()),
        "elsewhere": present.elsewhere,
        "horizon": present.horizon,
    }


_ENDED = "json_extract(value, '$[1]')"
_LAG = "json_extract(value, '$[2]')"


def oldest(ms: str) -> str:
    """Return the SQL of ``Ages.oldest``. ``:ages``: see ``Ages.text``."""
    return f"""min({ms}, coalesce((
        SELECT min(max(json_extract(value, '$[0]'), {ms} - {_LAG})) FROM json_each(:ages)
        WHERE {ms} - {_LAG} <= {_ENDED}
    ), {ms}))"""


def date(ms: str) -> str:
    """Return the SQL of ``Ages.date``."""
    return f"""({ms} + coalesce((
        SELECT max({_LAG}) FROM json_each(:ages)
        WHERE {ms} BETWEEN json_extract(value, '$[0]') AND {_ENDED}
    ), 0))"""


def is_over(expires: str) -> str:
    """Return the SQL of ``Present.is_over`` for a row with ``begun``. See ``ends``."""
    spans = f"""SELECT 1 FROM json_each(:spans)
        WHERE begun BETWEEN json_extract(value, '$[0]') AND {_ENDED}"""
    return f"""iif(
        EXISTS ({spans}), NOT EXISTS ({spans} AND {expires} >= {_LAG}), {expires} < :elsewhere
    )"""
