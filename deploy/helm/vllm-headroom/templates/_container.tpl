{{/*
The exporter's container, the same in every way of running it.

`root` is this chart's scope, `url` the address(es) of vLLM, `sidecar` whether it stands in the server's pod. Optional:
`listen` (HOST:PORT) with `listenPort`, `modelConfig` (a path), `tensorParallelSize`, `pipelineParallelSize`, and
`mounts` (a list of volume mounts). A value may be a CEL expression, `{"$cel": …}`, and a list item may depend on one,
`{"$if": …}`: that is how the admission policy speaks (see _cel.tpl).
*/}}
{{- define "vllm-headroom.container" -}}
{{- $values := .root.Values -}}
{{- $exporter := $values.exporter -}}
{{- $podResources := and .sidecar $values.podResources.enabled -}}
{{- $controlGroups := and .sidecar $values.controlGroups.enabled -}}
name: vllm-headroom
image: {{ include "vllm-headroom.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: [run]
{{- if and .sidecar $values.sidecar.native }}
restartPolicy: Always
{{- end }}
env:
  - name: VLLM_HEADROOM_VLLM_URL
    value: {{ toJson .url }}
  - name: VLLM_HEADROOM_LISTEN
    value: {{ default (printf "%s:%d" $exporter.host (int $exporter.port)) .listen | toJson }}
  - name: VLLM_HEADROOM_POLL_INTERVAL_SECONDS
    value: {{ $exporter.pollIntervalSeconds | toString | quote }}
  - name: VLLM_HEADROOM_LOG_LEVEL
    value: {{ $exporter.logLevel }}
  - name: VLLM_HEADROOM_LOG_FORMAT
    value: {{ $exporter.logFormat }}
  {{- if $values.vllm.tlsSkipVerify }}
  - name: VLLM_HEADROOM_TLS_SKIP_VERIFY
    value: "true"
  {{- end }}
  {{- if $values.vllm.caSecret }}
  - name: VLLM_HEADROOM_TLS_CA_FILE
    value: /etc/vllm-headroom/ca/ca.crt
  {{- end }}
  {{- if $values.vllm.apiKeySecret }}
  - name: VLLM_HEADROOM_API_KEY_FILE
    value: /etc/vllm-headroom/key/api-key
  {{- end }}
  {{- with $values.page }}
  {{- if .webConfigSecret }}
  - name: VLLM_HEADROOM_WEB_CONFIG_FILE
    value: /etc/vllm-headroom/web/{{ .webConfigSecretKey }}
  {{- else if .tlsSecret }}
  - name: VLLM_HEADROOM_PAGE_TLS_CERT_FILE
    value: /etc/vllm-headroom/tls/{{ .tlsCertKey }}
  - name: VLLM_HEADROOM_PAGE_TLS_KEY_FILE
    value: /etc/vllm-headroom/tls/{{ .tlsKeyKey }}
  {{- end }}
  {{- if .bearerSecret }}
  - name: VLLM_HEADROOM_PAGE_BEARER_TOKEN_FILE
    value: /etc/vllm-headroom/token/{{ .bearerSecretKey }}
  {{- end }}
  {{- end }}
  {{- range $name := list "modelConfig" "tensorParallelSize" "pipelineParallelSize" }}
  {{- with get $ $name }}
  - name: VLLM_HEADROOM_{{ snakecase $name | upper }}
    {{- if kindIs "map" . }}
    value: {{ toJson . }}
    $if: {{ printf "%s != ''" (get . "$cel") | quote }}
    {{- else }}
    value: {{ toString . | quote }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- if not .sidecar }}
  - name: VLLM_HEADROOM_GPUS
    value: none
  - name: VLLM_HEADROOM_HOST
    value: none
  - name: NVIDIA_VISIBLE_DEVICES
    value: void
  {{- else if $values.nvml.enabled }}
  - name: NVIDIA_VISIBLE_DEVICES
    value: {{ $values.nvml.visibleDevices | quote }}
  - name: NVIDIA_DRIVER_CAPABILITIES
    value: {{ $values.nvml.driverCapabilities | quote }}
  {{- else }}
  - name: VLLM_HEADROOM_GPUS
    value: none
  - name: NVIDIA_VISIBLE_DEVICES
    value: void
  {{- end }}
  {{- if $podResources }}
  - name: VLLM_HEADROOM_POD_RESOURCES_SOCKET
    value: {{ $values.podResources.path }}/kubelet.sock
  {{- end }}
  {{- if $controlGroups }}
  - name: VLLM_HEADROOM_CGROUP_DIR
    value: /host/cgroup
  {{- end }}
  {{- if or $podResources $controlGroups }}
  {{- range $name, $field := dict "POD_NAME" "name" "POD_NAMESPACE" "namespace" "POD_UID" "uid" }}
  - name: {{ $name }}
    valueFrom:
      fieldRef:
        fieldPath: metadata.{{ $field }}
  {{- end }}
  {{- end }}
  {{- with $exporter.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: headroom
    containerPort: {{ default $exporter.port .listenPort | toJson }}
    protocol: TCP
{{- range $probe, $settings := $values.probes }}
{{- with $settings }}
{{ $probe }}Probe: {{- include "vllm-headroom.probe" (dict "root" $.root "probe" .) | nindent 2 }}
{{- end }}
{{- end }}
resources: {{- toYaml $values.resources | nindent 2 }}
securityContext: {{- include "vllm-headroom.securityContext" (dict "values" $values "root" (and $podResources $values.podResources.runAsRoot)) | nindent 2 }}
{{- $mounts := include "vllm-headroom.mounts" . | fromYamlArray }}
{{- with $mounts }}
volumeMounts: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How the page is spoken to. */}}
{{- define "vllm-headroom.pageScheme" -}}
{{- ternary "https" .Values.page.scheme (ne .Values.page.tlsSecret "") -}}
{{- end -}}

{{/* A probe of the page, by its scheme. The kubelet verifies no certificate. */}}
{{- define "vllm-headroom.probe" -}}
{{- $probe := deepCopy .probe -}}
{{- if and (hasKey $probe "httpGet") (eq (include "vllm-headroom.pageScheme" .root) "https") -}}
{{- $_ := set $probe "httpGet" (merge $probe.httpGet (dict "scheme" "HTTPS")) -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end -}}

{{/* The container's security context; `root` lifts the uid, and nothing else. */}}
{{- define "vllm-headroom.securityContext" -}}
{{- if .root -}}
{{- toYaml (mustMergeOverwrite (deepCopy .values.securityContext) (dict "runAsNonRoot" false "runAsUser" 0 "runAsGroup" 0)) -}}
{{- else -}}
{{- toYaml .values.securityContext -}}
{{- end -}}
{{- end -}}

{{/* The volume mounts that belong to the container's environment. */}}
{{- define "vllm-headroom.mounts" -}}
{{- $values := .root.Values -}}
{{- $mounts := default list .mounts -}}
{{- if $values.vllm.apiKeySecret -}}
{{- $mounts = append $mounts (dict "name" "vllm-headroom-api-key" "mountPath" "/etc/vllm-headroom/key" "readOnly" true) -}}
{{- end -}}
{{- if $values.vllm.caSecret -}}
{{- $mounts = append $mounts (dict "name" "vllm-headroom-ca" "mountPath" "/etc/vllm-headroom/ca" "readOnly" true) -}}
{{- end -}}
{{- range $name, $secret := dict "tls" $values.page.tlsSecret "token" $values.page.bearerSecret "web" $values.page.webConfigSecret -}}
{{- if $secret -}}
{{- $mounts = append $mounts (dict "name" (print "vllm-headroom-" $name) "mountPath" (print "/etc/vllm-headroom/" $name) "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- if and .sidecar $values.podResources.enabled -}}
{{- $mounts = append $mounts (dict "name" "vllm-headroom-pod-resources" "mountPath" $values.podResources.path "readOnly" true) -}}
{{- end -}}
{{- if and .sidecar $values.controlGroups.enabled -}}
{{- $mounts = append $mounts (dict "name" "vllm-headroom-cgroup" "mountPath" "/host/cgroup" "readOnly" true) -}}
{{- end -}}
{{- if and .sidecar $values.sidecar.hideServiceAccountToken -}}
{{- $mounts = append $mounts (dict "name" "vllm-headroom-no-token" "mountPath" "/var/run/secrets/kubernetes.io/serviceaccount" "readOnly" true) -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end -}}
