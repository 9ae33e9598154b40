//! `ncheck`, `icheck` and `lsdel`: questions about all inodes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use extant::InodeNo;
use extant::debug::{DebugVolume, DirWalk, MapStep, RawRecord};
use extant::rooms::ondisk::dirent::FileType;
use extant::rooms::ondisk::{BlockNo, IncompatFeatures};

use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};
use crate::time;

pub(super) fn ncheck(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "ncheck: Usage: ncheck [-c] <inode number> ...";
    let options = Options::read(words, "c", usage)?;
    if options.operands.is_empty() {
        return Err(Refusal::Line(usage.to_owned()));
    }
    shell.image(words)?;
    let mut wanted = Vec::new();
    for spec in &options.operands {
        let inner = spec.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
        let found = number(inner.unwrap_or(spec)).and_then(|it| u32::try_from(it).ok());
        let wrong = || refuse(words, format_args!("Invalid inode number - '{}'", text(spec)));
        let found = found.ok_or_else(wrong)?;
        let volume = shell.volume(words)?;
        if volume.geometry().inode_place(InodeNo(found)).is_none() {
            let what = format!("{found}: Illegal inode number while reading inode {found}");
            return Err(Refusal::Line(what));
        }
        wanted.push(found);
    }
    let volume = shell.volume(words)?;
    let has_types = volume.geometry().has_incompat(IncompatFeatures::FILETYPE);
    let checks_type = options.has('c') && has_types;
    let mut lines = b"Inode\tPathname\n".to_vec();
    let mut problems = Vec::new();
    let walked = volume.walk_inodes(&mut |record| {
        if !record.is_dir() || record.base().i_links_count.get() == 0 {
            return ControlFlow::Continue(());
        }
        if !volume.checksum_is_right(&record) && volume.verifies() {
            problems.push(format!(
                "{}: Inode checksum does not match inode while reading inode {}",
                record.number, record.number
            ));
            return ControlFlow::Continue(());
        }
        let found = names_in(volume, &record, &wanted, checks_type, &mut lines);
        if let Err(error) = found {
            problems.push(format!("{}: {error} while calling ext2_dir_iterate", text(&words[0])));
        }
        ControlFlow::Continue(())
    });
    shell.print(lines)?;
    for problem in problems {
        shell.complain_and_go_on(Refusal::Line(problem))?;
    }
    walked.map_err(|error| failed(words, error, "doing inode scan"))
}

/// Adds a line for every wanted inode that a directory names.
fn names_in(
    volume: &DebugVolume,
    dir: &RawRecord,
    wanted: &[u32],
    checks_type: bool,
    lines: &mut Vec<u8>,
) -> Result<(), extant::debug::DebugError> {
    let mut parent = None;
    volume.walk_dir(dir, DirWalk::default(), &mut |item| {
        if item.name == b"." || item.name == b".." {
            return ControlFlow::Continue(());
        }
        for number in wanted.iter().filter(|number| **number == item.inode) {
            let parent = parent.get_or_insert_with(|| volume.path_of(dir.number));
            lines.extend(format!("{number}\t").into_bytes());
            lines.extend_from_slice(parent);
            lines.push(b'/');
            lines.extend_from_slice(item.name);
            if checks_type && !type_is_right(volume, *number, item.file_type) {
                lines.extend_from_slice(b"  <--- BAD FILETYPE");
            }
            lines.push(b'\n');
        }
        ControlFlow::Continue(())
    })
}

fn type_is_right(volume: &DebugVolume, number: u32, stored: u8) -> bool {
    let record = volume.inode_unverified(InodeNo(number));
    record.is_ok_and(|record| FileType::of_mode(record.mode()).encode() == stored)
}

