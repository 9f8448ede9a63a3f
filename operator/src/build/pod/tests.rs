//! Pods of small documents.

use kube::core::ObjectMeta;
use perfrun_api::{document, planning::plan, spec::PerfRun};
use serde_json::{Value, json};

use super::*;

const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: run}
spec:
  workload: {ping: {count: 10}}
  stacks: [{name: mine, stack: libp2p, image: 'perfrun.invalid/node:variant', env: {SOCKETS: '4'}}]
  networks:
  - {name: by-kernel, delay: 5ms, backend: kernel}
  - {name: by-hand, delay: 5ms, backend: userspace}
  - {name: long, delay: 100ms, rate: 1Gbit}
  matrix: MATRIX
  template: TEMPLATE
";

#[test]
fn pods_with_impaired_links_have_an_agent_with_only_the_capabilities_that_it_needs() {
    for (networks, template, capabilities) in [
        ("{networks: [none, lat10]}", "{}", json!(["NET_ADMIN", "MKNOD"])),
        (
            "{networks: [lat10]}",
            "{link: {realTime: true}}",
            json!(["NET_ADMIN", "MKNOD", "SYS_NICE"]),
        ),
        ("{networks: [none, by-kernel]}", "{}", json!(["NET_ADMIN"])),
        (
            "{networks: [by-kernel, by-hand]}",
            "{}",
            json!(["NET_ADMIN", "MKNOD"]),
        ),
    ] {
        let pod = first_pod(networks, template, true);
        let spec = pod.spec.unwrap();
        let [agent] = &spec.init_containers.unwrap()[..] else {
            panic!("{networks}: not one sidecar")
        };
        assert_eq!(agent.restart_policy.as_deref(), Some("Always"));
        assert_eq!(agent.image.as_deref(), Some("perfrun.invalid/node:default"));
        assert_eq!(
            json!(agent.security_context),
            json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"add": capabilities, "drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
                "runAsGroup": 0,
                "runAsNonRoot": false,
                "runAsUser": 0,
            }),
            "{networks}"
        );
        let node = &spec.containers[0];
        assert_eq!(
            node.image.as_deref(),
            Some("perfrun.invalid/node:variant"),
            "{networks}"
        );
        assert_eq!(
            json!(node.security_context.as_ref().unwrap().capabilities),
            json!({"drop": ["ALL"]}),
            "{networks}: the node needs nothing"
        );
        assert_eq!(spec.security_context.unwrap().run_as_user, Some(65532));
    }
}

#[test]
fn programs_of_a_pod_know_the_ip_family_and_all_addresses() {
    for (index, family, everywhere) in [(0, "IPv4", "0.0.0.0"), (2, "IPv6", "[::]")] {
        let matrix = "{networks: [lat10], ipFamilies: [IPv4, IPv6]}";
        let spec = pod_with(index, matrix, "{}", &pod_defaults(true)).spec.unwrap();
        let programs = spec.containers.into_iter().chain(spec.init_containers.unwrap());
        for (program, ports) in programs.zip([(9090, 9401), (9091, 9400)]) {
            let env = program.env.unwrap();
            let variable = |name: &str| env.iter().find(|variable| variable.name == name).unwrap();
            assert_eq!(variable("PERFRUN_IP_FAMILY").value.as_deref(), Some(family));
            let metrics = format!("{everywhere}:{}", ports.1);
            assert_eq!(variable("PERFRUN_METRICS").value.as_ref(), Some(&metrics));
            for (name, path) in [
                ("PERFRUN_LISTEN_IP", "status.podIP"),
                ("PERFRUN_LISTEN_IPS", "status.podIPs"),
            ] {
                let from = json!(variable(name).value_from);
                assert_eq!(from, json!({"fieldRef": {"fieldPath": path}}));
            }
            let control = format!("--control={everywhere}:{}", ports.0);
            assert!(program.args.unwrap().contains(&control), "{control}");
        }
    }
}

#[test]
fn an_agent_has_the_resources_of_the_template_or_little() {
    let requests = |template: &str| {
        let spec = first_pod("{networks: [lat10]}", template, true).spec.unwrap();
        json!(spec.init_containers.unwrap()[0].resources)
    };
    assert_eq!(
        requests("{}"),
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}})
    );
    let template = "{link: {resources: {limits: {cpu: 2}}}}";
    assert_eq!(requests(template), json!({"limits": {"cpu": "2"}}));
}

