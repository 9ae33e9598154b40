//! Enciphered devices, against published vectors and against what cryptsetup and qemu-img make and
//! read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{Device, FileDevice, FileDeviceOptions, MemoryDevice, Request, SliceDevice};
use extant_storage::crypt::{CipherSpec, CryptDevice, CryptError, Hash, Plain, SectorCipher};
use extant_testkit::{Scratch, Tool, skip, tool};

const SECRET: &[u8] = b"correct horse";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Bytes that repeat nowhere soon.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn spec(name: &str) -> CipherSpec {
    CipherSpec::parse(name).unwrap()
}

/// IEEE 1619-2007, annex B, vectors 4 (AES-128, unit 0) and 10 (AES-256, unit 0xff).
#[test]
fn xts_makes_the_vectors_of_ieee_1619() {
    let plain: Vec<u8> = (0..=255).chain(0..=255).collect();
    let vectors = [
        (
            "27182818284590452353602874713526 31415926535897932384626433832795",
            0,
            "27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c",
        ),
        (
            "2718281828459045235360287471352662497757247093699959574966967627\
             3141592653589793238462643383279502884197169399375105820974944592",
            0xff,
            "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
        ),
    ];
    for (key, unit, expected) in vectors {
        let cipher = SectorCipher::new(spec("aes-xts-plain64"), &hex(key), 512, false).unwrap();
        let mut bytes = plain.clone();
        cipher.encrypt(unit, &mut bytes);
        assert_eq!(bytes[..32], hex(expected));
        cipher.decrypt(unit, &mut bytes);
        assert_eq!(bytes, plain);
    }
}

/// NIST SP 800-38A, F.2.1 and F.2.5. Its initial vector is brought in by the first block: sector 0
/// has none of its own.
#[test]
fn cbc_makes_the_vectors_of_sp_800_38a() {
    let plain = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                 30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
    let vectors = [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
             73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
             39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ),
    ];
    for (key, expected) in vectors {
        let cipher = SectorCipher::new(spec("aes-cbc-plain"), &hex(key), 512, false).unwrap();
        let mut bytes = hex(plain);
        (0..16).for_each(|at| bytes[at] ^= at as u8);
        bytes.resize(512, 0);
        cipher.encrypt(0, &mut bytes);
        assert_eq!(bytes[..64], hex(expected));
        cipher.decrypt(0, &mut bytes);
        (0..16).for_each(|at| bytes[at] ^= at as u8);
        assert_eq!(bytes[..64], hex(plain));
    }
}

#[test]
fn ciphers_are_read_as_they_are_written() {
    for name in ["aes-cbc-essiv:sha256", "aes-xts-plain64", "aes-cbc-plain", "aes-cbc-plain64"] {
        assert_eq!(spec(name).to_string(), name);
    }
    let refused = |name: &str| CipherSpec::parse(name).unwrap_err().to_string();
    assert_eq!(
        refused("serpent-xts-plain64"),
        "not supported: cipher serpent-xts-plain64 (expected aes-xts or aes-cbc)"
    );
    assert_eq!(
        refused("aes-xts-benbi"),
        "not supported: initial vector of cipher aes-xts-benbi (expected plain, plain64 or essiv)"
    );
    assert_eq!(refused("aes-cbc-essiv:whirlpool"), "not supported: hash whirlpool");
    assert_eq!(
        refused("aes-cbc-essiv:sha512"),
        "not supported: essiv:sha512: the hash size is not an AES key size"
    );
}

