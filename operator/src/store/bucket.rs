//! Opening a store by its URL and the files of a Secret.

use std::{fs, path, str::FromStr, sync::Arc, time::Duration};

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

use super::{StoreArgs, https::Https, is_plain, parts::Parts};

/// The key of a Secret with certificates that are trusted besides those of public authorities.
const CERTIFICATES: &str = "ca.crt";
/// The address of Google Cloud Storage.
const GOOGLE: &str = "https://storage.googleapis.com";
/// Settings that become a part of a store's address.
const IN_ADDRESS: [&str; 2] = ["aws_region", "azure_storage_account_name"];
/// How long a request is repeated. The operator repeats its own for longer.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a store. Sends nothing to it.
pub(super) fn open(settings: &StoreArgs) -> anyhow::Result<Parts> {
    let secret = settings.credentials.as_deref();
    let certificates = secret.map(|folder| folder.join(CERTIFICATES));
    let certificates = certificates.filter(|file| file.exists());
    let certificates = certificates.map(|file| read(&file)).transpose()?;
    let https = Https::new(certificates.as_deref())?;
    let url = settings.url.as_str();
    let endpoint = settings.endpoint.as_deref();
    let (scheme, folder) = scheme(url)?;
    let retry = RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    macro_rules! cloud {
        ($builder:ty, $credentials:expr, $others:expr, $address:expr) => {{
            let builder = <$builder>::new()
                .with_url(url)
                .with_http_connector(https)
                .with_retry(retry);
            let known: Vec<_> = $credentials.into_iter().chain($others).collect();
            let options = options(secret, &known)?.into_iter().chain($address);
            let builder = options.fold(builder, |builder, (key, value)| builder.with_config(key, value));
            // Otherwise the credentials of the Kubernetes node would be used.
            ensure!(
                $credentials
                    .iter()
                    .any(|key| builder.get_config_value(key).is_some()),
                "the Secret has no credentials: it needs one of {}",
                $credentials
                    .map(|key| key.as_ref().to_ascii_uppercase())
                    .join(", ")
            );
            Arc::new(builder.build()?)
        }};
    }
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => {
            use AmazonS3ConfigKey::{AccessKeyId, Endpoint, Region, SecretAccessKey, Token};
            let address = endpoint.map(|endpoint| (Endpoint, endpoint.to_owned()));
            cloud!(
                AmazonS3Builder,
                [AccessKeyId],
                [SecretAccessKey, Token, Region],
                address
            )
        }
        ObjectStoreScheme::MicrosoftAzure => {
            use AzureConfigKey::{AccessKey, AccountName, Endpoint, SasKey};
            let address = endpoint.map(|endpoint| (Endpoint, endpoint.to_owned()));
            cloud!(MicrosoftAzureBuilder, [AccessKey, SasKey], [AccountName], address)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            use GoogleConfigKey::{BaseUrl, ServiceAccountKey};
            // Always, because the JSON of a key may contain another.
            let address = [(BaseUrl, endpoint.unwrap_or(GOOGLE).to_owned())];
            cloud!(GoogleCloudStorageBuilder, [ServiceAccountKey], [], address)
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

/// The settings in a mounted Secret that are `known`. Others are ignored: with them, the author of a document
/// could choose an address that the policy forbids, or the identity of the machine.
fn options<K>(secret: Option<&path::Path>, known: &[K]) -> anyhow::Result<Vec<(K, String)>>
where
    K: FromStr + PartialEq + AsRef<str>,
{
    let Some(folder) = secret else {
        return Ok(vec![]);
    };
    let failed = || format!("failed to read the settings in {}", folder.display());
    let mut all = vec![];
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(key) = name.to_ascii_lowercase().parse::<K>() else {
            continue;
        };
        if known.contains(&key) {
            let value = read(&entry.path())?;
            ensure!(
                !IN_ADDRESS.contains(&key.as_ref()) || is_plain(&value),
                "{name} of the Secret may have lower-case letters, digits and '-' only"
            );
            all.push((key, value));
        }
    }
    Ok(all)
}

fn read(file: &path::Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    Ok(text.trim().to_owned())
}
