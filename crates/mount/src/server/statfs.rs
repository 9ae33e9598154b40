//! The figures of statfs.

use extant_engine::OpenVolume;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_reader::{Error, MetadataRead, StatFs, VolumeRead};
use rustix::io::Errno;

use super::Server;

impl Server {
    /// The figures of statfs for a file: those of the volume, but in a directory that gives its
    /// project to new files (`chattr +P`), at most what the project's limits leave, as on the
    /// kernel's ext4.
    ///
    /// # Errors
    /// A broken descriptor, inode or quota file, or the device failed.
    pub fn stat_fs(&self, file: InodeNo) -> Result<StatFs, Errno> {
        self.with(|volume| {
            let mut stat = volume.stat_fs()?;
            if self.policy.minixdf {
                stat.blocks = volume.geometry().blocks_count;
            }
            if let Some(project) = project_of(volume, file)? {
                restrict(&mut stat, &project);
            }
            Ok(stat)
        })
    }
}

/// The record of the project whose limits the files of a directory have.
fn project_of(volume: &OpenVolume, file: InodeNo) -> Result<Option<QuotaRecord>, Error> {
    let Ok(engine) = volume.engine() else { return Ok(None) };
    if !engine.info().enforces(QuotaKind::Project) {
        return Ok(None);
    }
    let inode = volume.inode(file)?;
    match inode.project.filter(|_| inode.flags.contains(InodeFlags::PROJECT_INHERIT)) {
        Some(id) => engine.quota_record(QuotaKind::Project, id),
        None => Ok(None),
    }
}

/// Lowers the figures to what the limits of a project leave: the soft limit, where there is one.
fn restrict(stat: &mut StatFs, project: &QuotaRecord) {
    let lower = |soft: u64, hard: u64| if soft != 0 { soft } else { hard };
    let size = u64::from(stat.block_size);
    let blocks = lower(project.block_soft, project.block_hard).saturating_mul(1024) / size;
    if blocks != 0 {
        let left = blocks.saturating_sub(project.space.div_ceil(size));
        stat.blocks = stat.blocks.min(blocks);
        stat.free_blocks = stat.free_blocks.min(left);
        stat.available_blocks = stat.available_blocks.min(left);
    }
    let inodes = lower(project.inode_soft, project.inode_hard);
    if inodes != 0 {
        stat.inodes = u32::try_from(inodes).map_or(stat.inodes, |inodes| stat.inodes.min(inodes));
        stat.free_inodes = stat.free_inodes.min(inodes.saturating_sub(project.inodes));
    }
}
