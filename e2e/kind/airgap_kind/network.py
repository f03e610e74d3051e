"""The pod network as kind installs it: by a manifest in the node image, where kind looks for its own."""

from pathlib import Path

from airgap_kind import podnet

MANIFEST = "/kind/manifests/default-cni.yaml"
PROGRAM = "/podnet.py"
# A node that starts again has no network until podnet says so anew.
FORGETTING = "/etc/systemd/system/containerd.service.d/10-podnet.conf"
FORGET = f"[Service]\nExecStartPre=-/bin/rm -f {podnet.CONFIG}\n"

# The comments ask kind to fill in the range of pods, and to add CONTROL_PLANE_ENDPOINT to the environment.
TEMPLATE = """\
# would you kindly template this file
# would you kindly patch this file
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: podnet
  namespace: kube-system
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: podnet
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: podnet
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: podnet
subjects:
- kind: ServiceAccount
  name: podnet
  namespace: kube-system
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: podnet
  namespace: kube-system
  labels: {app: podnet}
spec:
  selector:
    matchLabels: {app: podnet}
  updateStrategy:
    rollingUpdate: {maxUnavailable: 100%}
  template:
    metadata:
      labels: {app: podnet}
    spec:
      hostNetwork: true
      serviceAccountName: podnet
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 1
      tolerations:
      - operator: Exists
      containers:
      - name: podnet
        image: IMAGE
        imagePullPolicy: Never
        env:
        - name: NODE_NAME
          valueFrom:
            fieldRef: {fieldPath: spec.nodeName}
        - name: POD_SUBNET
          value: "{{ .PodSubnet }}"
        resources:
          requests: {cpu: 10m, memory: 30Mi}
        securityContext:
          capabilities:
            add: [NET_ADMIN, NET_RAW]
        volumeMounts:
        - name: cni
          mountPath: /etc/cni/net.d
        - name: xtables-lock
          mountPath: /run/xtables.lock
      volumes:
      - name: cni
        hostPath: {path: /etc/cni/net.d, type: DirectoryOrCreate}
      - name: xtables-lock
        hostPath: {path: /run/xtables.lock, type: FileOrCreate}
"""


def program() -> Path:
    return Path(podnet.__file__)


def manifest(image: str) -> str:
    return TEMPLATE.replace("IMAGE", image)
