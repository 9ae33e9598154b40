//! Paths of directories for the texts of findings. They are read from the device as it is at that
//! moment, sound or not; where one cannot be found out, the text has the number.

use std::collections::HashMap;
use std::sync::Arc;

use extant::debug::{DebugChoice, DebugVolume};
use extant::rooms::device::Device;
use extant::rooms::ondisk::{IncompatFeatures, InodeNo};
use extant::rooms::runtime::sync::Mutex;

use crate::output::printable;

/// Directories that are looked up: on a volume with more findings their numbers must do, as each
/// path takes reading all directories on it.
const MOST: usize = 1000;

/// The paths that were looked up.
#[derive(Default)]
pub(super) struct Paths {
    device: Option<Arc<dyn Device>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Opened with the first path.
    volume: Option<Option<DebugVolume>>,
    known: HashMap<InodeNo, Option<String>>,
}

impl Paths {
    pub(super) fn on(device: Arc<dyn Device>) -> Self {
        Self { device: Some(device), state: Mutex::default() }
    }

    /// The path of a directory from the root.
    pub(super) fn of(&self, directory: InodeNo) -> Option<String> {
        let device = self.device.as_ref()?;
        let State { volume, known } = &mut *self.state.lock();
        if let Some(path) = known.get(&directory) {
            return path.clone();
        }
        if known.len() >= MOST {
            return None;
        }
        let volume = volume.get_or_insert_with(|| open(device.clone())).as_ref()?;
        let path = path_of(volume, directory);
        known.insert(directory, path.clone());
        path
    }
}

/// `None` for a volume whose directories on the device are not those that are checked: those in the
/// journal are.
fn open(device: Arc<dyn Device>) -> Option<DebugVolume> {
    let choice = DebugChoice { ignores_checksums: true, forces: true, ..DebugChoice::default() };
    let (volume, _) = DebugVolume::open(device, &choice).ok()?;
    let is_replayed = !volume.raw().features().incompat.contains(IncompatFeatures::RECOVER);
    is_replayed.then_some(volume)
}

fn path_of(volume: &DebugVolume, directory: InodeNo) -> Option<String> {
    if directory == InodeNo::ROOT {
        return Some("/".to_owned());
    }
    let is_directory = volume.inode(directory).is_ok_and(|record| record.is_dir());
    let path = volume.path_of(directory);
    let is_whole = !path.split(|byte| *byte == b'/').any(|name| name == b"...");
    (is_directory && is_whole).then(|| printable(&path))
}
