//! e2fsck.conf, as far as it is followed here. Source: its manual page.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use extant::rooms::image::mkfs::config::Profile;

/// The environment variable that names another file.
const CONFIG_VARIABLE: &str = "E2FSCK_CONFIG";
/// Where the system's configuration lies.
const SYSTEM: &str = "/etc/e2fsck.conf";

/// Relations of `[options]` that change what is printed or repaired, and are not followed.
const NOT_FOLLOWED: [&str; 14] = [
    "allow_cancellation",
    "accept_time_fudge",
    "broken_system_clock",
    "buggy_init_scripts",
    "clear_test_fs_flag",
    "defer_check_on_battery",
    "indexed_dir_slack_percentage",
    "log_dir",
    "log_dir_fallback",
    "log_dir_wait",
    "log_filename",
    "max_count_problems",
    "no_optimize_extents",
    "problem_log_filename",
];

/// The settings of a configuration.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Conf {
    /// As with `-v`.
    pub(super) is_verbose: bool,
    /// As with `-tt`.
    pub(super) reports_time: bool,
    /// The directory of undo files.
    pub(super) undo_dir: Option<OsString>,
    /// Relations that are not followed, as messages.
    pub(super) warnings: Vec<String>,
}

impl Conf {
    /// The file that the environment names, else the system's; nothing where it does not exist.
    ///
    /// # Errors
    /// It cannot be read, is not in the format, or has a section that is not followed and without
    /// which more would be repaired.
    pub(super) fn load() -> Result<Self, String> {
        let path = std::env::var_os(CONFIG_VARIABLE).map_or_else(|| SYSTEM.into(), PathBuf::from);
        match std::fs::read(&path) {
            Ok(bytes) => Self::of_text(&String::from_utf8_lossy(&bytes), &path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    fn of_text(text: &str, path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let profile = Profile::parse(text).map_err(|flaw| format!("{shown}: {flaw}"))?;
        if profile.has_group(&["problems"]) {
            return Err(format!(
                "{shown}: [problems]: not supported: remove the section, or name another file in {CONFIG_VARIABLE}"
            ));
        }
        let option = |name| profile.text(&["options", name]);
        let is_set = |name| option(name).is_some_and(is_true);
        let passed_over = NOT_FOLLOWED.into_iter().filter(|name| option(name).is_some());
        Ok(Self {
            is_verbose: is_set("report_verbose"),
            reports_time: is_set("report_time"),
            undo_dir: profile.text(&["defaults", "undo_dir"]).map(OsString::from),
            warnings: passed_over.map(|name| format!("{shown}: {name}: not supported")).collect(),
        })
    }
}

/// A truth value as the libraries of e2fsprogs read it.
fn is_true(text: &str) -> bool {
    ["y", "yes", "true", "t", "1", "on"].contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Conf, String> {
        Conf::of_text(text, Path::new("e2fsck.conf"))
    }

    #[test]
    fn what_is_followed_is_read_and_what_is_not_is_named() {
        let text = "[options]\n report_verbose = true\n report_time = no\n readahead_kb = 0\n log_dir = /var/log\n[defaults]\n undo_dir = /undo\n";
        let expected = Conf {
            is_verbose: true,
            undo_dir: Some("/undo".into()),
            warnings: vec!["e2fsck.conf: log_dir: not supported".to_owned()],
            ..Conf::default()
        };
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read(""), Ok(Conf::default()));
        let refused = read("[problems]\n 0x040002 = {\n  force_no = true\n }\n");
        assert!(refused.unwrap_err().contains("[problems]: not supported"));
        assert!(read("[options\n").is_err());
    }
}
