"""Executors that an earlier life of a driver has left in its cluster.

Spark removes its pods when it ends in peace, and they go with the pod of their driver. A driver that was
killed and starts again in the same pod finds them ended, and nobody else would ever remove them.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from headwater_spark.pods import LABEL
from headwater_spark.settings import SERVER, Executors

# What a pod has of its service account.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10.0
log = logging.getLogger(__name__)


def remove(executors: Executors) -> None:
    """Ask for their removal. They stand in nobody's way: if it cannot be, that is told and all goes on."""
    selector = urlencode({"labelSelector": f"{LABEL}={executors.pod}"})
    url = f"{SERVER}/api/v1/namespaces/{quote(executors.namespace)}/pods?{selector}"
    try:
        token = (ACCOUNT / "token").read_text().strip()
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        request = Request(url, method="DELETE", headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=SECONDS, context=trusted):
            pass
    except OSError as error:
        log.warning("executors of an earlier life may be left", extra={"problem": str(error)})
