{{/* What the operator does in a namespace with topologies, and nothing beyond. */}}
{{- define "headwater.rights" -}}
- apiGroups: [headwater.dev]
  resources: [aggregationtopologies, aggregationqueries]
  verbs: [get, list, watch]
- apiGroups: [headwater.dev]
  resources: [aggregationtopologies/status, aggregationqueries/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- if .Values.alerts.enabled }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors, prometheusrules]
  verbs: [get, list, create, patch, delete]
{{- end }}
{{- if .Values.certManager.rbac }}
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, create, patch, delete]
{{- end }}
{{- if .Values.spark.executors.rbac }}
# The driver of a Spark root with executors gets an account of its own; what that may do, the operator has to be
# allowed as well, or it could not grant it.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, deletecollection, patch]
{{- end }}
{{- end }}
