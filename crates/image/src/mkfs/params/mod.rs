//! The figures of a new file system: sizes and counts that the superblock will state, from the
//! options, the configuration and the device's size alone. Nothing is read or written here.

mod groups;
mod huge_files;
pub(crate) mod journal;
mod types;

use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::{DefaultMountOptions, ErrorPolicy};
use extant_ondisk::{CompatFeatures, Features, IncompatFeatures, RoCompatFeatures};

use super::config::{Config, TypeRequest, TypedConfig};
use super::error::{Conflict, MkfsError, SizeError, ValueError};
use super::extended::Extended;
use super::features::{self, FeatureRequest};
use super::numbers;
use super::options::{BlockSize, Options, Program, error_policy};

pub use types::{CreatorOs, DeviceInfo, FsParams, HugeFiles, JournalFigures};

/// The unit of a size without suffix, without `-b`.
const DEFAULT_UNIT: u32 = 1024;
/// Inode sizes and ratios without options or configuration.
const DEFAULT_INODE_SIZE: i64 = 128;
const DEFAULT_INODE_RATIO: i64 = 8192;
const DEFAULT_BLOCK_SIZE: u32 = 4096;
/// Largest block that the kernel mounts on most machines: physical sectors do not raise blocks
/// above it.
const PAGE_SIZE: u32 = 4096;
/// Block counts that fit without 64bit.
const MAX_32BIT_BLOCKS: u64 = u32::MAX as u64;

/// Computes the figures.
///
/// # Errors
/// Everything that mke2fs refuses before it writes.
pub fn params(
    program: Program,
    options: &Options,
    config: &Config,
    device: &DeviceInfo,
) -> Result<FsParams, MkfsError> {
    options.uuid_choice()?;
    let bytes = size_in_bytes(options, device)?;
    let hurd = match &options.creator_os {
        Some(name) => creator(name)? == CreatorOs::HURD,
        None => false,
    };
    let types = TypedConfig::resolve(
        config,
        &TypeRequest {
            fs_type: options.fs_type.as_deref(),
            implied: program.fs_type(),
            usage_types: options.usage_types.as_deref(),
            journal: options.journal.wanted,
            hurd,
            device: &options.device,
            size: u128::from(bytes),
            force: options.force > 0,
        },
    )?;
    Resolver { options, device, types: &types }.resolve(bytes)
}

/// The requested size, else the device's.
fn size_in_bytes(options: &Options, device: &DeviceInfo) -> Result<u64, MkfsError> {
    let offset = options.extended.iter().rev().find_map(|list| offset_of(list)).unwrap_or(0);
    let Some(text) = &options.size else {
        let size = device.size.ok_or_else(|| SizeError::Missing(options.device.clone()))?;
        return Ok(size.saturating_sub(offset));
    };
    let unit = match options.block_size {
        Some(BlockSize::Exactly(bytes)) => bytes,
        _ => DEFAULT_UNIT,
    };
    let units = numbers::size(text, unit).filter(|units| *units > 0);
    units.and_then(|units| units.checked_mul(u64::from(unit))).ok_or_else(|| {
        ValueError::Blocks { text: text.clone(), device: options.device.clone() }.into()
    })
}

fn offset_of(list: &str) -> Option<u64> {
    let value = list.split(',').rev().find_map(|item| item.strip_prefix("offset="))?;
    numbers::size(value, 1)
}

fn creator(name: &str) -> Result<CreatorOs, MkfsError> {
    CreatorOs::of_name(name).ok_or_else(|| ValueError::CreatorOs(name.to_owned()).into())
}

/// One computation: what it reads.
struct Resolver<'a> {
    options: &'a Options,
    device: &'a DeviceInfo,
    types: &'a TypedConfig<'a>,
}

