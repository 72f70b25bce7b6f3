"""Keys of tokens, and signatures with them. PyJWT is imported late: it is an extra."""

import re
from pathlib import Path
from typing import Any, NamedTuple

HMAC, RSA, EC, EDWARDS = "HS256", "RS256", "ES256", "EdDSA"
_MIN_SECRET_BYTES = 32
_MAX_SECRET_BYTES = 4_096
_MAX_FILE_BYTES = 256 * 1024
_JSON = re.compile(rb'\{\s*"')
_MIN_RSA_BITS = 2048
_KINDS = f"of RSA with {_MIN_RSA_BITS:,} bits or more, P-256 or Ed25519"
_MISSING = (
    "needs PyJWT; in the checkout of oplog, run:"
    " pip install -c constraints.txt './clients/python[jwt]'"
)


class Key(NamedTuple):
    """A key. ``material``: a secret, or a key of cryptography. ``signs``: it is no public key."""

    algorithm: str
    material: Any
    signs: bool = True

    def __repr__(self) -> str:
        return f"Key({self.algorithm})"


def signing_key(path: str) -> Key:
    """Return the secret or the private key in a file. Raise ValueError without its content."""
    key = key_in_file(path)
    if not key.signs:
        raise ValueError("the file has a public key; a token is signed with the private one")
    return key


def key_in_file(path: str) -> Key:
    """Return the key in a file: a secret, else a private or public key in PEM.

    Raise ValueError. The message repeats neither the path, which may be a secret by mistake, nor
    the content.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read the file: {error.strerror}") from None
    except ValueError:  # NUL
        raise ValueError("is no path of a file") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {_MAX_FILE_BYTES:,} bytes")
    return key_of(content)


def key_of(content: bytes) -> Key:
    """Return the key with the content of a file. Raise ValueError without any of it."""
    text = content.strip()
    if text.startswith(b"-----BEGIN"):
        return _pem_key(text)
    if _JSON.match(text):
        raise ValueError("the file has JSON, as a JWKS; give a secret, or a key in PEM")
    secret = content.removesuffix(b"\r\n" if content.endswith(b"\r\n") else b"\n")
    if len(secret) < _MIN_SECRET_BYTES:
        raise ValueError(f"the file has a secret of fewer than {_MIN_SECRET_BYTES} bytes")
    if len(secret) > _MAX_SECRET_BYTES:
        raise ValueError(f"the file has a secret of more than {_MAX_SECRET_BYTES:,} bytes")
    try:
        from jwt import InvalidKeyError
        from jwt.algorithms import HMACAlgorithm
    except ImportError:
        raise ValueError(_MISSING) from None
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(secret)
    except InvalidKeyError:
        raise ValueError("the file has neither a secret nor a key in PEM") from None
    return Key(HMAC, secret)


def _pem_key(pem: bytes) -> Key:
    try:
        import jwt  # noqa: F401 - found missing before a key is read
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ValueError(_MISSING) from None
    is_private = b"PRIVATE KEY" in pem
    try:
        if is_private:
            key: Any = serialization.load_pem_private_key(pem, None)
        else:
            key = serialization.load_pem_public_key(pem)
        return Key(_algorithm(key.public_key() if is_private else key), key, is_private)
    except TypeError:
        raise ValueError("the private key is encrypted; give it without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        kind = "private" if is_private else "public"
        raise ValueError(f"the file has no {kind} key (PEM) {_KINDS}") from None


def _algorithm(public: Any) -> str:
    """Return the algorithm of a public key. Raise ValueError for a kind that agents refuse."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match public:
        case rsa.RSAPublicKey() if public.key_size >= _MIN_RSA_BITS:
            return RSA
        case ec.EllipticCurvePublicKey() if isinstance(public.curve, ec.SECP256R1):
            return EC
        case ed25519.Ed25519PublicKey():
            return EDWARDS
    raise ValueError


def sign(key: Key, claims: dict[str, Any], kid: str | None) -> str:
    """Return a token."""
    import jwt

    headers = None if kid is None else {"kid": kid}
    return jwt.encode(claims, key.material, algorithm=key.algorithm, headers=headers)


def is_signed(key: Key, token: str) -> bool:
    """Return whether a token is signed with this key, or its private one, and its algorithm."""
    import jwt

    material = key.material
    if key.algorithm != HMAC and key.signs:
        material = material.public_key()
    try:
        jwt.PyJWS().decode(token, material, algorithms=[key.algorithm])
    except (jwt.PyJWTError, ValueError, RecursionError):
        return False
    return True
