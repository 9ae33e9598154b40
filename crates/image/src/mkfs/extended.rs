//! The extended options of `-E` (and of the configuration's `options`): one value for each, or its
//! refusal.

use extant_ondisk::quota::QuotaKind;

use super::error::MkfsError;
use super::numbers;

/// Owner of the root directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RootOwner {
    /// The user who runs the command.
    Caller,
    /// These numbers.
    Ids {
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
}

/// All options of `-E`; `None` for those not given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are those of mke2fs(8)")]
pub struct Extended {
    pub encoding: Option<String>,
    pub encoding_flags: Option<String>,
    pub mmp_update_interval: Option<u16>,
    /// Blocks.
    pub stride: Option<u32>,
    /// Blocks.
    pub stripe_width: Option<u32>,
    /// Bytes.
    pub offset: Option<u64>,
    /// As written: its unit is the block, which is not known yet.
    pub resize: Option<String>,
    pub desc_size: Option<u16>,
    pub revision: Option<u32>,
    pub lazy_itable_init: Option<bool>,
    pub lazy_journal_init: Option<bool>,
    pub assume_storage_prezeroed: Option<bool>,
    pub no_copy_xattrs: bool,
    pub num_backup_sb: Option<u8>,
    pub packed_meta_blocks: Option<bool>,
    pub root_owner: Option<RootOwner>,
    pub root_perms: Option<u16>,
    pub root_selinux: Option<String>,
    pub test_fs: bool,
    /// As written: its unit is the block.
    pub orphan_file_size: Option<String>,
    pub discard: Option<bool>,
    /// In the order of [`QuotaKind::ALL`].
    pub quotatype: Option<Vec<QuotaKind>>,
    pub hash_seed: Option<uuid::Uuid>,
}

impl Extended {
    /// Takes a comma-separated list; later settings replace earlier ones.
    pub fn apply(&mut self, list: &str) -> Result<(), MkfsError> {
        for item in list.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            self.set(name, value).map_err(|why| MkfsError::BadExtended {
                option: item.to_owned(),
                why: why.unwrap_or("no such extended option, or no argument to it"),
            })?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Option<&'static str>> {
        match name {
            "encoding" => self.encoding = Some(needed(value)?.to_owned()),
            "encoding_flags" => self.encoding_flags = Some(needed(value)?.to_owned()),
            "mmp_update_interval" => {
                self.mmp_update_interval = Some(mmp_interval(needed(value)?).map_err(Some)?)
            }
            "stride" => {
                self.stride = Some(narrow(needed(value)?, "invalid stride parameter")?);
            }
            "stripe_width" | "stripe-width" => {
                let blocks = narrow(needed(value)?, "invalid stripe-width parameter")?;
                self.stripe_width = Some(blocks);
            }
            "offset" => {
                let bytes = numbers::size(needed(value)?, 1).ok_or(Some("invalid offset"))?;
                self.offset = Some(bytes);
            }
            "resize" => self.resize = Some(needed(value)?.to_owned()),
            "desc_size" | "desc-size" => {
                let bytes = narrow(needed(value)?, "invalid desc_size parameter")?;
                let valid = (32..=1024).contains(&bytes) && bytes.is_power_of_two();
                let bytes = valid.then_some(bytes).and_then(|bytes| u16::try_from(bytes).ok());
                self.desc_size = Some(bytes.ok_or(Some("desc_size is a power of two"))?);
            }
            "revision" => {
                let revision = narrow(needed(value)?, "invalid revision")?;
                self.revision = Some(revision);
            }
            "lazy_itable_init" => self.lazy_itable_init = Some(switch(value)?),
            "lazy_journal_init" => self.lazy_journal_init = Some(switch(value)?),
            "assume_storage_prezeroed" => self.assume_storage_prezeroed = Some(switch(value)?),
            "no_copy_xattrs" => self.no_copy_xattrs = true,
            "num_backup_sb" => {
                let wrong = "the number of backup superblocks is 0, 1 or 2";
                let count = narrow(needed(value)?, wrong)?;
                let count = u8::try_from(count).ok().filter(|count| *count <= 2);
                self.num_backup_sb = Some(count.ok_or(Some(wrong))?);
            }
            "packed_meta_blocks" => self.packed_meta_blocks = Some(switch(value)?),
            "root_owner" => self.root_owner = Some(root_owner(value)?),
            "root_perms" => {
                let wrong = Some("root_perms is an octal number of at most 7777");
                let bits = u16::from_str_radix(needed(value)?, 8).ok();
                self.root_perms = Some(bits.filter(|bits| *bits <= 0o7777).ok_or(wrong)?);
            }
            "root_selinux" => self.root_selinux = Some(needed(value)?.to_owned()),
            "test_fs" => self.test_fs = true,
            "orphan_file_size" => self.orphan_file_size = Some(needed(value)?.to_owned()),
            "discard" => self.discard = Some(true),
            "nodiscard" => self.discard = Some(false),
            "quotatype" => self.quotatype = Some(quota_types(needed(value)?)?),
            "hash_seed" => {
                let seed = uuid::Uuid::try_parse(needed(value)?);
                self.hash_seed = Some(seed.map_err(|_| Some("invalid hash seed"))?);
            }
            "android_sparse" => return Err(Some("Android sparse images are not supported")),
            _ => return Err(None),
        }
        Ok(())
    }
}

