"""Executors as pods: what Spark's scheduler for Kubernetes is told of them, and of the driver's own pod.

The driver is a pod that somebody else made (client mode). Executors find it at its address and at ports that
are always the same, so that a network policy can name them. They belong to its pod, and go with it.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from headwater_spark.settings import Executors

# Of the driver: where executors read the inbox and where they report. And of driver and executors: where
# they fetch what others have computed.
INBOX_PORT, DRIVER_PORT, BLOCKS_PORT = 7077, 7078, 7079
# In a pod that can write nothing else. Spark gives executors a volume for it, of their own and emptied.
SCRATCH = Path("/tmp/headwater-spark")
# Names the driver whose executors they are.
LABEL = "headwater.dev/driver"
# Spark takes no prefix that is longer; 8 characters and a dash are chance.
_LONGEST = 47 - 9


def settings(executors: Executors) -> dict[str, str]:
    """Settings of Spark, but for its master."""
    # An executor of an earlier life may still be there, and two cannot have one name.
    prefix = f"{executors.pod[:_LONGEST].rstrip('-')}-{secrets.token_hex(4)}"
    told = {
        "spark.submit.deployMode": "client",
        "spark.driver.host": executors.address,
        "spark.driver.bindAddress": executors.address,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        # Another port than these would let nobody through.
        "spark.port.maxRetries": "0",
        # Whoever is in the cluster can reach these ports: no word without the secret, and none in the clear.
        # Spark makes the secret itself, and puts it into the pods of its executors.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.local.dir": str(SCRATCH),
        "spark.kubernetes.namespace": executors.namespace,
        "spark.kubernetes.driver.pod.name": executors.pod,
        "spark.kubernetes.container.image": executors.image,
        "spark.kubernetes.executor.podNamePrefix": prefix,
        f"spark.kubernetes.executor.label.{LABEL}": executors.pod,
        "spark.kubernetes.executor.request.cores": executors.cores,
        # Nothing but pods is made, so the driver needs rights on nothing else.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.executor.instances": str(executors.count),
        "spark.executor.cores": str(executors.tasks),
        "spark.executor.memory": executors.memory,
        # Beside its heap: the state of RocksDB, and the Python workers with the buckets that they keep.
        "spark.executor.memoryOverheadFactor": "0.6",
        # A pod that was removed by force is missed when they are listed.
        "spark.kubernetes.executor.apiPollingInterval": "10s",
        # The root waits for them itself, and says so.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        # Those that die are made anew. After so many in so long a time Spark gives up, and the root halts.
        "spark.executor.failuresValidityInterval": "10m",
    }
    if executors.template is not None:
        told["spark.kubernetes.executor.podTemplateFile"] = str(executors.template)
    return told
