//! All inode records of a volume.

use extant_offline::OfflineVolume;
use extant_ondisk::inode::Inode;
use extant_ondisk::{Geometry, GroupNo, InodeNo};

use super::error::TuneError;

/// Calls `visit` for every record of the inode tables that is not zero, up to the high-water marks,
/// and writes back what it changed.
pub(super) fn each_record(
    volume: &mut OfflineVolume,
    marks: &Geometry,
    mut visit: impl FnMut(&mut OfflineVolume, InodeNo, &mut [u8]) -> Result<bool, TuneError>,
) -> Result<(), TuneError> {
    /// Bytes read at once; whole records, since their size is a power of two.
    const PIECE: u64 = 1 << 20;
    let size = u64::from(marks.inode_size);
    for group in (0..marks.groups_count).map(GroupNo) {
        let desc = volume.desc(group);
        desc.check_places(group, marks)?;
        let used = match marks.has_uninit_groups() {
            true => desc.itable_used(marks),
            false => marks.inodes_per_group,
        };
        let start = marks.byte_of(desc.inode_table);
        let end = start + u64::from(used) * size;
        let mut at = start;
        while let Some(data) = volume.device().next_data(at..end)? {
            let from = start + (data.start - start) / size * size;
            let to = (from + PIECE).min(end);
            let mut bytes = vec![0; (to - from) as usize];
            volume.device().read_at(from, &mut bytes)?;
            let mut is_changed = false;
            for (index, record) in bytes.chunks_exact_mut(size as usize).enumerate() {
                if record.iter().all(|byte| *byte == 0) {
                    continue;
                }
                // Both below 2^32: the group has no more inodes.
                let index = ((from - start) / size) as u32 + index as u32;
                let number = InodeNo(group.0 * marks.inodes_per_group + index + 1);
                is_changed |= visit(volume, number, record)?;
            }
            if is_changed {
                volume.device().write_at(from, &bytes)?;
            }
            at = to;
        }
    }
    Ok(())
}

/// Whether a record is that of a file, or of one of the volume's own.
pub(super) fn is_used(number: InodeNo, inode: &Inode, geometry: &Geometry) -> bool {
    inode.links > 0 || (number < geometry.first_inode && inode.mode != 0)
}
