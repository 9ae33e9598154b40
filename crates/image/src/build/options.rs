//! Options of a build.

use std::path::PathBuf;

use extant_storage::{Opened, Schemes};

use crate::mkfs::Options;

/// How large the volume is to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Size {
    /// As small as the tree admits.
    #[default]
    Auto,
    /// A number of bytes, rounded down to whole blocks.
    Given(u64),
    /// The whole block device.
    Device,
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
