{{- define "agent.name" -}}
{{- if contains "clusterpass" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-clusterpass-agent" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "agent.selector" -}}
app.kubernetes.io/name: clusterpass-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.selector" . }}
clusterpass.io/cluster: {{ .Values.cluster | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "agent.secret" -}}
{{- .Values.existingSecret | default (include "agent.name" .) }}
{{- end }}

{{- define "agent.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}{{ end }}
{{- end }}

{{- define "agent.variables" -}}
{{- $v := dict
  "CLUSTERPASS_GATEWAY" (.Values.gateway.url | trimSuffix "/")
  "CLUSTERPASS_CLUSTER" .Values.cluster
  "CLUSTERPASS_CREDENTIAL" (printf "secret:%s/%s" .Release.Namespace (include "agent.secret" .))
  "CLUSTERPASS_ADMIN_LISTEN" ":8081"
}}
{{- if .Values.services }}{{ $_ := set $v "CLUSTERPASS_SERVICES" (join "," .Values.services) }}{{ end }}
{{- mergeOverwrite $v .Values.config | toJson }}
{{- end }}
