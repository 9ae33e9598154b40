//! How requests come in and answers go out. The server does not know.

mod adapter;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::server::Server;
use adapter::Adapter;

/// A connection to a mount.
pub trait Transport {
    /// Agrees with the kernel on what both can, and answers requests on `threads` threads from then on, until the mount is gone.
    ///
    /// # Errors
    /// The kernel did not agree, or no thread could be started.
    fn start(self, server: Arc<Server>, threads: usize) -> io::Result<JoinHandle<io::Result<()>>>;
}

/// FUSE through a descriptor of `/dev/fuse` that is mounted.
#[derive(Debug)]
pub struct Fuse {
    /// The descriptor.
    pub connection: OwnedFd,
    /// Every thread gets a descriptor of its own, for which `/dev/fuse` is opened again.
    pub clones: bool,
}

impl Transport for Fuse {
    fn start(self, server: Arc<Server>, threads: usize) -> io::Result<JoinHandle<io::Result<()>>> {
        let mut config = fuser::Config::default();
        config.n_threads = Some(threads);
        config.clone_fd = self.clones;
        // Who may come in is the kernel's to say: it knows the mount's options.
        let acl = fuser::SessionACL::All;
        let session = fuser::Session::from_fd(Adapter::new(server), self.connection, acl, config)?;
        std::thread::Builder::new().name("fuse".to_owned()).spawn(move || session.run())
    }
}
