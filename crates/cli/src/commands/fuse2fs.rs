//! The name `fuse2fs`: a mount with the options of fuse2fs and of libfuse.

use std::ffi::OsString;
use std::path::PathBuf;

use super::mount;
use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// Exit code of fuse2fs for a volume that cannot be opened.
const NOT_MOUNTED: u8 = 2;

/// Mount a volume over FUSE, as fuse2fs does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Mount options of ext4, of fuse2fs and of FUSE, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground
    #[arg(short)]
    foreground: bool,
    /// One event loop only
    #[arg(short)]
    single: bool,
    /// Log of requests: not supported
    #[arg(short)]
    debug: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
    /// Image or device
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
    /// Directory to mount on
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "version")]
    point: Option<PathBuf>,
}

/// The effect of an option on our mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Meaning {
    /// These options of ours.
    Ours(&'static str),
    /// The mount is so in any case.
    AlwaysSo,
    /// It cannot be had, because of this.
    Refused(&'static str),
}

use Meaning::{AlwaysSo, Ours, Refused};

const NO_LOG: &str = "requests are not logged (use -f for the messages of the server)";
const OF_VOLUME: &str = "owners and permissions are those of the volume (use extant chown, chmod)";
const CACHES: &str = "names and attributes change through the mount only, and stay in the cache";
const INODES: &str = "the kernel decides how long an inode is held";
const SIZES: &str = "the server sets the sizes of requests itself";
const TRANSPORT: &str = "libfuse is not used, and requests come by io_uring or read(2)";
const MODULES: &str = "modules of libfuse are not loaded";

/// Options that mean something else than by the name `extant mount`, or nothing there. All others
/// are those of `extant mount`, or refused as by it.
const OPTIONS: [(&str, Meaning); 69] = [
    // Of fuse2fs.
    ("norecovery", Ours("norecovery,ro")),
    ("noload", Ours("noload,ro")),
    ("kernel", Ours("allow_other,suid,dev")),
    ("no_default_opts", AlwaysSo),
    ("fuse2fs_debug", Refused(NO_LOG)),
    ("debug", Refused(NO_LOG)),
    ("timing", Refused("calls are not timed (use strace -T -f)")),
    ("cache_size", Refused("use memory=SIZE, which limits all caches of the server")),
    ("directio", Refused("use memory=SIZE, which opens the image around the page cache")),
    ("lockfile", Refused("the image itself is locked")),
    // Of libfuse.
    ("allow_root", Refused("root is let in with all others (use allow_other)")),
    ("auto_unmount", AlwaysSo),
    ("nonempty", AlwaysSo),
    ("fsname", Refused("the table of mounts shows the image")),
    ("subtype", Refused("umount(8) and fstab know the mount as fuse.extant")),
    ("blkdev", Refused("a block device is mounted so without it")),
    ("large_read", Refused("it is for Linux 2.4")),
    ("hard_remove", AlwaysSo),
    ("use_ino", AlwaysSo),
    ("readdir_ino", AlwaysSo),
    ("direct_io", Refused("programs could not map files (use O_DIRECT, or nowriteback_cache)")),
    ("kernel_cache", AlwaysSo),
    ("auto_cache", AlwaysSo),
    ("noauto_cache", AlwaysSo),
    ("umask", Refused(OF_VOLUME)),
    ("uid", Refused(OF_VOLUME)),
    ("gid", Refused(OF_VOLUME)),
    ("fmask", Refused(OF_VOLUME)),
    ("dmask", Refused(OF_VOLUME)),
    ("entry_timeout", Refused(CACHES)),
    ("negative_timeout", Refused(CACHES)),
    ("attr_timeout", Refused(CACHES)),
    ("ac_attr_timeout", Refused(CACHES)),
    ("noforget", Refused(INODES)),
    ("remember", Refused(INODES)),
    ("nopath", AlwaysSo),
    ("intr", Refused("calls end by themselves")),
    ("intr_signal", Refused("calls end by themselves")),
    ("modules", Refused(MODULES)),
    ("subdir", Refused(MODULES)),
    ("rellinks", Refused(MODULES)),
    ("norellinks", Refused(MODULES)),
    ("from_code", Refused(MODULES)),
    ("to_code", Refused(MODULES)),
    ("max_read", Refused(SIZES)),
    ("max_write", Refused(SIZES)),
    ("max_readahead", Refused(SIZES)),
    ("max_background", Refused(SIZES)),
    ("congestion_threshold", Refused(SIZES)),
    ("async_read", AlwaysSo),
    ("sync_read", Refused("reads of a file are not held back for each other")),
    ("atomic_o_trunc", AlwaysSo),
    ("big_writes", AlwaysSo),
    ("no_remote_lock", AlwaysSo),
    ("no_remote_flock", AlwaysSo),
    ("no_remote_posix_lock", AlwaysSo),
    ("splice_write", Refused(TRANSPORT)),
    ("splice_move", Refused(TRANSPORT)),
    ("splice_read", Refused(TRANSPORT)),
    ("no_splice_write", AlwaysSo),
    ("no_splice_move", AlwaysSo),
    ("no_splice_read", AlwaysSo),
    ("clone_fd", Refused("use threads=N: each event loop has a connection of its own")),
    ("max_idle_threads", Refused("use threads=N, the number of event loops")),
    ("max_threads", Refused("use threads=N, the number of event loops")),
    ("setuid", Refused("root starts the server, which gives up its privileges itself")),
    ("drop_privileges", Refused("the server gives up its privileges in any case")),
    ("no_daemonize", Refused("use -f")),
    ("context", Refused("labels are those of the volume")),
];

/// Options as `extant mount` takes them, and the place of the volume in the image, in bytes.
#[derive(Debug, Default)]
struct Translated {
    options: Vec<String>,
    offset: Option<u64>,
}

impl Translated {
    fn of(lists: &[String]) -> Result<Self, Failure> {
        let mut translated = Self::default();
        let words = lists.iter().flat_map(|list| list.split(','));
        for option in words.filter(|option| !option.is_empty()) {
            translated.take(option)?;
        }
        Ok(translated)
    }

    fn take(&mut self, option: &str) -> Result<(), Failure> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if name == "offset" {
            let offset = value.and_then(|value| value.parse().ok());
            let invalid = || Failure::new(format_args!("mount option {option}: not a number"));
            self.offset = Some(offset.ok_or_else(invalid)?);
            return Ok(());
        }
        match OPTIONS.iter().find(|(known, _)| *known == name) {
            Some((_, Refused(why))) => {
                let text = format_args!("mount option {option} is not supported: {why}");
                Err(Failure::new(text))
            }
            Some(_) if value.is_some() => {
                Err(Failure::new(format_args!("mount option {option}: takes no value")))
            }
            Some((_, Ours(options))) => {
                self.options.push((*options).to_owned());
                Ok(())
            }
            Some((_, AlwaysSo)) => Ok(()),
            None => {
                self.options.push(option.to_owned());
                Ok(())
            }
        }
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let (Some(mut image), Some(point), false) = (self.image, self.point, self.version) else {
            return say!(session, "{}", session.version());
        };
        let usage = |failure: Failure| failure.with_code(1);
        if self.debug {
            return Err(usage(Failure::new(format_args!("-d: not supported: {NO_LOG}"))));
        }
        let Translated { mut options, offset } = Translated::of(&self.options).map_err(usage)?;
        if self.single {
            options.push("threads=1".to_owned());
        }
        extant::rooms::mount::parse_options(options.iter().map(String::as_str))
            .map_err(|error| usage(Failure::new(error)))?;
        if let Some(offset) = offset {
            let is_url = image.as_encoded_bytes().contains(&b'?');
            image.push(format!("{}offset={offset}", if is_url { '&' } else { '?' }));
        }
        let args = mount::Args::of(image, point, options, self.foreground);
        args.run(session).map_err(|failure| failure.with_code(NOT_MOUNTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_named_once_and_what_it_means_to_us_is_taken() {
        for (at, (name, meaning)) in OPTIONS.iter().enumerate() {
            assert!(OPTIONS[..at].iter().all(|(other, _)| other != name), "{name}");
            if let Ours(options) = meaning {
                assert!(extant::rooms::mount::parse_options([*options]).is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn options_of_both_are_told_apart() {
        let lists = ["rw,use_ino,offset=1048576".to_owned(), "noatime,kernel".to_owned()];
        let Ok(translated) = Translated::of(&lists) else { panic!("all are known") };
        assert_eq!(translated.options, ["rw", "noatime", "allow_other,suid,dev"]);
        assert_eq!(translated.offset, Some(1 << 20));
        for refused in ["uid=5", "debug", "offset", "offset=1k", "use_ino=1", "max_read=7"] {
            assert!(Translated::of(&[refused.to_owned()]).is_err(), "{refused}");
        }
    }
}
