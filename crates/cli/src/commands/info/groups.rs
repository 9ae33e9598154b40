//! The groups as dumpe2fs lists them, for people and (`-g`) for programs.

use std::ops::Range;

use extant::inspect::{Described, flag_names};
use extant::rooms::layout::groups::leading;
use extant::rooms::ondisk::bitmap::{BitmapKind, clear_runs};
use extant::rooms::ondisk::{BlockNo, Geometry, GroupNo, IncompatFeatures, RoCompatFeatures};

use crate::failure::{At, Failure};
use crate::named_view::NamedView;
use crate::say;
use crate::session::Session;

/// The exit codes of dumpe2fs for bitmaps that fail their checksums.
const BAD_BLOCK_BITMAP: u8 = 156;
const BAD_INODE_BITMAP: u8 = 147;

/// How block and inode numbers are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) is_hexadecimal: bool,
    /// Numbers have 64 bits: dumpe2fs writes them wider then.
    pub(super) is_64bit: bool,
}

impl Numbers {
    fn of(self, number: u64) -> String {
        match (self.is_hexadecimal, self.is_64bit) {
            (false, _) => number.to_string(),
            (true, false) => format!("{number:#06x}"),
            (true, true) => format!("{number:#010x}"),
        }
    }

    fn range(self, numbers: &Range<u64>) -> String {
        format!("{}-{}", self.of(numbers.start), self.of(numbers.end.saturating_sub(1)))
    }

    /// Runs separated by commas, those of one number as that number.
    fn runs(self, runs: impl Iterator<Item = (u64, u64)>) -> String {
        let text = |(first, last): (u64, u64)| match first == last {
            true => self.of(first),
            false => format!("{}-{}", self.of(first), self.of(last)),
        };
        runs.map(text).collect::<Vec<_>>().join(", ")
    }
}

/// Lists the groups one after the other. The bitmaps' checksums are looked at; a wrong one is told
/// at the end.
pub(super) fn list(
    view: &NamedView,
    geometry: &Geometry,
    numbers: Numbers,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut failures = [None, None];
    for described in view.descriptors(geometry) {
        let described = described.at(&view.name)?;
        let shown = ShownGroup { described: &described, geometry, numbers };
        shown.head(session)?;
        shown.places(session)?;
        shown.counts(session)?;
        for (kind, failure) in [BitmapKind::Block, BitmapKind::Inode].into_iter().zip(&mut failures)
        {
            let bits = match view.bitmap(kind, &described, geometry) {
                Ok(bits) => bits,
                Err(error) => {
                    failure.get_or_insert(error);
                    continue;
                }
            };
            if let Err(error) = view.verify_bitmap(kind, &bits, &described, geometry) {
                failure.get_or_insert(error);
            }
            shown.free(kind, &bits, session)?;
        }
    }
    let [block, inode] = failures;
    let codes = if session.is_compat { [BAD_BLOCK_BITMAP, BAD_INODE_BITMAP] } else { [1, 1] };
    let [block, inode] = [block.zip(Some(codes[0])), inode.zip(Some(codes[1]))];
    block.or(inode).map_or(Ok(()), |(error, code)| {
        Err(error).at(&view.name).map_err(|failure| failure.with_code(code))
    })
}

/// A group as it is listed.
#[derive(Clone, Copy)]
struct ShownGroup<'a> {
    described: &'a Described,
    geometry: &'a Geometry,
    numbers: Numbers,
}

impl ShownGroup<'_> {
    fn head(self, session: &mut Session) -> Result<(), Failure> {
        let Self { described, geometry, numbers } = self;
        let group = described.group;
        let start = geometry.group_start(group).0;
        let blocks = start..start + u64::from(geometry.group_blocks(group));
        let mut line = format!("Group {group}: (Blocks {})", numbers.range(&blocks));
        if geometry.has_uninit_groups() {
            line += &format!(" csum {:#06x}", described.checksum);
            if let Some(wanted) = described.wanted_checksum {
                line += &format!(" (EXPECTED {wanted:#06x})");
            }
        }
        let names = flag_names(described.desc.flags);
        if !names.is_empty() {
            line += &format!(" [{}]", names.join(", "));
        }
        say!(session, "{line}")
    }

    fn places(self, session: &mut Session) -> Result<(), Failure> {
        let Self { described, geometry, numbers } = self;
        let (group, desc) = (described.group, &described.desc);
        let leading = leading(geometry, group);
        let mut line = match leading.superblock {
            Some(block) => {
                let which = if group.0 == 0 { "Primary" } else { "Backup" };
                format!("  {which} superblock at {}", numbers.of(block.0))
            }
            None => String::new(),
        };
        if !leading.descriptors.is_empty() {
            line += if line.is_empty() { "  " } else { ", " };
            line += &match is_meta_group(group, geometry) {
                true => format!("Group descriptor at {}", numbers.of(leading.descriptors.start)),
                false => format!("Group descriptors at {}", numbers.range(&leading.descriptors)),
            };
        }
        if !line.is_empty() {
            say!(session, "{line}")?;
        }
        if !leading.reserved.is_empty() {
            say!(session, "  Reserved GDT blocks at {}", numbers.range(&leading.reserved))?;
        }
        let (block_csum, inode_csum) = if geometry.has_metadata_csum() {
            let csum = |value: u32| format!(", csum {value:#010x}");
            (csum(desc.block_bitmap_checksum), csum(desc.inode_bitmap_checksum))
        } else {
            Default::default()
        };
        let place = |block| offset(block, group, geometry);
        let number = |block: BlockNo| numbers.of(block.0);
        let bitmap = desc.block_bitmap;
        say!(session, "  Block bitmap at {}{}{block_csum}", number(bitmap), place(bitmap))?;
        let bitmap = desc.inode_bitmap;
        say!(session, "  Inode bitmap at {}{}{inode_csum}", number(bitmap), place(bitmap))?;
        let first = desc.inode_table;
        let table = first.0..first.0.saturating_add(geometry.itable_blocks().into());
        // A table at the start of its group has no offset, a bitmap there has.
        let place = if first == geometry.group_start(group) { String::new() } else { place(first) };
        say!(session, "  Inode table at {}{place}", numbers.range(&table))
    }
}

