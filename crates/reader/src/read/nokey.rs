//! How encrypted names are shown without their key.
//!
//! As the kernel's fscrypt shows them: base64url without padding of the name's two directory hashes
//! (little-endian, zero where the directory has no index), then its encrypted bytes; of a name of
//! more than 149 bytes the first 149 and the SHA-256 of the others. The form is stable, has no
//! slash or zero byte and at most 252 bytes, and names one entry of its directory.

use extant_ondisk::dx_hash::DirHash;
use sha2::{Digest, Sha256};

/// Bytes of an encrypted name that are shown as they are.
const SHOWN_BYTES: usize = 149;

/// The form of an encrypted name, or of a symbolic link's target, without the key.
pub fn nokey_name(hash: DirHash, encrypted: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + SHOWN_BYTES + 32);
    bytes.extend(hash.hash.to_le_bytes());
    bytes.extend(hash.minor.to_le_bytes());
    match encrypted.split_at_checked(SHOWN_BYTES) {
        Some((shown, rest)) if !rest.is_empty() => {
            bytes.extend(shown);
            bytes.extend(Sha256::digest(rest));
        }
        _ => bytes.extend(encrypted),
    }
    base64url(&bytes)
}

fn base64url(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            // Six bits: always one of the 64 digits.
            text.push(DIGITS[(group >> (18 - 6 * digit) & 63) as usize]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10, without padding.
    #[test]
    fn base64url_is_that_of_the_rfc() {
        let pairs = ["", "f:Zg", "fo:Zm8", "foo:Zm9v", "foob:Zm9vYg", "fooba:Zm9vYmE"];
        for pair in pairs {
            let (plain, coded) = pair.split_once(':').unwrap_or_default();
            assert_eq!(base64url(plain.as_bytes()), coded.as_bytes());
        }
        assert_eq!(base64url(&[0xfb, 0xff]), b"-_8");
    }

    #[test]
    fn the_longest_name_still_is_one() {
        assert!(nokey_name(DirHash::default(), &[0xff; 255]).len() <= 255);
        assert_ne!(
            nokey_name(DirHash::default(), &[1; 254]),
            nokey_name(DirHash::default(), &[1; 255])
        );
    }
}
