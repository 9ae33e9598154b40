//! How fast sectors are deciphered and enciphered in memory, on one thread:
//! `cargo run --release -p extant-device --example crypt_speed`. For comparison:
//! `openssl speed -evp aes-256-xts -bytes 4096`.

use extant_runtime::env::Env;
use extant_storage::crypt::{CipherSpec, SectorCipher};

const BYTES: usize = 4 << 20;
const ROUNDS: usize = 64;

fn main() {
    let env = Env::threads();
    println!("{:<24}{:>8}{:>16}{:>16}", "cipher", "sector", "encrypt MB/s", "decrypt MB/s");
    for (name, key, sector) in [
        ("aes-xts-plain64", 64, 512),
        ("aes-xts-plain64", 64, 4096),
        ("aes-xts-plain64", 32, 4096),
        ("aes-cbc-essiv:sha256", 32, 512),
        ("aes-cbc-essiv:sha256", 32, 4096),
    ] {
        let spec = CipherSpec::parse(name).expect("a known name");
        let cipher = SectorCipher::new(spec, &vec![7; key], sector, false).expect("it fits");
        let mut bytes = vec![0x5a; BYTES];
        let mut rate = |work: &dyn Fn(&mut [u8])| {
            let started = env.elapsed();
            (0..ROUNDS).for_each(|_| work(&mut bytes));
            let took = env.elapsed() - started;
            (BYTES * ROUNDS) as f64 / 1e6 / took.as_secs_f64()
        };
        let (encrypt, decrypt) =
            (rate(&|bytes| cipher.encrypt(0, bytes)), rate(&|bytes| cipher.decrypt(0, bytes)));
        let name = format!("{name} ({})", key * 8);
        println!("{name:<30}{sector:>6}{encrypt:>14.0}{decrypt:>16.0}");
    }
}
