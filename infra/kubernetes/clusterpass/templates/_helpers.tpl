{{- define "clusterpass.name" -}}
{{- if contains "clusterpass" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-clusterpass" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "clusterpass.selector" -}}
app.kubernetes.io/name: clusterpass
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "clusterpass.labels" -}}
{{ include "clusterpass.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "clusterpass.host" -}}
{{- (urlParse (required "url: set the URL by which clients call the gateway, such as https://clusterpass.example.com" .Values.url)).hostname }}
{{- end }}

{{- define "clusterpass.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "clusterpass.name" .)) }}
{{- end }}

{{/* The names in the server's certificate: that of the URL, then those of the Service. */}}
{{- define "clusterpass.hosts" -}}
{{- $name := include "clusterpass.name" . }}
{{- concat (list (include "clusterpass.host" .)) .Values.tls.hosts (list (printf "%s.%s.svc" $name .Release.Namespace)) | uniq | toJson }}
{{- end }}

{{- define "clusterpass.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}{{ end }}
{{- end }}

{{/* The variables of the bridge, as a JSON object. The values of config override those of the chart. */}}
{{- define "clusterpass.variables" -}}
{{- $name := include "clusterpass.name" . }}
{{- $v := dict
  "CLUSTERPASS_STORE" (printf "kubernetes:%s" .Release.Namespace)
  "CLUSTERPASS_URL" (.Values.url | trimSuffix "/")
  "CLUSTERPASS_LISTEN" ":8443"
  "CLUSTERPASS_ADMIN_LISTEN" ":8081"
  "CLUSTERPASS_TUNNEL_LISTEN" ":8444"
  "CLUSTERPASS_PEERS" (printf "%s-peers.%s.svc:8444" $name .Release.Namespace)
  "CLUSTERPASS_SOURCE_ADDRESS" .Values.sourceAddress
  "CLUSTERPASS_DRAIN_DELAY" (printf "%ds" (int .Values.drain.delaySeconds))
  "CLUSTERPASS_DRAIN_TIMEOUT" (printf "%ds" (int .Values.drain.timeoutSeconds))
}}
{{- if .Values.audit }}{{ $_ := set $v "CLUSTERPASS_AUDIT" .Values.audit }}{{ end }}
{{- if .Values.recordings }}{{ $_ := set $v "CLUSTERPASS_RECORDINGS" .Values.recordings }}{{ end }}
{{- if .Values.clientCA }}{{ $_ := set $v "CLUSTERPASS_CLIENT_CA" (trim .Values.clientCA) }}{{ end }}
{{- if .Values.authentication }}{{ $_ := set $v "CLUSTERPASS_AUTHENTICATION" (toYaml .Values.authentication) }}{{ end }}
{{- if eq .Values.tls.mode "gateway" }}
{{- $_ := set $v "CLUSTERPASS_HOSTS" (include "clusterpass.hosts" . | fromJsonArray | join ",") }}
{{- else }}
{{- $_ := set $v "CLUSTERPASS_TLS_CERT" "/etc/clusterpass/tls/tls.crt" }}
{{- $_ := set $v "CLUSTERPASS_TLS_KEY" "/etc/clusterpass/tls/tls.key" }}
{{- if .Values.tls.privateCA }}{{ $_ := set $v "CLUSTERPASS_SERVER_CA" "/etc/clusterpass/tls/ca.crt" }}{{ end }}
{{- end }}
{{- mergeOverwrite $v .Values.config | toJson }}
{{- end }}
