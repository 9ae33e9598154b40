//! The LUKS2 header: two copies of a binary part with a checksum, and of a text in JSON. The copy
//! with the higher sequence number is meant, where both are sound.

use std::collections::{BTreeMap, BTreeSet};

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use super::cipher::{CipherSpec, SectorCipher};
use super::cost::Budget;
use super::digest::Hash;
use super::error::{CryptError, damaged, detached};
use super::luks1::{MAGIC, MAX_KEY, check_stripes, is_same, key_of_slot};
use super::mapping::Mapping;
use crate::key::Secret;
use extant_device::Device;

const SECOND_MAGIC: &[u8] = b"SKUL\xba\xbe";
/// Bytes of the binary part.
const BINARY: usize = 4096;
const CHECKSUM_AT: usize = 448;
const CHECKSUM: usize = 64;
/// Bytes that a copy may have, the text included; the second copy follows the first.
const HEADER_SIZES: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
/// Key slots; cryptsetup's limit.
const MAX_SLOTS: usize = 32;
/// Lanes of Argon2; cryptsetup writes 4 at most.
const MAX_LANES: u32 = 64;

#[derive(Debug, Deserialize)]
struct Metadata {
    keyslots: BTreeMap<String, Keyslot>,
    segments: BTreeMap<String, Segment>,
    digests: BTreeMap<String, Digest>,
    config: Config,
}

#[derive(Debug, Deserialize)]
struct Keyslot {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    key_size: usize,
    af: Option<AntiForensic>,
    area: Option<Area>,
    kdf: Option<Kdf>,
    /// 0 is never tried unless requested.
    priority: Option<u8>,
}

#[derive(Debug, Deserialize)]
struct AntiForensic {
    #[serde(rename = "type")]
    kind: String,
    stripes: usize,
    hash: String,
}

#[derive(Debug, Deserialize)]
struct Area {
    #[serde(rename = "type")]
    kind: String,
    offset: String,
    encryption: Option<String>,
    #[serde(default)]
    key_size: usize,
}

