"""What was found when a model's weights were verified, kept beside the models and found again by the weights' hash."""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp import __version__
from interp.errors import UsageError
from interp.models.sources.wheel import cache_folder


def certificate_path(weights_sha256: str) -> Path:
    """Where the certificate of these weights stands, if there is one."""
    return cache_folder() / "certificates" / f"{weights_sha256}.json"


def store(weights_sha256: str, certificate: Mapping[str, Any]) -> Path:
    """Write a certificate, in place of an older one of the same weights. `UsageError` where nothing can be written."""
    path = certificate_path(weights_sha256)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(certificate, indent=2, allow_nan=False) + "\n")
        os.replace(fresh, path)
    except OSError as error:
        raise UsageError(
            f"The certificate cannot be written to {path}: {error.strerror}. Set INTERP_CACHE to a folder that can."
        ) from error
    return path


def quoted(weights_sha256: str) -> dict[str, Any] | None:
    """What later results say of a verification by this version of interp; None where there was none.

    A file that is damaged counts as none: verifying again replaces it.
    """
    try:
        found = json.loads(certificate_path(weights_sha256).read_text())
        if found["versions"]["interp"] != __version__ or found["weights_sha256"] != weights_sha256:
            return None
        failed = [line["compared"] for line in found["lines"] if line["passed"] is False]
        compared = [line["compared"] for line in found["lines"] if line["passed"] is not None]
        return {
            "passed": not failed,
            "date": found["date"],
            "dtype": found["dtype"],
            "device": found["device"],
            "compared": compared,
            "failed": failed,
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
