//! Targets: a file system by the program that runs it, with its options.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A file system and its options, written `NAME[+LAYER...][:MOUNT OPTIONS[:MKFS OPTIONS]]` or
/// `dir:PATH`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabTarget {
    /// Its program.
    pub system: System,
    /// Mappings of the device mapper between a kernel's file system and its device, from the device
    /// up.
    pub layers: Vec<Layer>,
    /// Mount options, separated by commas.
    pub mount: String,
    /// Options of mkfs, separated by blanks.
    pub mkfs: String,
}

/// The program of a file system.
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
    /// The zfs-fuse of Debian: a pool on one device.
    ZfsFuse,
    /// A mounted directory: it is neither made nor checked.
    Dir(PathBuf),
}

/// Simulated drives, by the names of their targets.
const MODELS: [&str; 4] =
    ["engine@hdd7200", "engine@hdd7200-2005", "engine@ssd-sata", "engine@nvme"];

/// Kernel file systems.
const KERNEL: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "jfs", "nilfs2"];

/// A mapping of the kernel's device mapper.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Layer {
    /// dm-linear, from the first mebibyte on: like an LVM logical volume in one piece.
    Linear,
    /// dm-crypt with aes-cbc-essiv:sha256 and a key of 256 bits: document 002's.
    Crypt,
    /// dm-crypt with aes-xts-plain64 and a key of 512 bits: today's usual.
    CryptXts,
}

impl Layer {
    const ALL: [Self; 3] = [Self::Linear, Self::Crypt, Self::CryptXts];

    /// The name in targets.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Crypt => "crypt",
            Self::CryptXts => "crypt-xts",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

/// Invalid target.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "unknown target {0:?} (expected engine, engine@DRIVE (hdd7200, hdd7200-2005, ssd-sata, nvme), extant, ext2, ext3, ext4, xfs, btrfs, \
     jfs, nilfs2, zfs-fuse, fuse2fs or dir:PATH; all but the last may be followed by :MOUNT-OPTIONS and :MKFS-OPTIONS, \
     the kernel's by +linear, +crypt or +crypt-xts)"
)]
pub struct NoTarget(String);

impl System {
    fn named(name: &str) -> Option<Self> {
        match name {
            "engine" => Some(Self::Engine),
            "extant" => Some(Self::Extant),
            "fuse2fs" => Some(Self::Fuse2fs),
            "zfs-fuse" => Some(Self::ZfsFuse),
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
            Self::ZfsFuse => "zfs-fuse",
            Self::Dir(_) => "dir",
        }
    }

    /// Whether what is on the disk is ext2, ext3 or ext4.
    pub fn is_ext(&self) -> bool {
        match self {
            Self::Engine | Self::Model(_) | Self::Extant | Self::Fuse2fs => true,
            Self::Kernel(name) => name.starts_with("ext"),
            Self::ZfsFuse | Self::Dir(_) => false,
        }
    }

    /// Its simulated drive.
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

impl LabTarget {
    /// Reads targets that are separated by commas. Options have commas too: a new target begins at
    /// a target's name.
    ///
    /// # Errors
    /// Invalid targets: the error names them.
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

/// The same target on a simulated drive; `None` of what is not the engine's.
pub(crate) fn engine_on(text: &str, drive: &System) -> Option<String> {
    let target: LabTarget = text.parse().ok()?;
    let is_engine = target.system == System::Engine;
    is_engine.then(|| LabTarget { system: drive.clone(), ..target }.to_string())
}

fn begins_target(piece: &str) -> bool {
    let name = piece.trim().split(':').next().unwrap_or_default();
    stack(name).is_some() || (name == "dir" && piece.contains(':'))
}

/// A system with the layers below it: `ext4+linear+crypt`.
fn stack(text: &str) -> Option<(System, Vec<Layer>)> {
    let mut words = text.split('+');
    let system = System::named(words.next()?)?;
    let layers: Vec<Layer> = words.map(Layer::named).collect::<Option<_>>()?;
    let is_once = |layer: &Layer| layers.iter().filter(|other| *other == layer).count() == 1;
    let can_be = matches!(system, System::Kernel(_)) || layers.is_empty();
    (can_be && layers.iter().all(is_once)).then_some((system, layers))
}

impl FromStr for LabTarget {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let refused = || NoTarget(text.to_owned());
        if let Some(path) = text.strip_prefix("dir:") {
            if path.is_empty() {
                return Err(refused());
            }
            let system = System::Dir(path.into());
            return Ok(Self {
                system,
                layers: Vec::new(),
                mount: String::new(),
                mkfs: String::new(),
            });
        }
        let mut parts = text.splitn(3, ':');
        let (system, layers) = parts.next().and_then(stack).ok_or_else(refused)?;
        let mut part = || parts.next().unwrap_or_default().trim().to_owned();
        Ok(Self { system, layers, mount: part(), mkfs: part() })
    }
}

impl TryFrom<String> for LabTarget {
    type Error = NoTarget;

    fn try_from(text: String) -> Result<Self, NoTarget> {
        text.parse()
    }
}

impl From<LabTarget> for String {
    fn from(target: LabTarget) -> Self {
        target.to_string()
    }
}

impl fmt::Display for LabTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let System::Dir(path) = &self.system {
            return write!(out, "dir:{}", path.display());
        }
        out.write_str(self.system.name())?;
        for layer in &self.layers {
            write!(out, "+{}", layer.name())?;
        }
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
            "jfs",
            "zfs-fuse:noatime",
            "ext4+linear",
            "xfs+linear+crypt-xts:noatime:-i size=512",
        ] {
            assert_eq!(text.parse::<LabTarget>().expect("a target").to_string(), text);
        }
    }

    #[test]
    fn every_simulated_drive_is_a_target() {
        for name in MODELS {
            let target: LabTarget = name.parse().expect("a target");
            let drive = target.system.drive().expect("a drive");
            assert!(extant::Preset::named(drive).is_some(), "{drive}");
        }
        assert_eq!(extant::Preset::names().split(", ").count(), MODELS.len());
    }

    #[test]
    fn a_list_is_split_where_names_begin() {
        let list =
            LabTarget::list("engine:nodelalloc,nomballoc,ext4:nodelalloc,xfs,dir:/mnt/x,extant")
                .expect("targets");
        let names: Vec<String> = list.iter().map(LabTarget::to_string).collect();
        assert_eq!(
            names,
            ["engine:nodelalloc,nomballoc", "ext4:nodelalloc", "xfs", "dir:/mnt/x", "extant"]
        );
    }

    #[test]
    fn what_is_no_target_is_named() {
        for text in [
            "ext5",
            "",
            "dir:",
            "engine@tape",
            "ext4+",
            "ext4+raid",
            "engine+linear",
            "engine@hdd7200+linear",
            "ext4+crypt+crypt",
        ] {
            let error = text.parse::<LabTarget>().expect_err("no target").to_string();
            assert!(error.starts_with(&format!("unknown target {text:?}")), "{error}");
        }
    }
}