#[derive(Debug, Deserialize)]
struct Kdf {
    #[serde(rename = "type")]
    kind: String,
    salt: String,
    hash: Option<String>,
    iterations: Option<u32>,
    time: Option<u32>,
    memory: Option<u32>,
    cpus: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Segment {
    #[serde(rename = "type")]
    kind: String,
    offset: String,
    size: String,
    encryption: Option<String>,
    iv_tweak: Option<String>,
    sector_size: Option<u32>,
    integrity: Option<serde_json::Value>,
    /// For a reencryption under way.
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Digest {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    segments: Vec<String>,
    salt: String,
    digest: String,
    hash: Option<String>,
    iterations: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Config {
    requirements: Option<Requirements>,
    /// Bytes after both copies, in which the key slots lie.
    keyslots_size: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Requirements {
    #[serde(default)]
    mandatory: Vec<String>,
}

/// A sound copy.
struct Copy {
    sequence: u64,
    /// Bytes, as many as of the other copy.
    size: u64,
    json: Vec<u8>,
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The copy at `at`; `None` where none begins.
fn copy_at(device: &dyn Device, at: u64, magic: &[u8]) -> Result<Option<Copy>, CryptError> {
    let place = || format!("LUKS2 header at byte {at}");
    let holds = |size: u64| at.checked_add(size).is_some_and(|end| end <= device.size());
    if !holds(BINARY as u64) {
        return Ok(None);
    }
    let mut binary = [0; BINARY];
    device.read_at(at, &mut binary)?;
    if !binary.starts_with(magic) || binary[6..8] != [0, 2] {
        return Ok(None);
    }
    let size = be64(&binary, 8);
    let is_placed = at == 0 || at == size;
    if !HEADER_SIZES.contains(&size) || !is_placed || !holds(size) {
        return Err(damaged(place(), format!("{size} bytes long")));
    }
    if be64(&binary, 256) != at {
        return Err(damaged(
            place(),
            format!("gives its own location as byte {}", be64(&binary, 256)),
        ));
    }
    let mut json = vec![0; size as usize - BINARY];
    device.read_at(at + BINARY as u64, &mut json)?;
    let algorithm = &binary[72..104];
    let end = algorithm.iter().position(|byte| *byte == 0).unwrap_or(algorithm.len());
    let algorithm = String::from_utf8_lossy(&algorithm[..end]).into_owned();
    let hash = Hash::parse(&algorithm)?;
    let stored = binary[CHECKSUM_AT..CHECKSUM_AT + hash.output_size()].to_vec();
    binary[CHECKSUM_AT..CHECKSUM_AT + CHECKSUM].fill(0);
    if !is_same(&hash.of(&[&binary, &json]), &stored) {
        return Err(damaged(place(), "checksum does not match"));
    }
    let sequence = be64(&binary, 16);
    let end = json.iter().position(|byte| *byte == 0).unwrap_or(json.len());
    json.truncate(end);
    Ok(Some(Copy { sequence, size, json }))
}

/// The newest sound copy; `None` where there is no sign of a header.
fn newest(device: &dyn Device) -> Result<Option<Copy>, CryptError> {
    let mut flaw = None;
    // If one cannot be read for any reason, the other may be sound.
    let mut read = |at, magic| {
        let copy = copy_at(device, at, magic);
        copy.unwrap_or_else(|error| {
            flaw.get_or_insert(error);
            None
        })
    };
    let mut best = read(0, MAGIC);
    // A valid copy gives the position of the second one. Elsewhere there may be what is left of
    // older headers.
    let places = match &best {
        Some(first) => vec![first.size],
        None => HEADER_SIZES.to_vec(),
    };
    for at in places {
        if let Some(copy) = read(at, SECOND_MAGIC)
            && best.as_ref().is_none_or(|best| copy.sequence > best.sequence)
        {
            best = Some(copy);
        }
    }
    match (best, flaw) {
        (None, Some(flaw)) => Err(flaw),
        (best, flaw) => {
            if let Some(flaw) = flaw {
                tracing::warn!("{flaw}; the other copy is read");
            }
            Ok(best)
        }
    }
}

fn number(text: &str, place: &str, what: &str) -> Result<u64, CryptError> {
    text.parse().map_err(|_| damaged(place, format!("{what} is not a number")))
}

fn bytes(text: &str, place: &str, what: &str) -> Result<Vec<u8>, CryptError> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map_err(|_| damaged(place, format!("{what} is not base64")))
}

fn needed<T>(value: Option<T>, place: &str, what: &str) -> Result<T, CryptError> {
    value.ok_or_else(|| damaged(place, format!("no {what}")))
}

impl Kdf {
    /// The key that a slot's stripes are enciphered with.
    fn derive(
        &self,
        passphrase: &[u8],
        length: usize,
        place: &str,
        budget: &mut Budget,
    ) -> Result<Secret, CryptError> {
        let salt = bytes(&self.salt, place, "the salt")?;
        let mut key = Zeroizing::new(vec![0; length]);
        let algorithm = match self.kind.as_str() {
            "pbkdf2" => {
                let hash = Hash::parse(needed(self.hash.as_deref(), place, "hash")?)?;
                let rounds = needed(self.iterations, place, "iterations")?;
                budget.take_pbkdf2((hash, rounds), length, place)?;
                hash.pbkdf2(passphrase, &salt, rounds, &mut key);
                return Ok(key);
            }
            "argon2i" => Algorithm::Argon2i,
            "argon2id" => Algorithm::Argon2id,
            kind => return Err(CryptError::Unsupported(format!("key derivation {kind:?}"))),
        };
        let kib = needed(self.memory, place, "memory")?;
        let passes = needed(self.time, place, "time")?;
        let lanes = needed(self.cpus, place, "cpus")?;
        if lanes > MAX_LANES {
            return Err(damaged(place, format!("Argon2 with {lanes} lanes")));
        }
        budget.take_argon2(kib, passes, place)?;
        let wrong = |error: argon2::Error| damaged(place, format!("Argon2: {error}"));
        let params = Params::new(kib, passes, lanes, Some(length)).map_err(wrong)?;
        let mut memory: Vec<argon2::Block> = Vec::new();
        let blocks = params.block_count();
        memory
            .try_reserve_exact(blocks)
            .map_err(|_| CryptError::NoMemory { place: place.to_owned(), kib })?;
        memory.resize(blocks, argon2::Block::new());
        let argon = Argon2::new(algorithm, Version::V0x13, params);
        let derived =
            argon.hash_password_into_with_memory(passphrase, &salt, &mut key, &mut memory[..]);
        memory.iter_mut().for_each(Zeroize::zeroize);
        derived.map_err(wrong)?;
        Ok(key)
    }
}

impl Metadata {
    fn decode(json: &[u8]) -> Result<Self, CryptError> {
        let read: Self = serde_json::from_slice(json)
            .map_err(|error| damaged("LUKS2 header", format!("its JSON: {error}")))?;
        let requirements = read.config.requirements.iter().flat_map(|all| &all.mandatory);
        if let Some(name) = requirements.into_iter().next() {
            return Err(CryptError::Unsupported(format!("LUKS2 requirement {name:?}")));
        }
        if read.keyslots.len() > MAX_SLOTS {
            let flaw = format!("{} key slots, more than {MAX_SLOTS}", read.keyslots.len());
            return Err(damaged("LUKS2 header", flaw));
        }
        Ok(read)
    }

    /// The one segment, and its name.
    fn segment(&self) -> Result<(&str, &Segment), CryptError> {
        let unsupported = |what: String| Err(CryptError::Unsupported(what));
        let mut all = self.segments.iter();
        let Some((name, segment)) = all.next() else {
            return Err(damaged("LUKS2 header", "no segment"));
        };
        if all.next().is_some() {
            return unsupported(format!("LUKS2 with {} segments", self.segments.len()));
        }
        if segment.kind != "crypt" {
            return unsupported(format!("LUKS2 segment of type {:?}", segment.kind));
        }
        if segment.integrity.is_some() {
            return unsupported("LUKS2 segment with integrity".to_owned());
        }
        if let Some(flag) = segment.flags.first() {
            return unsupported(format!("LUKS2 segment with flag {flag:?}"));
        }
        Ok((name, segment))
    }

    /// Refuses data that lies inside the header: what is written to it must not reach that.
    fn check_start(&self, start: u64, copy_size: u64) -> Result<(), CryptError> {
        let slots = match &self.config.keyslots_size {
            Some(size) => number(size, "LUKS2 header", "keyslots_size")?,
            None => 0,
        };
        if start < 2 * copy_size {
            return Err(detached(2));
        }
        if start < slots.saturating_add(2 * copy_size) {
            let flaw = format!("its data begins at byte {start}, among the key slots");
            return Err(damaged("LUKS2 header", flaw));
        }
        Ok(())
    }

    /// The key of a slot; `None` of a slot that is not tried. The digest decides whether it is the
    /// right one.
    fn key(
        &self,
        device: &dyn Device,
        name: &str,
        passphrase: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<Secret>, CryptError> {
        let place = &format!("LUKS2 key slot {:?}", name);
        let unsupported = |what: String| Err(CryptError::Unsupported(format!("{place}: {what}")));
        let slot = needed(self.keyslots.get(name), place, "such key slot")?;
        if slot.priority == Some(0) {
            return Ok(None);
        }
        if slot.kind != "luks2" {
            return unsupported(format!("type {:?}", slot.kind));
        }
        let af = needed(slot.af.as_ref(), place, "af")?;
        let area = needed(slot.area.as_ref(), place, "area")?;
        let kdf = needed(slot.kdf.as_ref(), place, "kdf")?;
        if af.kind != "luks1" {
            return unsupported(format!("af of type {:?}", af.kind));
        }
        if area.kind != "raw" {
            return unsupported(format!("area of type {:?}", area.kind));
        }
        for size in [slot.key_size, area.key_size] {
            if size == 0 || size > MAX_KEY {
                return Err(CryptError::KeySize { bytes: size });
            }
        }
        check_stripes(af.stripes, place)?;
        let spec = CipherSpec::parse(needed(area.encryption.as_deref(), place, "encryption")?)?;
        let slot_key = kdf.derive(passphrase, area.key_size, place, budget)?;
        let cipher = SectorCipher::new(spec, &slot_key, 512, false)?;
        let material = number(&area.offset, place, "its area's offset")?;
        let (sizes, hash) = ((slot.key_size, af.stripes), Hash::parse(&af.hash)?);
        key_of_slot(device, place, material, sizes, &cipher, hash).map(Some)
    }
}

impl Digest {
    fn is_of(&self, key: &[u8], place: &str, budget: &mut Budget) -> Result<bool, CryptError> {
        if self.kind != "pbkdf2" {
            return Err(CryptError::Unsupported(format!("{place} of type {:?}", self.kind)));
        }
        let hash = Hash::parse(needed(self.hash.as_deref(), place, "hash")?)?;
        let rounds = needed(self.iterations, place, "iterations")?;
        let stored = bytes(&self.digest, place, "the digest")?;
        if stored.is_empty() || stored.len() > hash.output_size() {
            return Err(damaged(place, format!("a digest of {} bytes", stored.len())));
        }
        budget.take_pbkdf2((hash, rounds), stored.len(), place)?;
        let salt = bytes(&self.salt, place, "the salt")?;
        let mut digest = vec![0; stored.len()];
        hash.pbkdf2(key, &salt, rounds, &mut digest);
        Ok(is_same(&digest, &stored))
    }
}

/// Reads the header and opens the first slot that the passphrase fits; `None` without a header.
pub(super) fn open(
    device: &dyn Device,
    passphrase: &[u8],
    budget: &mut Budget,
) -> Result<Option<Mapping>, CryptError> {
    let Some(copy) = newest(device)? else { return Ok(None) };
    let metadata = Metadata::decode(&copy.json)?;
    let (name, segment) = metadata.segment()?;
    let place = &format!("LUKS2 segment {name:?}");
    let spec = CipherSpec::parse(needed(segment.encryption.as_deref(), place, "encryption")?)?;
    let iv_offset = match &segment.iv_tweak {
        Some(tweak) => number(tweak, place, "iv_tweak")?,
        None => 0,
    };
    let start = number(&segment.offset, place, "its offset")?;
    metadata.check_start(start, copy.size)?;
    let size = match segment.size.as_str() {
        "dynamic" => None,
        size => Some(number(size, place, "its size")?),
    };
    let of_segment = |digest: &&Digest| digest.segments.iter().any(|segment| segment == name);
    let digest = metadata.digests.values().find(of_segment);
    let digest = needed(digest, place, "digest of its key")?;
    // An unsupported slot does not hide one that opens; it is reported if none opens.
    let mut refused = None;
    let mut tried = BTreeSet::new();
    for slot in digest.keyslots.iter().filter(|slot| tried.insert(*slot)) {
        match metadata.key(device, slot, passphrase, budget) {
            Ok(Some(key)) if digest.is_of(&key, "LUKS2 digest", budget)? => {
                let sector = segment.sector_size.unwrap_or(512);
                let cipher = SectorCipher::new(spec, &key, sector, false)?;
                return Ok(Some(Mapping { start, size, cipher, iv_offset }));
            }
            Ok(_) => {}
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or(CryptError::WrongKey))
}
