"""Certificates made by the command ``openssl``."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    certificate: Path
    key: Path


def certificate(folder: Path, name: str) -> Certificate:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
        f" -subj /CN={name} -addext subjectAltName=IP:127.0.0.1"
    )
    done = subprocess.run(
        [*command.split(), "-out", made.certificate, "-keyout", made.key],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return made


def encrypted(key: Path) -> Path:
    """Return a copy of a private key that needs a pass phrase."""
    copy = key.with_suffix(".encrypted")
    command = f"openssl ec -in {key} -aes256 -passout pass:secret -out {copy}"
    subprocess.run(command.split(), capture_output=True, check=True)
    return copy
