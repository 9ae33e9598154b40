//! Which features a new file system gets: the configuration's, edited by `-O`, made consistent.

use extant_ondisk::{CompatFeatures, Features, IncompatFeatures, RoCompatFeatures};

use super::config::TypedConfig;
use super::error::{Conflict, MkfsError};

/// The defaults without a configuration.
const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";

/// `s_encrypt_algos`: AES-256-XTS for contents, AES-256-CTS for names.
pub(crate) const ENCRYPT_ALGORITHMS: [u8; 4] = [1, 4, 0, 0];

/// Features that mke2fs sets and clears on request; the others belong to the kernel, or are unused.
fn settable() -> Features {
    Features {
        compat: CompatFeatures::HAS_JOURNAL
            | CompatFeatures::EXT_ATTR
            | CompatFeatures::RESIZE_INODE
            | CompatFeatures::DIR_INDEX
            | CompatFeatures::SPARSE_SUPER2
            | CompatFeatures::FAST_COMMIT
            | CompatFeatures::STABLE_INODES
            | CompatFeatures::ORPHAN_FILE,
        incompat: IncompatFeatures::FILETYPE
            | IncompatFeatures::JOURNAL_DEV
            | IncompatFeatures::META_BG
            | IncompatFeatures::EXTENTS
            | IncompatFeatures::BIT64
            | IncompatFeatures::MMP
            | IncompatFeatures::FLEX_BG
            | IncompatFeatures::EA_INODE
            | IncompatFeatures::CSUM_SEED
            | IncompatFeatures::LARGEDIR
            | IncompatFeatures::INLINE_DATA
            | IncompatFeatures::ENCRYPT
            | IncompatFeatures::CASEFOLD,
        ro_compat: RoCompatFeatures::SPARSE_SUPER
            | RoCompatFeatures::LARGE_FILE
            | RoCompatFeatures::HUGE_FILE
            | RoCompatFeatures::GDT_CSUM
            | RoCompatFeatures::DIR_NLINK
            | RoCompatFeatures::EXTRA_ISIZE
            | RoCompatFeatures::QUOTA
            | RoCompatFeatures::BIGALLOC
            | RoCompatFeatures::METADATA_CSUM
            | RoCompatFeatures::PROJECT
            | RoCompatFeatures::VERITY,
    }
}

/// One word of a list of features.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Edit {
    /// `name` or `+name`.
    Set(Features),
    /// `^name` or `-name`.
    Clear(Features),
    /// `none`.
    ClearAll,
}

/// The words of a list.
pub(crate) fn edits(list: &str) -> Result<Vec<Edit>, MkfsError> {
    let words = list.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let edits = words.map(|word| {
        if word.eq_ignore_ascii_case("none") {
            return Some(Edit::ClearAll);
        }
        let (name, clear) = match word.strip_prefix(['^', '-']) {
            Some(name) => (name, true),
            None => (word.strip_prefix('+').unwrap_or(word), false),
        };
        let name = name.to_ascii_lowercase();
        let feature = Features::named(&name).or_else(|| by_number(&name))?;
        Some(if clear { Edit::Clear(feature) } else { Edit::Set(feature) })
    });
    edits.collect::<Option<_>>().ok_or_else(|| MkfsError::BadFeatures(list.to_owned()))
}

/// Applies a list to what is set.
pub(super) fn edit(features: &mut Features, list: &str) -> Result<(), MkfsError> {
    for edit in edits(list)? {
        let (Edit::Set(feature) | Edit::Clear(feature)) = edit else {
            *features = Features::default();
            continue;
        };
        if !settable().contains(feature) {
            return Err(MkfsError::BadFeatures(list.to_owned()));
        }
        *features = match edit {
            Edit::Set(_) => features.union(feature),
            _ => features.difference(feature),
        };
    }
    Ok(())
}

/// `feature_c9`: a bit by its word and number, as dumpe2fs prints bits without a name.
fn by_number(name: &str) -> Option<Features> {
    let number = name.strip_prefix("feature_")?;
    let (word, bit) = number.split_at_checked(1)?;
    let bit = 1_u32.checked_shl(bit.parse().ok()?)?;
    let none = Features::default();
    match word {
        "c" => Some(Features { compat: CompatFeatures::from_bits_retain(bit), ..none }),
        "i" => Some(Features { incompat: IncompatFeatures::from_bits_retain(bit), ..none }),
        "r" => Some(Features { ro_compat: RoCompatFeatures::from_bits_retain(bit), ..none }),
        _ => None,
    }
}

/// The inputs for the features in addition to the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeatureRequest<'a> {
    /// `-O`
    pub(super) list: Option<&'a str>,
    /// `-s`, which overrides the list.
    pub(super) sparse_super: Option<bool>,
    /// `-j` or `-J`.
    pub(super) journal: bool,
    /// Revision 0 has no features.
    pub(super) revision: u32,
    /// The Hurd knows neither file types in dirents nor block counts in blocks nor checksums.
    pub(super) hurd: bool,
    /// `-E encoding=`
    pub(super) encoding: bool,
    /// `-E quotatype=` requests project quota.
    pub(super) project_quota: bool,
}

