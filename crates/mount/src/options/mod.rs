//! The options of `-o`: the names of the kernel's ext4, those of mount(8), and a few of FUSE.
//!
//! Every name works, or is refused by name: with the reason where the kernel knows it, as unknown
//! else.

use std::path::PathBuf;
use std::time::Duration;

use extant_device::{ByteSize, c_number};
use extant_engine::{AllocatorKind, BatchTime, DataMode};
use extant_ondisk::superblock::ErrorPolicy;
use extant_reader::SuperblockAt;
use rustix::mount::MountFlags;

/// Seconds between commits that `commit=0` means (ext4(5)).
const DEFAULT_COMMIT: Duration = Duration::from_secs(5);

/// The least memory that a volume works with.
const LEAST_MEMORY: u64 = 16 << 20;

/// Event loops that any machine can run; each has buffers of a request's size.
const MOST_THREADS: u32 = 1024;

/// An fsync waits so long at most where only the least time was given: the kernel's default of
/// `max_batch_time=` (ext4(5)).
const DEFAULT_MAX_BATCH: Duration = Duration::from_micros(15_000);

/// The last of the priorities of ionice(1).
const LAST_IO_PRIORITY: u8 = 7;

/// `sb=` of the first superblock, in units of 1 KiB.
const FIRST_SUPERBLOCK: u64 = 1;

/// An option that is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// Unknown option.
    #[error("unknown mount option {0}")]
    Unknown(String),
    /// The kernel's ext4 has it, and it cannot be had here.
    #[error("mount option {option} is not supported: {reason}")]
    Refused {
        /// The option as given.
        option: String,
        /// Why.
        reason: &'static str,
    },
    /// The value after `=` is invalid, missing or not allowed.
    #[error("mount option {option}: {problem}")]
    BadValue {
        /// The option as given.
        option: String,
        /// The problem.
        problem: &'static str,
    },
    /// Two options that conflict.
    #[error("mount options {0} and {1} are mutually exclusive")]
    Conflict(&'static str, &'static str),
}

/// When reading changes the time of the last read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Atime {
    /// When it is older than the last change, or than a day (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`).
    Strict,
    /// Never (`noatime`).
    Never,
}

