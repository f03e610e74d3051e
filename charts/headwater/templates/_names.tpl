{{/* What the objects of the release are called. */}}
{{- define "headwater.name" -}}
{{- if contains "headwater" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-headwater" (.Release.Name | trunc 40 | trimSuffix "-") }}
{{- end -}}
{{- end }}

{{/* Of what is in no namespace: there may be a release of the same name in another one. */}}
{{- define "headwater.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "headwater.name" .) }}
{{- end }}

{{/* The two by which network policies of the trees know the operator are not to be changed. */}}
{{- define "headwater.selector" -}}
app.kubernetes.io/name: headwater
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headwater.labels" -}}
{{ include "headwater.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headwater.account" -}}
{{ .Values.serviceAccount.name | default (include "headwater.name" .) }}
{{- end }}

{{/* An image by its name: (list . "node"). */}}
{{- define "headwater.image" -}}
{{- $top := index . 0 -}}{{- $name := index . 1 -}}
{{- $image := $top.Values.image -}}
{{ index $image $name | default (printf "%s/%s:%s" $image.repository $name ($image.tag | default $top.Chart.AppVersion)) }}
{{- end }}

{{/* Namespaces as JSON; none: all of them. */}}
{{- define "headwater.namespaces" -}}
{{- if kindIs "slice" .Values.watchNamespaces -}}
{{ .Values.watchNamespaces | uniq | toJson }}
{{- else -}}
{{ list .Release.Namespace | toJson }}
{{- end -}}
{{- end }}

{{- define "headwater.pullSecrets" -}}
{{- range $place, $secret := .Values.imagePullSecrets -}}
{{ if $place }},{{ end }}{{ $secret.name }}
{{- end -}}
{{- end }}
