//! The configuration of huge files: `make_hugefiles` and its relations, from mke2fs.conf(5).

use extant_ondisk::IncompatFeatures;

use super::super::config::TypedConfig;
use super::super::error::{MkfsError, ValueError};
use super::super::numbers;
use super::types::{FsParams, HugeFiles};

/// More digits than any number of files has.
const MAX_DIGITS: i64 = 20;

pub(super) fn read(
    types: &TypedConfig<'_>,
    params: &FsParams,
) -> Result<Option<HugeFiles>, MkfsError> {
    // mke2fs makes none without extents, silently.
    let has_extents = params.features.incompat.contains(IncompatFeatures::EXTENTS);
    if !types.boolean("make_hugefiles").unwrap_or(false) || !has_extents {
        return Ok(None);
    }
    let blocks = |relation: &str| match types.text(relation) {
        None => Ok(0),
        Some(text) => {
            numbers::size(text, params.block_size).ok_or_else(|| invalid(relation, text.to_owned()))
        }
    };
    let number = |relation: &str, default: i64| {
        let value = types.integer(relation).unwrap_or(default);
        u32::try_from(value).map_err(|_| invalid(relation, value.to_string()))
    };
    let directory = types.text("hugefiles_dir").unwrap_or("/");
    let digits = types.integer("hugefiles_digits").unwrap_or(5).clamp(0, MAX_DIGITS);
    let files = HugeFiles {
        directory: directory
            .split('/')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect(),
        uid: number("hugefiles_uid", 0)?,
        gid: number("hugefiles_gid", 0)?,
        umask: u16::try_from(number("hugefiles_umask", 0o077)? & 0o777).unwrap_or(0o777),
        count: u64::from(number("num_hugefiles", 0)?),
        blocks: blocks("hugefiles_size")?,
        slack: blocks("hugefiles_slack")?,
        align: blocks("hugefiles_align")?.max(1),
        name: types.text("hugefiles_name").unwrap_or("hugefile").to_owned(),
        digits: usize::try_from(digits).unwrap_or(0),
        zero: types.boolean("zero_hugefiles").unwrap_or(true),
    };
    let too_long = |name: &String| name.is_empty() || name.len() > 255 || name.contains('\0');
    let name_room = 255 - 20;
    if files.directory.iter().any(too_long)
        || files.name.len() > name_room
        || files.name.contains('/')
    {
        return Err(ValueError::HugeFileNames.into());
    }
    if types.boolean("hugefiles_align_disk").unwrap_or(false) && files.align > 1 {
        return Err(ValueError::HugeFilesAlignDisk.into());
    }
    Ok(Some(files))
}

fn invalid(relation: &str, value: String) -> ValueError {
    ValueError::Relation { relation: relation.to_owned(), value }
}
