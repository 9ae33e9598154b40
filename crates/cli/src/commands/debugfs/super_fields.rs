//! `set_super_value`, `set_block_group`, `set_current_time` and `dirty`: the volume's own fields.

use std::mem::offset_of;

use extant::rooms::ondisk::GroupNo;
use extant::rooms::ondisk::superblock::{RawSuperblock, State};
use zerocopy::IntoBytes;

use super::fields::{self, Kind};
use super::options::Options;
use super::shell::{Done, Refusal, Shell, refuse};
use super::words::{Word, number, text};
use crate::time;

/// A field of the superblock: its place, its length in bytes, and those of its higher part.
#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    kind: Kind,
    at: usize,
    len: usize,
    high: Option<(usize, usize)>,
    /// Number of elements of an array.
    count: Option<usize>,
}

macro_rules! fields {
    ($($name:literal $kind:ident $field:ident $([$count:literal])? $len:literal
        $(+ $high:ident $high_len:literal)?;)*) => {
        &[$(Field {
            name: $name,
            kind: Kind::$kind,
            at: offset_of!(RawSuperblock, $field),
            len: $len,
            high: [$(Some((offset_of!(RawSuperblock, $high), $high_len)),)? None][0],
            count: [$(Some($count),)? None][0],
        },)*]
    };
}

const FIELDS: &[Field] = fields! {
    "inodes_count" Number s_inodes_count 4;
    "blocks_count" Number s_blocks_count_lo 4 + s_blocks_count_hi 4;
    "r_blocks_count" Number s_r_blocks_count_lo 4 + s_r_blocks_count_hi 4;
    "free_blocks_count" Number s_free_blocks_count_lo 4 + s_free_blocks_count_hi 4;
    "free_inodes_count" Number s_free_inodes_count 4;
    "first_data_block" Number s_first_data_block 4;
    "log_block_size" Number s_log_block_size 4;
    "log_cluster_size" Signed s_log_cluster_size 4;
    "blocks_per_group" Number s_blocks_per_group 4;
    "clusters_per_group" Number s_clusters_per_group 4;
    "inodes_per_group" Number s_inodes_per_group 4;
    "mtime" Time s_mtime 4 + s_mtime_hi 1;
    "wtime" Time s_wtime 4 + s_wtime_hi 1;
    "mnt_count" Number s_mnt_count 2;
    "max_mnt_count" Signed s_max_mnt_count 2;
    "state" Number s_state 2;
    "errors" Number s_errors 2;
    "minor_rev_level" Number s_minor_rev_level 2;
    "lastcheck" Time s_lastcheck 4 + s_lastcheck_hi 1;
    "checkinterval" Number s_checkinterval 4;
    "creator_os" Number s_creator_os 4;
    "rev_level" Number s_rev_level 4;
    "def_resuid" Number s_def_resuid 2;
    "def_resgid" Number s_def_resgid 2;
    "first_ino" Number s_first_ino 4;
    "inode_size" Number s_inode_size 2;
    "block_group_nr" Number s_block_group_nr 2;
    "feature_compat" Number s_feature_compat 4;
    "feature_incompat" Number s_feature_incompat 4;
    "feature_ro_compat" Number s_feature_ro_compat 4;
    "uuid" Uuid s_uuid 16;
    "volume_name" Text s_volume_name 16;
    "last_mounted" Text s_last_mounted 64;
    "algorithm_usage_bitmap" Number s_algorithm_usage_bitmap 4;
    "prealloc_blocks" Number s_prealloc_blocks 1;
    "prealloc_dir_blocks" Number s_prealloc_dir_blocks 1;
    "reserved_gdt_blocks" Number s_reserved_gdt_blocks 2;
    "journal_uuid" Uuid s_journal_uuid 16;
    "journal_inum" Number s_journal_inum 4;
    "journal_dev" Number s_journal_dev 4;
    "last_orphan" Number s_last_orphan 4;
    "hash_seed" Uuid s_hash_seed 16;
    "def_hash_version" Hash s_def_hash_version 1;
    "jnl_backup_type" Number s_jnl_backup_type 1;
    "desc_size" Number s_desc_size 2;
    "default_mount_opts" Number s_default_mount_opts 4;
    "first_meta_bg" Number s_first_meta_bg 4;
    "mkfs_time" Time s_mkfs_time 4 + s_mkfs_time_hi 1;
    "jnl_blocks" Number s_jnl_blocks [17] 4;
    "min_extra_isize" Number s_min_extra_isize 2;
    "want_extra_isize" Number s_want_extra_isize 2;
    "flags" Number s_flags 4;
    "raid_stride" Number s_raid_stride 2;
    "mmp_interval" Number s_mmp_interval 2;
    "mmp_block" Number s_mmp_block 8;
    "raid_stripe_width" Number s_raid_stripe_width 4;
    "log_groups_per_flex" Number s_log_groups_per_flex 1;
    "kbytes_written" Number s_kbytes_written 8;
    "snapshot_inum" Number s_snapshot_inum 4;
    "snapshot_id" Number s_snapshot_id 4;
    "snapshot_r_blocks_count" Number s_snapshot_r_blocks_count 8;
    "snapshot_list" Number s_snapshot_list 4;
    "mount_opts" Text s_mount_opts 64;
    "usr_quota_inum" Number s_usr_quota_inum 4;
    "grp_quota_inum" Number s_grp_quota_inum 4;
    "prj_quota_inum" Number s_prj_quota_inum 4;
    "overhead_clusters" Number s_overhead_blocks 4;
    "backup_bgs" Number s_backup_bgs [2] 4;
    "checksum" Number s_checksum 4;
    "checksum_type" Number s_checksum_type 1;
    "encryption_level" Number s_reserved_pad 1;
    "error_count" Number s_error_count 4;
    "first_error_time" Time s_first_error_time 4 + s_first_error_time_hi 1;
    "first_error_ino" Number s_first_error_ino 4;
    "first_error_block" Number s_first_error_block 8;
    "first_error_func" Text s_first_error_func 32;
    "first_error_line" Number s_first_error_line 4;
    "last_error_time" Time s_last_error_time 4 + s_last_error_time_hi 1;
    "last_error_ino" Number s_last_error_ino 4;
    "last_error_block" Number s_last_error_block 8;
    "last_error_func" Text s_last_error_func 32;
    "last_error_line" Number s_last_error_line 4;
    "encrypt_algos" Number s_encrypt_algos [4] 1;
    "encrypt_pw_salt" Uuid s_encrypt_pw_salt 16;
    "lpf_ino" Number s_lpf_ino 4;
    "checksum_seed" Number s_checksum_seed 4;
    "encoding" Encoding s_encoding 2;
    "orphan_file_inum" Number s_orphan_file_inum 4;
};