impl Resolver<'_> {
    fn resolve(&self, bytes: u64) -> Result<FsParams, MkfsError> {
        let mut warnings = self.options.warnings.clone();
        warnings.extend(self.types.warnings.iter().cloned());
        let extended = self.extended()?;
        let revision = self.revision(&extended)?;
        let creator_os = match self.options.creator_os.as_deref().or(self.types.text("creator_os"))
        {
            Some(name) => creator(name)?,
            None => CreatorOs::LINUX,
        };
        let types = &extended.quotatype;
        let mut features = features::resolve(
            self.types,
            FeatureRequest {
                list: self.options.features.as_deref(),
                sparse_super: self.options.sparse_super,
                journal: self.options.journal.wanted,
                revision,
                hurd: creator_os == CreatorOs::HURD,
                encoding: extended.encoding.is_some(),
                project_quota: types.as_ref().is_some_and(|t| t.contains(&QuotaKind::Project)),
            },
        )?;
        let block_size = self.block_size(&mut warnings)?;
        let cluster_size = self.cluster_size(&features, block_size)?;
        let mut blocks = bytes / u64::from(block_size);
        self.fit_32_bits(&mut features, &mut blocks)?;
        let inode_size = self.inode_size(revision, block_size, &features, &mut warnings)?;
        let mut params = FsParams {
            revision,
            features,
            block_size,
            cluster_size,
            first_data_block: u64::from(block_size == 1024 && cluster_size == block_size),
            blocks,
            blocks_per_group: self.blocks_per_group(block_size, cluster_size)?,
            groups: 1,
            inodes_per_group: 0,
            inode_size,
            desc_size: self.desc_size(&features, &extended)?,
            reserved_gdt_blocks: 0,
            flex_bg_size: self.flex_bg_size(&features)?,
            first_meta_bg: self.first_meta_bg(&features),
            backup_groups: [0; 2],
            reserved_blocks: 0,
            reserved_ratio: self.reserved_ratio()?,
            journal: None,
            orphan_file_blocks: 0,
            huge_files: None,
            quotas: quotas(&features, extended.quotatype.as_deref()),
            hash_version: self.hash_version()?,
            errors: self.errors()?,
            mount_options: self.mount_options()?,
            periodic_fsck: self.types.boolean("enable_periodic_fsck").unwrap_or(false),
            creator_os,
            encoding: self.encoding(&features, &extended)?,
            mmp_interval: mmp_interval(&features, &extended),
            lazy_itable_init: self.lazy(extended.lazy_itable_init, "lazy_itable_init"),
            lazy_journal_init: self.lazy(extended.lazy_journal_init, "lazy_journal_init"),
            discard: extended.discard.or_else(|| self.types.boolean("discard")).unwrap_or(true),
            force_undo: self.types.boolean("force_undo").unwrap_or(false),
            packed_meta_blocks: self.packed_meta_blocks(&extended),
            types: self.types.types.clone(),
            extended,
            warnings,
        };
        if params.is_journal_device() {
            journal::whole_device(&mut params)?;
            return Ok(params);
        }
        let inodes = self.inodes(&params)?;
        let backups = self.backups(&params);
        let resize_limit = self.resize_limit(&params)?;
        if resize_limit.is_some_and(|limit| groups::must_reserve(&params, limit)) {
            if revision == 0 {
                return Err(Conflict::ResizeInRevision0.into());
            }
            params.features.compat |= CompatFeatures::RESIZE_INODE;
            features::check(&params.features)?;
        }
        let request = groups::Request {
            inodes,
            resize_limit,
            backups,
            may_shrink: self.options.blocks_per_group.is_none(),
        };
        params.reserved_blocks = percent_of(params.blocks, params.reserved_ratio);
        groups::fit(&mut params, request)?;
        if resize_inode_size(&params) > MAX_SMALL_FILE {
            params.features.ro_compat |= RoCompatFeatures::LARGE_FILE;
        }
        let locations = self.options.journal.location.as_deref();
        let location = locations.or_else(|| self.types.text("journal_location"));
        journal::internal(&mut params, &self.options.journal, location)?;
        journal::orphan_file(&mut params)?;
        params.huge_files = huge_files::read(self.types, &params)?;
        Ok(params)
    }

    /// The configuration's `options`, then `-E`.
    fn extended(&self) -> Result<Extended, MkfsError> {
        let mut extended = Extended::default();
        if let Some(list) = self.types.text("options") {
            extended.apply(list)?;
        }
        for list in &self.options.extended {
            extended.apply(list)?;
        }
        if extended.encoding_flags.is_some() && extended.encoding.is_none() {
            return Err(Conflict::EncodingFlagsAlone.into());
        }
        Ok(extended)
    }

    fn revision(&self, extended: &Extended) -> Result<u32, MkfsError> {
        match extended.revision.unwrap_or(1) {
            revision @ 0..=1 => Ok(revision),
            revision => Err(ValueError::RevisionTooHigh(revision).into()),
        }
    }

    fn block_size(&self, warnings: &mut Vec<String>) -> Result<u32, MkfsError> {
        let logical = self.device.logical_sector.max(512);
        if let Some(BlockSize::Exactly(bytes)) = self.options.block_size {
            if bytes < logical {
                return Err(SizeError::BlockBelowSector { bytes, sector: logical }.into());
            }
            self.warn_of_size(bytes, warnings)?;
            return Ok(bytes);
        }
        let configured = self.types.integer("blocksize").unwrap_or(i64::from(DEFAULT_BLOCK_SIZE));
        // Negative: choose, but no smaller than this.
        let mut bytes = if configured <= 0 {
            DEFAULT_BLOCK_SIZE.max(u32::try_from(-configured).unwrap_or(u32::MAX))
        } else {
            u32::try_from(configured).unwrap_or(u32::MAX)
        };
        if let Some(BlockSize::AtLeast(least)) = self.options.block_size {
            bytes = bytes.max(least.checked_next_power_of_two().unwrap_or(u32::MAX));
        }
        bytes = bytes.max(logical);
        if self.device.physical_sector <= PAGE_SIZE {
            bytes = bytes.max(self.device.physical_sector);
        }
        if !bytes.is_power_of_two() || !(1024..=65536).contains(&bytes) {
            return Err(ValueError::BlockSize(bytes.to_string()).into());
        }
        self.warn_of_size(bytes, warnings)?;
        Ok(bytes)
    }

    fn warn_of_size(&self, bytes: u32, warnings: &mut Vec<String>) -> Result<(), MkfsError> {
        if bytes > PAGE_SIZE {
            if self.options.force == 0 {
                return Err(SizeError::BlockAbovePage { bytes, max: PAGE_SIZE }.into());
            }
            warnings.push(format!(
                "{bytes}-byte blocks too big for system (max {PAGE_SIZE}), forced to continue"
            ));
        }
        Ok(())
    }

    fn cluster_size(&self, features: &Features, block_size: u32) -> Result<u32, MkfsError> {
        if !features.ro_compat.contains(RoCompatFeatures::BIGALLOC) {
            return match self.options.cluster_size {
                Some(_) => Err(Conflict::ClusterSizeWithoutBigalloc.into()),
                None => Ok(block_size),
            };
        }
        let configured =
            self.types.integer("cluster_size").and_then(|size| u32::try_from(size).ok());
        let bytes = self.options.cluster_size.or(configured).unwrap_or(block_size * 16);
        if bytes < block_size {
            return Err(Conflict::ClusterBelowBlock.into());
        }
        if !bytes.is_power_of_two() || bytes > 256 << 20 {
            return Err(ValueError::ClusterSize(bytes.to_string()).into());
        }
        Ok(bytes)
    }

    /// Counts past 2^32 need 64bit, and the resize inode cannot reach there.
    fn fit_32_bits(&self, features: &mut Features, blocks: &mut u64) -> Result<(), MkfsError> {
        if *blocks <= MAX_32BIT_BLOCKS {
            return Ok(());
        }
        if !features.incompat.contains(IncompatFeatures::BIT64) {
            if !self.types.boolean("auto_64-bit_support").unwrap_or(false) {
                return Err(SizeError::Above32Bits(*blocks).into());
            }
            if !features.incompat.contains(IncompatFeatures::EXTENTS) {
                return Err(Conflict::SizeWithoutExtents.into());
            }
            features.incompat |= IncompatFeatures::BIT64;
        }
        features.compat -= CompatFeatures::RESIZE_INODE;
        if *blocks > extant_ondisk::MAX_BLOCKS {
            return Err(SizeError::AboveFormat(*blocks).into());
        }
        Ok(())
    }

    fn inode_size(
        &self,
        revision: u32,
        block_size: u32,
        features: &Features,
        warnings: &mut Vec<String>,
    ) -> Result<u16, MkfsError> {
        if revision == 0 {
            return Ok(128);
        }
        let requested = self.options.inode_size.filter(|size| *size != 0).map(i64::from);
        let configured = self.types.integer("inode_size").filter(|size| *size > 0);
        let size = requested.or(configured).unwrap_or(DEFAULT_INODE_SIZE);
        let max = i64::from(block_size).min(32768);
        let good = u16::try_from(size)
            .ok()
            .filter(|bytes| bytes.is_power_of_two() && (128..=max).contains(&size));
        let bytes = good.ok_or(ValueError::InodeSizeRange { size, max: block_size })?;
        if bytes == 128 {
            if features.incompat.contains(IncompatFeatures::INLINE_DATA) {
                return Err(Conflict::InodesTooSmallForInlineData.into());
            }
            if features.ro_compat.contains(RoCompatFeatures::PROJECT) {
                return Err(Conflict::InodesTooSmallForProject.into());
            }
            if self.types.boolean("warn_y2038_dates").unwrap_or(true)
                && !features.incompat.contains(IncompatFeatures::JOURNAL_DEV)
            {
                warnings.push(
                    "128-byte inodes cannot handle dates beyond 2038 and are deprecated".to_owned(),
                );
            }
        }
        Ok(bytes)
    }

    /// `-g` counts clusters with bigalloc. A group's bitmap is one block, and 16 bits must hold the
    /// count.
    fn blocks_per_group(&self, block_size: u32, cluster_size: u32) -> Result<u32, MkfsError> {
        let most = groups::max_per_group(block_size);
        let clusters = match self.options.blocks_per_group.filter(|count| *count != 0) {
            Some(count) if (256..=most).contains(&count) => count,
            Some(_) => return Err(ValueError::BlocksPerGroupRange.into()),
            None => most,
        };
        clusters
            .checked_mul(cluster_size / block_size)
            .ok_or_else(|| Conflict::ClusterTooLarge.into())
    }

    fn desc_size(
        &self,
        features: &Features,
        extended: &Extended,
    ) -> Result<Option<u16>, MkfsError> {
        if features.incompat.contains(IncompatFeatures::BIT64) {
            return Ok(Some(extended.desc_size.unwrap_or(64).max(64)));
        }
        match extended.desc_size {
            Some(_) => Err(Conflict::DescSizeWithout64Bit.into()),
            None => Ok(None),
        }
    }

    fn flex_bg_size(&self, features: &Features) -> Result<u32, MkfsError> {
        if !features.incompat.contains(IncompatFeatures::FLEX_BG) {
            return match self.options.flex_bg_size {
                Some(_) => Err(Conflict::FlexBgSizeWithoutFlexBg.into()),
                None => Ok(1),
            };
        }
        let configured =
            self.types.integer("flex_bg_size").and_then(|size| u32::try_from(size).ok());
        let size = self.options.flex_bg_size.or(configured).unwrap_or(16);
        if !size.is_power_of_two() {
            return Err(ValueError::FlexBgSizePower.into());
        }
        Ok(size)
    }

    fn first_meta_bg(&self, features: &Features) -> u32 {
        let wanted = self.device.first_meta_bg.unwrap_or(0);
        if features.incompat.contains(IncompatFeatures::META_BG) { wanted } else { 0 }
    }

    fn reserved_ratio(&self) -> Result<f64, MkfsError> {
        let percent = match self.options.reserved_ratio {
            Some(percent) => percent,
            None => self.types.fraction("reserved_ratio").unwrap_or(5.0),
        };
        if !(0.0..=50.0).contains(&percent) {
            return Err(ValueError::ReservedRatio(percent.to_string()).into());
        }
        Ok(percent)
    }

    fn hash_version(&self) -> Result<u8, MkfsError> {
        let name = self.types.text("hash_alg").unwrap_or("half_md4");
        hash_version(name).ok_or_else(|| ValueError::HashAlgorithm(name.to_owned()).into())
    }

    fn errors(&self) -> Result<ErrorPolicy, MkfsError> {
        if let Some(policy) = self.options.errors {
            return Ok(policy);
        }
        let name = self.types.text("errors").unwrap_or("continue");
        error_policy(name).ok_or_else(|| ValueError::ConfiguredErrors(name.to_owned()).into())
    }

    fn mount_options(&self) -> Result<DefaultMountOptions, MkfsError> {
        let list = self.types.text("default_mntopts").unwrap_or("acl,user_xattr");
        let mut options = DefaultMountOptions::empty();
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, clear) = match word.strip_prefix('^') {
                Some(name) => (name, true),
                None => (word, false),
            };
            let flag =
                mount_option(name).ok_or_else(|| ValueError::MountOptions(list.to_owned()))?;
            options.set(flag, !clear);
        }
        Ok(options)
    }

    fn encoding(&self, features: &Features, extended: &Extended) -> Result<(u16, u16), MkfsError> {
        if !features.incompat.contains(IncompatFeatures::CASEFOLD) {
            return Ok((0, 0));
        }
        let name = extended.encoding.as_deref().or_else(|| self.types.text("encoding"));
        let list = extended.encoding_flags.as_deref().or_else(|| self.types.text("encoding_flags"));
        Ok((encoding(name.unwrap_or("utf8"))?, encoding_flags(list.unwrap_or_default())?))
    }

    fn packed_meta_blocks(&self, extended: &Extended) -> bool {
        let wanted =
            extended.packed_meta_blocks.or_else(|| self.types.boolean("packed_meta_blocks"));
        wanted.unwrap_or(false)
    }

    fn lazy(&self, extended: Option<bool>, relation: &str) -> bool {
        // The kernel of today finishes the work, and a sparse file has nothing to clear.
        let default = relation == "lazy_itable_init";
        extended.or_else(|| self.types.boolean(relation)).unwrap_or(default)
    }

    /// The requested inodes, by number or by ratio.
    fn inodes(&self, params: &FsParams) -> Result<u64, MkfsError> {
        let count = match self.options.inodes.filter(|count| *count != 0) {
            Some(count) => count,
            None => {
                let configured = self.types.integer("inode_ratio").filter(|ratio| *ratio > 0);
                let default = configured.unwrap_or(DEFAULT_INODE_RATIO);
                // A default below the cluster size would make inodes that no file can fill.
                let least = u64::from(params.cluster_size);
                let default = u64::try_from(default).unwrap_or(0).max(least);
                let ratio = self.options.inode_ratio.map_or(default, u64::from);
                params.blocks * u64::from(params.block_size) / ratio
            }
        };
        if count > u64::from(u32::MAX) {
            return match self.options.inodes {
                Some(_) => Err(SizeError::InodesAsked(count).into()),
                None => Err(SizeError::InodesOfRatio(count).into()),
            };
        }
        Ok(count)
    }

    /// sparse_super2: how many backups.
    fn backups(&self, params: &FsParams) -> u8 {
        let configured = self.types.integer("num_backup_sb").and_then(|n| u8::try_from(n).ok());
        params.extended.num_backup_sb.or(configured).unwrap_or(2).min(2)
    }

    /// `-E resize=`: blocks that the descriptor table must be able to grow to.
    fn resize_limit(&self, params: &FsParams) -> Result<Option<u64>, MkfsError> {
        let Some(text) = params.extended.resize.as_deref() else { return Ok(None) };
        let limit = numbers::size(text, params.block_size)
            .ok_or_else(|| ValueError::Resize(text.to_owned()))?;
        if limit <= params.blocks {
            return Err(ValueError::ResizeTooSmall.into());
        }
        Ok(Some(limit))
    }
}

