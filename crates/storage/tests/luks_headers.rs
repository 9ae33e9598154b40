//! LUKS headers of our own making: damaged, forged, and with two copies that differ.

use std::io::ErrorKind;
use std::sync::Arc;

use base64::Engine;
use extant_device::{Device, MemoryDevice, Operation};
use extant_sim::{Effect, Fault, FaultyDevice};
use extant_storage::crypt::{CipherSpec, CryptDevice, CryptError, Limits, SectorCipher};

#[path = "common/luks.rs"]
mod format;

use format::{COPY, luks1_header, luks2_copy, write_luks2};

const SECRET: &[u8] = b"correct horse";
/// The key that the data is enciphered with.
const KEY: [u8; 64] = *b"The volume key of a test has sixty-four bytes, and no two alike!";
const SLOT_AT: u64 = 2 * COPY;
const DATA_AT: u64 = 40_960;
const SIZE: u64 = 1 << 20;

const JSON: &str = r#"{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":1,
"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"4096","encryption":"aes-xts-plain64","key_size":64},
"kdf":{"type":"pbkdf2","hash":"sha256","iterations":2,"salt":"AAAA"}}},"tokens":{},
"segments":{"0":{"type":"crypt","offset":"40960","size":"dynamic","iv_tweak":"0","encryption":"aes-xts-plain64",
"sector_size":512}},"digests":{"0":{"type":"pbkdf2","keyslots":["0"],"segments":["0"],"hash":"sha256",
"iterations":1,"salt":"AAAA","digest":"@"}},"config":{"json_size":"12288","keyslots_size":"8192"}}"#;

/// The bytes of the base64 `AAAA` of the salts.
const SALT: &[u8] = &[0; 3];

fn pbkdf2(password: &[u8], rounds: u32, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    pbkdf2::pbkdf2_hmac::<sha2::Sha256>(password, SALT, rounds, &mut out);
    out
}

/// The text of a header whose one key slot has one stripe: the key itself, enciphered.
fn json() -> String {
    let digest = base64::engine::general_purpose::STANDARD.encode(pbkdf2(&KEY, 1, 32));
    JSON.replace('@', &digest)
}

/// A device with that key slot and no header.
fn disk() -> Arc<MemoryDevice> {
    let disk = Arc::new(MemoryDevice::new(SIZE));
    let mut stripe = [0; 512];
    stripe[..64].copy_from_slice(&KEY);
    let cipher = CipherSpec::parse("aes-xts-plain64").unwrap();
    SectorCipher::new(cipher, &pbkdf2(SECRET, 2, 64), 512, false).unwrap().encrypt(0, &mut stripe);
    disk.write_at(SLOT_AT, &stripe).unwrap();
    disk
}

fn copy(at: u64, sequence: u64, json: &str) -> Vec<u8> {
    luks2_copy(at, COPY, sequence, json.as_bytes())
}

/// A container with both copies of a header.
fn container(json: &str) -> Arc<MemoryDevice> {
    let disk = disk();
    for at in [0, COPY] {
        write_luks2(&disk, at, copy(at, 1, json));
    }
    disk
}

fn refused(json: &str) -> String {
    CryptDevice::luks(container(json), SECRET).unwrap_err().to_string()
}

fn opens(disk: Arc<dyn Device>) {
    let device = CryptDevice::luks(disk, SECRET).unwrap();
    assert_eq!((device.start(), device.size()), (DATA_AT, SIZE - DATA_AT));
}

#[test]
fn a_container_of_our_making_is_one() {
    opens(container(&json()));
    let wrong = CryptDevice::luks(container(&json()), b"wrong").unwrap_err();
    assert!(matches!(wrong, CryptError::WrongKey), "{wrong}");
    // One of the copies is enough.
    for at in [0, COPY] {
        let disk = disk();
        write_luks2(&disk, at, copy(at, 1, &json()));
        opens(disk);
    }
}

