{{/* The chart's name. */}}
{{- define "vllm-headroom.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of what the chart creates: the release's, with the chart's unless it is in there already. */}}
{{- define "vllm-headroom.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "vllm-headroom.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that never change: fit for a selector. */}}
{{- define "vllm-headroom.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vllm-headroom.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of everything the chart creates. */}}
{{- define "vllm-headroom.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "vllm-headroom.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image, by digest where one is given. */}}
{{- define "vllm-headroom.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* "true" where a thing is to be created: `create` is always, or auto and the cluster knows one of `kinds`. */}}
{{- define "vllm-headroom.wanted" -}}
{{- if eq .create "always" -}}
true
{{- else if eq .create "auto" -}}
{{- range .kinds -}}
{{- if $.root.Capabilities.APIVersions.Has . -}}true{{- break -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
