//! From the name of an image to the device that is meant.
//!
//! - [`DeviceUrl`] reads how a user names a device, [`Target`] how a user names a file inside it.
//! - [`partition`], [`lvm`] and [`crypt`] find what lies on other devices: partitions, logical
//!   volumes, what LUKS and dm-crypt encrypt.
#![forbid(unsafe_code)]

pub mod crypt;
pub mod lvm;
pub mod partition;
mod url;

pub use url::{
    Access, DeviceUrl, Files, Found, Keys, Layer, Part, Run, Target, UrlError, look, open,
};
