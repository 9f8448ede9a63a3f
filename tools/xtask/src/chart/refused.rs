//! Mistakes in values, with the path, key or text of ours that helm's error for each must contain. The rest
//! of the error is helm's own and differs between versions.

/// A mistake in the values.
pub(super) struct Case {
    /// The mistake as `--set-json` takes it.
    value: &'static str,
    /// The path of the value, the unknown or missing key, or what our template says.
    words: &'static [&'static str],
}

impl Case {
    /// Arguments of helm.
    pub(super) fn values(&self) -> [&'static str; 2] {
        ["--set-json", self.value]
    }

    /// Returns what is wrong with helm's error.
    pub(super) fn problem(&self, output: Result<String, String>) -> Option<String> {
        let Self { value, words } = self;
        match output {
            Ok(_) => Some(format!("{value} is accepted")),
            Err(text) => words
                .iter()
                .find(|word| !text.contains(**word))
                .map(|word| format!("of {value}, helm's error does not name {word:?}: {text}")),
        }
    }
}

const fn case(value: &'static str, words: &'static [&'static str]) -> Case {
    Case { value, words }
}

pub(super) const CASES: &[Case] = &[
    // Misspelt keys, at the top level and below.
    case("replicaCount=3", &["'replicaCount'"]),
    case(r#"image={"tags":"1"}"#, &["'/image'", "'tags'"]),
    case("metrics.podmonitor=true", &["'/metrics'", "'podmonitor'"]),
    case(r#"tolerations=[{"keys":"a"}]"#, &["'/tolerations/0'", "'keys'"]),
    case(
        r#"grafana.datasource={"URL":"http://x"}"#,
        &["'/grafana/datasource'", "'URL'"],
    ),
    case(
        "policy.allowHostnetwork=false",
        &["'/policy'", "'allowHostnetwork'"],
    ),
    // Values of the wrong type.
    case(r#"replicas="two""#, &["'/replicas'"]),
    case("replicas=0", &["'/replicas'"]),
    case(r#"watchNamespaces="benchmarks""#, &["'/watchNamespaces'"]),
    case(r#"watchNamespaces=["a","a"]"#, &["'/watchNamespaces'"]),
    case(r#"watchNamespaces=["Not A Name"]"#, &["'/watchNamespaces/0'"]),
    case(r#"crds.install="yes""#, &["'/crds/install'"]),
    case(
        r#"metrics.serviceMonitor="maybe""#,
        &["'/metrics/serviceMonitor'"],
    ),
    case(r#"metrics.interval="15 s""#, &["'/metrics/interval'"]),
    case(
        r#"metrics.runbookUrl="docs/how-to/alerts.md""#,
        &["'/metrics/runbookUrl'"],
    ),
    case(r#"image.pullPolicy="Sometimes""#, &["'/image/pullPolicy'"]),
    case(
        r#"global.imageRegistry="https://registry.example""#,
        &["'/global/imageRegistry'"],
    ),
    case(
        r#"nodeImages.rust.digest="sha256:123""#,
        &["'/nodeImages/rust/digest'"],
    ),
    case(
        r#"image.pullSecrets=[{"name":"registry"}]"#,
        &["'/image/pullSecrets/0'"],
    ),
    case(
        r#"podDisruptionBudget.maxUnavailable="half""#,
        &["'/podDisruptionBudget/maxUnavailable'"],
    ),
    case(
        r#"policy.allowedImages="registry.example/*""#,
        &["'/policy/allowedImages'"],
    ),
    case(
        r#"policy.allowedImages=["*/node"]"#,
        &["'/policy/allowedImages/0'"],
    ),
    case(r#"policy.longestRun="1 day""#, &["'/policy/longestRun'"]),
    case(r#"policy.keptPods="1 day""#, &["'/policy/keptPods'"]),
    case("policy.mostNodes=-1", &["'/policy/mostNodes'"]),
    case(r#"policy.exclusivePer="node""#, &["'/policy/exclusivePer'"]),
    case(
        r#"admissionPolicy.enabled="maybe""#,
        &["'/admissionPolicy/enabled'"],
    ),
    case(
        r#"admissionPolicy.allowInjected="auto""#,
        &["'/admissionPolicy/allowInjected'"],
    ),
    case("extraLabels.team=1", &["'/extraLabels/team'"]),
    case(r#"extraEnv=[{"value":"x"}]"#, &["'/extraEnv/0'", "'name'"]),
    // Values that only make sense together.
    case(
        r#"image.repository="registry.example/perfrun/operator:1""#,
        &["put what comes after the name into image.tag"],
    ),
    case(
        r#"nodeImages.go.repository="perfrun.invalid/node-go@sha256:123""#,
        &["put what comes after the name into nodeImages.go.tag or nodeImages.go.digest"],
    ),
    case(
        "serviceAccount.create=false",
        &["serviceAccount.name must name an existing service account"],
    ),
    case(
        r#"watchNamespaces=["a"],test.namespace="b""#,
        &["test.namespace is \"b\", which is not in watchNamespaces"],
    ),
    case(
        r#"extraEnv=[{"name":"PERFRUN_WATCH_NAMESPACES","value":"x"}]"#,
        &["extraEnv sets PERFRUN_WATCH_NAMESPACES"],
    ),
    case(
        r#"extraEnv=[{"name":"PERFRUN_MAX_RESULT_BYTES","value":"1048576"}]"#,
        &["extraEnv sets PERFRUN_MAX_RESULT_BYTES, which the chart sets"],
    ),
    case(
        r#"extraEnv=[{"name":"KUBECONFIG","value":"/config"}]"#,
        &["extraEnv sets KUBECONFIG: leave it out"],
    ),
];
