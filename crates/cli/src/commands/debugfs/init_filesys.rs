//! `init_filesys`: a new file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use extant::Formatter;
use extant::rooms::device::{Device, SliceDevice};
use extant::rooms::storage::Access;

use super::image::{NotOpened, OpenRequest, open_device};
use super::navigate::open_image;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};

/// The size of blocks where nothing is said of it, as debugfs has it.
const BLOCK_SIZE: u64 = 1024;

/// Formats a device: ext2 of revision 0. debugfs writes the superblock and the descriptors alone;
/// here the tables and the root directory are made too, so that requests can go on with it.
pub(super) fn init_filesys(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, name, blocks] = words else {
        return Err(refuse(words, "Usage: initialize <device> <blocks>"));
    };
    shell.none_is_open(words)?;
    let blocks = number(blocks)
        .and_then(|blocks| blocks.checked_mul(BLOCK_SIZE))
        .ok_or_else(|| refuse(words, format_args!("Bad blocks count - {}", text(blocks))))?;
    let shown = text(name);
    let initializing =
        |why: String| Refusal::Line(format!("{shown}: {why} while initializing filesystem"));
    let name = OsStr::from_bytes(name);
    let request = OpenRequest { is_writable: true, ..OpenRequest::default() };
    let opened = open_device(name, Access::ReadWrite, &request).map_err(|why| match why {
        NotOpened::Trying(why) => initializing(why),
        NotOpened::Line(line) => Refusal::Line(line),
    })?;
    let device: Arc<dyn Device> = opened.device.clone();
    let volume =
        SliceDevice::new(device, 0, blocks).map_err(|error| initializing(error.to_string()))?;
    let options = "-t ext2 -E revision=0 -b 1024 -m 0 -O none".split(' ');
    let made = Formatter::mke2fs_args(options).and_then(|formatter| formatter.format(&volume));
    made.map_err(|error| initializing(error.to_string()))?;
    drop(volume);
    opened.finish().map_err(|error| failed(words, error, "writing the volume"))?;
    open_image(shell, name, &request)
}
