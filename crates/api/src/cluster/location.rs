//! The folder of a run in the place that its document names for results.

use crate::{
    results::SCHEMA_VERSION,
    store::{Store, VOLUME_FOLDER},
};

impl Store {
    /// The folder of a run, as a URL that the program in the pod reads.
    pub fn url(&self, namespace: &str, run: &str, uid: &str) -> String {
        let root = match self {
            Self {
                object_store: Some(store),
                ..
            } => store.url.trim_end_matches('/').to_owned(),
            Self { volume, .. } => {
                let path = volume.as_ref().map_or("", |volume| volume.path.as_str());
                format!("file://{VOLUME_FOLDER}/{path}")
                    .trim_end_matches('/')
                    .to_owned()
            }
        };
        // Objects outlive the run, and perhaps the cluster: the UID separates runs of one name; the version
        // separates schemas.
        format!("{root}/{namespace}/{run}/{uid}/v{SCHEMA_VERSION}")
    }

    /// The folder of a run, for people.
    pub fn location(&self, namespace: &str, run: &str, uid: &str) -> String {
        let url = self.url(namespace, run, uid);
        match &self.volume {
            Some(volume) => {
                let folder = url
                    .trim_start_matches("file://")
                    .trim_start_matches(VOLUME_FOLDER);
                format!("folder {folder} of PersistentVolumeClaim {}", volume.claim)
            }
            None => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn urls_and_locations(store: serde_json::Value) -> [String; 2] {
        let store: Store = serde_json::from_value(store).unwrap();
        [
            store.url("bench", "tcp", "uid-1"),
            store.location("bench", "tcp", "uid-1"),
        ]
    }

    #[test]
    fn each_run_has_its_own_folder() {
        let url = "s3://results/nightly/bench/tcp/uid-1/v2";
        for given in ["s3://results/nightly", "s3://results/nightly/"] {
            let store = json!({"objectStore": {"url": given, "secret": "s3"}});
            assert_eq!(urls_and_locations(store), [url, url]);
        }
    }

    #[test]
    fn a_folder_of_a_volume_is_below_the_mounted_claim() {
        assert_eq!(
            urls_and_locations(json!({"volume": {"claim": "disk", "path": "a/b"}})),
            [
                "file:///run/results/a/b/bench/tcp/uid-1/v2",
                "folder /a/b/bench/tcp/uid-1/v2 of PersistentVolumeClaim disk"
            ]
        );
        let [url, _] = urls_and_locations(json!({"volume": {"claim": "disk"}}));
        assert_eq!(url, "file:///run/results/bench/tcp/uid-1/v2");
    }
}
