//! Writes a tar of a backup pool to standard output: many names of few files.
//!
//! `pool_tar [FILES [NAMES]]`: FILES of 64 bytes under `cpool/`, then NAMES hard links to them
//! under `pc/`, twenty in each directory. The default is the pool of 456,000 files with 10,400,000
//! links.

use std::io::{self, BufWriter, Write};

const NAMES_PER_DIRECTORY: u64 = 20;
const DIRECTORIES_PER_BACKUP: u64 = 1000;
const BACKUPS_PER_HOST: u64 = 26;
const CONTENTS: [u8; 64] = [b'.'; 64];

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| numbers.next().unwrap_or(Ok(default)).map_err(io::Error::other);
    let (files, names) = (next(456_000)?, next(10_400_000)?);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for file in 0..files {
        out.write_all(&header(&pool_name(file), b'0', CONTENTS.len(), ""))?;
        out.write_all(&CONTENTS)?;
        out.write_all(&[0; 512 - CONTENTS.len()])?;
    }
    for name in 0..names {
        let directory = name / NAMES_PER_DIRECTORY;
        let backup = directory / DIRECTORIES_PER_BACKUP;
        let path = format!(
            "pc/host{:02}/{}/f%2fhome/fproject{:03}",
            backup / BACKUPS_PER_HOST,
            backup % BACKUPS_PER_HOST,
            directory % DIRECTORIES_PER_BACKUP
        );
        if name % NAMES_PER_DIRECTORY == 0 {
            out.write_all(&header(&format!("{path}/"), b'5', 0, ""))?;
        }
        let path = format!("{path}/freport-{:05}.txt", name % 20_000);
        out.write_all(&header(&path, b'1', 0, &pool_name(mixed(name) % files)))?;
    }
    out.write_all(&[0; 1024])?;
    out.flush()
}

fn pool_name(file: u64) -> String {
    let name = format!("{:016x}{:016x}", mixed(file), mixed(!file));
    format!("cpool/{}/{}/{}/{name}", &name[0..1], &name[1..2], &name[2..3])
}

/// The same number always becomes the same other one (SplitMix64's finisher).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn header(name: &str, type_flag: u8, size: usize, link: &str) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..136]
        .copy_from_slice(b"0000644\x000000041\x000000041\x0000000000000\x00"[..36].as_ref());
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"13000000000");
    block[148..156].fill(b' ');
    block[156] = type_flag;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}