#[test]
fn of_two_copies_the_newer_is_read_and_no_third() {
    let other = json().replace("\"crypt\"", "\"linear\"");
    for (first, second, is_ours) in [(7, 6, true), (6, 7, false), (7, 7, true)] {
        let disk = disk();
        write_luks2(&disk, 0, copy(0, first, &json()));
        write_luks2(&disk, COPY, copy(COPY, second, &other));
        match is_ours {
            true => opens(disk),
            false => assert_eq!(
                CryptDevice::luks(disk, SECRET).unwrap_err().to_string(),
                "not supported: LUKS2 segment of type \"linear\""
            ),
        }
    }
    // The rest of a header that was larger, and was changed more often.
    let disk = container(&json());
    let left = luks2_copy(8 * COPY, 8 * COPY, 99, other.as_bytes());
    write_luks2(&disk, 8 * COPY, left);
    opens(disk);
    // A second copy lies where its size says.
    let disk = self::disk();
    write_luks2(&disk, 8 * COPY, copy(8 * COPY, 99, &json()));
    assert_eq!(
        CryptDevice::luks(disk, SECRET).unwrap_err().to_string(),
        "LUKS2 header at byte 131072: 16384 bytes long"
    );
}

#[test]
fn a_copy_that_cannot_be_read_does_not_hide_the_other() {
    // The name of its checksum is damaged: no hash of ours.
    let disk = container(&json());
    disk.write_at(72, b"shb256").unwrap();
    opens(disk.clone());
    disk.write_at(COPY + 72, b"shb256").unwrap();
    assert_eq!(
        CryptDevice::luks(disk, SECRET).unwrap_err().to_string(),
        "not supported: hash shb256"
    );
    // The medium is.
    let faulty = Arc::new(FaultyDevice::new(container(&json())));
    let fault = Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Read);
    faulty.inject(fault.clone().within(0..4096));
    opens(faulty.clone());
    faulty.inject(fault.within(COPY..2 * COPY));
    let error = CryptDevice::luks(faulty, SECRET).unwrap_err();
    assert!(matches!(error, CryptError::Device(_)), "{error}");
}

#[test]
fn data_inside_the_header_is_refused() {
    let at = |offset: &str| refused(&json().replace("\"40960\"", offset));
    let detached = "not supported: a LUKS2 header that is detached from its data";
    assert_eq!(at("\"0\""), detached);
    assert_eq!(at("\"32256\""), detached);
    assert_eq!(at("\"40448\""), "LUKS2 header: its data begins at byte 40448, among the key slots");
    let luks1 = |payload: u32| {
        let mut header = luks1_header();
        header[104..108].copy_from_slice(&payload.to_be_bytes());
        for rounds in [164, 212] {
            header[rounds + 3] = 1;
        }
        header.resize(64 << 10, 0);
        let disk = Arc::new(MemoryDevice::from_bytes(&header));
        CryptDevice::luks(disk, SECRET).unwrap_err().to_string()
    };
    assert_eq!(luks1(0), "not supported: a LUKS1 header that is detached from its data");
    // Four stripes of 64 bytes from sector 2 on.
    let inside = |at: u32| {
        format!("LUKS1 header: its data begins at byte {at}, and its key slots end at 1280")
    };
    assert_eq!(luks1(1), inside(512));
    assert_eq!(luks1(2), inside(1024));
    assert_eq!(luks1(3), "no key slot opens with this key");
}

#[test]
fn what_is_beyond_us_is_named() {
    let with = |from: &str, to: &str| {
        let changed = json().replace(from, to);
        assert_ne!(changed, json());
        refused(&changed)
    };
    assert_eq!(
        with(
            "\"config\":{",
            "\"config\":{\"requirements\":{\"mandatory\":[\"online-reencrypt-v2\"]},"
        ),
        "not supported: LUKS2 requirement \"online-reencrypt-v2\""
    );
    assert_eq!(
        with("\"iv_tweak\"", "\"flags\":[\"in-reencryption\"],\"iv_tweak\""),
        "not supported: LUKS2 segment with flag \"in-reencryption\""
    );
    assert_eq!(
        with("\"iv_tweak\"", "\"integrity\":{\"type\":\"hmac(sha256)\"},\"iv_tweak\""),
        "not supported: LUKS2 segment with integrity"
    );
    assert!(with("\"key_size\":64,\"af\"", "\"key_size\":-64,\"af\"").contains("its JSON: "));
    assert!(with("\"iterations\":2", "\"iterations\":2e99").contains("its JSON: "));
    assert_eq!(
        with("\"key_size\":64}", "\"key_size\":65}"),
        "invalid key size for the cipher: 65 bytes"
    );
    assert_eq!(
        with("\"32768\"", "\"18446744073709551000\""),
        "LUKS2 key slot \"0\": key material at byte 18446744073709551000 is past the end of the device"
    );
    assert_eq!(with("\"dynamic\"", "\"-1\""), "LUKS2 segment \"0\": its size is not a number");
}