/// Reads the configuration, applies the request and checks the rules that depend on features only.
pub(super) fn resolve(
    config: &TypedConfig<'_>,
    request: FeatureRequest<'_>,
) -> Result<Features, MkfsError> {
    let mut features = Features::default();
    edit(&mut features, config.text("base_features").unwrap_or(BASE_FEATURES))?;
    for list in config.cumulative("features") {
        edit(&mut features, list)?;
    }
    if let Some(list) = request.list.or_else(|| config.text("default_features")) {
        edit(&mut features, list)?;
    }
    if let Some(is_sparse) = request.sparse_super {
        features.ro_compat.set(RoCompatFeatures::SPARSE_SUPER, is_sparse);
    }
    if request.revision == 0 {
        return revision_0(request);
    }
    if features.incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        return Ok(Features {
            compat: CompatFeatures::empty(),
            incompat: IncompatFeatures::JOURNAL_DEV,
            ro_compat: features.ro_compat & RoCompatFeatures::METADATA_CSUM,
        });
    }
    if request.journal {
        features.compat |= CompatFeatures::HAS_JOURNAL;
    }
    if request.encoding {
        features.incompat |= IncompatFeatures::CASEFOLD;
    }
    if request.project_quota && features.ro_compat.contains(RoCompatFeatures::QUOTA) {
        features.ro_compat |= RoCompatFeatures::PROJECT;
    }
    if request.hurd {
        features.incompat -= IncompatFeatures::FILETYPE;
        features.ro_compat -= RoCompatFeatures::HUGE_FILE | RoCompatFeatures::METADATA_CSUM;
    }
    // The newer checksum replaces the older.
    if features.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
        features.ro_compat -= RoCompatFeatures::GDT_CSUM;
    } else if features.incompat.contains(IncompatFeatures::CSUM_SEED) {
        if request.list.is_some_and(|list| requests(list, "metadata_csum_seed")) {
            return Err(Conflict::SeedWithoutChecksums.into());
        }
        features.incompat -= IncompatFeatures::CSUM_SEED;
    }
    if !features.compat.contains(CompatFeatures::HAS_JOURNAL) {
        if request.list.is_some_and(|list| requests(list, "orphan_file")) {
            return Err(Conflict::OrphanFileWithoutJournal.into());
        }
        drop_journal(&mut features);
    }
    check(&features)?;
    Ok(features)
}

/// Without a journal, features that need one are cleared.
pub(super) fn drop_journal(features: &mut Features) {
    features.compat -= CompatFeatures::HAS_JOURNAL | CompatFeatures::ORPHAN_FILE;
}

fn requests(list: &str, feature: &str) -> bool {
    list.split([',', ' ']).any(|word| word.strip_prefix('+').unwrap_or(word) == feature)
}

fn revision_0(request: FeatureRequest<'_>) -> Result<Features, MkfsError> {
    let mut requested = Features::default();
    if let Some(list) = request.list {
        edit(&mut requested, list)?;
    }
    if requested != Features::default() || request.journal || request.encoding {
        return Err(Conflict::FeaturesInRevision0.into());
    }
    if request.sparse_super == Some(true) {
        return Err(Conflict::SparseSuperInRevision0.into());
    }
    Ok(Features::default())
}

/// Features that exclude or need each other.
pub(super) fn check(features: &Features) -> Result<(), MkfsError> {
    let (compat, incompat, ro_compat) = (features.compat, features.incompat, features.ro_compat);
    let extents = incompat.contains(IncompatFeatures::EXTENTS);
    if incompat.contains(IncompatFeatures::BIT64) && !extents {
        return Err(Conflict::Bit64WithoutExtents.into());
    }
    if ro_compat.contains(RoCompatFeatures::BIGALLOC) && !extents {
        return Err(Conflict::BigallocWithoutExtents.into());
    }
    if compat.contains(CompatFeatures::RESIZE_INODE) {
        if incompat.contains(IncompatFeatures::META_BG) {
            return Err(Conflict::ResizeInodeWithMetaBg.into());
        }
        if !ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
            return Err(Conflict::ResizeInodeWithoutSparseSuper.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(list: &str) -> Result<String, MkfsError> {
        let mut features = Features::default();
        edit(&mut features, "dir_index,filetype")?;
        edit(&mut features, list)?;
        Ok(features.to_string())
    }

    #[test]
    fn lists_set_clear_and_start_over() {
        let text = |list| edited(list).expect("known");
        assert_eq!(text("extents,^filetype"), "dir_index extent");
        assert_eq!(text("-dir_index +extent"), "filetype extent");
        assert_eq!(text("none,uninit_groups"), "uninit_bg");
        assert_eq!(text("FEATURE_C9"), "dir_index sparse_super2 filetype");
    }

    #[test]
    fn features_that_may_not_be_set_are_refused() {
        for bad in
            ["bogus", "^bogus", "shared_blocks", "read-only", "needs_recovery", "FEATURE_I31"]
        {
            assert!(matches!(edited(bad), Err(MkfsError::BadFeatures(_))), "{bad}");
        }
    }
}
