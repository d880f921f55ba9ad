{{- define "walrelay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* Short enough for the names that Kubernetes derives from it (52 for a Job or a StatefulSet). */ -}}
{{- define "walrelay.fullname" -}}
{{- $name := include "walrelay.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- end -}}

{{- define "walrelay.selector" -}}
app.kubernetes.io/name: {{ include "walrelay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "walrelay.labels" -}}
{{ include "walrelay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "walrelay.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}
{{- end -}}

{{- define "walrelay.serviceAccountName" -}}
{{- default (ternary (include "walrelay.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* The port of config.admin.listen. */ -}}
{{- define "walrelay.port" -}}
{{- regexFind "[0-9]+$" .Values.config.admin.listen -}}
{{- end -}}

{{- /* What the relay and `init` have in common: image, variables, mounts. Context: root, secrets, state (is there a place for it). */ -}}
{{- define "walrelay.container" -}}
image: {{ include "walrelay.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
env:
  - name: WALRELAY_CONFIG
    value: /etc/walrelay/walrelay.toml
  - name: STATE_DIRECTORY
    value: {{ ternary "/var/lib/walrelay" "" .state | quote }}
  # The image sets it, and a variable takes precedence over the file.
  - name: WALRELAY_ADMIN__LISTEN
    value: {{ .root.Values.config.admin.listen | quote }}
  {{- with .root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/walrelay
    readOnly: true
  {{- if .secrets }}
  - name: secrets
    mountPath: /run/secrets/walrelay
    readOnly: true
  {{- end }}
  {{- if .state }}
  - name: state
    mountPath: /var/lib/walrelay
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Context: root, secrets, configMap. */ -}}
{{- define "walrelay.volumes" -}}
- name: config
  configMap:
    name: {{ .configMap }}
{{- if .secrets }}
- name: secrets
  projected:
    # Owned by root, read through fsGroup.
    defaultMode: 0440
    sources:
      {{- range .secrets }}
      - secret:
          {{- toYaml . | nindent 10 }}
      {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What the pods of the relay and of `init` have in common. */ -}}
{{- define "walrelay.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
