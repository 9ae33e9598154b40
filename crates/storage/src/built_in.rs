//! The schemes that this crate has itself.

use std::sync::Arc;

use crate::nbd::Nbd;
#[cfg(feature = "remote")]
use crate::remote::Scheme;
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
        for scheme in Nbd::ALL {
            schemes.add(Arc::new(scheme));
        }
        #[cfg(feature = "vm")]
        for format in Format::ALL {
            schemes.add(Arc::new(format));
        }
        #[cfg(not(feature = "vm"))]
        for scheme in ["qcow2:", "vmdk:", "vhd:", "vhdx:", "sparse:"] {
            schemes.leave_out(scheme, "vm");
        }
        #[cfg(feature = "remote")]
        for scheme in Scheme::ALL {
            schemes.add(Arc::new(scheme));
        }
        #[cfg(not(feature = "remote"))]
        for scheme in ["https://", "http://", "s3://", "gs://", "az://", "nbds://", "nbds+unix://"]
        {
            schemes.leave_out(scheme, "remote");
        }
        schemes
    }
}