/// Largest file that needs no large_file.
const MAX_SMALL_FILE: u64 = (1 << 31) - 1;

/// The size that the resize inode states: all that a double indirect block can map. 0 without one.
pub(super) fn resize_inode_size(params: &FsParams) -> u64 {
    if !params.features.compat.contains(CompatFeatures::RESIZE_INODE) {
        return 0;
    }
    let pointers = u64::from(params.block_size / 4);
    (12 + pointers + pointers * pointers) * u64::from(params.block_size)
}

/// Parts in a hundred, cut off to whole blocks.
fn percent_of(blocks: u64, percent: f64) -> u64 {
    // Block counts have 48 bits and fit a double; the quotient is not negative and at most half of
    // them.
    (percent * blocks as f64 / 100.0) as u64
}

fn quotas(features: &Features, requested: Option<&[QuotaKind]>) -> Vec<QuotaKind> {
    if !features.ro_compat.contains(RoCompatFeatures::QUOTA) {
        return Vec::new();
    }
    if let Some(requested) = requested {
        return requested.to_vec();
    }
    let project = features.ro_compat.contains(RoCompatFeatures::PROJECT);
    QuotaKind::ALL.into_iter().filter(|kind| *kind != QuotaKind::Project || project).collect()
}

/// Default seconds between two updates of the MMP block.
const DEFAULT_MMP_INTERVAL: u16 = 5;

