"""The options of a sink, as a frozen value. Times are seconds, sizes bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from oplog_pipe.model.fields import Field


@dataclass(frozen=True)
class TlsOptions:
    """PEM files. ``ca_file`` None: the usual authorities."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class SinkOptions:
    """Base of the options of each type of sink. A subclass defines the type.

    - ``type_name``, ``aliases``: in the settings. ``hints``: names in other programs.
    - ``settings``: one for each value, under the same name. Those of TLS are in ``tls``.
    - ``identity``: values behind the place of each row. Addresses may change: a server moves.
    - ``place``: template of an object's place, together with ``id``. Both may hold ``{namespace}``
      and ``{id}``.
    - ``exclusive``: value no two sinks may share.
    - ``is_history``: the target keeps every message, so no object in it is gone.
    """

    type_name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    hints: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[Field, ...]] = ()
    identity: ClassVar[tuple[str, ...]] = ()
    place: ClassVar[str] = ""
    exclusive: ClassVar[str] = ""
    is_history: ClassVar[bool] = False

    def sink(self, namespace: str, root: Path) -> Any:
        """Return a ``Sink``, not yet open. Drivers are imported here, for their users only.

        ``namespace``: regular expression of the namespaces the sink gets. ``root``: folder at
        which relative paths start. Raises ConfigError, SinkError, ValueError.
        """
        raise NotImplementedError

    def mirrored(self) -> tuple[Sequence[str], str] | None:
        """Return ``agents`` and ``log`` of a target a source may follow. None: no source."""
        return None