/// All options of `-o`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MountOptions {
    /// Nothing is written, not even to replay the journal.
    pub read_only: bool,
    /// Programs' setuid bits count. `None`: for root's mounts only.
    pub suid: Option<bool>,
    /// Device files work. `None`: for root's mounts only.
    pub dev: Option<bool>,
    /// Programs may be run.
    pub exec: bool,
    /// Every change is durable when its call returns.
    pub sync: bool,
    /// Every change of names is.
    pub dirsync: bool,
    /// When reading changes the time of the last read.
    pub atime: Atime,
    /// Reading directories does not change it.
    pub nodiratime: bool,
    /// Symbolic links are not followed.
    pub nosymfollow: bool,
    /// Other users may use the mount. `None`: those of root's mounts.
    pub allow_other: Option<bool>,
    /// Mode of journalling for file data (`data=`).
    pub data: Option<DataMode>,
    /// Data written into holes wait in memory for their blocks. `None`: the volume's default.
    pub delalloc: Option<bool>,
    /// Data of files that replace others are written early.
    pub auto_da_alloc: bool,
    /// Age of the oldest change at a commit (`commit=`).
    pub commit: Duration,
    /// Changes of nothing but times wait in memory (`lazytime`).
    pub lazytime: bool,
    /// The device is flushed where the order of writes counts.
    pub barriers: bool,
    /// Checksums in the log.
    pub journal_checksum: bool,
    /// The commit block is not held back.
    pub journal_async_commit: bool,
    /// The journal's own device.
    pub journal_path: Option<PathBuf>,
    /// The same by its number, as the kernel encodes major and minor (`journal_dev=`).
    pub journal_dev: Option<u32>,
    /// Maximum microseconds that an fsync waits for others to join its commit (`max_batch_time=`).
    /// `None`: not at all, or with a minimum [`DEFAULT_MAX_BATCH`].
    pub max_batch_time: Option<u32>,
    /// Minimum (`min_batch_time=`).
    pub min_batch_time: Option<u32>,
    /// The superblock that the volume is read by, in units of 1 KiB (`sb=`).
    pub superblock: Option<u64>,
    /// Directories of this size in KiB do not grow (`max_dir_size_kb=`).
    pub max_dir_size_kb: Option<u32>,
    /// Files share blocks of equal attributes (unless `nombcache`).
    pub shares_xattrs: bool,
    /// Whether new files are extent-mapped (`extents`, `noextents`). `None`: by the volume's
    /// feature.
    pub extents: Option<bool>,
    /// Whether new files take their directory's group (`grpid`, `nogrpid`). `None`: the volume's
    /// default.
    pub passes_group: Option<bool>,
    /// Whether limits of users, groups and projects are enforced. `None`: all that the volume
    /// counts.
    pub enforced_limits: Option<[bool; 3]>,
    /// A failed write of file data ends all changes (`data_err=abort`).
    pub aborts_on_lost_data: bool,
    /// The I/O priority of commits, 0 to 7 (`journal_ioprio=`).
    pub journal_io_priority: Option<u8>,
    /// The journal is not replayed; the volume is read as it lies.
    pub norecovery: bool,
    /// The reaction to an error.
    pub errors: Option<ErrorPolicy>,
    /// Access control lists count.
    pub acl: bool,
    /// Every user of the mount may do what root may (`fakeroot`): no permission is checked.
    pub fakeroot: bool,
    /// Attributes of users are there.
    pub user_xattr: bool,
    /// statfs counts the blocks of metadata as blocks in use.
    pub minixdf: bool,
    /// User and group, other than root, that may use reserved blocks.
    pub resuid: Option<u32>,
    /// Which group may.
    pub resgid: Option<u32>,
    /// The allocator of blocks (`mballoc`, `nomballoc`).
    pub allocator: AllocatorKind,
    /// Blocks of a stripe (`stripe=`).
    pub stripe: Option<u32>,
    /// Freed blocks are discarded on the device (`discard`).
    pub discard: bool,
    /// Blocks of an inode table that are read at once (`inode_readahead_blks=`). `None`: as many as
    /// the kernel does.
    pub inode_readahead_blks: Option<u32>,
    /// Bytes of memory for metadata and delayed data; then the image is opened around the page
    /// cache.
    pub memory: Option<u64>,
    /// Event loops.
    pub threads: Option<usize>,
    /// Requests come by io_uring if the kernel offers that; else they are read.
    pub io_uring: bool,
    /// Idle processors of a virtual machine poll while many requests come, if the process has the
    /// permission.
    pub busy_poll: bool,
    /// The kernel's cache keeps written data, and their times, until writeback; else each write is
    /// a request.
    pub writeback_cache: bool,
    /// How long another use of the image is waited for. No option of `-o` sets it.
    pub wait: Duration,
    /// Only the flags of an existing mount are changed.
    pub remount: bool,
    /// Options that the kernel accepts, without any effect, with a warning.
    pub removed: Vec<String>,
    /// `rw` was given.
    said_rw: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            suid: None,
            dev: None,
            exec: true,
            sync: false,
            dirsync: false,
            atime: Atime::default(),
            nodiratime: false,
            nosymfollow: false,
            allow_other: None,
            data: None,
            delalloc: None,
            auto_da_alloc: true,
            commit: DEFAULT_COMMIT,
            lazytime: false,
            barriers: true,
            journal_checksum: false,
            journal_async_commit: false,
            journal_path: None,
            journal_dev: None,
            max_batch_time: None,
            min_batch_time: None,
            superblock: None,
            max_dir_size_kb: None,
            shares_xattrs: true,
            extents: None,
            passes_group: None,
            enforced_limits: None,
            aborts_on_lost_data: false,
            journal_io_priority: None,
            norecovery: false,
            errors: None,
            acl: true,
            fakeroot: false,
            user_xattr: true,
            minixdf: false,
            resuid: None,
            resgid: None,
            allocator: AllocatorKind::default(),
            stripe: None,
            discard: false,
            inode_readahead_blks: None,
            memory: None,
            threads: None,
            io_uring: true,
            busy_poll: true,
            writeback_cache: true,
            wait: Duration::ZERO,
            remount: false,
            removed: Vec::new(),
            said_rw: false,
        }
    }
}

