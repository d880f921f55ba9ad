//! The files from which librdkafka has read certificates and keys. It reads them when a client is made,
//! and never again: a client whose certificate has expired needs a successor.

use std::path::PathBuf;
use std::time::SystemTime;

use walrelay_core::sink::kafka::Code;

use super::settings::KafkaSettings;

/// The beginning and the end of `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `ssl.keystore.location`.
const PREFIX: &str = "ssl.";
const SUFFIX: &str = ".location";

/// The files, and when each was modified before the client was made.
#[derive(Debug, Default)]
pub(super) struct CertificateFiles(Vec<(PathBuf, Option<SystemTime>)>);

impl CertificateFiles {
    /// The files that `properties` name, and those whose content is the value of one (`ssl.key.pem`).
    pub(super) fn of(
        settings: &KafkaSettings,
        properties: &[(String, String)],
    ) -> CertificateFiles {
        let named = properties.iter().filter(|(name, value)| {
            name.starts_with(PREFIX) && name.ends_with(SUFFIX) && !value.is_empty()
        });
        let named = named.map(|(_, path)| PathBuf::from(path));
        let own = settings.properties.iter().filter(|(name, _)| name.starts_with(PREFIX));
        let contents = own.filter_map(|(_, value)| value.file().map(|path| path.to_path_buf()));
        let files = named.chain(contents);
        CertificateFiles(files.map(|path| (path.clone(), modified(&path))).collect())
    }

    /// The error that ends the client, if it has reported a failed connection and one of the files has
    /// changed since it was made.
    pub(super) fn renewal(&self, errors: impl IntoIterator<Item = Code>) -> Option<(Code, String)> {
        // The loss of one broker says nothing of a certificate.
        let is_failure = |code| matches!(code, Code::SSL | Code::AllBrokersDown);
        let has_failed = errors.into_iter().any(is_failure);
        let mut files = self.0.iter().filter(|_| has_failed);
        let (path, _) =
            files.find(|(path, before)| modified(path).is_some_and(|now| *before != Some(now)))?;
        Some((Code::Fatal, format!("{} was replaced: a new client reads it", path.display())))
    }
}

/// A symbolic link counts as what it leads to.
fn modified(path: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|it| it.modified()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_whose_connection_fails_ends_once_a_certificate_was_replaced() {
        let path = std::env::temp_dir().join(format!("walrelay-{}.pem", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let text = path.display().to_string();
        let properties = [("ssl.ca.location", &*text), ("ssl.key.location", "/missing")];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let files = CertificateFiles::of(&KafkaSettings::default(), &properties);
        let failed = [Code::SSL];
        // GIVEN a certificate that is as it was THEN nothing else would be read
        assert_eq!(files.renewal(failed), None);
        // WHEN it is replaced THEN a client that is well goes on, and one that cannot connect ends
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        assert_eq!(files.renewal([]), None);
        let (code, error) = files.renewal(failed).unwrap();
        assert!(code == Code::Fatal && error.contains(&text), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}
