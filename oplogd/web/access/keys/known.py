"""Contents that are no secrets, because everybody may know them: public keys, pages. No I/O."""

import base64
import binascii
import json
import re

# A content may have been encoded several times on its way through files and stores of secrets.
_MAX_LAYERS = 3

_BOM = b"\xef\xbb\xbf"
_BOMS_OF_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Begins of files of gzip, bzip2, xz and Zstandard.
_COMPRESSED = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
_JSON = re.compile(rb'\s*\{\s*"')
# In any content: random bytes do not have them.
_STRONG_MARKS = re.compile(
    rb"-----BEGIN|PUBLIC KEY|[\"']kty[\"']|(?i:<!doctype|<html|<head|<\?xml)"
)
_MARKS = re.compile(
    rb"-----|https?://|(?i:</(?:[a-z]+|h[1-6])>)"
    rb"|LS0tLS1CRUdJ"  # the begin of a PEM, in base64
    # The begins of public keys: of X.509 and of SSH.
    rb"|(?<![A-Za-z0-9+/])(?:MII|MFkw|MCow|AAAAC3NzaC1|AAAAB3NzaC1|AAAAE2VjZHNh)"
)
# What an environment file, a YAML file or a tool writes before a value.
_BEFORE = re.compile(rb"(?:[A-Za-z_][\w-]*\s*[=:]\s*(?=[^\s=]))?(?:0x)?")


def is_json_object(content: bytes) -> bool:
    """Return whether a content begins as a JSON object with a member."""
    return _JSON.match(content) is not None


def is_known(content: bytes, layers: int = _MAX_LAYERS) -> bool:
    """Return whether a content is none of the secrets that a tool makes.

    ``layers``: how often it may have been encoded, in base64 or hexadecimal digits. Random bytes,
    and their texts in these encodings, are secrets.
    """
    if content.startswith((_BOM, *_COMPRESSED)):
        return True
    if _is_public_key(content) or _is_public_key(content.strip()):
        return True
    if _STRONG_MARKS.search(content.replace(b"\0", b"")):  # NUL: of UTF-16 and UTF-32
        return True
    text = content.removeprefix(_BOMS_OF_UTF16[0]).removeprefix(_BOMS_OF_UTF16[1])
    if not _is_printable(text.replace(b"\0", b"")):
        return False
    if b"\0" in text:  # UTF-16, or a file after a crash
        return True
    if _MARKS.search(text) or (layers < _MAX_LAYERS and is_json_object(text)) or _is_list(text):
        return True
    return layers > 0 and any(is_known(each, layers - 1) for each in _decoded(text))


def _is_list(text: bytes) -> bool:
    """Return whether a text is a list in JSON."""
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _decoded(text: bytes) -> list[bytes]:
    """Return a text decoded in each way that is possible."""
    value = _BEFORE.sub(b"", text.strip(), count=1).strip(b"\"'")
    value = b"".join(value.split())
    bare = value.rstrip(b"=")
    padded = bare + b"=" * (-len(bare) % 4)
    found = []
    for encoded, decode in (
        (value.replace(b":", b""), binascii.unhexlify),
        (padded, _of_base64),
        (padded, _of_base64url),
    ):
        try:
            found.append(decode(encoded))
        except ValueError:
            continue
    return [each for each in found if each]


def _of_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def _of_base64url(text: bytes) -> bytes:
    return base64.b64decode(text, b"-_", validate=True)


def _is_printable(content: bytes) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each.isspace() for each in text)


def _is_public_key(content: bytes) -> bool:
    """Return whether a content is a public key in DER."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        load_der_public_key(content)
    except UnsupportedAlgorithm:
        return True
    except ValueError:
        return False
    return True
