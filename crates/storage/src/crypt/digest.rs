//! The hashes of headers and passphrases, and what is made of them.

use std::fmt;

use pbkdf2::hmac::EagerHash;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::digest::{Digest, OutputSizeUser};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use zeroize::{Zeroize, Zeroizing};

use super::error::CryptError;
use crate::key::Secret;

/// A hash as headers name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hash {
    /// SHA-1.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// RIPEMD-160.
    Ripemd160,
}

/// Evaluates `$body` with `$name` as the type that computes the hash.
macro_rules! with_hash {
    ($hash:expr, $name:ident => $body:expr) => {
        with_hash!($hash, $name => $body; Sha1 Sha224 Sha256 Sha384 Sha512 Ripemd160)
    };
    ($hash:expr, $name:ident => $body:expr; $($each:ident)*) => {
        match $hash {
            $(Hash::$each => {
                type $name = $each;
                $body
            })*
        }
    };
}

impl Hash {
    /// Reads a hash's name.
    ///
    /// # Errors
    /// It is not supported; it is named.
    pub fn parse(name: &str) -> Result<Self, CryptError> {
        Ok(match name {
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "ripemd160" => Self::Ripemd160,
            _ => {
                let name = name.escape_debug();
                return Err(CryptError::Unsupported(format!("hash {name}")));
            }
        })
    }

    /// Bytes of the hash.
    pub fn output_size(self) -> usize {
        with_hash!(self, H => <H as Digest>::output_size())
    }

    /// The hash of all parts, one after the other.
    pub(super) fn of(self, parts: &[&[u8]]) -> Secret {
        fn digest<H: Digest>(parts: &[&[u8]]) -> Secret {
            let mut hash = H::new();
            parts.iter().for_each(|part| hash.update(part));
            let mut out = hash.finalize();
            let kept = Zeroizing::new(out.to_vec());
            out.as_mut_slice().zeroize();
            kept
        }
        with_hash!(self, H => digest::<H>(parts))
    }

    /// PBKDF2 with HMAC over this hash (RFC 8018).
    pub(super) fn pbkdf2(self, password: &[u8], salt: &[u8], rounds: u32, out: &mut [u8]) {
        fn derive<H: EagerHash + OutputSizeUser>(
            password: &[u8],
            salt: &[u8],
            rounds: u32,
            out: &mut [u8],
        ) {
            pbkdf2::pbkdf2_hmac::<H>(password, salt, rounds, out);
        }
        with_hash!(self, H => derive::<H>(password, salt, rounds, out));
    }

    /// A plain device's key of a passphrase, as cryptsetup makes it: hashes one after the other
    /// until there are bytes enough, the second of them over one letter A and the passphrase, the
    /// third over two, and so on.
    pub(super) fn plain_key(self, passphrase: &[u8], bytes: usize) -> Secret {
        let mut key = Zeroizing::new(Vec::with_capacity(bytes + self.output_size()));
        let mut letters = Vec::new();
        while key.len() < bytes {
            key.extend_from_slice(&self.of(&[&letters, passphrase]));
            letters.push(b'A');
        }
        key.truncate(bytes);
        key
    }

    /// Joins a key from its anti-forensic stripes (LUKS On-Disk Format, "AF splitter"): all but the
    /// last are XORed and diffused in turn, and the last is XORed.
    pub(super) fn merge_stripes(self, stripes: &[u8], key_bytes: usize) -> Secret {
        let mut block = Zeroizing::new(vec![0; key_bytes]);
        let mut stripes = stripes.chunks_exact(key_bytes).peekable();
        while let Some(stripe) = stripes.next() {
            block.iter_mut().zip(stripe).for_each(|(to, from)| *to ^= from);
            if stripes.peek().is_some() {
                self.diffuse(&mut block);
            }
        }
        block
    }

    /// Each run of a hash's length is replaced by the hash of its number, big-endian, and itself.
    fn diffuse(self, block: &mut [u8]) {
        for (number, run) in (0_u32..).zip(block.chunks_mut(self.output_size())) {
            let hashed = self.of(&[&number.to_be_bytes(), run]);
            let length = run.len();
            run.copy_from_slice(&hashed[..length]);
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::Ripemd160 => "ripemd160",
        })
    }
}
