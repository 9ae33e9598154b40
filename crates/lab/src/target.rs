//! What is measured: a file system by the program that runs it, with its options.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A file system and its options, written `NAME[:MOUNT OPTIONS[:MKFS OPTIONS]]` or `dir:PATH`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// Who runs it.
    pub system: System,
    /// Mount options, separated by commas.
    pub mount: String,
    /// Options of mkfs, separated by blanks.
    pub mkfs: String,
}

/// Who runs a file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum System {
    /// Our library, in this process.
    Engine,
    /// Our library on a simulated drive, by the name of the target: `engine@` and the drive's.
    Model(&'static str),
    /// Our mount, over FUSE.
    Extant,
    /// The kernel, by the type that mount(8) is given.
    Kernel(&'static str),
    /// fuse2fs of e2fsprogs.
    Fuse2fs,
    /// Whatever is mounted there: it is neither made nor checked.
    Dir(PathBuf),
}

/// Simulated drives, by the names of their targets.
const MODELS: [&str; 4] =
    ["engine@hdd7200", "engine@hdd7200-2005", "engine@ssd-sata", "engine@nvme"];

/// Kernel file systems.
const KERNEL: [&str; 5] = ["ext2", "ext3", "ext4", "xfs", "btrfs"];

/// What is no target.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is no target: there are engine, engine@DRIVE (hdd7200, hdd7200-2005, ssd-sata, nvme), extant, ext2, ext3, ext4, xfs, btrfs, fuse2fs and dir:PATH, \
     each but the last with :MOUNT-OPTIONS and :MKFS-OPTIONS behind it"
)]
pub struct NoTarget(String);

impl System {
    fn named(name: &str) -> Option<Self> {
        match name {
            "engine" => Some(Self::Engine),
            "extant" => Some(Self::Extant),
            "fuse2fs" => Some(Self::Fuse2fs),
            _ => {
                let model = MODELS.into_iter().find(|known| *known == name).map(Self::Model);
                let kernel = || KERNEL.into_iter().find(|known| *known == name).map(Self::Kernel);
                model.or_else(kernel)
            }
        }
    }

    /// The name in targets.
    pub fn name(&self) -> &str {
        match self {
            Self::Engine => "engine",
            Self::Extant => "extant",
            Self::Kernel(name) | Self::Model(name) => name,
            Self::Fuse2fs => "fuse2fs",
            Self::Dir(_) => "dir",
        }
    }

    /// Whether what is on the disk is ext2, ext3 or ext4.
    pub fn is_ext(&self) -> bool {
        !matches!(self, Self::Kernel("xfs" | "btrfs") | Self::Dir(_))
    }

    /// The simulated drive that it stands on.
    pub fn drive(&self) -> Option<&'static str> {
        match self {
            Self::Model(name) => name.strip_prefix("engine@"),
            _ => None,
        }
    }

    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Engine | Self::Extant | Self::Model(_))
    }
}

impl Target {
    /// Reads targets that are separated by commas or blanks. Options have commas too: a new target begins where a target's name
    /// stands.
    ///
    /// # Errors
    /// Something is no target: it is named.
    pub fn list(text: &str) -> Result<Vec<Self>, NoTarget> {
        let mut words: Vec<String> = Vec::new();
        for piece in text.split(',') {
            match words.last_mut() {
                Some(word) if !begins_target(piece) => {
                    word.push(',');
                    word.push_str(piece);
                }
                _ => words.push(piece.trim().to_owned()),
            }
        }
        words.iter().map(|word| word.parse()).collect()
    }

    /// Words for mkfs.
    pub fn mkfs_words(&self) -> impl Iterator<Item = &str> + Clone {
        self.mkfs.split_whitespace()
    }
}

fn begins_target(piece: &str) -> bool {
    let name = piece.trim().split(':').next().unwrap_or_default();
    System::named(name).is_some() || (name == "dir" && piece.contains(':'))
}

impl FromStr for Target {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let refused = || NoTarget(text.to_owned());
        if let Some(path) = text.strip_prefix("dir:") {
            if path.is_empty() {
                return Err(refused());
            }
            let system = System::Dir(path.into());
            return Ok(Self { system, mount: String::new(), mkfs: String::new() });
        }
        let mut parts = text.splitn(3, ':');
        let system = parts.next().and_then(System::named).ok_or_else(refused)?;
        let mut part = || parts.next().unwrap_or_default().trim().to_owned();
        Ok(Self { system, mount: part(), mkfs: part() })
    }
}

impl TryFrom<String> for Target {
    type Error = NoTarget;

    fn try_from(text: String) -> Result<Self, NoTarget> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let System::Dir(path) = &self.system {
            return write!(out, "dir:{}", path.display());
        }
        out.write_str(self.system.name())?;
        if !self.mount.is_empty() || !self.mkfs.is_empty() {
            write!(out, ":{}", self.mount)?;
        }
        if !self.mkfs.is_empty() {
            write!(out, ":{}", self.mkfs)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_they_are_written() {
        for text in [
            "engine",
            "engine@hdd7200:data=writeback:-I 128",
            "ext4:nodelalloc",
            "engine:a,b:-I 256 -O x",
            "xfs::-s size=4096",
            "dir:/a:b",
        ] {
            assert_eq!(text.parse::<Target>().expect("a target").to_string(), text);
        }
    }

    #[test]
    fn every_simulated_drive_is_a_target() {
        for name in MODELS {
            let target: Target = name.parse().expect("a target");
            let drive = target.system.drive().expect("a drive");
            assert!(extant::Preset::named(drive).is_some(), "{drive}");
        }
        assert_eq!(extant::Preset::names().split(", ").count(), MODELS.len());
    }

    #[test]
    fn a_list_is_split_where_names_begin() {
        let list =
            Target::list("engine:nodelalloc,nomballoc,ext4:nodelalloc,xfs,dir:/mnt/x,extant")
                .expect("targets");
        let names: Vec<String> = list.iter().map(Target::to_string).collect();
        assert_eq!(
            names,
            ["engine:nodelalloc,nomballoc", "ext4:nodelalloc", "xfs", "dir:/mnt/x", "extant"]
        );
    }

    #[test]
    fn what_is_no_target_is_named() {
        for text in ["ext5", "", "dir:", "jfs:noatime", "engine@tape"] {
            let error = text.parse::<Target>().expect_err("no target").to_string();
            assert!(error.starts_with(&format!("{text:?} is no target")), "{error}");
        }
    }
}