#[test]
fn the_configuration_of_an_agent_outlives_it() {
    let spec = first_pod("{networks: [lat10]}", "{}", true).spec.unwrap();
    let agent = &spec.init_containers.unwrap()[0];
    assert!(
        agent
            .args
            .as_ref()
            .unwrap()
            .contains(&"--state-file=/run/perfrun-link/link.json".to_owned())
    );
    assert_eq!(
        json!(agent.volume_mounts),
        json!([
            {"name": "token", "mountPath": "/run/perfrun", "readOnly": true},
            {"name": "link-state", "mountPath": "/run/perfrun-link"},
        ])
    );
    assert_eq!(
        json!(spec.volumes.unwrap()[1]),
        json!({"name": "link-state", "emptyDir": {"medium": "Memory"}})
    );
}

#[test]
fn pods_without_impaired_links_have_no_agent() {
    for networks in ["{}", "{networks: [none]}"] {
        let pod = json!(first_pod(networks, "{link: {realTime: true}}", true));
        let spec = &pod["spec"];
        assert_eq!(spec.get("initContainers"), None, "{networks}");
        assert_eq!(spec["securityContext"].get("sysctls"), None, "{networks}");
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 1, "{networks}");
        assert!(!pod.to_string().contains("\"add\""), "{networks}: a capability");
    }
}

#[test]
fn windows_fill_the_links_where_pods_may_set_them() {
    let sysctls = |may| {
        let context = first_pod("{networks: [none, long]}", "{}", may)
            .spec
            .unwrap()
            .security_context;
        context.unwrap().sysctls
    };
    // 1 Gbit/s, 200 ms there and back, twice.
    assert_eq!(
        json!(sysctls(true)),
        json!([
            {"name": "net.ipv4.tcp_rmem", "value": "4096 131072 50000000"},
            {"name": "net.ipv4.tcp_wmem", "value": "4096 16384 50000000"},
        ])
    );
    assert_eq!(sysctls(false), None);
}

#[test]
fn pods_pull_images_with_the_policy_of_the_operator_and_the_secrets_of_both() {
    let pod_defaults = PodDefaults {
        node_image_pull_policy: Some("Never".to_owned()),
        pull_secrets: vec!["shared".to_owned(), "own".to_owned()],
        ..PodDefaults::fixed()
    };
    let template =
        "{server: {imagePullSecrets: [{name: own}, {name: own}]}, client: {imagePullSecrets: [{name: own}]}}";
    let spec = pod_of("{networks: [lat10]}", template, &pod_defaults)
        .spec
        .unwrap();
    assert_eq!(
        json!(spec.image_pull_secrets),
        json!([{"name": "own"}, {"name": "shared"}])
    );
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        assert_eq!(container.image_pull_policy.as_deref(), Some("Never"));
    }
}

