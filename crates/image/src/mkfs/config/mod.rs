//! mke2fs.conf as mke2fs reads it: which file, which types, and which relation of which type
//! counts.

mod profile;

use std::path::{Path, PathBuf};

pub use profile::{Profile, ProfileError};

use super::error::MkfsError;
use super::numbers;

/// Used if neither `MKE2FS_CONFIG` nor `/etc/mke2fs.conf` names an existing file: the defaults of
/// mke2fs 1.47.4.
const BUILT_IN: &str = include_str!("built-in.conf");

/// Where the system's configuration lies.
const SYSTEM: &str = "/etc/mke2fs.conf";

/// The environment variable that names another file.
pub const CONFIG_VARIABLE: &str = "MKE2FS_CONFIG";

/// The configuration and the file it came from.
#[derive(Clone, Debug)]
pub struct Config {
    profile: Profile,
    /// None: the built-in defaults.
    pub path: Option<PathBuf>,
}

impl Config {
    /// The built-in defaults: also what `build` uses, which must not depend on the machine.
    pub fn built_in() -> Self {
        let profile = Profile::parse(BUILT_IN).expect("the built-in text is in the format: tested");
        Self { profile, path: None }
    }

    /// A given text, with the path that messages name.
    pub fn of_text(text: &str, path: &Path) -> Result<Self, MkfsError> {
        let profile = Profile::parse(text)
            .map_err(|flaw| MkfsError::Config { path: path.to_owned(), flaw })?;
        Ok(Self { profile, path: Some(path.to_owned()) })
    }

    /// The file that the environment names, else the system's; a file that is not there: the
    /// built-in defaults.
    pub fn load(named: Option<&Path>) -> Result<Self, MkfsError> {
        let path = named.unwrap_or(Path::new(SYSTEM));
        match std::fs::read(path) {
            Ok(bytes) => Self::of_text(&String::from_utf8_lossy(&bytes), path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::built_in()),
            Err(source) => Err(MkfsError::Io { path: path.to_owned(), source }),
        }
    }

    /// A relation of `[defaults]`.
    pub fn default_text(&self, relation: &str) -> Option<&str> {
        self.profile.text(&["defaults", relation])
    }

    /// A relation of a device in `[devices]`.
    pub fn device_text(&self, device: &Path, relation: &str) -> Option<&str> {
        self.profile.text(&["devices", device.to_str()?, relation])
    }

    /// A relation of `[options]`.
    pub fn option_text(&self, relation: &str) -> Option<&str> {
        self.profile.text(&["options", relation])
    }

    /// Whether `[fs_types]` has a section for a type.
    pub fn defines(&self, fs_type: &str) -> bool {
        self.profile.has_group(&["fs_types", fs_type])
    }
}

/// The inputs of the list of types.
#[derive(Clone, Debug)]
pub struct TypeRequest<'a> {
    /// `-t`
    pub fs_type: Option<&'a str>,
    /// The type that the program's name implies.
    pub implied: Option<&'a str>,
    /// `-T`
    pub usage_types: Option<&'a str>,
    /// `-j` or `-J` was given.
    pub journal: bool,
    /// The creator is the Hurd: its usage type is appended.
    pub hurd: bool,
    /// For `[devices]`.
    pub device: &'a Path,
    /// Bytes.
    pub size: u128,
    /// `-F`: an undefined type is only warned about.
    pub force: bool,
}

/// The configuration by a list of types: the last type with the relation counts.
#[derive(Clone, Debug)]
pub struct TypedConfig<'a> {
    config: &'a Config,
    /// The file system type, then the usage types.
    pub types: Vec<String>,
    /// Types that are not defined.
    pub warnings: Vec<String>,
}

const MIB: u128 = 1 << 20;
const TIB: u128 = 1 << 40;

/// The usage type of a size, from mke2fs(8). `None`: nothing special.
fn usage_of_size(bytes: u128) -> Option<&'static str> {
    match bytes {
        _ if bytes < 3 * MIB => Some("floppy"),
        _ if bytes < 512 * MIB => Some("small"),
        _ if bytes < 4 * TIB => None,
        _ if bytes < 16 * TIB => Some("big"),
        _ => Some("huge"),
    }
}

impl<'a> TypedConfig<'a> {
    /// Picks the types.
    pub fn resolve(config: &'a Config, request: &TypeRequest<'_>) -> Result<Self, MkfsError> {
        let journal = if request.journal { "ext3" } else { "ext2" };
        let fs_type = request
            .fs_type
            .or(request.implied)
            .or_else(|| config.device_text(request.device, "fs_type"))
            .or_else(|| config.default_text("fs_type"))
            .unwrap_or(journal);
        let mut warnings = Vec::new();
        // ext2 needs no definition: it is the result without any request.
        if !config.defines(fs_type) && fs_type != "ext2" {
            if !request.force {
                return Err(MkfsError::UnknownType(fs_type.to_owned()));
            }
            warnings.push(format!("the file system type {fs_type} is not defined in mke2fs.conf"));
        }
        let usage = request
            .usage_types
            .or_else(|| config.device_text(request.device, "usage_types"))
            .or_else(|| usage_of_size(request.size));
        let mut types = vec![fs_type.to_owned()];
        for usage in usage.into_iter().flat_map(|list| list.split(',')) {
            if config.defines(usage) {
                types.push(usage.to_owned());
            } else if usage != "default"
                && !matches!(usage, "big" | "huge" if request.usage_types.is_none())
            {
                warnings.push(format!("the fs_type {usage} is not defined in mke2fs.conf"));
            }
        }
        if request.hurd && config.defines("hurd") {
            types.push("hurd".to_owned());
        }
        Ok(Self { config, types, warnings })
    }

