//! `extant serve`: offers an image, or a file in one, to other programs and machines.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::rooms::device::{Device, FileDeviceOptions};
use extant::rooms::nbd::{Address, Export, Listener, Server};
use extant::rooms::storage::{Access, DeviceUrl, Opened, PathTarget, stat_host};
use extant::{ContentDevice, FileSystem, Image, OpenOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{At, Failure};
use crate::say;
use crate::session::Session;
use crate::waiting::Waiting;

/// How long the end of the last client is waited for between two looks.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Offer an image to other programs and machines
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, clap::Subcommand)]
enum Protocol {
    Nbd(NbdArgs),
}

/// Serve an image as a network block device (NBD)
///
/// The image, or the file in an image, is offered until SIGINT or SIGTERM comes, or with --once
/// until the last client is gone. The first line of output is the URL for clients: extant, qemu,
/// nbdcopy and others. There is no encryption and no password: a socket is for the user alone, and
/// a port is for everyone who reaches it.
#[derive(Debug, clap::Args)]
pub(crate) struct NbdArgs {
    /// Socket to listen at; by default the image's name with .sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen at a port, as 127.0.0.1:10809, in place of a socket
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket")]
    listen: Option<String>,
    /// Refuse changes; the image is not locked
    #[arg(long)]
    read_only: bool,
    /// Name of the export; clients that ask for none get it too
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// End when the last client is gone
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Image, or file in an image
    #[arg(value_name = "IMAGE[:/PATH]")]
    image: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self.protocol {
            Protocol::Nbd(args) => args.run(session),
        }
    }
}

/// The image or the file that is offered; [`Offered::finish`] ends its use.
enum Offered {
    Image(Opened),
    /// A file in a volume, and the volume.
    File(Arc<ContentDevice>, FileSystem),
}

impl Offered {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Image(opened) => opened.device.clone(),
            Self::File(device, _) => device.clone(),
        }
    }

    fn finish(self, name: &OsStr) -> Result<(), Failure> {
        match self {
            Self::Image(opened) => opened.finish().at(name),
            Self::File(device, fs) => {
                drop(device);
                fs.close().at(name)
            }
        }
    }
}

impl NbdArgs {
    fn run(self, session: &mut Session) -> Result<(), Failure> {
        let address = self.address()?;
        // Before other threads are started.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).at("signals")?;
        let offered = self.open()?;
        // A socket is for the user alone.
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = Listener::bind(&address);
        rustix::process::umask(umask);
        let listener = listener.at(address.to_string())?;
        let bound = listener.address().at(address.to_string())?;
        let device = offered.device();
        let read_only = self.read_only || device.is_read_only();
        let export = Export { name: self.name.clone(), device, read_only };
        let running = Server::new(export, listener).start().at(bound.to_string())?;
        say!(session, "{}", url_of(&bound, &self.name))?;
        session.out.flush()?;
        if self.once {
            let is_done = || running.clients_so_far() > 0 && running.clients() == 0;
            while !is_done() && signals.pending().next().is_none() {
                std::thread::sleep(PAUSE);
            }
        } else {
            let _ = signals.forever().next();
        }
        running.stop();
        offered.finish(&self.image)
    }

    fn address(&self) -> Result<Address, Failure> {
        if let Some(text) = &self.listen {
            return Address::tcp(text).map_err(Failure::usage);
        }
        if let Some(socket) = &self.socket {
            return Ok(Address::Unix(socket.clone()));
        }
        let is_file = Path::new(&self.image).is_file();
        if !is_file {
            let why = "--socket PATH or --listen HOST:PORT is required: IMAGE is not a plain file";
            return Err(Failure::usage(why));
        }
        let mut socket = self.image.clone();
        socket.push(".sock");
        Ok(Address::Unix(socket.into()))
    }

    fn open(&self) -> Result<Offered, Failure> {
        let access = if self.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let target = PathTarget::parse(&self.image, extant::schemes(), stat_host);
        if let PathTarget::Inside { path, .. } = target.map_err(Failure::usage)? {
            return self.open_inside(Path::new(&path));
        }
        let url = DeviceUrl::parse(&self.image, extant::schemes(), stat_host);
        let url = url.map_err(Failure::usage)?;
        if url.is_simulated() {
            let why = "cannot serve a simulated drive (model:): it uses a virtual clock";
            return Err(Failure::at(&self.image, why));
        }
        let options = self.waiting.on(FileDeviceOptions::new());
        url.open(access, &options).map(Offered::Image).map_err(Failure::new)
    }

    fn open_inside(&self, path: &Path) -> Result<Offered, Failure> {
        use std::os::unix::ffi::OsStrExt;
        let name = self.image.as_bytes();
        let name = OsStr::from_bytes(&name[..name.len() - path.as_os_str().len() - 1]);
        let image = Image::open(name).map_err(Failure::new)?;
        let fs = match self.read_only {
            true => image.read_only(),
            false => image.read_write(),
        };
        let fs = fs.at(name)?;
        let file = OpenOptions::new().read(true).write(!self.read_only).open(&fs, path);
        let device = file.and_then(ContentDevice::new).at(name)?;
        Ok(Offered::File(Arc::new(device), fs))
    }
}

/// The URL of the export, as clients of the protocol take it.
fn url_of(address: &Address, name: &str) -> String {
    match address {
        Address::Tcp { .. } => format!("nbd://{address}/{name}"),
        Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", path.display()),
    }
}
