//! The superblock as `dumpe2fs -h` shows it: the same names in the same order under the same
//! conditions, found by trying.

use std::fs;

use extant::inspect::{mount_options, state_name};
use extant::rooms::ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant::rooms::ondisk::mmp::RawMmp;
use extant::rooms::ondisk::superblock::SuperFlags;
use extant::rooms::ondisk::{
    CompatFeatures, Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures, Uuid,
};

use crate::named_view::NamedView;
use crate::time::ctime;

/// Blocks for fast commits where the journal names no number.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// The column in which values start.
const COLUMN: usize = 26;

/// Lines of a listing.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) lines: Vec<String>,
}

impl Fields {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.lines.push(format!("{:<COLUMN$}{value}", format!("{name}:")));
    }

    /// Only when the value is there.
    fn add_some(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Only when the number is not 0.
    fn add_set(&mut self, name: &str, value: impl Into<u64>) {
        let value = value.into();
        self.add_some(name, (value != 0).then_some(value));
    }

    /// Two fields of dumpe2fs have a tab before their value.
    fn add_after_tab(&mut self, name: &str, value: impl std::fmt::Display) {
        self.lines.push(format!("{name}:\t          {value}"));
    }
}

/// The fields of the superblock.
pub(super) fn superblock(view: &NamedView) -> Fields {
    let mut fields = Fields::default();
    identity(view, &mut fields);
    counts(view, &mut fields);
    shape(view, &mut fields);
    history(view, &mut fields);
    inodes(view, &mut fields);
    journal_names(view, &mut fields);
    errors(view, &mut fields);
    extras(view, &mut fields);
    fields
}

fn identity(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    let or = |text: &[u8], none: &str| match text {
        [] => none.to_owned(),
        text => String::from_utf8_lossy(text).into_owned(),
    };
    fields.add("Filesystem volume name", or(superblock.label(), "<none>"));
    fields.add("Last mounted on", or(superblock.last_mounted_on(), "<not available>"));
    fields.add("Filesystem UUID", uuid_or_none(superblock.uuid));
    fields.add("Filesystem magic number", format_args!("0x{:04X}", raw.s_magic.get()));
    let revision = match superblock.revision {
        0 => " (original)",
        1 => " (dynamic)",
        _ => "",
    };
    fields.add("Filesystem revision #", format_args!("{}{revision}", superblock.revision));
    fields.add("Filesystem features", feature_names(superblock.features));
    let is_journal_device = view.is_journal_device();
    if superblock.flags.bits() != 0 || !is_journal_device {
        fields.add("Filesystem flags", flag_names(superblock.flags));
    }
    fields.add("Default mount options", mount_options(superblock.default_mount_opts));
    let options = until_zero(&raw.s_mount_opts);
    fields.add_some(
        "Mount options",
        (!options.is_empty()).then(|| String::from_utf8_lossy(options).into_owned()),
    );
    fields.add("Filesystem state", state_name(superblock.state));
    fields.add(
        "Errors behavior",
        match raw.s_errors.get() {
            1 => "Continue",
            2 => "Remount read-only",
            3 => "Panic",
            _ => "Unknown (continue)",
        },
    );
    let systems = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
    let system = usize::try_from(superblock.creator_os).ok().and_then(|at| systems.get(at));
    fields.add("Filesystem OS type", system.unwrap_or(&"(unknown os)"));
}

fn counts(view: &NamedView, fields: &mut Fields) {
    let superblock = &view.superblock;
    fields.add("Inode count", superblock.inodes_count);
    fields.add("Block count", superblock.blocks_count);
    fields.add("Reserved block count", superblock.reserved_blocks);
    fields.add_set("Overhead clusters", superblock.overhead_clusters);
    fields.add("Free blocks", superblock.free_blocks);
    fields.add("Free inodes", superblock.free_inodes);
}