#[test]
fn a_key_that_does_not_fit_is_refused() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    let refused = |plain: &Plain, key: &[u8]| {
        CryptDevice::plain(memory.clone(), plain, key).unwrap_err().to_string()
    };
    let plain = Plain::new(spec("aes-xts-plain64"));
    assert_eq!(refused(&plain, &[0; 63]), "key of 63 bytes, 64 needed");
    let short = Plain { key_bits: Some(128), ..plain.clone() };
    assert_eq!(refused(&short, &[0; 64]), "invalid key size for the cipher: 16 bytes");
    let odd = Plain { sector_size: 8192, ..plain.clone() };
    assert_eq!(refused(&odd, &[0; 64]), "not supported: sectors of 8192 bytes");
    let skipped = Plain { sector_size: 4096, iv_large_sectors: true, skip: 7, ..plain };
    assert_eq!(refused(&skipped, &[0; 64]), "not supported: skip inside a sector");
}

/// Requests of any place and length, in batches, against bytes in memory.
#[test]
fn any_request_reads_and_writes_as_on_memory() {
    const SIZE: usize = 3 << 20;
    for (name, sector) in [("aes-xts-plain64", 4096), ("aes-cbc-essiv:sha256", 512)] {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE as u64));
        let plain = Plain { sector_size: sector, ..Plain::new(spec(name)) };
        let device = CryptDevice::plain(memory, &plain, &noise(64)).unwrap();
        let source = noise(SIZE);
        device.write_at(0, &source).unwrap();
        let mut model = source.clone();
        let mut state = 7_usize;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..200 {
            let unit = [1, 512, 4096][round % 3];
            let mut place = |limit: usize| {
                let offset = random((SIZE - limit) / unit) * unit;
                (offset, (random(limit / unit) + 1) * unit)
            };
            let ((first, length), (second, zeroes)) = (place(1 << 17), place(1 << 14));
            let from = &source[SIZE / 2..][..length];
            device.write_at(first as u64, from).unwrap();
            model[first..first + length].copy_from_slice(from);
            device.write_zeroes(second as u64..(second + zeroes) as u64).unwrap();
            model[second..second + zeroes].fill(0);
            let (third, length) = place(1 << 15);
            let (mut one, mut two) = (vec![0; length], vec![0; 4096]);
            let mut batch = [
                Request::read(third as u64, &mut one),
                Request::flush(),
                Request::read(4096, &mut two),
                Request::discard(0..4096),
            ];
            device.submit(&mut batch).unwrap();
            assert!(one == model[third..third + length], "round {round}");
            assert!(two == model[4096..8192], "round {round}");
        }
        let mut all = vec![0; SIZE];
        device.read_at(0, &mut all).unwrap();
        assert!(all == model);
    }
}

#[test]
fn discards_are_passed_only_when_asked_to() {
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    let open = || {
        let plain = Plain::new(spec("aes-xts-plain64"));
        CryptDevice::plain(memory.clone(), &plain, &noise(64)).unwrap()
    };
    open().write_at(0, &noise(1 << 20)).unwrap();
    open().discard(0..1 << 20).unwrap();
    assert_eq!(memory.next_data(0..1 << 20).unwrap(), Some(0..1 << 20));
    let passing = open().pass_discards(true);
    passing.discard(100..1 << 20).unwrap();
    let mut bytes = vec![1; (1 << 20) - 512];
    memory.read_at(512, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "whole sectors are discarded");
    let mut first = [0; 100];
    passing.read_at(0, &mut first).unwrap();
    assert_eq!(first[..], noise(100));
}

/// Files with a key, and the tools that were found.
struct Bench {
    scratch: Scratch,
    key: PathBuf,
    cryptsetup: Tool,
    qemu: Tool,
}

