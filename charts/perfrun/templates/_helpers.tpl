{{- /* Name of the operator's objects. */ -}}
{{- define "perfrun.operator" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- printf "%s-operator" (.Release.Name | trunc 54 | trimSuffix "-") -}}
{{- else -}}
{{- printf "%s-%s-operator" (.Release.Name | trunc 46 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- /* Name of the role for runs, equal in all releases: helm refuses two releases that would share a
       namespace, or the cluster, because one of them owns the role. */ -}}
{{- define "perfrun.runsRole" -}}
perfrun-operator-runs
{{- end -}}

{{- define "perfrun.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "perfrun.operator" .) -}}
{{- end -}}

{{- /* Users' labels never replace the labels that selectors use. */ -}}
{{- define "perfrun.labels" -}}
{{- merge (include "perfrun.ownLabels" . | fromYaml) .Values.extraLabels | toYaml -}}
{{- end -}}

{{- define "perfrun.ownLabels" -}}
{{ include "perfrun.selector" . }}
app.kubernetes.io/part-of: perfrun
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- /* Nodes of runs take connections on their control port from pods with this name. */ -}}
{{- define "perfrun.selector" -}}
app.kubernetes.io/name: perfrun-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Reference of an image, from a dict with `image` and `root`. As in Docker, what stands before the first
       slash is a registry if it has a dot or a port, or is localhost. */ -}}
{{- define "perfrun.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* "yes" if the chart creates an object of the Prometheus Operator. Takes a dict with `setting`, `kind`
       and `root`. */ -}}
{{- define "perfrun.monitors" -}}
{{- if or (eq (toString .setting) "true") (and (eq (toString .setting) "auto") (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind))) -}}
yes
{{- end -}}
{{- end -}}

{{- define "perfrun.monitorLabels" -}}
{{- merge (include "perfrun.labels" . | fromYaml) .Values.metrics.labels | toYaml -}}
{{- end -}}

{{- define "perfrun.testNamespace" -}}
{{- .Values.test.namespace | default (first .Values.watchNamespaces) | default .Release.Namespace -}}
{{- end -}}

{{- /* Security settings of the pods of this chart, for both programs. */ -}}
{{- define "perfrun.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "perfrun.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "perfrun.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