pub(super) fn icheck(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() < 2 {
        return Err(refuse(words, "Usage: icheck <block number> ..."));
    }
    shell.image(words)?;
    let mut wanted = Vec::new();
    for spec in &words[1..] {
        let wrong = || refuse(words, format_args!("Bad block number - {}", text(spec)));
        wanted.push(number(spec).ok_or_else(wrong)?);
    }
    let volume = shell.volume(words)?;
    let mut owners: BTreeMap<u64, Option<InodeNo>> = wanted.iter().map(|it| (*it, None)).collect();
    let mut left = owners.len();
    let mut wrong = None;
    let walked = volume.walk_inodes(&mut |record| {
        if record.base().i_links_count.get() == 0 {
            return ControlFlow::Continue(());
        }
        if !volume.checksum_is_right(&record) && volume.verifies() {
            wrong = Some("Inode checksum does not match inode");
            return ControlFlow::Break(());
        }
        let mut claim = |first: u64, len: u64| {
            for (_, owner) in owners.range_mut(first..first.saturating_add(len)) {
                if owner.is_none() {
                    *owner = Some(record.number);
                    left -= 1;
                }
            }
        };
        let BlockNo(attributes) = record.file_acl(volume.geometry());
        if attributes != 0 {
            claim(attributes, 1);
        }
        if has_blocks(volume, &record) {
            // A map that breaks off claims what was read of it.
            let _ = volume.walk_blocks(&record, &mut |piece| {
                match piece {
                    MapStep::Data { start, len, .. } => claim(start, len),
                    MapStep::Node { at, .. } => claim(at, 1),
                }
                ControlFlow::Continue(())
            });
        }
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(wrong) = wrong {
        return Err(failed(words, wrong, "doing inode scan"));
    }
    walked.map_err(|error| failed(words, error, "doing inode scan"))?;
    let mut lines = "Block\tInode number\n".to_owned();
    for block in wanted {
        lines += &match owners.get(&block).copied().flatten() {
            Some(owner) => format!("{block}\t{owner}\n"),
            None => format!("{block}\t<block not found>\n"),
        };
    }
    shell.print(lines)
}

/// Whether `i_block` is a map.
pub(super) fn has_blocks(volume: &DebugVolume, record: &RawRecord) -> bool {
    use extant::rooms::ondisk::inode::FileType;
    match record.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => !record.is_fast_symlink(volume.geometry()),
        Some(_) => false,
        None => record.number < volume.geometry().first_inode,
    }
}

pub(super) fn lsdel(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let limit = match words {
        [_] => None,
        [_, limit] => {
            let wrong = || refuse(words, format_args!("Bad time - {}", text(limit)));
            Some(number(limit).ok_or_else(wrong)?)
        }
        _ => return Err(refuse(words, "Usage: list_deleted_inodes [time_in_sec]")),
    };
    let now = time::now().map_err(Refusal::Output)?;
    let now = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let volume = shell.with_bitmaps(words)?;
    let mut found: Vec<(u32, RawRecord, Vec<u64>)> = Vec::new();
    let walked = volume.walk_inodes(&mut |record| {
        let deleted = record.base().i_dtime.get();
        let is_recent = limit.is_none_or(|limit| now.saturating_sub(limit) <= u64::from(deleted));
        if deleted == 0 || !is_recent || !has_blocks(volume, &record) {
            return ControlFlow::Continue(());
        }
        let mut blocks = Vec::new();
        let mut is_whole = true;
        let walked = volume.walk_blocks(&record, &mut |piece| {
            let (start, len) = match piece {
                MapStep::Data { start, len, .. } => (start, len),
                MapStep::Node { at, .. } => (at, 1),
            };
            is_whole = volume.geometry().contains(BlockNo(start), len);
            match is_whole {
                true => blocks.extend(start..start + len),
                false => return ControlFlow::Break(()),
            }
            ControlFlow::Continue(())
        });
        if walked.is_ok() && is_whole && !blocks.is_empty() {
            found.push((deleted, record, blocks));
        }
        ControlFlow::Continue(())
    });
    found.sort_by_key(|(deleted, ..)| *deleted);
    let mut lines = " Inode  Owner  Mode    Size      Blocks   Time deleted\n".to_owned();
    for (deleted, record, blocks) in &found {
        let mut free = 0;
        for block in blocks {
            let is_used = volume.is_block_used(BlockNo(*block));
            let is_used = is_used.map_err(|error| failed(words, error, "reading bitmaps"))?;
            free += usize::from(!is_used);
        }
        lines += &format!(
            "{:>6} {:>6} {:>6o} {:>6} {free:>6}/{:>6} {}\n",
            record.number.0,
            record.uid(),
            record.mode(),
            record.size(),
            blocks.len(),
            time::ctime(i64::from(*deleted))
        );
    }
    lines += &format!("{} deleted inodes found.\n", found.len());
    shell.print(lines)?;
    walked.map_err(|error| failed(words, error, "doing inode scan"))
}
