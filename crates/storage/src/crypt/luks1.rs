//! The LUKS1 header: one sector of facts and eight key slots, big-endian.

use zeroize::Zeroizing;

use super::cipher::{BLOCK, CipherSpec, SectorCipher};
use super::cost::{Budget, check_rounds};
use super::digest::Hash;
use super::error::{CryptError, damaged, detached};
use super::mapping::Mapping;
use crate::key::Secret;
use extant_device::Device;

/// How LUKS1 and LUKS2 headers begin.
pub(super) const MAGIC: &[u8] = b"LUKS\xba\xbe";
/// How cryptsetup-reencrypt makes a LUKS1 header unusable while it works.
pub(super) const BEING_REENCRYPTED: &[u8] = b"LUKS\xde\xad";
/// Bytes of the header.
const HEADER: usize = 592;
/// Bytes that its offsets count in.
const SECTOR: u64 = 512;
const SLOTS: usize = 8;
const SLOT_AT: usize = 208;
const SLOT: usize = 48;
const SLOT_ENABLED: u32 = 0x00ac_71f3;
const SLOT_DISABLED: u32 = 0x0000_dead;
const SALT: usize = 32;
const DIGEST: usize = 20;
/// Bytes of the largest key, AES-256 in XTS mode.
pub(super) const MAX_KEY: usize = 64;
/// Stripes of a key slot: cryptsetup writes 4000.
pub(super) const MAX_STRIPES: usize = 65_536;

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn text<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str, CryptError> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    str::from_utf8(&bytes[..end])
        .map_err(|_| damaged("LUKS1 header", format!("{what} is not text")))
}

struct Slot {
    rounds: u32,
    salt: [u8; SALT],
    material: u64,
    stripes: usize,
}

struct Header {
    cipher: CipherSpec,
    hash: Hash,
    payload: u64,
    key_bytes: usize,
    digest: [u8; DIGEST],
    digest_salt: [u8; SALT],
    digest_rounds: u32,
    slots: Vec<(usize, Slot)>,
}

impl Header {
    fn decode(bytes: &[u8; HEADER]) -> Result<Self, CryptError> {
        let name = text(&bytes[8..40], "the cipher's name")?;
        let mode = text(&bytes[40..72], "the cipher's mode")?;
        let cipher = CipherSpec::parse(&format!("{name}-{mode}"))?;
        let hash = Hash::parse(text(&bytes[72..104], "the hash's name")?)?;
        let key_bytes = be32(bytes, 108) as usize;
        if key_bytes == 0 || key_bytes > MAX_KEY {
            return Err(CryptError::KeySize { bytes: key_bytes });
        }
        let digest_rounds = be32(bytes, 164);
        check_rounds(digest_rounds, "LUKS1 header")?;
        let mut slots = Vec::new();
        for index in 0..SLOTS {
            let at = SLOT_AT + index * SLOT;
            let place = format!("LUKS1 key slot {index}");
            match be32(bytes, at) {
                SLOT_DISABLED => continue,
                SLOT_ENABLED => {}
                state => return Err(damaged(place, format!("state {state:#010x}"))),
            }
            let slot = Slot {
                rounds: be32(bytes, at + 4),
                salt: bytes[at + 8..at + 8 + SALT].try_into().expect("a salt's bytes"),
                material: u64::from(be32(bytes, at + 40)) * SECTOR,
                stripes: be32(bytes, at + 44) as usize,
            };
            check_rounds(slot.rounds, &place)?;
            check_stripes(slot.stripes, &place)?;
            slots.push((index, slot));
        }
        let payload = u64::from(be32(bytes, 104)) * SECTOR;
        if payload == 0 {
            return Err(detached(1));
        }
        // Writes of the data must not reach the header.
        let end_of = |slot: &Slot| slot.material + (key_bytes * slot.stripes) as u64;
        let ends = slots.iter().map(|(_, slot)| end_of(slot));
        let end = ends.fold(HEADER as u64, u64::max);
        if payload < end {
            let flaw = format!("its data begins at byte {payload}, and its key slots end at {end}");
            return Err(damaged("LUKS1 header", flaw));
        }
        Ok(Self {
            cipher,
            hash,
            payload,
            key_bytes,
            digest: bytes[112..112 + DIGEST].try_into().expect("a digest's bytes"),
            digest_salt: bytes[132..132 + SALT].try_into().expect("a salt's bytes"),
            digest_rounds,
            slots,
        })
    }
}

pub(super) fn check_stripes(stripes: usize, place: &str) -> Result<(), CryptError> {
    if (1..=MAX_STRIPES).contains(&stripes) {
        return Ok(());
    }
    Err(damaged(place, format!("{stripes} stripes, not 1 to {MAX_STRIPES}")))
}

/// The enciphered stripes of a key slot, deciphered and joined. `bytes` were checked: at most
/// [`MAX_KEY`] times [`MAX_STRIPES`].
pub(super) fn key_of_slot(
    device: &dyn Device,
    place: &str,
    material: u64,
    (key_bytes, stripes): (usize, usize),
    cipher: &SectorCipher,
    hash: Hash,
) -> Result<Secret, CryptError> {
    let bytes = key_bytes * stripes;
    let whole = bytes.next_multiple_of(SECTOR as usize);
    if material.checked_add(whole as u64).is_none_or(|end| end > device.size()) {
        return Err(damaged(
            place,
            format!("key material at byte {material} is past the end of the device"),
        ));
    }
    let mut stored = Zeroizing::new(vec![0; whole]);
    device.read_at(material, &mut stored)?;
    cipher.decrypt(0, &mut stored);
    Ok(hash.merge_stripes(&stored[..bytes], key_bytes))
}

/// Whether two digests are equal, in a time that does not depend on where they differ.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

/// Reads the header and opens the first slot that the passphrase fits.
pub(super) fn open(
    device: &dyn Device,
    passphrase: &[u8],
    budget: &mut Budget,
) -> Result<Mapping, CryptError> {
    let mut bytes = [0; HEADER];
    if device.size() < HEADER as u64 {
        return Err(damaged("LUKS1 header", "cut off by the end of the device"));
    }
    device.read_at(0, &mut bytes)?;
    let header = Header::decode(&bytes)?;
    for (index, slot) in &header.slots {
        let place = format!("LUKS1 key slot {index}");
        let mut slot_key = Zeroizing::new(vec![0; header.key_bytes]);
        budget.take_pbkdf2((header.hash, slot.rounds), header.key_bytes, &place)?;
        budget.take_pbkdf2((header.hash, header.digest_rounds), DIGEST, &place)?;
        header.hash.pbkdf2(passphrase, &slot.salt, slot.rounds, &mut slot_key);
        let cipher = SectorCipher::new(header.cipher, &slot_key, SECTOR as u32, false)?;
        let sizes = (header.key_bytes, slot.stripes);
        let key = key_of_slot(device, &place, slot.material, sizes, &cipher, header.hash)?;
        let mut digest = [0; DIGEST];
        header.hash.pbkdf2(&key, &header.digest_salt, header.digest_rounds, &mut digest);
        if is_same(&digest, &header.digest) {
            let cipher = SectorCipher::new(header.cipher, &key, SECTOR as u32, false)?;
            return Ok(Mapping { start: header.payload, size: None, cipher, iv_offset: 0 });
        }
    }
    Err(CryptError::WrongKey)
}

const _: () = assert!(SLOT_AT + SLOTS * SLOT == HEADER && MAX_KEY.is_multiple_of(BLOCK));
