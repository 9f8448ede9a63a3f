//! The link agent beside a node: a container of its own, so that the node needs no right at all, and what an impaired
//! link costs is not charged to the stack under test.
//!
//! It starts before the node and ends after it (a native sidecar), and unlike a node it is started again in place: what it
//! was asked to do is in a file that outlives it, and it does that again before it answers.

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, EmptyDirVolumeSource, HTTPGetAction, Probe, SecurityContext, Sysctl, Volume,
        VolumeMount,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use perfrun_api::spec::PerfRunSpec;
use perfrun_contract::plan::Plan;
use perfrun_link::Backend;

use super::{environment, modest, named_port, token_mount};
use crate::{
    build::{Identity, LINK_METRICS_PORT, LINK_PORT, Site},
    observe::LINK_CONTAINER,
};

const STATE_FOLDER: &str = "/run/perfrun-link";
const STATE_VOLUME: &str = "link-state";
/// An agent answers within some ten milliseconds; one that does not within this time is started again.
const STARTS_WITHIN_SECONDS: i32 = 60;

/// Builds it, if the plan impairs links.
pub(super) fn agent(
    run: &Identity,
    spec: &PerfRunSpec,
    plan: &Plan,
    node: &str,
    site: &Site,
) -> Option<Container> {
    if plan.networks.is_empty() {
        return None;
    }
    let settings = &spec.template.link;
    let port = i32::from(LINK_PORT);
    Some(Container {
        name: LINK_CONTAINER.to_owned(),
        // Never a variant's: who impairs is to be the same on both sides of a comparison.
        image: Some(site.node_image.clone()),
        image_pull_policy: site.pull_policy.clone(),
        args: Some(vec![
            "link-agent".to_owned(),
            format!("--control=0.0.0.0:{port}"),
            format!("--state-file={STATE_FOLDER}/link.json"),
            // Without MKNOD it only says that it cannot.
            "--make-tun-device".to_owned(),
        ]),
        env: Some(environment(run, node, LINK_METRICS_PORT).into()),
        ports: Some(vec![
            named_port("link", LINK_PORT),
            named_port("link-metrics", LINK_METRICS_PORT),
        ]),
        resources: Some(settings.resources.clone().unwrap_or_else(modest)),
        // What makes an init container a sidecar.
        restart_policy: Some("Always".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: Some(capabilities(plan, settings.real_time)),
                drop: Some(vec!["ALL".to_owned()]),
            }),
            read_only_root_filesystem: Some(true),
            // Another user has none of the capabilities that are added: Kubernetes sets no ambient ones.
            run_as_group: Some(0),
            run_as_non_root: Some(false),
            run_as_user: Some(0),
            ..SecurityContext::default()
        }),
        // The node is started when this succeeds.
        startup_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".to_owned()),
                port: IntOrString::Int(port),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(1),
            failure_threshold: Some(STARTS_WITHIN_SECONDS),
            ..Probe::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![
            token_mount(),
            VolumeMount {
                name: STATE_VOLUME.to_owned(),
                mount_path: STATE_FOLDER.to_owned(),
                ..VolumeMount::default()
            },
        ]),
        ..Container::default()
    })
}

/// Where the agent keeps what it was asked to do.
pub(super) fn volume(plan: &Plan) -> Option<Volume> {
    (!plan.networks.is_empty()).then(|| Volume {
        name: STATE_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    })
}

/// Windows that fill the links, of pods that may set them: Linux' own are 6 and 4 MiB at most, half a Gbit/s at 50 ms.
pub(super) fn sysctls(plan: &Plan, site: &Site) -> Option<Vec<Sysctl>> {
    let most = plan.tcp_window_bytes().filter(|_| site.tcp_sysctls)?;
    let windows = |name: &str, default: u32| Sysctl {
        name: format!("net.ipv4.{name}"),
        value: format!("4096 {default} {most}"),
    };
    Some(vec![windows("tcp_rmem", 131_072), windows("tcp_wmem", 16_384)])
}

fn capabilities(plan: &Plan, real_time: bool) -> Vec<String> {
    let mut impairing = plan.networks.iter().filter(|network| !network.is_none());
    let makes_device = impairing.any(|network| network.backend != Backend::Kernel);
    [
        ("NET_ADMIN", true),
        ("MKNOD", makes_device),
        ("SYS_NICE", real_time),
    ]
    .into_iter()
    .filter(|(_, needed)| *needed)
    .map(|(name, _)| name.to_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ObjectMeta;
    use perfrun_api::{
        document,
        planning::plan,
        spec::{PerfRun, PerfRunSpec},
    };
    use serde_json::json;

    use crate::{
        build::{Identity, Site, pod::pod},
        decide::NewPod,
    };

    #[test]
    fn pods_whose_links_are_impaired_have_an_agent_with_no_more_rights_than_it_needs() {
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
            assert_eq!(agent.image.as_deref(), Some("perfrun/node:default"));
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
            assert_eq!(node.image.as_deref(), Some("perfrun/node:variant"), "{networks}");
            assert_eq!(
                json!(node.security_context.as_ref().unwrap().capabilities),
                json!({"drop": ["ALL"]}),
                "{networks}: the node needs nothing"
            );
            assert_eq!(spec.security_context.unwrap().run_as_user, Some(65532));
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
        let asked = "{link: {resources: {limits: {cpu: 2}}}}";
        assert_eq!(requests(asked), json!({"limits": {"cpu": "2"}}));
    }

    #[test]
    fn what_an_agent_was_asked_to_do_outlives_it() {
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
    fn pods_of_runs_that_leave_links_as_they_are_get_nothing_of_this() {
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
    fn pods_pull_images_as_the_operator_is_told_and_with_the_secrets_of_their_run() {
        let site = Site {
            node_image: "registry.example/perfrun/node:1".to_owned(),
            pull_policy: Some("Never".to_owned()),
            pull_secrets: vec!["shared".to_owned(), "own".to_owned()],
            tcp_sysctls: true,
        };
        let template =
            "{server: {imagePullSecrets: [{name: own}]}, client: {imagePullSecrets: [{name: own}]}}";
        let spec = pod_of("{networks: [lat10]}", template, &site).spec.unwrap();
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

    fn first_pod(matrix: &str, template: &str, tcp_sysctls: bool) -> Pod {
        let site = Site {
            node_image: "perfrun/node:default".to_owned(),
            pull_policy: None,
            pull_secrets: vec![],
            tcp_sysctls,
        };
        pod_of(matrix, template, &site)
    }

    fn pod_of(matrix: &str, template: &str, site: &Site) -> Pod {
        let matrix = matrix.replace('{', "{clients: [mine], servers: [mine], rawBaseline: false, ");
        let text = format!(
            "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {{name: run}}
spec:
  workload: {{ping: {{}}}}
  stacks: [{{name: mine, stack: libp2p, image: 'perfrun/node:variant'}}]
  networks:
  - {{name: by-kernel, delay: 5ms, backend: kernel}}
  - {{name: by-hand, delay: 5ms, backend: userspace}}
  - {{name: long, delay: 100ms, rate: 1Gbit}}
  matrix: {matrix}
  template: {template}
"
        );
        let spec: PerfRunSpec = document::parse(&text).unwrap().remove(0).spec;
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
        let new = NewPod {
            node: plan.nodes[0].clone(),
            incarnation: 0,
            avoid: None,
        };
        pod(&Identity::of(&run).unwrap(), &run.spec, &plan, &new, site)
    }
}