/// The field of a name, which may have the number of an element: `jnl_blocks[3]`.
fn field_of(name: &str) -> Option<Field> {
    let name = name.strip_prefix("s_").unwrap_or(name);
    let (name, index) = match name.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((name, "")) => (name, Some(0)),
        Some((name, index)) => (name, Some(number(index.as_bytes())?)),
        None => (name, None),
    };
    let found = FIELDS.iter().find(|field| field.name == name);
    if let Some(field) = found {
        let count = field.count.unwrap_or(1);
        let index = match (field.count, index) {
            (Some(_), None) => return None,
            (Some(_), Some(index)) => usize::try_from(index).ok().filter(|at| *at < count)?,
            // As debugfs does.
            (None, _) => 0,
        };
        return Some(Field { at: field.at + index * field.len, count: None, ..*field });
    }
    // Halves of a number.
    let (base, is_high) = match (name.strip_suffix("_lo"), name.strip_suffix("_hi")) {
        (Some(base), _) => (base, false),
        (_, Some(base)) => (base, true),
        _ => return None,
    };
    let field = FIELDS.iter().find(|field| field.name == base)?;
    let (at, len) = field.high.filter(|(_, len)| *len > 1)?;
    Some(match is_high {
        true => Field { at, len, high: None, ..*field },
        false => Field { high: None, ..*field },
    })
}

