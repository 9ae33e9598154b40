//! `extant mknod`: device files, named pipes, sockets.

use std::ffi::OsString;

use extant::rooms::ondisk::inode::{DeviceNumber, FileType};

use crate::failure::Failure;
use crate::image_path::image_paths;
use crate::mode::ModeChange;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, edit_each, umask};

/// Make device files, named pipes and sockets
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Mode, as in chmod; by default rw for all minus the umask
    #[arg(short, value_name = "MODE", allow_hyphen_values = true)]
    mode: Option<String>,
    /// Image; NAME is then a path in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path
    #[arg(value_name = "NAME")]
    name: OsString,
    /// b, c: block or character device with MAJOR and MINOR; p: named pipe; s: socket
    #[arg(value_name = "TYPE")]
    file_type: String,
    /// Major device number
    #[arg(value_name = "MAJOR", requires = "minor")]
    major: Option<u32>,
    /// Minor device number
    #[arg(value_name = "MINOR")]
    minor: Option<u32>,
    #[command(flatten)]
    open_args: OpenArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let file_type = match &self.file_type[..] {
            "b" => FileType::BlockDevice,
            "c" | "u" => FileType::CharDevice,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            other => return Err(Failure::usage(format_args!("invalid device type: '{other}'"))),
        };
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let device = match (self.major, self.minor) {
            (Some(major), Some(minor)) if is_device => DeviceNumber { major, minor },
            (None, None) if !is_device => DeviceNumber::default(),
            _ if is_device => {
                return Err(Failure::usage(
                    "missing device numbers: a device file requires major and minor",
                ));
            }
            _ => {
                return Err(Failure::usage(
                    "unexpected device numbers: only device files have major and minor",
                ));
            }
        };
        let permissions = match &self.mode {
            Some(mode) => ModeChange::parse(mode)?.applied(0o666, false, umask()),
            None => 0o666 & !umask(),
        };
        let names = image_paths(self.image.as_deref(), std::slice::from_ref(&self.name))?;
        edit_each(&names, self.open_args, session, |image, path, _| {
            image.fs.create_node(path, file_type, permissions, device).within(image)?;
            // The umask has no part in a mode that is spelled out.
            match self.mode {
                Some(_) => image.fs.set_permissions(path, permissions).within(image),
                None => Ok(()),
            }
        })
    }
}
