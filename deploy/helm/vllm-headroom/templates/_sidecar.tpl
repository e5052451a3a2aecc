{{/*
What people who own their chart include, with this chart as a dependency:

  initContainers:
    {{- include "vllm-headroom.sidecar" (dict "headroom" (index .Subcharts "vllm-headroom") "port" 8000) | nindent 4 }}

`headroom` is this chart's scope. Optional: `port` and `scheme` of vLLM in the pod; `modelConfig`, the path of the
model in the pod, with `mounts`, the volume mounts that hold it; `tensorParallelSize` and `pipelineParallelSize`.
Put it under `initContainers` (sidecar.native, the default) or `containers`; beside it go `vllm-headroom.volumes`
under `volumes` and `vllm-headroom.podLabels` under the pod's labels.
*/}}
{{- define "vllm-headroom.sidecar" -}}
{{- $vllm := .headroom.Values.vllm -}}
{{- $url := printf "%s://127.0.0.1:%d" (default $vllm.scheme .scheme) (int (default $vllm.port .port)) -}}
{{- $given := pick . "modelConfig" "mounts" "tensorParallelSize" "pipelineParallelSize" -}}
{{- $container := include "vllm-headroom.container" (merge (dict "root" .headroom "url" $url "sidecar" true) $given) | fromYaml -}}
{{- toYaml (list $container) -}}
{{- end -}}

{{/* The label by which the PodMonitor finds a pod. */}}
{{- define "vllm-headroom.podLabels" -}}
vllm-headroom/scrape: "true"
{{- end -}}

{{/* The volumes of the sidecar, as a list; `headroom` is this chart's scope. */}}
{{- define "vllm-headroom.volumes" -}}
{{- $values := .headroom.Values -}}
{{- $volumes := list -}}
{{- if $values.sidecar.hideServiceAccountToken -}}
{{- $volumes = append $volumes (dict "name" "vllm-headroom-no-token" "emptyDir" dict) -}}
{{- end -}}
{{- $volumes = concat $volumes (include "vllm-headroom.secretVolumes" .headroom | fromYamlArray) -}}
{{- if $values.podResources.enabled -}}
{{- $volumes = append $volumes (dict "name" "vllm-headroom-pod-resources" "hostPath" (dict "path" $values.podResources.path "type" "Directory")) -}}
{{- end -}}
{{- if $values.controlGroups.enabled -}}
{{- $volumes = append $volumes (dict "name" "vllm-headroom-cgroup" "hostPath" (dict "path" $values.controlGroups.path "type" "Directory")) -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{/*
The volumes that hold vLLM's key and CA, and what protects the page. Optional, so that a missing Secret never keeps vLLM's
pod from starting; the exporter alone refuses to start without its file.
*/}}
{{- define "vllm-headroom.secretVolumes" -}}
{{- $vllm := .Values.vllm -}}
{{- $volumes := list -}}
{{- with $vllm.apiKeySecret -}}
{{- $item := dict "key" $vllm.apiKeySecretKey "path" "api-key" -}}
{{- $volumes = append $volumes (dict "name" "vllm-headroom-api-key" "secret" (dict "secretName" . "optional" true "items" (list $item))) -}}
{{- end -}}
{{- with $vllm.caSecret -}}
{{- $item := dict "key" $vllm.caSecretKey "path" "ca.crt" -}}
{{- $volumes = append $volumes (dict "name" "vllm-headroom-ca" "secret" (dict "secretName" . "optional" true "items" (list $item))) -}}
{{- end -}}
{{- $page := .Values.page -}}
{{- range $name, $secret := dict "tls" $page.tlsSecret "token" $page.bearerSecret "web" $page.webConfigSecret -}}
{{- if $secret -}}
{{- $volumes = append $volumes (dict "name" (print "vllm-headroom-" $name) "secret" (dict "secretName" $secret "optional" true)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}