fn shape(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    let is_bigalloc = superblock.features.ro_compat.contains(RoCompatFeatures::BIGALLOC);
    let size = |log: u32| 1024_u64.checked_shl(log).unwrap_or(0);
    let block_size = size(raw.s_log_block_size.get());
    fields.add("First block", raw.s_first_data_block.get());
    fields.add("Block size", block_size);
    let cluster = if is_bigalloc { "Cluster size" } else { "Fragment size" };
    fields.add(cluster, size(raw.s_log_cluster_size.get()));
    if superblock.features.incompat.contains(IncompatFeatures::BIT64) {
        fields.add("Group descriptor size", raw.s_desc_size.get());
    }
    fields.add_set("Reserved GDT blocks", raw.s_reserved_gdt_blocks.get());
    fields.add("Blocks per group", raw.s_blocks_per_group.get());
    let clusters = if is_bigalloc { "Clusters per group" } else { "Fragments per group" };
    fields.add(clusters, raw.s_clusters_per_group.get());
    fields.add("Inodes per group", raw.s_inodes_per_group.get());
    let inode_size = if superblock.revision == 0 { 128 } else { u64::from(raw.s_inode_size.get()) };
    let per_block = block_size.checked_div(inode_size).unwrap_or(0);
    let inode_blocks = u64::from(raw.s_inodes_per_group.get()).checked_div(per_block).unwrap_or(0);
    fields.add("Inode blocks per group", inode_blocks);
    fields.add_set("RAID stride", superblock.raid_stride);
    fields.add_set("RAID stripe width", superblock.raid_stripe_width);
    fields.add_set("First meta block group", raw.s_first_meta_bg.get());
    if raw.s_log_groups_per_flex > 0 {
        let groups = 1_u64.checked_shl(raw.s_log_groups_per_flex.into()).unwrap_or(0);
        fields.add("Flex block group size", groups);
    }
}

fn history(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    let or_none = |time: u64| if time == 0 { "n/a".to_owned() } else { moment(time) };
    fields.add_some(
        "Filesystem created",
        (superblock.mkfs_time != 0).then(|| moment(superblock.mkfs_time)),
    );
    fields.add("Last mount time", or_none(superblock.mount_time));
    fields.add("Last write time", moment(superblock.write_time));
    fields.add("Mount count", superblock.mount_count);
    fields.add("Maximum mount count", superblock.max_mount_count.cast_signed());
    fields.add("Last checked", moment(superblock.last_check));
    let interval = superblock.check_interval;
    fields.add("Check interval", format_args!("{interval} ({})", interval_name(interval)));
    if interval > 0 {
        fields.add("Next check after", moment(superblock.last_check + u64::from(interval)));
    }
    fields.add_some(
        "Lifetime writes",
        (superblock.kbytes_written != 0).then(|| written(superblock.kbytes_written)),
    );
    let user = name_of("/etc/passwd", raw.s_def_resuid.get());
    fields.add("Reserved blocks uid", format_args!("{} (user {user})", raw.s_def_resuid.get()));
    let group = name_of("/etc/group", raw.s_def_resgid.get());
    fields.add("Reserved blocks gid", format_args!("{} (group {group})", raw.s_def_resgid.get()));
}

fn inodes(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    if superblock.revision == 0 {
        return;
    }
    fields.add("First inode", raw.s_first_ino.get());
    fields.add_after_tab("Inode size", raw.s_inode_size.get());
    fields.add_set("Required extra isize", superblock.min_extra_isize);
    fields.add_set("Desired extra isize", superblock.want_extra_isize);
}

