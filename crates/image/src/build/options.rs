//! Options of a build.

use std::path::PathBuf;
use std::str::FromStr;

use extant_device::ByteSize;
use extant_storage::{Opened, Schemes};

use crate::mkfs::Options;

/// How large the volume is to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Size {
    /// As small as the tree admits.
    #[default]
    Auto,
    /// The smallest volume in which the tree fits and this room is left.
    AutoPlus(Room),
    /// A number of bytes, rounded down to whole blocks.
    Given(u64),
    /// The whole block device.
    Device,
}

impl FromStr for Size {
    type Err = String;

    /// Reads `auto`, `device`, a number of bytes with or without a unit, `auto+SIZE` or `auto+N%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = |text: &str| text.parse::<ByteSize>().map(|ByteSize(bytes)| bytes);
        let Some(room) = text.strip_prefix("auto+") else {
            return Ok(match text {
                "auto" => Self::Auto,
                "device" => Self::Device,
                text => Self::Given(bytes(text).map_err(|why| why.to_string())?),
            });
        };
        Ok(Self::AutoPlus(match room.strip_suffix('%') {
            Some(percent) => {
                let is_number = percent.bytes().all(|byte| byte.is_ascii_digit());
                let percent = percent.parse().ok().filter(|_| is_number);
                Room::Percent(percent.ok_or("invalid percentage")?)
            }
            None => Room::Bytes(bytes(room).map_err(|why| why.to_string())?),
        }))
    }
}

/// Room that is left for more files.
///
/// When the volume is mounted so much is available to every user: the blocks that mkfs reserves for
/// root (`-m`) and the clusters that the kernel keeps for extent trees (a fiftieth of the volume,
/// 4096 at most) come on top. Files that are written into it need blocks for large extent trees and
/// directories of their own. Unless options give the number of inodes there is one for each 16 KiB
/// of the room, or each cluster where that is larger, in addition to those of the tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// At least this number of bytes.
    Bytes(u64),
    /// At least this number of hundredths of the smallest volume in which the tree fits.
    Percent(u32),
}

/// How an image is built.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// The image, a file or a block device.
    pub output: PathBuf,
    /// The schemes that its name may have.
    pub schemes: Schemes,
    /// The file system. Its device and size are ignored.
    pub format: Options,
    /// How large it is.
    pub size: Size,
    /// The output, if it is a device that was opened already: it is written in place and keeps its
    /// size.
    pub device: Option<Opened>,
    /// SOURCE_DATE_EPOCH: the volume's own times. Without it the newest time of the tree.
    pub epoch: Option<i64>,
    /// Threads that read and write; the image does not depend on it.
    pub threads: Option<usize>,
}
