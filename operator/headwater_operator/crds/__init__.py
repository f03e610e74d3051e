"""The custom resource definitions: what an API server takes, by the same bounds as the command line."""

from headwater_operator.crds.definitions import definitions

__all__ = ["definitions"]
