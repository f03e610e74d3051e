"""The images of this checkout: `make e2e` builds them, and loads them onto the nodes."""

from __future__ import annotations

import os
from importlib.metadata import version

TAG = os.environ.get("HEADWATER_TAG", version("headwater"))
NODE = os.environ.get("HEADWATER_NODE_IMAGE", f"headwater/node:{TAG}")
ROOT = os.environ.get("HEADWATER_ROOT_IMAGE", f"headwater/root:{TAG}")
OPERATOR = os.environ.get("HEADWATER_OPERATOR_IMAGE", f"headwater/operator:{TAG}")
SOURCE = os.environ.get("HEADWATER_SOURCE_IMAGE", f"headwater/source:{TAG}")