/// Whether the group keeps its part of the descriptor table itself.
fn is_meta_group(group: GroupNo, geometry: &Geometry) -> bool {
    geometry.has_incompat(IncompatFeatures::META_BG)
        && group.0 / geometry.descs_per_block() >= geometry.first_meta_bg
}

/// Where a block lies seen from its group's start: `(+258)`, or `(bg #0 + 259)` in another group.
fn offset(block: BlockNo, group: GroupNo, geometry: &Geometry) -> String {
    match geometry.group_of(block) {
        Some(home) if home == group => format!(" (+{})", block.0 - geometry.group_start(home).0),
        Some(home) => format!(" (bg #{home} + {})", block.0 - geometry.group_start(home).0),
        None => String::new(),
    }
}

impl ShownGroup<'_> {
    fn counts(self, session: &mut Session) -> Result<(), Failure> {
        let Self { described, geometry, .. } = self;
        let desc = &described.desc;
        let unit =
            if geometry.has_ro_compat(RoCompatFeatures::BIGALLOC) { "clusters" } else { "blocks" };
        let mut line = format!(
            "  {} free {unit}, {} free inodes, {} directories",
            desc.free_clusters, desc.free_inodes, desc.used_dirs
        );
        if desc.itable_unused > 0 {
            line += &format!(", {} unused inodes", desc.itable_unused);
        }
        say!(session, "{line}")
    }

    /// The free blocks or inodes by the bits of their bitmap.
    fn free(self, kind: BitmapKind, bits: &[u8], session: &mut Session) -> Result<(), Failure> {
        let Self { described, geometry, numbers } = self;
        let group = described.group;
        let (name, start, step) = match kind {
            BitmapKind::Block => {
                ("blocks", geometry.group_start(group).0, u64::from(geometry.blocks_per_cluster))
            }
            BitmapKind::Inode => {
                ("inodes", u64::from(group.0) * u64::from(geometry.inodes_per_group) + 1, 1)
            }
        };
        let runs = clear_runs(bits, 0..kind.used_bits(group, geometry)).map(|run| {
            (start + u64::from(run.start) * step, start + u64::from(run.end - 1) * step)
        });
        say!(session, "  Free {name}: {}", numbers.runs(runs))
    }
}

/// Whether a failure is that of a bitmap, by the exit code of dumpe2fs.
pub(super) fn is_of_bitmap(failure: &Failure) -> bool {
    [BAD_BLOCK_BITMAP, BAD_INODE_BITMAP].contains(&failure.code())
}

/// The names of the values of [`list_for_programs`].
pub(super) fn head_for_programs(session: &mut Session) -> Result<(), Failure> {
    say!(session, "")?;
    say!(session, "group:block:super:gdt:bbitmap:ibitmap:itable")
}

/// Lists the groups as values separated by colons.
pub(super) fn list_for_programs(
    view: &NamedView,
    geometry: &Geometry,
    numbers: Numbers,
    session: &mut Session,
) -> Result<(), Failure> {
    head_for_programs(session)?;
    for described in view.descriptors(geometry) {
        let Described { group, desc, .. } = described.at(&view.name)?;
        let leading = leading(geometry, group);
        let superblock = match leading.superblock {
            Some(block) => block.to_string(),
            None => "-1".to_owned(),
        };
        let descriptors = match leading.descriptors {
            blocks if blocks.is_empty() => "-1".to_owned(),
            blocks if is_meta_group(group, geometry) => blocks.start.to_string(),
            // The only numbers that dumpe2fs writes in hexadecimal here.
            blocks => numbers.range(&blocks),
        };
        say!(
            session,
            "{group}:{}:{superblock}:{descriptors}:{}:{}:{}",
            geometry.group_start(group),
            desc.block_bitmap,
            desc.inode_bitmap,
            desc.inode_table
        )?;
    }
    Ok(())
}
