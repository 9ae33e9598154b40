//! Profiles of AWS: keys, regions and endpoints in `~/.aws/credentials` and `~/.aws/config`, by
//! "Shared config and credentials files" of the AWS SDKs and Tools Reference Guide.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Ways to a key that are not built.
const NOT_SUPPORTED: [&str; 4] = ["credential_process", "role_arn", "sso_session", "sso_start_url"];

/// The settings of the profile that the user has chosen: `AWS_PROFILE`, or `default`.
#[derive(Default)]
pub(super) struct Profile(BTreeMap<String, String>);

/// The name of a key, its secret, and the token of a session.
pub(super) type Key<'p> = (&'p str, &'p str, Option<&'p str>);

impl Profile {
    /// Reads the files. Without them the profile is empty.
    ///
    /// # Errors
    /// A file cannot be read, the profile that was chosen is missing, or has a key in a way that is
    /// not supported; in a sentence.
    pub(super) fn of_user() -> Result<Self, String> {
        let chosen = env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
        let config = text("AWS_CONFIG_FILE", "config")?;
        let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials")?;
        Self::from_texts(&config, &credentials, chosen.as_deref())
    }

    fn from_texts(config: &str, credentials: &str, chosen: Option<&str>) -> Result<Self, String> {
        let name = chosen.unwrap_or("default");
        let of_config = section(config, &format!("profile {name}"))
            .or_else(|| section(config, name).filter(|_| name == "default"));
        let of_credentials = section(credentials, name);
        if chosen.is_some() && of_config.is_none() && of_credentials.is_none() {
            return Err(format!("AWS_PROFILE: no profile '{name}' in ~/.aws"));
        }
        let mut settings = of_config.unwrap_or_default();
        settings.extend(of_credentials.unwrap_or_default());
        Ok(Self(settings))
    }

    pub(super) fn region(&self) -> Option<&str> {
        self.get("region")
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.get("endpoint_url")
    }

    /// The key; `None` if the profile says nothing of one.
    ///
    /// # Errors
    /// The key has no secret, or is obtained in a way that is not supported.
    pub(super) fn key(&self) -> Result<Option<Key<'_>>, String> {
        match (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Ok(Some((id, secret, self.get("aws_session_token")))),
            (None, None) => match NOT_SUPPORTED.iter().find(|name| self.get(name).is_some()) {
                Some(name) => Err(format!("{name} of a profile of AWS is not supported")),
                None => Ok(None),
            },
            _ => Err("a profile of AWS has only half of a key".to_owned()),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// A file: the variable's, or the one in `~/.aws`. Empty if it is missing.
fn text(variable: &str, name: &str) -> Result<String, String> {
    let own = || env::home_dir().map(|home| home.join(".aws").join(name));
    let Some(path) = env::var_os(variable).map(PathBuf::from).or_else(own) else {
        return Ok(String::new());
    };
    match fs::read_to_string(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
        Ok(text) => Ok(text),
    }
}

/// The settings of a section, `None` if the text has no such section. Lines that are indented
/// belong to settings of their own, none of which is used here.
fn section(text: &str, wanted: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut is_in = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            let name = head.split(']').next().unwrap_or_default();
            is_in = name.split_whitespace().eq(wanted.split_whitespace());
            if is_in {
                found.get_or_insert_default();
            }
        } else if is_in
            && let Some((name, value)) = line.split_once('=')
            && let Some(settings) = &mut found
        {
            // After a blank the rest of the line is a comment.
            let value = value.split(" #").next().unwrap_or_default();
            settings.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# of the user\n[default]\nregion = eu-west-1\ns3 =\n  region = no\n\
                          [profile work]\nregion=us-east-2 # far\nendpoint_url = http://h:1\n\
                          aws_access_key_id = old\n[profile role]\nrole_arn = arn:x\n[other]\na=b\n";
    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key = B=+/\n\
                               [ work ]\nAWS_ACCESS_KEY_ID=C\naws_secret_access_key=D\n\
                               aws_session_token = T\n[half]\naws_access_key_id = A\n";

    #[test]
    fn settings_are_those_of_the_profile_that_was_chosen() {
        let of = |name| Profile::from_texts(CONFIG, CREDENTIALS, name).unwrap();
        let default = of(None);
        assert_eq!((default.region(), default.endpoint()), (Some("eu-west-1"), None));
        assert_eq!(default.key(), Ok(Some(("A", "B=+/", None))));
        let work = of(Some("work"));
        assert_eq!((work.region(), work.endpoint()), (Some("us-east-2"), Some("http://h:1")));
        assert_eq!(work.key(), Ok(Some(("C", "D", Some("T")))));
        assert!(of(Some("role")).key().unwrap_err().contains("role_arn"));
        assert!(of(Some("half")).key().is_err());
    }

    #[test]
    fn a_profile_that_is_missing_is_an_error_if_it_was_chosen() {
        assert_eq!(Profile::from_texts("", "", None).unwrap().key(), Ok(None));
        for name in ["none", "other", "a] [default"] {
            let found = Profile::from_texts(CONFIG, CREDENTIALS, Some(name));
            assert!(found.is_err(), "{name}");
        }
    }
}