fn journal_names(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    let set = |uuid: Uuid| (!uuid.is_nil()).then_some(uuid);
    fields.add_some("Journal UUID", set(superblock.journal_uuid));
    fields.add_set("Journal inode", raw.s_journal_inum.get());
    if superblock.journal_dev != 0 {
        fields.add_after_tab("Journal device", format_args!("{:#06x}", superblock.journal_dev));
    }
    fields.add_set("First orphan inode", raw.s_last_orphan.get());
    let hashes = ["legacy", "half_md4", "tea"];
    let hash = raw.s_def_hash_version;
    let has_index = superblock.features.compat.contains(CompatFeatures::DIR_INDEX);
    let seed = Uuid(seed_bytes(superblock.hash_seed));
    if has_index || hash != 0 {
        match hashes.get(usize::from(hash)) {
            Some(name) => fields.add("Default directory hash", name),
            None => fields.add("Default directory hash", format_args!("HASHALG_{hash}")),
        }
    }
    fields.add_some("Directory Hash Seed", set(seed));
    match raw.s_jnl_backup_type {
        0 => {}
        1 => fields.add("Journal backup", "inode blocks"),
        other => fields.add("Journal backup", format_args!("type {other}")),
    }
    if superblock.features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        let groups = raw.s_backup_bgs.map(|group| group.get()).into_iter().filter(|&it| it != 0);
        let groups: String = groups.map(|group| format!("{group} ")).collect();
        fields.add_some("Backup block groups", (!groups.is_empty()).then_some(groups));
    }
    if raw.s_snapshot_inum.get() != 0 {
        fields.add("Snapshot inode", raw.s_snapshot_inum);
        fields.add("Snapshot ID", raw.s_snapshot_id);
        fields.add("Snapshot reserved blocks", raw.s_snapshot_r_blocks_count);
    }
    fields.add_set("Snapshot list head", raw.s_snapshot_list.get());
}

fn errors(view: &NamedView, fields: &mut Fields) {
    struct Event<'a> {
        which: &'a str,
        time: u64,
        function: &'a [u8],
        line: u32,
        inode: u32,
        block: u64,
        code: u8,
    }
    let raw = &view.raw;
    fields.add_set("FS Error count", raw.s_error_count.get());
    let time = |low: u32, high: u8| u64::from(low) | u64::from(high) << 32;
    let events = [
        Event {
            which: "First",
            time: time(raw.s_first_error_time.get(), raw.s_first_error_time_hi),
            function: &raw.s_first_error_func,
            line: raw.s_first_error_line.get(),
            inode: raw.s_first_error_ino.get(),
            block: raw.s_first_error_block.get(),
            code: raw.s_first_error_errcode,
        },
        Event {
            which: "Last",
            time: time(raw.s_last_error_time.get(), raw.s_last_error_time_hi),
            function: &raw.s_last_error_func,
            line: raw.s_last_error_line.get(),
            inode: raw.s_last_error_ino.get(),
            block: raw.s_last_error_block.get(),
            code: raw.s_last_error_errcode,
        },
    ];
    for Event { which, time, function, line, inode, block, code } in events {
        if time == 0 {
            continue;
        }
        fields.add(&format!("{which} error time"), moment(time));
        let function = String::from_utf8_lossy(until_zero(function)).into_owned();
        fields.add(&format!("{which} error function"), function);
        fields.add(&format!("{which} error line #"), line);
        fields.add_set(&format!("{which} error inode #"), inode);
        fields.add_set(&format!("{which} error block #"), block);
        fields.add_some(&format!("{which} error err"), (code != 0).then(|| error_name(code)));
    }
}

fn extras(view: &NamedView, fields: &mut Fields) {
    let (raw, superblock) = (&view.raw, &view.superblock);
    let features = superblock.features;
    if features.incompat.contains(IncompatFeatures::MMP) {
        fields.add("MMP block number", raw.s_mmp_block);
        fields.add("MMP update interval", raw.s_mmp_interval);
    }
    fields.add_set("User quota inode", raw.s_usr_quota_inum.get());
    fields.add_set("Group quota inode", raw.s_grp_quota_inum.get());
    fields.add_set("Project quota inode", raw.s_prj_quota_inum.get());
    if features.checksum() == MetadataChecksum::Crc32c {
        let kind = match raw.s_checksum_type {
            1 => "crc32c".to_owned(),
            other => format!("unknown {other}"),
        };
        fields.add("Checksum type", kind);
        fields.add("Checksum", format_args!("{:#010x}", raw.s_checksum.get()));
    }
    let salt = Uuid(raw.s_encrypt_pw_salt);
    fields.add_some("Encryption PW Salt", (!salt.is_nil()).then_some(salt));
    if features.incompat.contains(IncompatFeatures::CSUM_SEED) {
        fields.add("Checksum seed", format_args!("{:#010x}", raw.s_checksum_seed.get()));
    }
    if features.incompat.contains(IncompatFeatures::CASEFOLD) {
        match superblock.encoding {
            1 => fields.add("Character encoding", "utf8-12.1"),
            other => fields.add("Character encoding", format_args!("UNKNOWN_ENCODING_{other}")),
        }
    }
    if features.compat.contains(CompatFeatures::ORPHAN_FILE) {
        fields.add("Orphan file inode", raw.s_orphan_file_inum);
    }
}