#[test]
fn variables_of_the_operator_cannot_be_set_twice() {
    let pod = first_pod("{networks: [none]}", "{}", true);
    let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
    let values = |name: &str| {
        let named = env.iter().filter(|variable| variable.name == name);
        named
            .map(|variable| variable.value.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(values("PERFRUN_RUN"), ["run"]);
    assert_eq!(values("SOCKETS"), ["4"]);
}

#[test]
fn clients_are_spread_once_however_the_template_spreads_them() {
    let constraints = |when: &str| {
        let template = format!(
            "{{client: {{topologySpreadConstraints: [{{maxSkew: 3, topologyKey: kubernetes.io/hostname, \
             whenUnsatisfiable: {when}}}]}}}}"
        );
        let client = pod_with(1, "{networks: [none]}", &template, &pod_defaults(true));
        let all = client.spec.unwrap().topology_spread_constraints.unwrap();
        all.iter()
            .map(|constraint| (constraint.max_skew, constraint.when_unsatisfiable.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(constraints("ScheduleAnyway"), [(3, "ScheduleAnyway".to_owned())]);
    assert_eq!(
        constraints("DoNotSchedule"),
        [(3, "DoNotSchedule".to_owned()), (1, "ScheduleAnyway".to_owned())]
    );
}

#[test]
fn pairs_of_cells_share_a_kubernetes_node_and_count_once_among_clients() {
    let text = DOCUMENT
        .replace("MATRIX", "{clients: [mine], servers: [mine]}")
        .replace("TEMPLATE", "{}")
        .replace(
            "stacks: [",
            "compare: [{baseline: mine, candidate: other, control: true}]\n  \
             stacks: [{name: other, stack: libp2p}, ",
        );
    let (run, plan) = planned(&text);
    let of = |name: &str| {
        let node = plan.node(name).unwrap().clone();
        let pod = built(&run, &plan, node, &pod_defaults(true));
        let spec = pod.spec.unwrap();
        let together = spec.affinity.unwrap().pod_affinity.unwrap_or_default();
        let required = together.required_during_scheduling_ignored_during_execution;
        let spread = spec.topology_spread_constraints.unwrap_or_default();
        let labels = pod.metadata.labels.unwrap();
        (
            labels.get(CELL_PAIR_LABEL).cloned(),
            json!(required),
            json!(spread),
        )
    };
    let [baseline, candidate, control] = ["client-0-mine", "client-0-other", "client-0c-mine"].map(of);
    assert_eq!(baseline.0.as_deref(), Some("client-0-mine"));
    assert_eq!(baseline, candidate);
    assert_eq!(baseline, control);
    let selector = json!({"matchLabels": {"perfrun.io/run": "run", "perfrun.io/cell-pair": "client-0-mine"}});
    let required = json!([{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]);
    assert_eq!(candidate.1, required);
    assert_eq!(
        candidate.2[0]["labelSelector"]["matchExpressions"],
        json!([{
            "key": "perfrun.io/node",
            "operator": "NotIn",
            "values": ["client-0-other", "client-0c-mine", "server-0-other", "server-0c-mine"],
        }])
    );
    assert_eq!(of("server-0-other").0.as_deref(), Some("server-0-mine"));
    let (label, required, _) = of("client-0");
    assert_eq!((label, required), (None, json!(null)), "raw has no pair of cells");
}

#[test]
fn pairs_of_cells_only_prefer_one_kubernetes_node_where_something_else_is_required() {
    let cell_pairs = "{clients: [mine], servers: [mine], rawReference: false}";
    let own = "{client: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
               [{topologyKey: zone, labelSelector: {}}]}}}}";
    for (placement, template) in [("SameNode", "{}"), ("Any", own)] {
        let text = DOCUMENT
            .replace("MATRIX", cell_pairs)
            .replace("TEMPLATE", template)
            .replace(
                "stacks: [",
                "compare: [{baseline: mine, candidate: other}]\n  stacks: [{name: other, stack: libp2p}, ",
            )
            + &format!("  topology: {{placement: {placement}}}\n");
        let (run, plan) = planned(&text);
        let client = plan.node("client-0-other").unwrap();
        let spec = built(&run, &plan, client.clone(), &pod_defaults(true))
            .spec
            .unwrap();
        let together = json!(spec.affinity.unwrap().pod_affinity);
        let required = together["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
        assert_eq!(required.map(Vec::len), Some(1), "{placement}: {together}");
        let preferred = &together["preferredDuringSchedulingIgnoredDuringExecution"][0];
        let cell_pair = &preferred["podAffinityTerm"]["labelSelector"]["matchLabels"][CELL_PAIR_LABEL];
        assert_eq!(cell_pair, "client-0-mine", "{placement}: {together}");
    }
}

fn first_pod(matrix: &str, template: &str, tcp_sysctls: bool) -> Pod {
    pod_of(matrix, template, &pod_defaults(tcp_sysctls))
}

#[test]
fn every_pod_of_a_run_has_a_deadline() {
    let cleanup = "  cleanup: {keepPodsOnFailure: true}\n";
    let timeouts = "  timeouts: {provision: 1m, run: 10m}\n";
    let hour = 3600;
    for (fields, seconds) in [("", 60 + 600 + 900), (cleanup, 60 + 600 + 900 + 24 * hour)] {
        let text = DOCUMENT.replace("MATRIX", "{clients: [mine], servers: [mine]}");
        let text = text.replace("TEMPLATE", "{}") + timeouts + fields;
        let (run, plan) = planned(&(text + "  results: {store: {volume: {claim: disk}}}\n"));
        let (pod_defaults, identity) = (pod_defaults(true), RunIdentity::of(&run).unwrap());
        let store = run.spec.store().unwrap();
        let store = crate::build::store::pod(&identity, &run.spec, store, 0, &pod_defaults);
        let nodes = plan
            .nodes
            .iter()
            .map(|node| built(&run, &plan, node.clone(), &pod_defaults));
        for pod in nodes.chain([store]) {
            let deadline = pod.spec.unwrap().active_deadline_seconds;
            assert_eq!(deadline, Some(seconds), "{:?}", pod.metadata.name);
        }
    }
}

#[test]
fn the_admission_policy_of_the_chart_lists_all_that_pods_have() {
    let policy = include_str!("../../../../charts/perfrun/templates/admission-policy.yaml");
    let is_listed = |name: &str| assert!(policy.contains(&format!("\"{name}\"")), "{name}");
    let are_listed = |fields: &Value| {
        for name in fields.as_object().unwrap().keys() {
            is_listed(name);
        }
    };
    let template = "{link: {realTime: true}, server: {imagePullSecrets: [{name: own}], nodeSelector: {a: b}, \
                    priorityClassName: high, runtimeClassName: sandbox}}";
    let text = DOCUMENT.replace("MATRIX", "{clients: [mine], servers: [mine]}");
    let text = text.replace("TEMPLATE", "{}") + "  topology: {hostNetwork: true}\n";
    let (run, plan) = planned(&(text + "  results: {store: {volume: {claim: disk}}}\n"));
    let (pod_defaults, identity) = (pod_defaults(true), RunIdentity::of(&run).unwrap());
    let store = crate::build::store::pod(&identity, &run.spec, run.spec.store().unwrap(), 0, &pod_defaults);
    let on_host = built(&run, &plan, plan.nodes[0].clone(), &pod_defaults);
    for pod in [first_pod("{networks: [lat10]}", template, true), on_host, store] {
        let spec = json!(pod.spec);
        are_listed(&spec);
        are_listed(&spec["securityContext"]);
        let all = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        for container in all("containers").iter().chain(&all("initContainers")) {
            is_listed(container["name"].as_str().unwrap());
            let security = &container["securityContext"];
            are_listed(security);
            let added = security["capabilities"]["add"].as_array();
            added
                .into_iter()
                .flatten()
                .for_each(|added| is_listed(added.as_str().unwrap()));
        }
        for volume in all("volumes") {
            let mut kinds = volume.as_object().unwrap().keys().filter(|key| *key != "name");
            assert!(
                kinds.all(|kind| policy.contains(&format!("has(volume.{kind})"))),
                "{volume}"
            );
        }
    }
}

fn pod_defaults(tcp_sysctls: bool) -> PodDefaults {
    PodDefaults {
        node_image: "perfrun.invalid/node:default".to_owned(),
        pull_secrets: vec![],
        tcp_sysctls,
        ..PodDefaults::fixed()
    }
}

fn pod_of(matrix: &str, template: &str, pod_defaults: &PodDefaults) -> Pod {
    pod_with(0, matrix, template, pod_defaults)
}

/// The pod of a node of the plan, by its index.
fn pod_with(index: usize, matrix: &str, template: &str, pod_defaults: &PodDefaults) -> Pod {
    let matrix = matrix.replace('{', "{clients: [mine], servers: [mine], rawReference: false, ");
    let text = DOCUMENT.replace("MATRIX", &matrix).replace("TEMPLATE", template);
    let (run, plan) = planned(&text);
    built(&run, &plan, plan.nodes[index].clone(), pod_defaults)
}

fn planned(text: &str) -> (PerfRun, Plan) {
    let mut spec: PerfRunSpec = document::parse(text).unwrap().remove(0).spec;
    // A rule refuses this variable, except in a PerfRun that is older than the rule.
    for variant in &mut spec.stacks {
        variant.env.insert("PERFRUN_RUN".to_owned(), "other".to_owned());
    }
    let run = PerfRun {
        metadata: ObjectMeta {
            name: Some("run".to_owned()),
            namespace: Some("benchmarks".to_owned()),
            uid: Some("00000000-1111-2222-3333-444444444444".to_owned()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let plan = plan(&run.spec).unwrap();
    (run, plan)
}

fn built(run: &PerfRun, plan: &Plan, node: PlannedNode, pod_defaults: &PodDefaults) -> Pod {
    let new = NewPod {
        node,
        incarnation: 0,
        avoid: None,
    };
    pod(
        &RunIdentity::of(run).unwrap(),
        &run.spec,
        plan,
        &new,
        pod_defaults,
    )
}