impl Bench {
    fn new() -> Result<Self, &'static str> {
        let (Some(cryptsetup), Some(qemu)) = (tool("cryptsetup"), tool("qemu-img")) else {
            return Err("cryptsetup or qemu-img is missing");
        };
        let scratch = Scratch::new();
        let key = scratch.join("key");
        fs::write(&key, SECRET).unwrap();
        Ok(Self { scratch, key, cryptsetup, qemu })
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.scratch.join(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// Formats a file by cryptsetup.
    fn format(&self, path: &Path, args: &[&str]) {
        let key = self.key.to_str().unwrap();
        let path = path.to_str().unwrap();
        let all = [&["luksFormat", "-q", "--key-file", key], args, &[path]].concat();
        self.cryptsetup.text(all).unwrap();
    }

    /// Converts by qemu-img, one of the two enciphered.
    fn convert(&self, args: &[&str], from: &Path, to: &Path) {
        let secret = format!("secret,id=s,file={}", self.key.display());
        let paths = [from.to_str().unwrap(), to.to_str().unwrap()];
        let all = [&["convert", "--object", &secret], args, &paths].concat();
        // It measures how fast the machine is, and gives up where that comes to nothing.
        self.qemu.text_despite("accurate CPU usage", &all).unwrap();
    }

    /// The bytes that qemu-img reads from a LUKS1 image.
    fn deciphered(&self, path: &Path) -> Vec<u8> {
        let source = format!("driver=luks,key-secret=s,file.filename={}", path.display());
        let out = self.scratch.join("deciphered");
        self.convert(&["--image-opts", "-O", "raw"], Path::new(&source), &out);
        fs::read(out).unwrap()
    }
}

fn open(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDeviceOptions::new().write(true).open(path).unwrap())
}

fn luks(path: &Path) -> Result<CryptDevice, CryptError> {
    CryptDevice::luks(open(path), SECRET)
}

fn all_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_qemu_img_enciphers_is_read_and_the_other_way_round() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    let raw = bench.scratch.join("raw");
    fs::write(&raw, noise(1 << 20)).unwrap();
    for (alg, mode, iv, hash) in [
        ("aes-256", "xts", "ivgen-alg=plain64", "sha256"),
        ("aes-128", "xts", "ivgen-alg=plain64", "sha512"),
        ("aes-256", "cbc", "ivgen-alg=essiv,ivgen-hash-alg=sha256", "sha1"),
        ("aes-128", "cbc", "ivgen-alg=plain", "ripemd160"),
    ] {
        let image = bench.scratch.join("image");
        let options = format!(
            "key-secret=s,cipher-alg={alg},cipher-mode={mode},{iv},hash-alg={hash},iter-time=10"
        );
        bench.convert(&["-f", "raw", "-O", "luks", "-o", &options], &raw, &image);
        let device = luks(&image).unwrap();
        assert!(all_of(&device) == noise(1 << 20), "{options}");
        device.write_at(4097, b"written by us").unwrap();
        device.flush().unwrap();
        drop(device);
        let mut expected = noise(1 << 20);
        expected[4097..][..13].copy_from_slice(b"written by us");
        assert!(bench.deciphered(&image) == expected, "{options}");
    }
}

