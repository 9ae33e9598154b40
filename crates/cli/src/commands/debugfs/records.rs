//! `list_quota`, `get_quota` and `dump_mmp`: records that the volume keeps.

use extant::InodeNo;
use extant::debug::DebugVolume;
use extant::rooms::ondisk::mmp::RawMmp;
use extant::rooms::ondisk::quota::{QuotaKind, QuotaRecord, quota_tree};
use extant::rooms::ondisk::{BlockNo, IncompatFeatures, RoCompatFeatures};

use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};
use crate::time;

const HEADING: &str = "      space    quota    limit      inodes    quota    limit\n";

pub(super) fn list_quota(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let (kind, _) = quota_of(shell, words, 2, "list_quota quota_type")?;
    let records = records(shell.volume(words)?, kind);
    let records = records.map_err(|why| failed(words, why, "reading quota"))?;
    let lines: String = records.iter().map(line).collect();
    shell.print(heading(kind) + &lines)
}

pub(super) fn get_quota(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let (kind, id) = quota_of(shell, words, 3, "get_quota quota_type id")?;
    let wrong = || refuse(words, format_args!("Bad id - {}", text(id)));
    let id = number(id).and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)?;
    let records = records(shell.volume(words)?, kind);
    let records = records.map_err(|why| failed(words, why, "reading quota"))?;
    let found = records.into_iter().find(|record| record.id == id);
    let record = found.unwrap_or(QuotaRecord { id, ..QuotaRecord::default() });
    shell.print(heading(kind) + &line(&record))
}

/// The kind that the second word names, and the last word.
fn quota_of<'w>(
    shell: &mut Shell<'_>,
    words: &'w [Word],
    count: usize,
    usage: &str,
) -> Result<(QuotaKind, &'w [u8]), Refusal> {
    let volume = shell.volume(words)?;
    if !volume.geometry().has_ro_compat(RoCompatFeatures::QUOTA) {
        return Err(refuse(words, "quota feature not enabled"));
    }
    if words.len() != count {
        return Err(refuse(words, format_args!("Usage: {usage}")));
    }
    let kind = match &words[1][..] {
        b"user" => QuotaKind::User,
        b"group" => QuotaKind::Group,
        b"project" => QuotaKind::Project,
        other => {
            let known = "Valid quota types are: user group project ";
            let what = format!("Invalid quota type: {}\n{known}", text(other));
            return Err(Refusal::Line(what));
        }
    };
    Ok((kind, words.last().map_or(&[], Vec::as_slice)))
}

fn records(volume: &DebugVolume, kind: QuotaKind) -> Result<Vec<QuotaRecord>, String> {
    let raw = volume.raw();
    let stored = match kind {
        QuotaKind::User => raw.s_usr_quota_inum,
        QuotaKind::Group => raw.s_grp_quota_inum,
        QuotaKind::Project => raw.s_prj_quota_inum,
    };
    let inode = InodeNo(stored.get());
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let record = volume.inode(inode).map_err(|error| said(&error))?;
    let contents = volume.contents(&record).map_err(|error| said(&error))?;
    let tree = quota_tree(&contents, kind, inode);
    tree.and_then(|mut tree| tree.records()).map_err(|error| said(&error))
}

fn heading(kind: QuotaKind) -> String {
    let name = match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    };
    format!("{name:>7} id{HEADING}")
}

fn line(record: &QuotaRecord) -> String {
    format!(
        "{:>10} {:>10} {:>8} {:>8}  {:>10} {:>8} {:>8}\n",
        record.id,
        record.space,
        record.block_soft,
        record.block_hard,
        record.inodes,
        record.inode_soft,
        record.inode_hard
    )
}

pub(super) fn dump_mmp(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let volume = shell.volume(words)?;
    let block = match words {
        [_] => {
            if !volume.geometry().has_incompat(IncompatFeatures::MMP) {
                return Err(refuse(words, "MMP: not active on this filesystem."));
            }
            volume.raw().s_mmp_block.get()
        }
        [_, word] => number(word)
            .ok_or_else(|| refuse(words, format_args!("Bad mmp_block - {}", text(word))))?,
        _ => return Err(refuse(words, "Usage: dump_mmp [mmp_block]")),
    };
    let doing = format!("reading MMP block {block}.");
    let bytes = volume.block(BlockNo(block)).map_err(|it| failed(words, it, &doing))?;
    let raw = RawMmp::from_bytes(&bytes, BlockNo(block)).map_err(|it| failed(words, it, &doing))?;
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        text(&bytes[..end])
    };
    let seconds = raw.mmp_time.get();
    let moment = time::ctime(i64::try_from(seconds).unwrap_or(i64::MAX / 2));
    let lines = format!(
        "block_number: {block}\nupdate_interval: {}\ncheck_interval: {}\nsequence: {:08x}\n\
         time: {seconds} -- {moment}\nnode_name: {}\ndevice_name: {}\nmagic: {:#x}\n\
         checksum: {:#010x}\n",
        volume.raw().s_mmp_interval,
        raw.mmp_check_interval,
        raw.mmp_seq.get(),
        name(&raw.mmp_nodename),
        name(&raw.mmp_bdevname),
        raw.mmp_magic.get(),
        raw.mmp_checksum.get()
    );
    shell.print(lines)
}
