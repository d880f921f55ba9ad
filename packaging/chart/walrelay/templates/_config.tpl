{{- /* `config` with what the chart adds where it is not set, and without the sections of other brokers. Prints YAML. */ -}}
{{- define "walrelay.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- range without (list "kafka" "rabbitmq" "file") .Values.config.sink.kind -}}
{{- $_ := unset $config.sink . -}}
{{- end -}}
{{- $added := dict "source" (dict "url" (dict "file" "/run/secrets/walrelay/source-url")) -}}
{{- if eq .Values.config.sink.kind "rabbitmq" -}}
{{- $_ := set $added "sink" (dict "rabbitmq" (dict "url" (dict "file" "/run/secrets/walrelay/rabbitmq-url"))) -}}
{{- end -}}
{{- range $section, $tables := $added -}}
{{- if not (hasKey $config $section) -}}{{- $_ := set $config $section dict -}}{{- end -}}
{{- range $key, $value := $tables -}}
{{- $there := get (get $config $section) $key -}}
{{- if not $there -}}
{{- $_ := set (get $config $section) $key $value -}}
{{- else if and (eq $section "sink") (not (get $there "url")) -}}
{{- $_ := set $there "url" (get $value "url") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* What the relay has of it, other than `init`. Prints YAML. The default file would be ignored with a warning where it cannot be used; a file that is named is a fault. */ -}}
{{- define "walrelay.config.relay" -}}
{{- $config := include "walrelay.config" . | fromYaml -}}
{{- if and (eq .Values.state.kind "persistentVolumeClaim") (not $config.delivery.state_file) -}}
{{- $_ := set $config.delivery "state_file" (printf "/var/lib/walrelay/walrelay-%s.state" (default "walrelay" $config.source.slot)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* Unsets in base each value that over has: merged, a secret { env } and one { file } would be one map. Prints nothing. */ -}}
{{- define "walrelay.unset" -}}
{{- $base := .base -}}
{{- range $key, $value := .over -}}
{{- if and (eq (include "walrelay.toml.kind" $value) "table") (kindIs "map" (get $base $key)) -}}
{{- include "walrelay.unset" (dict "base" (get $base $key) "over" $value) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := unset $base $key -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A map as TOML. Context: table (the map), path (the name of its section, "" for the root). */ -}}
{{- define "walrelay.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- if eq (include "walrelay.toml.kind" $value) "value" }}
{{ include "walrelay.toml.key" $key }} = {{ include "walrelay.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- $kind := include "walrelay.toml.kind" $value -}}
{{- $name := include "walrelay.toml.key" $key -}}
{{- if $path -}}{{- $name = printf "%s.%s" $path $name -}}{{- end -}}
{{- if eq $kind "table" }}

[{{ $name }}]
{{- include "walrelay.toml" (dict "path" $name "table" $value) -}}
{{- else if eq $kind "tables" -}}
{{- range $value }}

[[{{ $name }}]]
{{- include "walrelay.toml" (dict "path" $name "table" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A configuration as TOML, as the value of a key of a ConfigMap. */ -}}
{{- define "walrelay.toml.indented" -}}
{{- regexReplaceAll "(?m)^ +$" (include "walrelay.toml" (dict "path" "" "table" .) | trim | nindent 4) "" -}}
{{- end -}}

{{- /* "nothing", "table", "tables" (a list of maps) or "value"; a secret ({ file = … }) is a value. */ -}}
{{- define "walrelay.toml.kind" -}}
{{- if kindIs "invalid" . -}}
nothing
{{- else if kindIs "map" . -}}
{{- if and (eq (len .) 1) (or (hasKey . "file") (hasKey . "env")) (kindIs "string" (first (values .))) -}}value{{- else -}}table{{- end -}}
{{- else if kindIs "slice" . -}}
{{- if and . (kindIs "map" (first .)) -}}tables{{- else -}}value{{- end -}}
{{- else -}}
value
{{- end -}}
{{- end -}}

{{- define "walrelay.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ toRawJson . }}{{- end -}}
{{- end -}}

{{- /* JSON is TOML for strings, numbers, true and false; a whole number has no point in it, however Helm has read it. */ -}}
{{- define "walrelay.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "walrelay.toml.key" $key) (include "walrelay.toml.value" $value)) -}}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "walrelay.toml.value" .) -}}{{- end -}}
[{{ join ", " $items }}]
{{- else -}}
{{ toRawJson . }}
{{- end -}}
{{- end -}}

{{- /* A duration of the configuration (1m30s) in whole seconds, rounded up. */ -}}
{{- define "walrelay.seconds" -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)" . -1 -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $factor := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000) (regexFind "[a-z]+$" .) -}}
{{- $ms = add $ms (mul $number $factor) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end -}}

{{- /* Longer than a drain and what follows it: the position is confirmed to Postgres (8 seconds), or rows are settled (10 seconds). */ -}}
{{- define "walrelay.gracePeriod" -}}
{{- $drain := include "walrelay.seconds" (default "20s" .Values.config.delivery.drain_timeout) | int64 -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- add $drain 15 -}}
{{- else if lt ($given | int64) (add $drain 10) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and config.delivery.drain_timeout %d seconds: the kubelet would kill the relay while it drains, or before Postgres knows what was published. Set %d or more, or a shorter drain_timeout." ($given | int64) $drain (add $drain 10)) -}}
{{- else -}}
{{- $given | int64 -}}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot say. Prints nothing. Context: a configuration. */ -}}
{{- define "walrelay.validate" -}}
{{- $where := "would stand in a ConfigMap. Put it into a Secret, name that in existingSecrets, and write { file: /run/secrets/walrelay/KEY } here." -}}
{{- $rabbitmq := default dict .sink.rabbitmq -}}
{{- $urls := dict "source.url" (default dict .source).url "sink.rabbitmq.url" $rabbitmq.url "tracing.endpoint" (default dict .tracing).endpoint -}}
{{- range $key, $value := $urls -}}
{{- if and (kindIs "string" $value) (regexMatch "://[^@/]*:[^@/]+@|://[^@?]*:[^@?]+@|://[^@/?:,]*:[^@/?,]*[^@/?,0-9][^@/?,]*[/?][^@]*@|(?i)(^|[?&\\s])(ssl)?password\\s*=" $value) -}}
{{- fail (printf "config.%s: the password in it %s" $key $where) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := (default dict (default dict .sink.kafka).properties) -}}
{{- if and (not (kindIs "map" $value)) (not (kindIs "invalid" $value)) (regexMatch "(password|passphrase|secret|key\\.pem)$" $key) -}}
{{- fail (printf "config.sink.kafka.properties.%q %s" $key $where) -}}
{{- end -}}
{{- end -}}
{{- if not (or (kindIs "map" .admin.token) (kindIs "invalid" .admin.token)) -}}
{{- fail (printf "config.admin.token %s" $where) -}}
{{- end -}}
{{- if kindIs "string" (default dict .tracing).headers -}}
{{- fail (printf "config.tracing.headers %s" $where) -}}
{{- end -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|localhost:)" .admin.listen -}}
{{- fail (printf "config.admin.listen is %s: neither probes nor Prometheus reach it in a pod. Set 0.0.0.0:9464." .admin.listen) -}}
{{- end -}}
{{- end -}}