/// Options of the kernel's ext4 that are refused, and why that stays so.
const REFUSED: &[(&str, &str)] = &[
    ("abort", "it simulates a failure for tests (use extant shutdown)"),
    ("debug", "it is about kernel messages (use -f for those of the server)"),
    ("dioread_lock", "no reader waits for a write elsewhere in the file (dioread_nolock)"),
    ("fc_debug_force", "it is for tests of the kernel's fast commits"),
    ("fc_debug_max_replay", "it is for tests of the kernel's fast commits"),
    ("init_itable", "inode tables are cleared when they are used, not in the background"),
    ("inlinecrypt", "encrypted contents are not read here"),
    ("noblock_validity", "block numbers from the disk are always checked"),
    ("nodioread_nolock", "no reader waits for a write elsewhere in the file (dioread_nolock)"),
    ("nouid32", "owners above 65535 would be cut off"),
    ("test_dummy_encryption", "it is for tests of the kernel's encryption"),
    ("warn_on_error", "it is about traces in the kernel's log"),
];

const QUOTA_FILES: &str = "quotactl(2) does not reach FUSE, so quotaon(8) cannot enable quota files: use the feature quota";

const DAX: &str = "FUSE maps no device memory into programs";

const PANIC: &str = "a server cannot panic the kernel (use errors=remount-ro)";

/// Options that fstab carries for mount(8) and others who read it.
const FOR_OTHERS: &[&str] =
    &["auto", "comment", "defaults", "group", "noauto", "nofail", "nouser", "owner", "_netdev"];

/// Options that the kernel shows for a mount over FUSE: mount(8) passes them again when the mount
/// is changed.
const SHOWN: &[&str] = &["user_id", "group_id", "max_read", "blksize"];

/// Options whose effect is always on. Each has its reason; none changes anything.
const ALREADY_SO: &[&str] = &[
    "async",
    "block_validity",
    "default_permissions",
    "diratime",
    "dioread_nolock",
    "iversion",
    "loud",
    "noinit_itable",
    "noiversion",
    "no_prefetch_block_bitmaps",
    "nomand",
    "nowarn_on_error",
    "silent",
    "symfollow",
];

/// Options that the kernel's ext4 accepts with a warning and without any effect ("Ignoring removed
/// ... option"), and the lock option of mount(8), which mount(8) itself treats so.
const REMOVED: &[&str] = &[
    "bh",
    "i_version",
    "mand",
    "mblk_io_submit",
    "nobh",
    "nocheck",
    "nomblk_io_submit",
    "noreservation",
    "oldalloc",
    "orlov",
    "prefetch_block_bitmaps",
    "reservation",
];
/// The same, with a value.
const REMOVED_WITH_VALUE: &[&str] = &["check", "journal"];

/// Reads the values of all `-o`, in order: of two that contradict each other the later one holds.
///
/// # Errors
/// An option that is unknown, not supported, or conflicts with another one.
pub fn parse_options<'a>(
    lists: impl IntoIterator<Item = &'a str>,
) -> Result<MountOptions, OptionError> {
    let all: Vec<&str> = lists.into_iter().flat_map(|list| list.split(',')).collect();
    let is_remount = all.contains(&"remount");
    let mut options = MountOptions::default();
    for option in all.into_iter().filter(|option| !option.is_empty()) {
        let is_shown = option.split_once('=').is_some_and(|(name, _)| SHOWN.contains(&name));
        if !(is_remount && is_shown) {
            options.take(option)?;
        }
    }
    options.check()?;
    Ok(options)
}

