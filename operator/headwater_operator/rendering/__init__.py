"""What a cluster has to hold for a tree, as manifests.

Nothing here may read, write, ask the clock or draw by chance: the same arguments give the same manifests.

How wide layers are, who is whose parent and which source is read where are the root's to tell, and in no pod
template: so a tree that grows or shrinks restarts nobody who stays.
"""

from headwater_operator.rendering.identities import (
    Identity,
    Material,
    authority_of,
    pair_of,
    parties,
    provide,
)
from headwater_operator.rendering.objects import Manifest, Owner
from headwater_operator.rendering.pods import Images
from headwater_operator.rendering.whole import render

__all__ = [
    "Identity",
    "Images",
    "Manifest",
    "Material",
    "Owner",
    "authority_of",
    "pair_of",
    "parties",
    "provide",
    "render",
]