/// The bytes that a value puts into the superblock, with their places.
fn bytes_of(field: &Field, value: &[u8], now: i64) -> Result<Vec<(usize, Vec<u8>)>, String> {
    let unreadable = || fields::unreadable(value, field.name);
    let number = match field.kind {
        Kind::Text => {
            if value.len() > field.len {
                return Err(format!("Error maximum size for {} is {}.", field.name, field.len));
            }
            let mut bytes = value.to_vec();
            bytes.resize(field.len, 0);
            return Ok(vec![(field.at, bytes)]);
        }
        Kind::Uuid => {
            return Ok(vec![(field.at, fields::uuid_of(value).ok_or_else(unreadable)?.to_vec())]);
        }
        Kind::Time => fields::time_of(value, now).ok_or_else(unreadable)?.cast_unsigned(),
        Kind::Hash => fields::hash_of(value).ok_or_else(unreadable)?,
        Kind::Encoding => fields::encoding_of(value).ok_or_else(unreadable)?,
        Kind::Signed => fields::number_of(value, field.name, u64::BITS)?,
        Kind::Number => {
            let bits = 8 * (field.len + field.high.map_or(0, |(_, len)| len)) as u32;
            fields::number_of(value, field.name, bits)?
        }
    };
    // Without a revision the features, the checksum of the superblock too, mean nothing.
    if field.name == "rev_level" && number == 0 {
        return Err("set_super_value: rev_level 0: not supported by extant".to_owned());
    }
    let stored = number.to_le_bytes();
    let mut parts = vec![(field.at, stored[..field.len].to_vec())];
    if let Some((at, len)) = field.high {
        parts.push((at, stored[field.len..field.len + len].to_vec()));
    }
    Ok(parts)
}

