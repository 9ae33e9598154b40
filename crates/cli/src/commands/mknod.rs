//! `extant mknod`: device files, named pipes, sockets.

use std::ffi::OsString;

use extant::rooms::ondisk::inode::{DeviceNumber, FileType};

use crate::editor::{In, Opening, edit_each, umask};
use crate::failure::Failure;
use crate::inside::inside_of;
use crate::mode::ModeChange;
use crate::session::Session;

/// Make device files, named pipes and sockets in an image
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mode, as chmod takes it, instead of rw for all less the umask
    #[arg(short, value_name = "MODE", allow_hyphen_values = true)]
    mode: Option<String>,
    /// The image, spelled out: NAME is then a path inside it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path
    #[arg(value_name = "NAME")]
    name: OsString,
    /// b or c with both numbers: a block or character device; p: a named pipe; s: a socket
    #[arg(value_name = "TYPE")]
    file_type: String,
    /// Kind of device
    #[arg(value_name = "MAJOR", requires = "minor")]
    major: Option<u32>,
    /// Which one of the kind
    #[arg(value_name = "MINOR")]
    minor: Option<u32>,
    #[command(flatten)]
    opening: Opening,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let file_type = match &self.file_type[..] {
            "b" => FileType::BlockDevice,
            "c" | "u" => FileType::CharDevice,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            other => return Err(Failure::usage(format_args!("{other}: not a type of file"))),
        };
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let device = match (self.major, self.minor) {
            (Some(major), Some(minor)) if is_device => DeviceNumber { major, minor },
            (None, None) if !is_device => DeviceNumber::default(),
            _ if is_device => return Err(Failure::usage("a device file has two numbers")),
            _ => return Err(Failure::usage("only device files have numbers")),
        };
        let permissions = match &self.mode {
            Some(mode) => ModeChange::parse(mode)?.applied(0o666, false, umask()),
            None => 0o666 & !umask(),
        };
        let names = inside_of(self.image.as_deref(), std::slice::from_ref(&self.name))?;
        edit_each(&names, self.opening, session, |image, path, _| {
            image.fs.create_node(path, file_type, permissions, device).within(image)?;
            // The umask has no part in a mode that is spelled out.
            match self.mode {
                Some(_) => image.fs.set_permissions(path, permissions).within(image),
                None => Ok(()),
            }
        })
    }
}
