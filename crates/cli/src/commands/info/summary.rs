//! A summary of a volume for people, on half a screen.

use extant::inspect::state_name;
use extant::rooms::ondisk::jbd2::JournalSuperblock;
use extant::rooms::ondisk::superblock::Superblock;
use extant::rooms::ondisk::{CompatFeatures, Geometry, IncompatFeatures};

use super::header::written;
use crate::failure::Failure;
use crate::named_view::NamedView;
use crate::output::{human_size, printable};
use crate::say;
use crate::session::Session;
use crate::time;

pub(super) fn show(
    view: &NamedView,
    geometry: &Geometry,
    journal: Option<&JournalSuperblock>,
    session: &mut Session,
) -> Result<(), Failure> {
    let superblock = &view.superblock;
    let mut line = |name: &str, value: String| say!(session, "{name:<14}{value}");
    line("Image", printable(view.name.as_encoded_bytes()))?;
    line("Type", type_name(superblock).to_owned())?;
    let label = superblock.label();
    line("Label", if label.is_empty() { "none".to_owned() } else { printable(label) })?;
    line("UUID", superblock.uuid.to_string())?;
    let mut state = state_name(superblock.state).to_owned();
    if superblock.features.incompat.contains(IncompatFeatures::RECOVER) {
        state += ", the journal holds changes to be replayed";
    }
    if superblock.error_count > 0 {
        state += &format!(", {} errors recorded", superblock.error_count);
    }
    line("State", state)?;
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(geometry.block_size));
    let (blocks, free) = (superblock.blocks_count, superblock.free_blocks);
    line(
        "Size",
        format!("{} in {blocks} blocks of {}", human_size(bytes(blocks)), geometry.block_size),
    )?;
    line(
        "Free",
        format!(
            "{} ({}), {} of it reserved",
            human_size(bytes(free)),
            per_cent(free, blocks),
            human_size(bytes(superblock.reserved_blocks))
        ),
    )?;
    let (inodes, free_inodes) = (superblock.inodes_count.into(), superblock.free_inodes.into());
    line(
        "Inodes",
        format!(
            "{inodes} of {} bytes, {free_inodes} free ({})",
            geometry.inode_size,
            per_cent(free_inodes, inodes)
        ),
    )?;
    let flex = match geometry.groups_per_flex {
        1 => String::new(),
        groups => format!(", {groups} to a flex group"),
    };
    line(
        "Groups",
        format!("{} of {} blocks{flex}", geometry.groups_count, geometry.blocks_per_group),
    )?;
    line("Journal", journal_text(superblock, journal))?;
    line("Features", superblock.features.to_string())?;
    let or_never = |seconds: u64| match seconds {
        0 => "never".to_owned(),
        seconds => time::short(i64::try_from(seconds).unwrap_or(i64::MAX)) + " UTC",
    };
    line("Made", or_never(superblock.mkfs_time))?;
    let mut mounted = or_never(superblock.mount_time);
    let place = superblock.last_mounted_on();
    if superblock.mount_time > 0 && !place.is_empty() {
        mounted += &format!(" on {}", printable(place));
    }
    line("Mounted", mounted)?;
    line("Written", or_never(superblock.write_time))?;
    line("Checked", or_never(superblock.last_check))?;
    if superblock.kbytes_written > 0 {
        line("Wear", format!("{} written since it was made", written(superblock.kbytes_written)))?;
    }
    Ok(())
}

/// ext2, ext3 or ext4, by the features that the older ones do not know.
fn type_name(superblock: &Superblock) -> &'static str {
    let features = superblock.features;
    let of_ext3 = IncompatFeatures::FILETYPE
        | IncompatFeatures::RECOVER
        | IncompatFeatures::JOURNAL_DEV
        | IncompatFeatures::META_BG;
    // sparse_super, large_file, btree_dir.
    let ro_of_ext3 = 0x7;
    if !of_ext3.contains(features.incompat) || features.ro_compat.bits() & !ro_of_ext3 != 0 {
        "ext4"
    } else if features.compat.contains(CompatFeatures::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

fn journal_text(superblock: &Superblock, journal: Option<&JournalSuperblock>) -> String {
    match journal {
        Some(journal) => {
            let size = u64::from(journal.blocks_count) * u64::from(journal.block_size);
            let state = if journal.start == 0 { "empty" } else { "in use" };
            format!("{}, {state}", human_size(size))
        }
        None if superblock.features.compat.contains(CompatFeatures::HAS_JOURNAL) => {
            format!("external, {}", superblock.journal_uuid)
        }
        None => "none".to_owned(),
    }
}

fn per_cent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{}%", tenths / 10, tenths % 10)
}
