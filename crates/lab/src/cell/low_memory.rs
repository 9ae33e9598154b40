//! Document 001: files are written with write(2) and removed while memory is short.

use super::error::{CellError, Trying};
use super::protocol::Cell;
use super::recorder::Recorder;
use super::volume::{MountedVolume, TargetVolume, volume_size};
use crate::experiment::{FileRow, LowMemory};
use crate::files::make_filled;

/// Room on the volume: data, and a tenth for the rest.
const ROOM: f64 = 1.1;
/// Space for the journal and other metadata.
const OVERHEAD: f64 = 512.0 * 1_048_576.0;
/// Bytes of a block, in which files occupy space.
const BLOCK: u64 = 4096;
/// Volumes of every target can be that small.
const LEAST_VOLUME: u64 = 1 << 30;

pub(super) fn run(
    cell: &Cell,
    work: &LowMemory,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    if cell.memory().is_none() {
        return Err(CellError::new("the experiment has no limit of memory"));
    }
    let place = TargetVolume::new(cell)?;
    let rows = [("large files", &work.large), ("many files", &work.many)];
    let settings = &cell.settings;
    let of = |row: &FileRow| (settings.count(row.files), settings.size(row.size.0));
    let largest = rows.iter().map(|(_, row)| {
        let (files, size) = of(row);
        let each = size.saturating_add(BLOCK - 1) / BLOCK * BLOCK;
        files.saturating_mul(each).saturating_mul(work.directories)
    });
    let data = largest.max().unwrap_or(0);
    let room = (data as f64 * ROOM + OVERHEAD) as u64;
    recorder.announce("mkfs");
    place.format(volume_size(room, LEAST_VOLUME))?;

    for (name, row) in rows {
        let (files, size) = of(row);
        let mounted = place.mount()?;
        recorder.follow(&mounted);
        let write = format!("write {name}");
        let made = recorder.timed(&write, || make(&mounted, work, files, size));
        let (_, seconds) = made?;
        let bytes = files as f64 * size as f64 * work.directories as f64;
        recorder.record(&write, "throughput_bytes_per_second", bytes / seconds);
        let delete = format!("delete {name}");
        let removed = recorder.timed(&delete, || {
            for number in 0..work.directories {
                mounted.files.remove_tree(&mounted.root.join(dir(number))).trying("rm")?;
            }
            mounted.files.sync(&mounted.root).trying("sync")
        });
        let (_, seconds) = removed?;
        recorder.record(&delete, "remove_seconds", seconds);
        recorder.timed(&format!("umount after {name}"), || mounted.close())?;
    }
    Ok(())
}

fn dir(number: u64) -> String {
    format!("dir{number}")
}

/// One open, writes one after the other, one close for each file; then all is on the disk.
fn make(mounted: &MountedVolume, work: &LowMemory, files: u64, size: u64) -> Result<(), CellError> {
    let block = vec![b'x'; work.block.0 as usize];
    for number in 0..work.directories {
        let dir = mounted.root.join(dir(number));
        mounted.files.create_dir(&dir).trying("mkdir")?;
        for number in 0..files {
            let path = dir.join(format!("file{number}"));
            make_filled(&*mounted.files, &path, size, &block).trying(path.display())?;
        }
    }
    mounted.files.sync(&mounted.root).trying("sync")
}