#[test]
fn headers_of_cryptsetup_are_opened() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    let pbkdf2 = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    let argon = |kind| ["--pbkdf", kind, "--pbkdf-memory", "64", "--pbkdf-force-iterations", "4"];
    let (argon2i, argon2id) = (argon("argon2i"), argon("argon2id"));
    let luks1 = ["--type", "luks1", "--pbkdf-force-iterations", "1000"];
    let cases: [&[&str]; 6] = [
        &[&luks1[..], &["--hash", "ripemd160"]].concat(),
        &[&luks1[..], &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"]].concat(),
        &[&["--type", "luks2"], &pbkdf2[..], &["--hash", "sha512"]].concat(),
        &[&["--type", "luks2", "--sector-size", "512"], &argon2i[..]].concat(),
        &[&["--type", "luks2", "--sector-size", "4096", "--pbkdf-parallel", "2"], &argon2id[..]]
            .concat(),
        &[&["--type", "luks2", "--cipher", "aes-cbc-plain64", "--key-size", "192"], &argon2id[..]]
            .concat(),
    ];
    for args in cases {
        let image = bench.file("image", 20 << 20);
        bench.format(&image, args);
        let refused = CryptDevice::luks(open(&image), b"wrong").unwrap_err();
        assert!(matches!(refused, CryptError::WrongKey), "{args:?}: {refused}");
        let device = luks(&image).unwrap();
        device.write_at(0, &noise(1 << 20)).unwrap();
        drop(device);
        assert!(all_of(&luks(&image).unwrap()).starts_with(&noise(1 << 20)), "{args:?}");
        bench.cryptsetup.text(["luksDump", image.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn headers_that_are_detached_from_their_data_are_refused() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    for (kind, version) in [("luks1", 1), ("luks2", 2)] {
        let (header, data) = (bench.file("header", 20 << 20), bench.file("data", 1 << 20));
        let pbkdf = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
        let args = [&["--type", kind, "--header", header.to_str().unwrap()], &pbkdf[..]].concat();
        bench.format(&data, &args);
        assert_eq!(
            luks(&header).unwrap_err().to_string(),
            format!("not supported: a LUKS{version} header that is detached from its data")
        );
    }
}

/// The payload of a plain or LUKS2 device, after a LUKS1 header with the same key: qemu-img reads
/// only those.
fn behind_luks1(bench: &Bench, key: &[u8], cipher: &str, payload: &[u8]) -> Vec<u8> {
    let key_file = bench.scratch.join("volume-key");
    fs::write(&key_file, key).unwrap();
    let image = bench.file("after", 8 << 20);
    let bits = (key.len() * 8).to_string();
    let args = [
        "--type",
        "luks1",
        "--pbkdf-force-iterations",
        "1000",
        "--cipher",
        cipher,
        "--key-size",
        &bits,
        "--volume-key-file",
        key_file.to_str().unwrap(),
    ];
    bench.format(&image, &args);
    let start = luks(&image).unwrap().start();
    FileDevice::open(&image).unwrap();
    open(&image).write_at(start, payload).unwrap();
    let mut plain = bench.deciphered(&image);
    plain.truncate(payload.len());
    plain
}

#[test]
fn plain_devices_are_enciphered_as_qemu_img_reads_them() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    for (cipher, bits) in [
        ("aes-cbc-essiv:sha256", 256),
        ("aes-cbc-essiv:sha256", 128),
        ("aes-xts-plain64", 512),
        ("aes-xts-plain64", 256),
        ("aes-cbc-plain", 256),
        ("aes-cbc-plain64", 128),
    ] {
        let memory = Arc::new(MemoryDevice::new(1 << 20));
        let plain = Plain { key_bits: Some(bits), ..Plain::new(spec(cipher)) };
        let device = CryptDevice::plain(memory.clone(), &plain, &noise(64)).unwrap();
        device.write_at(0, &noise(1 << 20)).unwrap();
        let key = &noise(64)[..bits as usize / 8];
        let read = behind_luks1(&bench, key, cipher, &memory.to_vec());
        assert!(read == noise(1 << 20), "{cipher} {bits}");
    }
}

#[test]
fn a_skip_counts_sectors_from_another_start() {
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    let plain = Plain::new(spec("aes-xts-plain64"));
    let whole = CryptDevice::plain(memory.clone(), &plain, &noise(64)).unwrap();
    whole.write_at(0, &noise(1 << 20)).unwrap();
    let rest: Arc<dyn Device> = Arc::new(SliceDevice::new(memory, 5 * 512, 512 * 100).unwrap());
    let rest = CryptDevice::plain(rest, &Plain { skip: 5, ..plain }, &noise(64)).unwrap();
    assert!(all_of(&rest) == noise(1 << 20)[5 * 512..105 * 512]);
}

/// cryptsetup(8), "plain mode": a passphrase is hashed; a longer key takes more hashes, each over
/// one letter A more.
#[test]
fn a_passphrase_is_hashed_to_a_plain_key() {
    let Some(openssl) = tool("openssl") else { skip!("openssl is missing") };
    let scratch = Scratch::new();
    let hashed = |prefix: &str| {
        let path = scratch.join("phrase");
        fs::write(&path, [prefix.as_bytes(), SECRET].concat()).unwrap();
        let out = openssl.run(["dgst", "-sha256", "-binary", path.to_str().unwrap()]);
        assert!(out.status.success());
        out.stdout
    };
    let key = [hashed(""), hashed("A")].concat();
    let memory = Arc::new(MemoryDevice::new(4096));
    let plain = Plain::new(spec("aes-xts-plain64"));
    let by_key = CryptDevice::plain(memory.clone(), &plain, &key).unwrap();
    by_key.write_at(0, &noise(4096)).unwrap();
    let hashed = Plain { hash: Some(Hash::Sha256), ..plain };
    let by_phrase = CryptDevice::plain(memory, &hashed, SECRET).unwrap();
    assert!(all_of(&by_phrase) == noise(4096));
}

#[test]
fn luks2_data_is_enciphered_as_qemu_img_reads_it() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    for sector in ["512", "4096"] {
        let image = bench.file("image", 18 << 20);
        let volume_key = bench.scratch.join("dumped");
        let _ = fs::remove_file(&volume_key);
        let args = [
            "--type",
            "luks2",
            "--sector-size",
            sector,
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
        ];
        bench.format(&image, &args);
        let device = luks(&image).unwrap();
        device.write_at(0, &noise(1 << 20)).unwrap();
        let mut payload = vec![0; 1 << 20];
        FileDevice::open(&image).unwrap().read_at(device.start(), &mut payload).unwrap();
        drop(device);
        let (key, image) = (bench.key.to_str().unwrap(), image.to_str().unwrap());
        let dump = ["luksDump", "-q", "--dump-volume-key", "--key-file", key, "--volume-key-file"];
        let all = [&dump[..], &[volume_key.to_str().unwrap(), image]].concat();
        bench.cryptsetup.text(all).unwrap();
        let key = fs::read(&volume_key).unwrap();
        let read = behind_luks1(&bench, &key, "aes-xts-plain64", &payload);
        // XTS begins a larger sector like one of 512 bytes; qemu-img has no larger ones.
        let sector: usize = sector.parse().unwrap();
        for (ours, theirs) in noise(1 << 20).chunks(sector).zip(read.chunks(sector)) {
            assert!(ours[..512] == theirs[..512]);
        }
    }
}

#[test]
fn a_damaged_luks2_copy_is_passed_over() {
    let bench = match Bench::new() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    let image = bench.file("image", 18 << 20);
    bench.format(
        &image,
        &["--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"],
    );
    let device = luks(&image).unwrap();
    device.write_at(0, &noise(4096)).unwrap();
    drop(device);
    let damage = |at: u64| open(&image).write_at(at, &[0xff; 16]).unwrap();
    damage(4096);
    assert!(all_of(&luks(&image).unwrap()).starts_with(&noise(4096)));
    damage(0x4000 + 4096);
    assert_eq!(
        luks(&image).unwrap_err().to_string(),
        "LUKS2 header at byte 0: checksum does not match"
    );
}

#[test]
fn what_is_no_header_is_said_so() {
    let refused = |bytes: &[u8]| {
        CryptDevice::luks(Arc::new(MemoryDevice::from_bytes(bytes)), SECRET)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(&[0; 8192]), "no LUKS header (a plain device requires cipher=)");
    assert_eq!(refused(b"LUKS"), "no LUKS header (a plain device requires cipher=)");
    assert_eq!(refused(b"LUKS\xba\xbe\0\x03abc"), "not supported: LUKS version 3");
    assert_eq!(
        refused(b"LUKS\xde\xad\0\x01abc"),
        "not supported: a LUKS1 header with reencryption in progress"
    );
    assert_eq!(refused(b"LUKS\xba\xbe\0\x01abc"), "LUKS1 header: cut off by the end of the device");
}