fn mmp_interval(features: &Features, extended: &Extended) -> u16 {
    if !features.incompat.contains(IncompatFeatures::MMP) {
        return 0;
    }
    extended.mmp_update_interval.filter(|seconds| *seconds != 0).unwrap_or(DEFAULT_MMP_INTERVAL)
}

/// `s_def_hash_version` by its name.
pub(crate) fn hash_version(name: &str) -> Option<u8> {
    match name {
        "legacy" => Some(0),
        "half_md4" => Some(1),
        "tea" => Some(2),
        _ => None,
    }
}

/// `s_encoding` by its name.
pub(crate) fn encoding(name: &str) -> Result<u16, ValueError> {
    match name {
        "utf8" | "utf8-12.1" => Ok(1),
        other => Err(ValueError::Encoding(other.to_owned())),
    }
}

/// `s_encoding_flags` of a list of names.
pub(crate) fn encoding_flags(list: &str) -> Result<u16, ValueError> {
    let mut flags = 0;
    for flag in list.split([',', ' ']) {
        match flag {
            "strict" => flags |= 1,
            "nostrict" => flags &= !1,
            "" => {}
            other => return Err(ValueError::EncodingFlag(other.to_owned())),
        }
    }
    Ok(flags)
}

/// The names of tune2fs(8)'s `-o`.
pub(crate) fn mount_option(name: &str) -> Option<DefaultMountOptions> {
    match name {
        "debug" => Some(DefaultMountOptions::DEBUG),
        "bsdgroups" => Some(DefaultMountOptions::BSD_GROUPS),
        "user_xattr" => Some(DefaultMountOptions::USER_XATTR),
        "acl" => Some(DefaultMountOptions::ACL),
        "uid16" => Some(DefaultMountOptions::UID16),
        "journal_data" => Some(DefaultMountOptions::DATA_JOURNAL),
        "journal_data_ordered" => Some(DefaultMountOptions::DATA_ORDERED),
        "journal_data_writeback" => {
            Some(DefaultMountOptions::DATA_JOURNAL | DefaultMountOptions::DATA_ORDERED)
        }
        "nobarrier" => Some(DefaultMountOptions::NO_BARRIER),
        "block_validity" => Some(DefaultMountOptions::BLOCK_VALIDITY),
        "discard" => Some(DefaultMountOptions::DISCARD),
        "nodelalloc" => Some(DefaultMountOptions::NO_DELALLOC),
        _ => None,
    }
}