fn needed(value: Option<&str>) -> Result<&str, Option<&'static str>> {
    value.ok_or(Some("an argument is needed"))
}

fn narrow(text: &str, wrong: &'static str) -> Result<u32, Option<&'static str>> {
    numbers::number(text).and_then(|value| u32::try_from(value).ok()).ok_or(Some(wrong))
}

/// A switch alone is on; with a number it is on unless the number is 0.
fn switch(value: Option<&str>) -> Result<bool, Option<&'static str>> {
    match value {
        None => Ok(true),
        Some(text) => match numbers::number(text) {
            Some(value) => Ok(value != 0),
            None => Err(Some("0 or 1 is expected")),
        },
    }
}

/// Seconds; 0 means the default. From mke2fs(8): less than 300.
pub(crate) fn mmp_interval(text: &str) -> Result<u16, &'static str> {
    let seconds = numbers::number(text).and_then(|seconds| u16::try_from(seconds).ok());
    let seconds = seconds.filter(|seconds| *seconds < 300);
    seconds.ok_or("the MMP update interval is less than 300 seconds")
}

fn root_owner(value: Option<&str>) -> Result<RootOwner, Option<&'static str>> {
    let Some(text) = value else { return Ok(RootOwner::Caller) };
    let wrong = "root_owner is UID:GID";
    let (uid, gid) = text.split_once(':').ok_or(Some(wrong))?;
    Ok(RootOwner::Ids { uid: narrow(uid, wrong)?, gid: narrow(gid, wrong)? })
}

fn quota_types(text: &str) -> Result<Vec<QuotaKind>, Option<&'static str>> {
    let kind_of = |word: &str| match word {
        "usrquota" | "usr" => Some(QuotaKind::User),
        "grpquota" | "grp" => Some(QuotaKind::Group),
        "prjquota" | "prj" => Some(QuotaKind::Project),
        _ => None,
    };
    let wrong = "quota types are usrquota, grpquota and prjquota, with : between";
    let asked: Option<Vec<_>> = text.split(':').map(kind_of).collect();
    let asked = asked.ok_or(Some(wrong))?;
    Ok(QuotaKind::ALL.into_iter().filter(|kind| asked.contains(kind)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(list: &str) -> Result<Extended, MkfsError> {
        let mut extended = Extended::default();
        extended.apply(list).map(|()| extended)
    }

    #[test]
    fn lists_are_read_item_by_item_and_the_last_one_counts() {
        let extended =
            applied("stride=16,stripe_width=64,lazy_itable_init,lazy_itable_init=0,test_fs");
        let expected = Extended {
            stride: Some(16),
            stripe_width: Some(64),
            lazy_itable_init: Some(false),
            test_fs: true,
            ..Extended::default()
        };
        assert_eq!(extended.expect("valid"), expected);
    }

    #[test]
    fn bad_items_are_refused_by_name() {
        for bad in [
            "bogus",
            "stride",
            "stride=x",
            "desc_size=100",
            "hash_seed=x",
            "num_backup_sb=3",
            "mmp_update_interval=400",
            "quotatype=x",
            "root_owner=x",
            "root_perms=9",
            "offset=x",
            "android_sparse",
        ] {
            match applied(bad) {
                Err(MkfsError::BadExtended { option, .. }) => assert_eq!(option, bad),
                other => panic!("{bad}: {other:?}"),
            }
        }
    }
}
