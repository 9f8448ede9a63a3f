//! Mistakes in values, with the words that helm's error for each must contain.

/// A mistake in the values.
pub(super) struct Case {
    /// The mistake as `--set-json` takes it.
    value: &'static str,
    /// Words of the error, the path of the value among them.
    words: &'static [&'static str],
}

impl Case {
    /// Arguments of helm.
    pub(super) fn values(&self) -> [&'static str; 2] {
        ["--set-json", self.value]
    }

    /// Returns what is wrong with helm's error.
    pub(super) fn problem(&self, said: Result<String, String>) -> Option<String> {
        let Self { value, words } = self;
        match said {
            Ok(_) => Some(format!("{value} is accepted")),
            Err(text) => words
                .iter()
                .find(|word| !text.contains(**word))
                .map(|word| format!("of {value}, helm does not say {word:?} but: {text}")),
        }
    }
}

const fn case(value: &'static str, words: &'static [&'static str]) -> Case {
    Case { value, words }
}

pub(super) const CASES: &[Case] = &[
    // Misspelt keys, at the top level and below.
    case(
        "replicaCount=3",
        &["additional properties", "'replicaCount' not allowed"],
    ),
    case(
        r#"image={"tags":"1"}"#,
        &["'/image'", "additional properties", "'tags' not allowed"],
    ),
    case(
        "metrics.podmonitor=true",
        &["'/metrics'", "'podmonitor' not allowed"],
    ),
    case(
        r#"tolerations=[{"keys":"a"}]"#,
        &["'/tolerations/0'", "'keys' not allowed"],
    ),
    case(
        r#"grafana.datasource={"URL":"http://x"}"#,
        &["'/grafana/datasource'", "'URL' not allowed"],
    ),
    // Values of the wrong type.
    case(r#"replicas="two""#, &["'/replicas'", "got string, want integer"]),
    case("replicas=0", &["'/replicas'", "minimum: got 0, want 1"]),
    case(
        r#"watchNamespaces="benchmarks""#,
        &["'/watchNamespaces'", "got string, want array"],
    ),
    case(
        r#"watchNamespaces=["a","a"]"#,
        &["'/watchNamespaces'", "items at 0 and 1 are equal"],
    ),
    case(
        r#"watchNamespaces=["Not A Name"]"#,
        &["'/watchNamespaces/0'", "does not match pattern"],
    ),
    case(
        r#"crds.install="yes""#,
        &["'/crds/install'", "got string, want boolean"],
    ),
    case(
        r#"metrics.serviceMonitor="maybe""#,
        &["'/metrics/serviceMonitor'", "'auto'"],
    ),
    case(
        r#"metrics.interval="15 s""#,
        &["'/metrics/interval'", "does not match pattern"],
    ),
    case(
        r#"image.pullPolicy="Sometimes""#,
        &["'/image/pullPolicy'", "'IfNotPresent'"],
    ),
    case(
        r#"nodeImage.digest="sha256:123""#,
        &["'/nodeImage/digest'", "does not match pattern"],
    ),
    case(
        r#"image.pullSecrets=[{"name":"registry"}]"#,
        &["'/image/pullSecrets/0'", "got object, want string"],
    ),
    case(
        r#"podDisruptionBudget.maxUnavailable="half""#,
        &["'/podDisruptionBudget/maxUnavailable'"],
    ),
    case(
        "extraLabels.team=1",
        &["'/extraLabels/team'", "got number, want string"],
    ),
    case(
        r#"extraEnv=[{"value":"x"}]"#,
        &["'/extraEnv/0'", "missing property 'name'"],
    ),
    // Values that only make sense together.
    case(
        r#"image.repository="registry.example/perfrun/operator:1""#,
        &["put what comes after the name into image.tag"],
    ),
    case(
        r#"nodeImage.repository="perfrun/node@sha256:123""#,
        &["put what comes after the name into nodeImage.tag or nodeImage.digest"],
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
];
