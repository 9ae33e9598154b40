//! Properties of a volume that hold as long as it is open.

use extant_ondisk::casefold::Casefold;
use extant_ondisk::dx_hash::DirHasher;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{
    Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, InodeNo, Location, RoCompatFeatures,
};

/// Properties of a volume that hold as long as it is open.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Sizes and counts.
    pub geometry: Geometry,
    /// The superblock as it was when the volume was opened, after the journal's replay.
    pub superblock: Superblock,
    /// The same as stored.
    pub raw_superblock: RawSuperblock,
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Whether directory hashes take characters as unsigned.
    pub hash_is_unsigned: bool,
    /// The hash function of directories that have no index yet; `None` if the superblock names an
    /// unknown one.
    pub default_hasher: Option<DirHasher>,
    /// How names are compared in directories with the casefold flag; `None` without the feature.
    pub casefold: Option<Casefold>,
    /// Whether new files and directories are extent-mapped; else by indirect blocks.
    pub maps_by_extents: bool,
    /// Bytes up to which directories may grow.
    pub most_directory_bytes: u64,
    /// Whether the limits of users, groups and projects are enforced.
    pub enforced_limits: [bool; 3],
    quota_files: [Option<InodeNo>; 3],
}

impl VolumeInfo {
    /// The values of a superblock; `geometry` is decoded from the same one.
    ///
    /// # Errors
    /// An unknown encoding of names.
    pub fn new(geometry: Geometry, raw_superblock: RawSuperblock) -> Result<Self, FormatError> {
        let superblock = Superblock::decode(&raw_superblock);
        let casefold = if geometry.has_incompat(IncompatFeatures::CASEFOLD) {
            let known = Casefold::of_volume(&superblock).ok_or_else(|| {
                let flaw = Flaw::bad_value("s_encoding", superblock.encoding);
                flaw.at(Location::Superblock(GroupNo(0)))
            })?;
            Some(known)
        } else {
            None
        };
        let has_quota = geometry.has_ro_compat(RoCompatFeatures::QUOTA);
        let has_projects = geometry.has_ro_compat(RoCompatFeatures::PROJECT);
        Ok(Self {
            quota_files: [
                superblock.usr_quota_inode.filter(|_| has_quota),
                superblock.grp_quota_inode.filter(|_| has_quota),
                superblock.prj_quota_inode.filter(|_| has_quota && has_projects),
            ],
            hash_seed: superblock.hash_seed,
            default_hasher: DirHasher::of_volume(&superblock).ok(),
            hash_is_unsigned: superblock.hash_is_unsigned(),
            casefold,
            maps_by_extents: geometry.has_incompat(IncompatFeatures::EXTENTS),
            most_directory_bytes: u64::MAX,
            enforced_limits: [true; 3],
            geometry,
            superblock,
            raw_superblock,
        })
    }

    /// The hidden file that counts the use of users, groups or projects, where the volume keeps
    /// one.
    pub fn quota_file(&self, kind: QuotaKind) -> Option<InodeNo> {
        let [user, group, project] = self.quota_files;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        }
    }

    /// Whether the limits of users, groups or projects are enforced.
    pub fn enforces(&self, kind: QuotaKind) -> bool {
        let [user, group, project] = self.enforced_limits;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        }
    }
}
