{{/*
A value as a CEL literal. `value` is plain YAML, `type` the CEL type of a mapping in its place (Object.spec.volumes),
`free` whether it is a map with keys of the user's (resources.limits) and not a Kubernetes type.

CEL in Kubernetes has no mixed maps, so every mapping is built as a typed object. Three things reach into the pod:
  {"$cel": "EXPRESSION"}     the expression stands for the value
  {"$if": "CONDITION", …}    the list item is there only where the condition holds
  {"$concat": "EXPRESSION"}  the expression is a list, and its items follow
*/}}
{{- define "vllm-headroom.cel" -}}
{{- $type := .type -}}
{{- if kindIs "map" .value -}}
{{- if hasKey .value "$cel" -}}
{{ get .value "$cel" }}
{{- else if .free -}}
{{- $parts := list -}}
{{- range $key, $item := .value -}}
{{- /* A number would mix types in the map: quantities are strings, cpu: 1 as well. */ -}}
{{- $quantity := ternary $item (ternary (int64 $item | toString) (toString $item) (eq (toString (floor $item)) (toString $item))) (kindIs "string" $item) -}}
{{- $parts = append $parts (printf "%s: %s" (toJson $key) (toJson $quantity)) -}}
{{- end -}}
{ {{- join ", " $parts -}} }
{{- else -}}
{{- $parts := list -}}
{{- range $key, $item := omit .value "$if" -}}
{{- $literal := include "vllm-headroom.cel" (dict "value" $item "type" (printf "%s.%s" $type $key) "free" (has $key (list "limits" "requests"))) -}}
{{- $parts = append $parts (printf "%s: %s" $key $literal) -}}
{{- end -}}
{{ $type }}{
{{- if $parts }}{{ join ",\n" $parts | nindent 2 }}
{{ end -}} }
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- $plain := list -}}
{{- $more := list -}}
{{- range $item := .value -}}
{{- $mapping := kindIs "map" $item -}}
{{- if and $mapping (hasKey $item "$concat") -}}
{{- $more = append $more (get $item "$concat") -}}
{{- else -}}
{{- $literal := include "vllm-headroom.cel" (dict "value" $item "type" $type) -}}
{{- if and $mapping (hasKey $item "$if") -}}
{{- $more = append $more (printf "%s ? [%s] : []" (get $item "$if") $literal) -}}
{{- else -}}
{{- $plain = append $plain $literal -}}
{{- end -}}
{{- end -}}
{{- end -}}
[{{ join ", " $plain }}]
{{- range $more }} + ({{ . }}){{ end -}}
{{- else -}}
{{ toJson .value }}
{{- end -}}
{{- end -}}

{{/* One operation of a JSON patch: `path`, and `value` with its `type`; guarded by `if` where given. */}}
{{- define "vllm-headroom.patch" -}}
{{- $literal := include "vllm-headroom.cel" (dict "value" .value "type" .type) -}}
{{- $patch := printf "JSONPatch{op: \"add\", path: %s, value: %s}" (toJson .path) $literal -}}
{{- if .if -}}
({{ .if }} ? [{{ $patch }}] : [])
{{- else -}}
[{{ $patch }}]
{{- end -}}
{{- end -}}
