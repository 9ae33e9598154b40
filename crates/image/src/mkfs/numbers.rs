//! Numbers as the command line and the configuration file write them: C's bases, and sizes with a
//! unit.

use extant_device::{ByteSize, SizeGrammar};

pub(crate) use extant_device::c_number as number;

/// A size in whole units of `unit` bytes, as mke2fs reads it. A bare number counts such units.
pub(crate) fn size(text: &str, unit: u32) -> Option<u64> {
    let in_bytes = || {
        let grammar = SizeGrammar::Mke2fs { block_size: 1 };
        let bytes = ByteSize::parse(text, grammar).ok()?.0;
        Some(bytes / u64::from(unit.max(1)))
    };
    number(text).or_else(in_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_and_bases() {
        assert_eq!(size("64", 1024), Some(64));
        assert_eq!(size("0x40", 1024), Some(64));
        assert_eq!(size("64k", 1024), Some(64));
        assert_eq!(size("64M", 4096), Some(16384));
        assert_eq!(size("64000s", 1024), Some(32000));
        assert_eq!(size("16T", 4096), Some(1 << 32));
        for bad in ["", "k", "64x", "64MB", "64.5M", "-1", "1e9", "99999999999999999999", "99E"] {
            assert_eq!(size(bad, 1024), None, "{bad}");
        }
    }
}