pub(super) fn set_super_value(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() == 2 && words[1] == b"-l" {
        let mut lines = "Superblock fields supported by the set_super_value command:\n".to_owned();
        for field in FIELDS {
            let high = field.high.filter(|(_, len)| *len > 1).map_or("", |_| "[_hi|_lo]");
            let count = field.count.map_or(String::new(), |count| format!("[{count}]"));
            let name = format!("{}{count}{high}", field.name);
            lines += &format!("\t{name:<25}\t{}\n", field.kind.name());
        }
        return shell.print(lines);
    }
    let [_, name, value] = words else {
        let hint = "\t\"set_super_value -l\" will list the names of the fields in the superblock\n\
                    \twhich can be set.";
        return Err(refuse(words, format_args!("Usage: set_super_value <field> <value>\n{hint}")));
    };
    let image = shell.writable(words)?;
    let name = text(name);
    let unknown = || refuse(words, format_args!("invalid field specifier: {name}"));
    let field = field_of(&name).ok_or_else(unknown)?;
    let parts = bytes_of(&field, value, image.seconds()).map_err(Refusal::Line)?;
    let changed = image.change(|volume| {
        let change = |raw: &mut RawSuperblock| {
            for (at, bytes) in &parts {
                raw.as_mut_bytes()[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        };
        Ok(volume.editor_mut().update_superblock(change)?)
    });
    changed.map_err(|why| refuse(words, why))
}

/// A field of a group's descriptor: where its low and its high half lie, and bytes of each. Only
/// descriptors of 64 bytes have high halves.
struct GroupField {
    name: &'static str,
    low: usize,
    high: Option<usize>,
    size: usize,
    /// Whether descriptors of 32 bytes have it, too, for theirs.
    is_old: bool,
}

const fn group_field(
    name: &'static str,
    low: usize,
    high: Option<usize>,
    size: usize,
    is_old: bool,
) -> GroupField {
    GroupField { name, low, high, size, is_old }
}

const GROUP_FIELDS: [GroupField; 12] = [
    group_field("block_bitmap", 0, Some(32), 4, true),
    group_field("inode_bitmap", 4, Some(36), 4, true),
    group_field("inode_table", 8, Some(40), 4, true),
    group_field("free_blocks_count", 12, Some(44), 2, true),
    group_field("free_inodes_count", 14, Some(46), 2, true),
    group_field("used_dirs_count", 16, Some(48), 2, true),
    group_field("flags", 18, None, 2, true),
    group_field("exclude_bitmap", 20, Some(52), 4, false),
    group_field("block_bitmap_csum", 24, Some(56), 2, false),
    group_field("inode_bitmap_csum", 26, Some(58), 2, false),
    group_field("itable_unused", 28, Some(50), 2, true),
    group_field("checksum", 30, None, 2, true),
];

/// The fields as theirs lists them; of descriptors of 32 bytes, where no volume is open.
fn group_fields(is_large: bool) -> String {
    let heading = "Block group descriptor fields supported by the set_block_group command:\n";
    let mut lines = heading.to_owned();
    for field in GROUP_FIELDS.iter().filter(|field| is_large || field.is_old) {
        let halves = if is_large && field.high.is_some() { "[_hi|_lo]" } else { "" };
        let name = format!("{}{halves}", field.name);
        let calc = if field.name == "checksum" { " OR \"calc\"" } else { "" };
        lines += &format!("\t{name:<25}\tunsigned integer{calc}\n");
    }
    lines
}

/// The parts of a descriptor that a name stands for, in the order of their bytes.
fn group_parts(name: &str, is_large: bool) -> Option<(&'static GroupField, Vec<usize>)> {
    let fields = || GROUP_FIELDS.iter().filter(|field| is_large || field.is_old);
    if let Some(field) = fields().find(|field| field.name == name) {
        let high = field.high.filter(|_| is_large);
        return Some((field, [field.low].into_iter().chain(high).collect()));
    }
    let (stem, half) = name.rsplit_once('_')?;
    let field = fields().find(|field| field.name == stem)?;
    let high = field.high.filter(|_| is_large)?;
    match half {
        "lo" => Some((field, vec![field.low])),
        "hi" => Some((field, vec![high])),
        _ => None,
    }
}

pub(super) fn set_block_group(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() == 2 && words[1] == b"-l" {
        let image = shell.image.as_ref();
        let is_large = image.is_some_and(|image| image.volume.geometry().desc_size >= 64);
        return shell.print(group_fields(is_large));
    }
    let [_, group, name, value] = words else {
        let hint = "\t\"set_block_group -l\" will list the names of the fields in a block group \
                    descriptor\n\twhich can be set.";
        let usage = "Usage: set_block_group <bg number> <field> <value>";
        return Err(refuse(words, format_args!("{usage}\n{hint}")));
    };
    let image = shell.writable(words)?;
    let name = text(name);
    let is_large = image.volume.geometry().desc_size >= 64;
    let (field, parts) = group_parts(&name, is_large)
        .ok_or_else(|| refuse(words, format_args!("invalid field specifier: {name}")))?;
    let is_checksum = field.name == "checksum";
    let is_computed = is_checksum && value == b"calc";
    let bytes = parts.len() * field.size;
    let value = match is_computed {
        true => 0,
        // At most 64.
        false => fields::number_of(value, field.name, 8 * bytes as u32).map_err(Refusal::Line)?,
    };
    let groups = image.volume.geometry().groups_count;
    let wrong = || refuse(words, format_args!("invalid block group number: {}", text(group)));
    let group = number(group).and_then(|it| u32::try_from(it).ok());
    let group = GroupNo(group.filter(|it| *it < groups).ok_or_else(wrong)?);
    let changed = image.change(|volume| {
        // Of another field the checksum is made again.
        let seals = is_computed || !is_checksum;
        volume.editor_mut().update_stored_desc(group, seals, |stored| {
            if is_computed {
                return;
            }
            let value = value.to_le_bytes();
            for (part, bytes) in parts.iter().zip(value.chunks(field.size)) {
                stored[*part..*part + field.size].copy_from_slice(bytes);
            }
        });
        Ok(())
    });
    changed.map_err(|why| refuse(words, why))
}

pub(super) fn set_current_time(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, value] = words else { return Err(refuse(words, "Usage: set_current_time <time>")) };
    let image = shell.image(words)?;
    let seconds = fields::time_of(value, image.seconds());
    let wrong =
        || refuse(words, format_args!("Couldn't parse argument as a time: {}\n", text(value)));
    let seconds = seconds.ok_or_else(wrong)?;
    image.set_now(Some(seconds)).map_err(|why| refuse(words, why))?;
    shell.print(format!("Setting current time to {}\n\n", time::ctime(seconds)))
}

pub(super) fn dirty(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "dirty: Usage: dirty_filesys [-clean]";
    let is_clean = match words {
        [_] => false,
        [_, word] if word == b"-clean" => true,
        _ => {
            Options::read(words, "", usage)?;
            return Err(Refusal::Line(usage.to_owned()));
        }
    };
    let image = shell.writable(words)?;
    let changed = image.change(|volume| {
        let change = |raw: &mut RawSuperblock| {
            let mut state = State::from_bits_retain(raw.s_state.get());
            state.set(State::CLEAN, is_clean);
            raw.s_state.set(state.bits());
        };
        Ok(volume.editor_mut().update_superblock(change)?)
    });
    changed.map_err(|why| refuse(words, why))
}
