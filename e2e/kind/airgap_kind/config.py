"""The configuration that kind is given."""

import json

TIER = "headwater.dev/tier"
TIERS = ("edge", "fog", "cloud")

# A node that is gone is found out after about 20 s instead of 50 s, and one that is only busy is not. What is
# kept need not outlive the machine, so nothing waits for its disk.
PATCHES = """\
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  controllerManager:
    extraArgs:
      node-monitor-grace-period: 16s
      node-monitor-period: 2s
  etcd:
    local:
      extraArgs:
        unsafe-no-fsync: "true"
- |
  kind: KubeletConfiguration
  nodeStatusUpdateFrequency: 2s
"""


def render(workers: tuple[dict[str, str], ...]) -> str:
    """A control plane, tainted as kind does it, and a worker for each set of labels."""
    lines = ["kind: Cluster", "apiVersion: kind.x-k8s.io/v1alpha4", PATCHES.rstrip(), "nodes:"]
    lines.append("- role: control-plane")
    for labels in workers:
        lines.append("- role: worker")
        if labels:
            lines.append("  labels:")
            lines.extend(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in labels.items())
    return "\n".join(lines) + "\n"


def tiers() -> tuple[dict[str, str], ...]:
    return tuple({TIER: tier} for tier in TIERS)