/// The journal's superblock as dumpe2fs shows it.
pub(super) fn journal(
    raw: &RawJournalSuperblock,
    decoded: &JournalSuperblock,
    view: &NamedView,
) -> Fields {
    let mut fields = Fields::default();
    let mut names = decoded.compat.names();
    names.extend(decoded.incompat.names());
    names.extend(decoded.ro_compat.names());
    fields.add(
        "Journal features",
        if names.is_empty() { "(none)".to_owned() } else { names.join(" ") },
    );
    let blocks = u64::from(decoded.blocks_count);
    let kibibytes = blocks * u64::from(decoded.block_size) / 1024;
    let size =
        if kibibytes < 8192 { format!("{kibibytes}k") } else { format!("{}M", kibibytes / 1024) };
    let has_fast_commit = view.superblock.features.compat.contains(CompatFeatures::FAST_COMMIT);
    let fast_commit = match raw.s_num_fc_blks.get() {
        0 if has_fast_commit => DEFAULT_FAST_COMMIT_BLOCKS,
        blocks => blocks,
    };
    fields.add("Total journal size", size);
    fields.add("Total journal blocks", blocks);
    fields.add("Max transaction length", blocks.saturating_sub(u64::from(fast_commit)));
    fields.add("Fast commit length", fast_commit);
    if decoded.first != 1 {
        fields.add("Journal first block", decoded.first);
    }
    fields.add("Journal sequence", format_args!("{:#010x}", decoded.sequence.0));
    fields.add("Journal start", decoded.start);
    if decoded.log_format().has_block_checksums() {
        fields.add("Journal checksum type", "crc32c");
        fields.add("Journal checksum", format_args!("{:#010x}", raw.s_checksum.get()));
    }
    if view.is_journal_device() {
        match decoded.users.as_slice() {
            [] => fields.add("Journal number of users", raw.s_nr_users),
            users => {
                for (at, user) in users.iter().enumerate() {
                    let name = if at == 0 { "Journal users:" } else { "" };
                    fields.lines.push(format!("{name:<COLUMN$}{user}"));
                }
            }
        }
    }
    if decoded.errno != 0 {
        fields.add("Journal errno", decoded.errno);
    }
    fields
}

/// The MMP block as dumpe2fs shows it.
pub(super) fn mmp(raw: &RawMmp) -> Fields {
    let text = |bytes: &[u8]| String::from_utf8_lossy(until_zero(bytes)).into_owned();
    let time = raw.mmp_time.get();
    Fields {
        lines: vec![
            "MMP_block:".to_owned(),
            format!("    mmp_magic: {:#x}", raw.mmp_magic.get()),
            format!("    mmp_check_interval: {}", raw.mmp_check_interval),
            format!("    mmp_sequence: {:#010x}", raw.mmp_seq.get()),
            format!("    mmp_update_date: {}", moment(time)),
            format!("    mmp_update_time: {time}"),
            format!("    mmp_node_name: {}", text(&raw.mmp_nodename)),
            format!("    mmp_device_name: {}", text(&raw.mmp_bdevname)),
        ],
    }
}

fn feature_names(features: Features) -> String {
    let names = features.names();
    if names.is_empty() { "(none)".to_owned() } else { names.join(" ") }
}

