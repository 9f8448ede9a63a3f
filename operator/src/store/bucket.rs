//! Opening a store by its URL and the files of a Secret.

use std::{collections::BTreeMap, fs, path, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use object_store::{
    ObjectStore, ObjectStoreScheme, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
    path::Path,
};
use url::Url;

use super::{Store, https::Https, parts::Parts};

/// The key of a Secret with certificates that are trusted besides those of public authorities.
const CERTIFICATES: &str = "ca.crt";
/// How long a request is repeated. The operator repeats its own for longer.
const RETRY_FOR: Duration = Duration::from_secs(20);

/// Opens a store. Sends nothing to it.
pub(super) fn open(settings: &Store) -> anyhow::Result<Parts> {
    let mut options = settings
        .credentials
        .as_deref()
        .map_or(Ok(BTreeMap::new()), files)?;
    let https = Https::new(options.remove(CERTIFICATES).as_deref())?;
    options.extend(
        settings
            .endpoint
            .iter()
            .map(|endpoint| ("endpoint".to_owned(), endpoint.clone())),
    );
    let url = settings.url.as_str();
    let (scheme, folder) = scheme(url)?;
    let retry = RetryConfig {
        retry_timeout: RETRY_FOR,
        ..RetryConfig::default()
    };
    macro_rules! cloud {
        ($builder:ty, $keys:expr) => {{
            let builder = <$builder>::new()
                .with_url(url)
                .with_http_connector(https)
                .with_retry(retry);
            // Other keys of a Secret do no harm.
            let builder = options.into_iter().fold(builder, |builder, (key, value)| {
                match key.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            });
            // Otherwise the credentials of the Kubernetes node would be used.
            ensure!(
                $keys.iter().any(|key| builder.get_config_value(key).is_some()),
                "the Secret has no credentials: it needs one of {}",
                $keys.map(|key| key.as_ref().to_ascii_uppercase()).join(", ")
            );
            Arc::new(builder.build()?)
        }};
    }
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => cloud!(AmazonS3Builder, [AmazonS3ConfigKey::AccessKeyId]),
        ObjectStoreScheme::MicrosoftAzure => {
            use AzureConfigKey::{AccessKey, ClientSecret, SasKey, Token};
            cloud!(MicrosoftAzureBuilder, [AccessKey, SasKey, ClientSecret, Token])
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            if let Some(endpoint) = options.remove("endpoint") {
                options.insert("base_url".to_owned(), endpoint);
            }
            cloud!(GoogleCloudStorageBuilder, [GoogleConfigKey::ServiceAccountKey])
        }
        ObjectStoreScheme::Local => Arc::new(LocalFileSystem::new().with_fsync(true)),
        _ => bail!("results are kept at s3://, gs://, az:// and file:// only"),
    };
    Ok(Parts { store, folder })
}

fn scheme(url: &str) -> anyhow::Result<(ObjectStoreScheme, Path)> {
    let url = Url::parse(url).context("unable to read the URL")?;
    Ok(ObjectStoreScheme::parse(&url)?)
}

/// The files of a folder, by name. Kubernetes mounts each key of a Secret as one, beside hidden folders.
fn files(folder: &path::Path) -> anyhow::Result<BTreeMap<String, String>> {
    let failed = || format!("failed to read the settings in {}", folder.display());
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            let text = fs::read_to_string(entry.path()).with_context(failed)?;
            all.insert(name, text.trim().to_owned());
        }
    }
    Ok(all)
}
