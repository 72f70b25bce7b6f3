"""The TLS context of connections, from PEM files."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx


def tls_context(
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    prefix: str = "",
    shown: Mapping[str, str] = {},
) -> ssl.SSLContext | bool:
    """Return the TLS context of the connections. True: the usual one.

    ``prefix``: of the settings, such as ``agents.``. ``shown``: paths, and what to show instead.
    Raises ValueError, which names the setting.
    """

    def name_of(path: str | None) -> str:
        return shown.get(path, path) if path else ""

    if key_file and not cert_file:
        raise ValueError(f"{prefix}cert_file: is missing; key_file is its private key")
    if not ca_file and not cert_file:
        return True
    with _readable(f"{prefix}ca_file", name_of(ca_file), "certificates in PEM"):
        # Without a file: as httpx does by itself, from SSL_CERT_FILE or the usual authorities.
        context = (
            ssl.create_default_context(cafile=ca_file) if ca_file else httpx.create_ssl_context()
        )
    if key_file:
        with _readable(f"{prefix}key_file", name_of(key_file), "a private key"), open(key_file):
            pass
    if cert_file:
        wanted = "a certificate and its private key in PEM, without a pass phrase"
        with _readable(f"{prefix}cert_file", name_of(cert_file), wanted):
            # Without the last argument OpenSSL asks for a pass phrase at the terminal.
            context.load_cert_chain(cert_file, key_file, lambda: "")
    return context


@contextmanager
def _readable(setting: str, path: str, wanted: str) -> Iterator[None]:
    place, file = (setting, repr(path)) if path else ("SSL_CERT_FILE", "its file")
    try:
        yield
    except ssl.SSLError:
        raise ValueError(f"{place}: {file} does not hold {wanted}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{place}: cannot read {file}: {reason}") from None