/// With a space after each, the last one too.
fn flag_names(flags: SuperFlags) -> String {
    let known = [
        (SuperFlags::SIGNED_HASH, "signed_directory_hash "),
        (SuperFlags::UNSIGNED_HASH, "unsigned_directory_hash "),
        (SuperFlags::TEST_FILESYS, "test_filesystem "),
    ];
    let names: String = known
        .into_iter()
        .filter(|(flag, _)| flags.intersects(*flag))
        .map(|(_, name)| name)
        .collect();
    if names.is_empty() { "(none)".to_owned() } else { names }
}

/// Numbers of `s_first_error_errcode`, from 1.
const ERRORS: [&str; 17] = [
    "UNKNOWN",
    "EIO",
    "ENOMEM",
    "EFSBADCRC",
    "EFSCORRUPTED",
    "ENOSPC",
    "ENOKEY",
    "EROFS",
    "EFBIG",
    "EEXIST",
    "ERANGE",
    "EOVERFLOW",
    "EBUSY",
    "ENOTDIR",
    "ENOTEMPTY",
    "ESHUTDOWN",
    "EFAULT",
];

fn error_name(code: u8) -> String {
    usize::from(code)
        .checked_sub(1)
        .and_then(|at| ERRORS.get(at))
        .map_or_else(|| format!("UNKNOWN_ERRCODE_{code}"), |name| (*name).to_owned())
}

/// `6 months`, `1 day, 3:46:40`.
fn interval_name(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".to_owned();
    }
    let mut parts = Vec::new();
    let mut left = seconds;
    for (unit, name) in [(30 * 86_400, "month"), (7 * 86_400, "week"), (86_400, "day")] {
        let count = left / unit;
        left %= unit;
        match count {
            0 => {}
            1 => parts.push(format!("1 {name}")),
            _ => parts.push(format!("{count} {name}s")),
        }
    }
    if left > 0 {
        parts.push(format!("{}:{:02}:{:02}", left / 3600, left / 60 % 60, left % 60));
    }
    parts.join(", ")
}

/// KiB in the unit that leaves fewer than 8,192, rounded to the nearest.
pub(super) fn written(kibibytes: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB"];
    let mut unit = 1_u64;
    let mut at = 0;
    while kibibytes / unit >= 8192 && at + 1 < units.len() {
        unit *= 1024;
        at += 1;
    }
    format!(
        "{} {}",
        (kibibytes / unit) + u64::from(kibibytes % unit >= unit.div_ceil(2) && unit > 1),
        units[at]
    )
}

/// The name of a number in a table like /etc/passwd.
fn name_of(table: &str, number: u16) -> String {
    let text = fs::read_to_string(table).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| "unknown".to_owned())
}

fn uuid_or_none(uuid: Uuid) -> String {
    if uuid.is_nil() { "<none>".to_owned() } else { uuid.to_string() }
}

fn seed_bytes(seed: [u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (place, word) in bytes.chunks_exact_mut(4).zip(seed) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn moment(seconds: u64) -> String {
    ctime(i64::try_from(seconds).unwrap_or(i64::MAX))
}

pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_read_as_in_dumpe2fs() {
        let cases = [
            (0, "<none>"),
            (30, "0:00:30"),
            (90_061, "1 day, 1:01:01"),
            (604_800, "1 week"),
            (15_552_000, "6 months"),
            (31_536_000, "12 months, 5 days"),
        ];
        for (seconds, text) in cases {
            assert_eq!(interval_name(seconds), text);
        }
    }

    #[test]
    fn amounts_written_read_as_in_dumpe2fs() {
        let cases = [
            (8191, "8191 kB"),
            (8192, "8 MB"),
            (9999, "10 MB"),
            (8_388_607, "8192 MB"),
            (20_000_000_000, "19 TB"),
            (2_251_799_813_685_248, "2048 PB"),
        ];
        for (kibibytes, text) in cases {
            assert_eq!(written(kibibytes), text);
        }
    }
}
