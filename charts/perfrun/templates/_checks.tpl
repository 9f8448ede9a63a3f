{{- /* Checks that the schema cannot express. */ -}}
{{- define "perfrun.checks" -}}
{{- range $name, $image := dict "image" .Values.image "nodeImages.rust" .Values.nodeImages.rust "nodeImages.go" .Values.nodeImages.go }}
{{- if regexMatch "@|:[^/]*$" $image.repository }}
{{- fail (printf "%s.repository is %q: put what comes after the name into %s.tag or %s.digest" $name $image.repository $name $name) }}
{{- end }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false, so serviceAccount.name must name an existing service account" }}
{{- end }}
{{- with .Values.test.namespace }}
{{- if and $.Values.watchNamespaces (not (has . $.Values.watchNamespaces)) }}
{{- fail (printf "test.namespace is %q, which is not in watchNamespaces: no operator would run the PerfRun of the test" .) }}
{{- end }}
{{- end }}
{{- $set := list "PERFRUN_IMAGE" "PERFRUN_IMAGE_PULL_POLICY" "PERFRUN_LEASE_NAME" "PERFRUN_MAX_CONCURRENT_RUNS" "PERFRUN_MAX_RESULT_BYTES" "PERFRUN_NAMESPACE" "PERFRUN_NODE_IMAGE" "PERFRUN_NODE_IMAGE_GO" "PERFRUN_NODE_IMAGE_PULL_POLICY" "PERFRUN_NODE_IMAGE_PULL_SECRETS" "PERFRUN_POLICY" "PERFRUN_WATCH_NAMESPACES" "RUST_LOG" }}
{{- /* Ports, rights and network policies of the chart are those of an operator without these variables. */}}
{{- $unset := list "KUBECONFIG" "PERFRUN_ADMIN" "PERFRUN_NODE_ACCESS" "PERFRUN_PROBES" }}
{{- range .Values.extraEnv }}
{{- if has .name $set }}
{{- fail (printf "extraEnv sets %s, which the chart sets: use the corresponding value instead" .name) }}
{{- end }}
{{- if has .name $unset }}
{{- fail (printf "extraEnv sets %s: leave it out, because the other objects of the chart do not fit an operator with it" .name) }}
{{- end }}
{{- end }}
{{- end -}}