impl MountOptions {
    fn take(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if name.starts_with("x-") || name.starts_with("X-") || FOR_OTHERS.contains(&name) {
            return Ok(());
        }
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return Err(OptionError::Refused { option: option.to_owned(), reason });
        }
        let removed = if value.is_some() { REMOVED_WITH_VALUE } else { REMOVED };
        if removed.contains(&name) {
            self.removed.push(option.to_owned());
            return Ok(());
        }
        if let Some(value) = value {
            return self.take_value(option, name, value);
        }
        if ALREADY_SO.contains(&name) {
            return Ok(());
        }
        self.take_word(name)
    }

    fn take_word(&mut self, name: &str) -> Result<(), OptionError> {
        match name {
            "ro" => (self.read_only, self.said_rw) = (true, false),
            "rw" => (self.read_only, self.said_rw) = (false, true),
            "suid" => self.suid = Some(true),
            "nosuid" => self.suid = Some(false),
            "dev" => self.dev = Some(true),
            "nodev" => self.dev = Some(false),
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            // mount(8): they imply these, unless a later option overrides them.
            "user" | "users" => {
                (self.suid, self.dev, self.exec) = (Some(false), Some(false), false);
            }
            "sync" => self.sync = true,
            "dirsync" => self.dirsync = true,
            "noatime" => self.atime = Atime::Never,
            "atime" | "relatime" => self.atime = Atime::Relative,
            "norelatime" | "strictatime" => self.atime = Atime::Strict,
            "nostrictatime" => self.atime = Atime::Relative,
            "nodiratime" => self.nodiratime = true,
            "nosymfollow" => self.nosymfollow = true,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "allow_other" => self.allow_other = Some(true),
            "remount" => self.remount = true,
            "barrier" => self.barriers = true,
            "nobarrier" => self.barriers = false,
            "delalloc" => self.delalloc = Some(true),
            "nodelalloc" => self.delalloc = Some(false),
            "auto_da_alloc" => self.auto_da_alloc = true,
            "noauto_da_alloc" => self.auto_da_alloc = false,
            "journal_checksum" => self.journal_checksum = true,
            "nojournal_checksum" => self.journal_checksum = false,
            "journal_async_commit" => self.journal_async_commit = true,
            "norecovery" | "noload" => self.norecovery = true,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "fakeroot" => self.fakeroot = true,
            "user_xattr" => self.user_xattr = true,
            "nouser_xattr" => self.user_xattr = false,
            "bsddf" => self.minixdf = false,
            "minixdf" => self.minixdf = true,
            "mballoc" => self.allocator = AllocatorKind::MultiBlock,
            "nomballoc" => self.allocator = AllocatorKind::Plain,
            "nombcache" | "no_mbcache" => self.shares_xattrs = false,
            "extents" => self.extents = Some(true),
            "noextents" => self.extents = Some(false),
            "grpid" | "bsdgroups" => self.passes_group = Some(true),
            "nogrpid" | "sysvgroups" => self.passes_group = Some(false),
            "quota" | "usrquota" => self.enforce(0),
            "grpquota" => self.enforce(1),
            "prjquota" => self.enforce(2),
            "noquota" => self.enforced_limits = Some([false; 3]),
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "io_uring" => self.io_uring = true,
            "noio_uring" => self.io_uring = false,
            "busy_poll" => self.busy_poll = true,
            "nobusy_poll" => self.busy_poll = false,
            "writeback_cache" => self.writeback_cache = true,
            "nowriteback_cache" => self.writeback_cache = false,
            "dax" => return Err(OptionError::Refused { option: name.to_owned(), reason: DAX }),
            "data"
            | "data_err"
            | "grpjquota"
            | "journal_ioprio"
            | "jqfmt"
            | "usrjquota"
            | "commit"
            | "errors"
            | "journal_path"
            | "journal_dev"
            | "max_batch_time"
            | "min_batch_time"
            | "max_dir_size_kb"
            | "mb_optimize_scan"
            | "sb"
            | "resuid"
            | "resgid"
            | "stripe"
            | "inode_readahead_blks"
            | "threads"
            | "memory" => {
                return Err(bad_value(name, "needs a value"));
            }
            _ => return Err(OptionError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    fn take_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let number = || value.parse::<u32>().map_err(|_| bad_value(option, "not a number"));
        match (name, value) {
            ("data", "ordered") => self.data = Some(DataMode::Ordered),
            ("data", "writeback") => self.data = Some(DataMode::Writeback),
            ("data", "journal") => self.data = Some(DataMode::Journal),
            ("data", _) => return Err(bad_value(option, "ordered, writeback or journal")),
            ("commit", _) => {
                self.commit = match number()? {
                    0 => DEFAULT_COMMIT,
                    seconds => Duration::from_secs(u64::from(seconds)),
                };
            }
            ("auto_da_alloc", _) => self.auto_da_alloc = number()? != 0,
            ("barrier", _) => self.barriers = number()? != 0,
            ("data_err", "abort") => self.aborts_on_lost_data = true,
            ("data_err", "ignore") => self.aborts_on_lost_data = false,
            ("data_err", _) => return Err(bad_value(option, "abort or ignore")),
            // Of a file it depends on the file's flag and the device, which has no memory to be
            // mapped.
            ("dax", "never" | "inode") => {}
            ("dax", "always") => {
                return Err(OptionError::Refused { option: option.to_owned(), reason: DAX });
            }
            ("dax", _) => return Err(bad_value(option, "always, never or inode")),
            ("journal_ioprio", _) => match value.parse() {
                Ok(level @ 0..=LAST_IO_PRIORITY) => self.journal_io_priority = Some(level),
                _ => return Err(bad_value(option, "0 to 7")),
            },
            // Without a name they switch off quotas that are off already; the format alone has no
            // effect.
            ("usrjquota" | "grpjquota", "") | ("jqfmt", "vfsold" | "vfsv0" | "vfsv1") => {}
            ("usrjquota" | "grpjquota", _) => {
                return Err(OptionError::Refused {
                    option: option.to_owned(),
                    reason: QUOTA_FILES,
                });
            }
            ("jqfmt", _) => return Err(bad_value(option, "vfsold, vfsv0 or vfsv1")),
            ("errors", "continue") => self.errors = Some(ErrorPolicy::Continue),
            ("errors", "remount-ro") => self.errors = Some(ErrorPolicy::RemountReadOnly),
            ("errors", "panic") => {
                return Err(OptionError::Refused { option: option.to_owned(), reason: PANIC });
            }
            ("errors", _) => return Err(bad_value(option, "continue or remount-ro")),
            ("journal_path", _) => {
                (self.journal_path, self.journal_dev) = (Some(value.into()), None);
            }
            ("journal_dev", _) => {
                let number = c_number(value).and_then(|number| u32::try_from(number).ok());
                let number = number.ok_or_else(|| bad_value(option, "not a number"))?;
                (self.journal_path, self.journal_dev) = (None, Some(number));
            }
            ("max_batch_time", _) => self.max_batch_time = Some(number()?),
            ("min_batch_time", _) => self.min_batch_time = Some(number()?),
            ("max_dir_size_kb", _) => self.max_dir_size_kb = Some(number()?),
            ("mb_optimize_scan", "1") => {}
            ("mb_optimize_scan", _) => {
                return Err(bad_value(option, "1: groups are always searched by free space"));
            }
            ("sb", _) => match number()? {
                0 => return Err(bad_value(option, "at least 1")),
                place => self.superblock = Some(u64::from(place)),
            },
            ("resuid", _) => self.resuid = Some(number()?),
            ("resgid", _) => self.resgid = Some(number()?),
            ("stripe", _) => self.stripe = Some(number()?),
            ("inode_readahead_blks", _) => match number()? {
                blocks if blocks == 0 || blocks.is_power_of_two() => {
                    self.inode_readahead_blks = Some(blocks);
                }
                _ => return Err(bad_value(option, "0 or a power of two")),
            },
            ("memory", _) => match value.parse::<ByteSize>() {
                Ok(ByteSize(bytes)) if bytes >= LEAST_MEMORY => self.memory = Some(bytes),
                Ok(_) => return Err(bad_value(option, "at least 16M is required")),
                Err(_) => return Err(bad_value(option, "invalid size")),
            },
            ("threads", _) => match number()? {
                0 => return Err(bad_value(option, "at least 1")),
                threads if threads > MOST_THREADS => {
                    return Err(bad_value(option, "at most 1024"));
                }
                threads => self.threads = Some(threads as usize),
            },
            // mount(8) hands the user's name on.
            ("user", _) => self.take_word("user")?,
            _ if MountOptions::default().take(name).is_ok() => {
                return Err(bad_value(option, "takes no value"));
            }
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    /// Enforces the limits of one more kind.
    fn enforce(&mut self, kind: usize) {
        self.enforced_limits.get_or_insert_default()[kind] = true;
    }

    /// How long an fsync waits for others to join its commit.
    pub(crate) fn batch_time(&self) -> BatchTime {
        let time = |micros: u32| Duration::from_micros(u64::from(micros));
        let least = self.min_batch_time.unwrap_or(0);
        let most = self.max_batch_time.map(time);
        let usual = if least == 0 { Duration::ZERO } else { DEFAULT_MAX_BATCH };
        BatchTime { min: time(least), max: most.unwrap_or(usual) }
    }

    /// The superblock that the volume is opened by.
    pub(crate) fn superblock_at(&self) -> SuperblockAt {
        match self.superblock {
            None | Some(FIRST_SUPERBLOCK) => SuperblockAt::Primary,
            Some(place) => SuperblockAt::BackupAt { offset: place << 10 },
        }
    }

    fn check(&self) -> Result<(), OptionError> {
        // A volume's default may be data=journal or data=ordered too: then the engine refuses.
        if self.data == Some(DataMode::Ordered) && self.journal_async_commit {
            return Err(OptionError::Conflict("data=ordered", "journal_async_commit"));
        }
        if self.data == Some(DataMode::Journal) && self.delalloc == Some(true) {
            return Err(OptionError::Conflict("data=journal", "delalloc"));
        }
        if self.norecovery && !self.read_only {
            return Err(OptionError::Conflict("norecovery", "rw"));
        }
        if self.superblock.is_some_and(|place| place != FIRST_SUPERBLOCK) && !self.read_only {
            return Err(OptionError::Conflict("sb=", "rw"));
        }
        if self.remount && self.said_rw {
            return Err(OptionError::Conflict("remount", "rw"));
        }
        Ok(())
    }

    /// The flags of mount(2). `trusted` is whether root mounts: for others setuid and devices are
    /// disabled.
    pub(crate) fn mount_flags(&self, trusted: bool) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid.unwrap_or(trusted));
        flags.set(MountFlags::NODEV, !self.dev.unwrap_or(trusted));
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags.set(MountFlags::NODIRATIME, self.nodiratime);
        flags.set(MountFlags::NOSYMFOLLOW, self.nosymfollow);
        // The kernel keeps times of what it caches too.
        flags.set(MountFlags::LAZYTIME, self.lazytime);
        flags.insert(match self.atime {
            Atime::Relative => MountFlags::RELATIME,
            Atime::Strict => MountFlags::STRICTATIME,
            Atime::Never => MountFlags::NOATIME,
        });
        flags
    }
}

/// `64M`, `1G`, `65536`.
fn bad_value(option: &str, problem: &'static str) -> OptionError {
    OptionError::BadValue { option: option.to_owned(), problem }
}

#[cfg(test)]
mod tests;
