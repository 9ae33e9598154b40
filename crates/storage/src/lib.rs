//! From the name of an image to the device that is meant.
//!
//! - [`DeviceUrl`] reads how a user names a device, [`PathTarget`] how a user names a file inside
//!   it.
//! - [`Opened`] is a device that was opened by its name, with the clock that it runs on.
//! - [`Schemes`] are the schemes that URLs may have; other crates add a [`Backend`].
//! - `qcow2:`, `vmdk:`, `vhd:`, `vhdx:` and `sparse:` (feature `vm`) are disk images of virtual
//!   machines and phones: all are read, qcow2 images are written, and sparse images are made.
//! - `nbd://` and `nbd+unix:///` are exports of NBD servers; with the feature `remote`, `nbds://`
//!   and `nbds+unix:///` are those over TLS, and `https://`, `http://`, `s3://`, `gs://` and
//!   `az://` are objects of servers, only read.
//! - An [overlay](OverlayError) keeps changes in a file of its own.
//! - [`partition`], [`lvm`] and `crypt` (feature `crypt`) find what lies on other devices:
//!   partitions, logical volumes, what LUKS and dm-crypt encrypt.
#![forbid(unsafe_code)]

mod built_in;
#[cfg(feature = "crypt")]
pub mod crypt;
mod far;
mod key;
pub mod lvm;
mod nbd;
mod opened;
mod overlay;
pub mod partition;
#[cfg(feature = "remote")]
mod remote;
mod schemes;
mod url;
#[cfg(feature = "vm")]
mod vm;

pub use key::{KeyError, KeySource, Secret};
pub use opened::{FinishError, Opened};
pub use overlay::{Committed, OverlayError};
#[cfg(feature = "remote")]
pub use remote::error::RemoteError;
pub use schemes::{Backend, BackendUrl, Location, OpenBackend, Schemes};
pub use url::{
    Access, Backed, ByteRange, DeviceUrl, Files, HostFile, Keys, Layer, Part, PathTarget, UrlError,
    UrlOptions, open, stat_host,
};
#[cfg(feature = "vm")]
pub use vm::{error::VmImageError, open_qcow2_on};
