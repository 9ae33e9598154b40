//! Network block devices (NBD): [`Client`] is a device that a server has, [`Server`] is a server of
//! devices.
//!
//! The protocol is that of the NBD project's `doc/proto.md`: the fixed newstyle handshake with
//! `NBD_OPT_GO`, structured replies, and the metadata context `base:allocation`; with the feature
//! `tls` the client encrypts its connections. A connection that is lost is made again, and what a
//! server may have lost is sent again ([`Client`]). Extended headers are not part of this crate.
#![forbid(unsafe_code)]

mod address;
mod client;
mod error;
mod handshake;
mod link;
mod options;
mod pool;
mod proto;
mod server;
mod status;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transmission;
mod unflushed;

pub use address::{Address, AddressError};
pub use client::Client;
pub use error::NbdError;
pub use options::ClientOptions;
pub use server::{Export, Listener, Running, Server};
#[cfg(feature = "tls")]
pub use tls::Tls;