/// The costs that a header requires are untrusted.
#[test]
fn costs_are_bounded() {
    let kdf = r#""type":"pbkdf2","hash":"sha256","iterations":2"#;
    let asks = |kdf_asked: &str, limits: &Limits| {
        let text = json().replace(kdf, kdf_asked);
        assert_ne!(text, json());
        CryptDevice::luks_within(container(&text), SECRET, limits).unwrap_err().to_string()
    };
    let argon = |kib: u64, passes: u64| {
        format!(r#""type":"argon2id","memory":{kib},"time":{passes},"cpus":1"#)
    };
    let usual = Limits::default();
    assert_eq!(
        asks(&argon(2 << 20, 4), &usual),
        "LUKS2 key slot \"0\": requires 2097152 KiB of memory for Argon2, and 1048576 are given: \
         kdf-memory=SIZE gives more"
    );
    assert_eq!(
        asks(&argon(8 << 20, 4), &Limits { memory: u64::MAX }),
        "LUKS2 key slot \"0\": requires 8388608 KiB of memory for Argon2"
    );
    assert_eq!(
        asks(&argon(64, 4), &Limits { memory: 63 << 10 }),
        "LUKS2 key slot \"0\": requires 64 KiB of memory for Argon2, and 63 are given: \
         kdf-memory=SIZE gives more"
    );
    // The salt is shorter than Argon2 takes it: it was not begun.
    assert!(asks(&argon(64, 4), &usual).contains("LUKS2 key slot \"0\": Argon2: "));
    assert_eq!(
        asks(&argon(1 << 20, 4_000_000_000), &usual),
        "LUKS2 key slot \"0\": requires 4000000000 passes of Argon2 through 1048576 KiB"
    );
    // Four hashes of SHA-1 make a key of 64 bytes.
    let rounds = |rounds: u64| format!(r#""type":"pbkdf2","hash":"sha1","iterations":{rounds}"#);
    assert_eq!(
        asks(&rounds(1 << 30), &usual),
        "LUKS2 key slot \"0\": requires 1073741824 more rounds of PBKDF2"
    );
    assert!(asks(&rounds((1 << 30) + 1), &usual).contains("more than 1073741824"));
    let mut header = luks1_header();
    header[164..168].copy_from_slice(&(1_u32 << 30).to_be_bytes());
    header[212..216].copy_from_slice(&(1_u32 << 30).to_be_bytes());
    header.resize(64 << 10, 0);
    let error = CryptDevice::luks(Arc::new(MemoryDevice::from_bytes(&header)), SECRET).unwrap_err();
    assert!(
        error.to_string().starts_with("LUKS1 key slot 0: requires 1073741824 more rounds"),
        "{error}"
    );
}

#[test]
fn a_key_slot_that_is_named_often_is_tried_once() {
    let often = format!("\"keyslots\":[{}]", vec!["\"0\""; 1500].join(","));
    // More often than these rounds may be gone through in all.
    let text = json()
        .replace("\"keyslots\":[\"0\"]", &often)
        .replace("\"iterations\":2", "\"iterations\":1048576");
    let error = CryptDevice::luks(container(&text), b"wrong").unwrap_err();
    assert!(matches!(error, CryptError::WrongKey), "{error}");
    let slots: Vec<String> =
        (0..33).map(|slot| format!("\"{slot}\":{{\"type\":\"luks2\"}}")).collect();
    let many = format!(
        "{{\"keyslots\":{{{}}},\"segments\":{{}},\"digests\":{{}},\"config\":{{}}}}",
        slots.join(",")
    );
    assert_eq!(refused(&many), "LUKS2 header: 33 key slots, more than 32");
}
