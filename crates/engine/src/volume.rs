//! A volume opened for changes, and its background workers.

use crate::engine::Engine;
use crate::engine::mmp::MmpMark;
use crate::ops::EngineReadDir;
use extant_device::Device;
use extant_ondisk::acl::Acl;
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::Mapping;
use extant_reader::read::path::Follow;
use extant_reader::read::statfs::StatFs;
use extant_reader::read::xattr::{AclKind, XattrInfo};
use extant_reader::{BlockKind, DataPiece, Error, RecordPlace, VolumeInfo, forward_volume_read};
use extant_runtime::env::Worker;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A volume on a device that is open for reading and changing: it owns an [`Engine`], whose calls
/// are its own, and the workers that write in the background. [`Self::close`] ends it well; one
/// that is dropped is left as by power loss.
///
/// ```no_run
/// use extant_runtime::env::Env;
/// use extant_ondisk::InodeNo;
/// use extant_engine::{Credentials, VolumeOptions, Volume};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let path = std::path::Path::new("disk.img");
/// let device = extant_device::FileDeviceOptions::new().write(true).open(path)?;
/// let device = std::sync::Arc::new(device);
/// let volume = Volume::open(device, &Env::threads(), &VolumeOptions::default())?;
/// let file = volume.create(InodeNo::ROOT, b"hosts", 0o644, &Credentials::ROOT)?;
/// volume.write(file.number, 0, b"127.0.0.1 localhost\n")?;
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Volume {
    /// Stopped before the engine is dropped, so that no worker holds it then.
    pub(crate) workers: Workers,
    pub(crate) engine: Arc<Engine>,
}

/// The workers of a volume in the background. A run in progress is finished when they are dropped.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    /// The background writer of delayed data and times. It goes first.
    pub(crate) writer: Option<Worker>,
    /// The mark of multiple-mount protection, and the worker that updates it.
    pub(crate) mmp: Option<(Worker, Arc<MmpMark>)>,
}

impl Deref for Volume {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Makes a call on the engine.
macro_rules! with_engine {
    ($self:ident, $engine:ident => $call:expr) => {{
        let $engine: &Engine = &$self.engine;
        $call
    }};
}

forward_volume_read!(Volume, EngineReadDir, with_engine);
