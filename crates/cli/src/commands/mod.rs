//! The commands, one module each: its arguments and its `run`.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod chmod;
pub(crate) mod clone;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod debugfs;
pub(crate) mod defrag;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod format;
pub(crate) mod frag;
pub(crate) mod freefrag;
pub(crate) mod fsck;
#[cfg(feature = "mount")]
pub(crate) mod fuse2fs;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod install_links;
pub(crate) mod journal;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod label;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod lsattr;
pub(crate) mod man;
pub(crate) mod map;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mknod;
#[cfg(feature = "mount")]
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod owner_args;
pub(crate) mod quota;
pub(crate) mod recover;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod serve;
pub(crate) mod setfattr;
pub(crate) mod sh;
#[cfg(feature = "mount")]
pub(crate) mod shutdown;
pub(crate) mod stat;
pub(crate) mod timeline;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod trim;
pub(crate) mod truncate;
pub(crate) mod tune;
#[cfg(feature = "mount")]
pub(crate) mod umount;
pub(crate) mod undelete;
pub(crate) mod undo;

use std::ffi::OsString;

/// Files inside images, as most reading commands take them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Operands {
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<OsString>,
    /// File in an image, or a pattern such as '/etc/*.conf'; for commands that only read, IMAGE
    /// alone is its root directory
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "image")]
    pub(crate) files: Vec<OsString>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}