    /// A relation's text: of the last type that has it, else of `[defaults]`.
    pub fn text(&self, relation: &str) -> Option<&str> {
        let of_type = |name: &String| self.config.profile.text(&["fs_types", name, relation]);
        self.types.iter().rev().find_map(of_type).or_else(|| self.config.default_text(relation))
    }

    /// Every type's text, in the order of the types; without `[defaults]`.
    pub fn cumulative<'b>(&'b self, relation: &'b str) -> impl Iterator<Item = &'b str> {
        self.types
            .iter()
            .filter_map(move |name| self.config.profile.text(&["fs_types", name, relation]))
    }

    /// A relation that is a number; other text is ignored.
    pub fn integer(&self, relation: &str) -> Option<i64> {
        let read = |text: &str| match text.strip_prefix('-') {
            Some(digits) => i64::try_from(numbers::number(digits)?).ok().map(|value| -value),
            None => i64::try_from(numbers::number(text)?).ok(),
        };
        let of_type =
            |name: &String| self.config.profile.text(&["fs_types", name, relation]).and_then(read);
        self.types
            .iter()
            .rev()
            .find_map(of_type)
            .or_else(|| self.config.default_text(relation).and_then(read))
    }

    /// A relation that is a fraction, like `reserved_ratio`.
    pub fn fraction(&self, relation: &str) -> Option<f64> {
        self.text(relation).and_then(|text| text.parse().ok())
    }

    /// A relation that is yes or no.
    pub fn boolean(&self, relation: &str) -> Option<bool> {
        self.text(relation).map(is_true)
    }
}

/// The words of mke2fs.conf(5) for no; mke2fs takes every other word for yes.
fn is_true(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    !matches!(word.as_str(), "no" | "n" | "false" | "f" | "nil" | "0" | "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: u128) -> TypeRequest<'static> {
        TypeRequest {
            fs_type: Some("ext4"),
            implied: None,
            usage_types: None,
            journal: false,
            hurd: false,
            device: Path::new("/dev/x"),
            size,
            force: false,
        }
    }

    fn types(config: &Config, request: &TypeRequest<'_>) -> Vec<String> {
        TypedConfig::resolve(config, request).expect("defined").types
    }

    #[test]
    fn usage_type_follows_the_size() {
        let config = Config::built_in();
        assert_eq!(types(&config, &request(3 * MIB - 1)), ["ext4", "floppy"]);
        assert_eq!(types(&config, &request(3 * MIB)), ["ext4", "small"]);
        assert_eq!(types(&config, &request(512 * MIB)), ["ext4"]);
        assert_eq!(types(&config, &request(4 * TIB)), ["ext4", "big"]);
        assert_eq!(types(&config, &request(16 * TIB)), ["ext4", "huge"]);
    }

    #[test]
    fn later_types_override_and_features_accumulate() {
        let text = "[defaults]\n a = 0\n b = 1\n[fs_types]\n ext4 = {\n a = 1\n features = x\n }\n \
                    news = {\n a = 2\n features = y\n }\n";
        let config = Config::of_text(text, Path::new("c")).expect("valid");
        let request = TypeRequest { usage_types: Some("news,none"), ..request(TIB) };
        let typed = TypedConfig::resolve(&config, &request).expect("defined");
        assert_eq!(typed.integer("a"), Some(2));
        assert_eq!(typed.integer("b"), Some(1));
        assert_eq!(typed.cumulative("features").collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(typed.warnings, ["the fs_type none is not defined in mke2fs.conf"]);
    }

    #[test]
    fn default_type_is_the_devices_then_the_configurations_then_by_journal() {
        let text = "[defaults]\n fs_type = ext3\n[devices]\n /dev/x = {\n fs_type = ext4\n \
                    usage_types = news\n }\n[fs_types]\n ext3 = {\n a = 1\n }\n ext4 = {\n a = 1\n \
                    }\n news = {\n a = 1\n }\n";
        let config = Config::of_text(text, Path::new("c")).expect("valid");
        let bare = TypeRequest { fs_type: None, ..request(TIB) };
        assert_eq!(types(&config, &bare), ["ext4", "news"]);
        let other = TypeRequest { device: Path::new("/dev/y"), ..bare };
        assert_eq!(types(&config, &other), ["ext3"]);
        let none = Config::built_in();
        assert_eq!(types(&none, &other), ["ext2"]);
        assert_eq!(types(&none, &TypeRequest { journal: true, ..other }), ["ext3"]);
    }

    #[test]
    fn an_undefined_type_needs_force() {
        let config = Config::built_in();
        let odd = TypeRequest { fs_type: Some("nosuch"), ..request(TIB) };
        assert!(matches!(TypedConfig::resolve(&config, &odd), Err(MkfsError::UnknownType(_))));
        let forced = TypeRequest { force: true, ..odd };
        assert_eq!(types(&config, &forced), ["nosuch"]);
    }

    #[test]
    fn words_for_no_are_those_of_the_manual_page() {
        for no in ["no", "N", "false", "nil", "0", "off"] {
            assert!(!is_true(no), "{no}");
        }
        for yes in ["yes", "y", "true", "t", "1", "on", "2"] {
            assert!(is_true(yes), "{yes}");
        }
    }
}
