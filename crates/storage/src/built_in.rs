//! The schemes that this crate has itself.

use std::sync::Arc;

use crate::nbd::Nbd;
use crate::schemes::Schemes;
#[cfg(feature = "vm")]
use crate::vm::Format;

impl Default for Schemes {
    /// The schemes of this crate alone.
    fn default() -> Self {
        let mut schemes = Self::of_layers();
        if cfg!(not(feature = "crypt")) {
            schemes.leave_out("crypt:", "crypt");
        }
        for scheme in [Nbd::Tcp, Nbd::Unix] {
            schemes.add(Arc::new(scheme));
        }
        #[cfg(feature = "vm")]
        for format in [Format::Qcow2, Format::Vmdk] {
            schemes.add(Arc::new(format));
        }
        #[cfg(not(feature = "vm"))]
        for scheme in ["qcow2:", "vmdk:"] {
            schemes.leave_out(scheme, "vm");
        }
        schemes
    }
}
