//! The comparisons, each with the bar that it is held to.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{LoopMount, is_root, tool, tree::Random};

use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::Failure;

/// Every case, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    vec![
        Case {
            name: "build-dir",
            what: "image of a tree like /usr",
            peer: "mke2fs -d",
            bar: Some(1.0 / 3.0),
            prepare: Box::new(build_dir),
        },
        Case {
            name: "mke2fs-dir",
            what: "the same by the name mke2fs",
            peer: "mke2fs -d",
            bar: Some(1.0 / 3.0),
            prepare: Box::new(mke2fs_dir),
        },
        Case {
            name: "build-tar",
            what: "image from a seekable tar",
            peer: "cat + fsync",
            bar: Some(1.3),
            prepare: Box::new(build_tar),
        },
        Case {
            name: "build-stream",
            what: "image from a tar on standard input",
            peer: "cat + fsync",
            bar: Some(2.2),
            prepare: Box::new(build_stream),
        },
        Case {
            name: "many-names",
            what: "image of one directory with many names",
            peer: "a bar of 1 s",
            bar: None,
            prepare: Box::new(many_names),
        },
        Case {
            name: "hard-links",
            what: "image of a pool of hard-linked copies, from a tar",
            peer: "a bar of 120 s and 2 GiB",
            bar: None,
            prepare: Box::new(hard_links),
        },
        Case {
            name: "mkfs-16t",
            what: "format 16 TiB, sparse, on XFS in a loop file",
            peer: "mke2fs",
            bar: Some(1.0),
            prepare: Box::new(mkfs_16t),
        },
        Case {
            name: "export",
            what: "tar of an image",
            peer: "tar of a kernel mount",
            bar: Some(1.25),
            prepare: Box::new(export),
        },
        Case {
            name: "import",
            what: "tar of many small files into an image",
            peer: "tar x into a kernel mount + sync",
            bar: Some(1.0 / 3.0),
            prepare: Box::new(import),
        },
    ]
}

fn build_dir(setting: &Setting) -> Result<Pair, Failure> {
    let script = r#"exec "$1" build -o "$2" "$3""#;
    next_to_mke2fs(setting, |tree, ours| {
        Side::of(script, &[&setting.extant, ours, tree], Some(ours))
    })
}

fn mke2fs_dir(setting: &Setting) -> Result<Pair, Failure> {
    let script = r#"exec -a mke2fs "$1" -q -F -t ext4 -d "$3" "$2""#;
    next_to_mke2fs(setting, |tree, ours| {
        let mut side = Side::of(script, &[&setting.extant, ours, tree], Some(ours));
        side.sparse = sparse_size(tree).ok();
        side
    })
}

/// Bytes of an image that has room for a tree.
fn sparse_size(tree: &Path) -> Result<u64, Failure> {
    let bytes = apparent_bytes(tree)?;
    Ok(bytes + bytes / 4 + (512 << 20))
}

/// An image of a tree like /usr by a command of ours, which gets the tree and the image, and by
/// mke2fs.
fn next_to_mke2fs(
    setting: &Setting,
    ours: impl FnOnce(&Path, &Path) -> Side,
) -> Result<Pair, Failure> {
    let (tree, input) = usr_like(setting)?;
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = setting.dir.join("theirs.img");
    let mut theirs = Side::of(
        r#"exec "$1" -q -F -t ext4 -d "$2" "$3""#,
        &[mke2fs.path(), &tree, &image],
        Some(&image),
    );
    theirs.sparse = Some(sparse_size(&tree)?);
    Ok(pair(ours(&tree, &setting.dir.join("ours.img")), Some(theirs), input))
}

fn build_tar(setting: &Setting) -> Result<Pair, Failure> {
    from_tar(setting, r#"exec "$1" build -o "$2" "$3""#)
}

fn build_stream(setting: &Setting) -> Result<Pair, Failure> {
    from_tar(setting, r#"exec "$1" build -o "$2" - < <(cat "$3")"#)
}

fn from_tar(setting: &Setting, script: &'static str) -> Result<Pair, Failure> {
    let (tree, input) = usr_like(setting)?;
    let archive = setting.dir.join("tree.tar");
    if !archive.exists() {
        must(Command::new("tar").arg("-C").arg(&tree).arg("-cf").arg(&archive).arg("."))?;
    }
    let (ours, theirs) = (setting.dir.join("ours.img"), setting.dir.join("copy.tar"));
    Ok(pair(
        Side::of(script, &[&setting.extant, &ours, &archive], Some(&ours)),
        Some(Side::of(r#"exec cat "$1" >"$2""#, &[&archive, &theirs], Some(&theirs))),
        input,
    ))
}

fn many_names(setting: &Setting) -> Result<Pair, Failure> {
    let (dir, count) = (setting.dir.join("many"), 100_000 / setting.shrink);
    if !dir.exists() {
        fs::create_dir(&dir)?;
        let mut random = Random::new(1);
        for index in 0..count {
            File::create(dir.join(format!("{index:06}-{:016x}", random.number())))?;
        }
    }
    let ours = setting.dir.join("ours.img");
    let side =
        Side::of(r#"exec "$1" build -o "$2" "$3""#, &[&setting.extant, &ours, &dir], Some(&ours));
    Ok(pair(side, None, format!("{count} names")))
}

/// Document 002's pool: backups whose unchanged files are links to the ones before. The archive is
/// written by hand: making ten million links on a host takes longer than the benchmark.
fn hard_links(setting: &Setting) -> Result<Pair, Failure> {
    let (files, copies) = (456_000 / setting.shrink, 23);
    let archive = setting.dir.join("pool.tar");
    if !archive.exists() {
        write_pool(&mut std::io::BufWriter::new(File::create(&archive)?), files, copies)?;
    }
    let ours = setting.dir.join("ours.img");
    let side = Side::of(
        r#"exec "$1" build -o "$2" "$3""#,
        &[&setting.extant, &ours, &archive],
        Some(&ours),
    );
    let links = files * (copies - 1);
    Ok(pair(side, None, format!("{files} files, {links} further links")))
}

/// An archive of `copies` trees with `files` empty files each: links to the first tree's, after it.
pub(super) fn write_pool(out: &mut impl Write, files: u64, copies: u64) -> Result<(), Failure> {
    for copy in 0..copies {
        for file in 0..files {
            let path =
                |copy| format!("{copy:02}/{:03}/{:02}/{file:06}", file % 456, file / 456 % 20);
            let target = (copy > 0).then(|| path(0));
            out.write_all(&ustar_header(&path(copy), target.as_deref(), 0))?;
        }
    }
    out.write_all(&[0; 1024])?;
    Ok(out.flush()?)
}

/// The header of a file of this size in bytes, or of a hard link.
pub(super) fn ustar_header(path: &str, link_to: Option<&str>, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, b"0000644\x000000000\x000000000\x0000000000000\x0014000000000\x00        ");
    put(124, format!("{size:011o}").as_bytes());
    put(156, if link_to.is_some() { b"1" } else { b"0" });
    put(157, link_to.unwrap_or_default().as_bytes());
    put(257, b"ustar\x0000");
    let sum = header.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

fn mkfs_16t(setting: &Setting) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let mkfs_xfs = tool("mkfs.xfs").ok_or("mkfs.xfs is not installed")?;
    let host = setting.dir.join("host.xfs");
    File::create(&host)?.set_len(40 << 30)?;
    must(Command::new(mkfs_xfs.path()).arg("-q").arg("-f").arg(&host))?;
    let mount = LoopMount::of_type("xfs", &host, "")?;
    let image = mount.path().join("volume.img");
    let side = |program: &Path, script| {
        let mut side = Side::of(script, &[program, &image], Some(&image));
        side.sparse = Some(16 << 40);
        side
    };
    let mut pair = pair(
        side(&setting.extant, r#"exec "$1" mkfs -q -F -t ext4 "$2""#),
        Some(side(mke2fs.path(), r#"exec "$1" -q -F -t ext4 "$2""#)),
        "defaults".into(),
    );
    pair._held.push(Box::new(mount));
    Ok(pair)
}

fn export(setting: &Setting) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let (tree, input) = usr_like(setting)?;
    let image = setting.dir.join("exported.img");
    if !image.exists() {
        must(Command::new(&setting.extant).arg("build").arg("-o").arg(&image).arg(&tree))?;
    }
    let mount = LoopMount::new(&image, "ro,noload")?;
    let (ours, theirs) = (setting.dir.join("ours.tar"), setting.dir.join("theirs.tar"));
    let mut pair = pair(
        Side::of(
            r#"exec "$1" export -o "$3" "$2""#,
            &[&setting.extant, &image, &ours],
            Some(&ours),
        ),
        Some(Side::of(
            r#"exec tar --xattrs --xattrs-include='*' -S -C "$1" -cf "$2" ."#,
            &[mount.path(), &theirs],
            Some(&theirs),
        )),
        input,
    );
    pair._held.push(Box::new(mount));
    Ok(pair)
}

/// Small files in directories of a hundred, from an archive, into a volume that was there.
fn import(setting: &Setting) -> Result<Pair, Failure> {
    const VOLUME: u64 = 4 << 30;
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let (archive, files) = (setting.dir.join("small.tar"), 100_000 / setting.shrink);
    if !archive.exists() {
        write_small_files(&mut std::io::BufWriter::new(File::create(&archive)?), files)?;
    }
    let (ours, theirs) = (setting.dir.join("ours.img"), setting.dir.join("theirs.img"));
    File::create(&theirs)?.set_len(VOLUME)?;
    must(Command::new(mke2fs.path()).args(["-q", "-F", "-t", "ext4"]).arg(&theirs))?;
    let mount = LoopMount::new(&theirs, "")?;
    let mut side = Side::of(
        r#"exec "$1" import -q "$3" "$2:/""#,
        &[&setting.extant, &ours, &archive],
        Some(&ours),
    );
    side.sparse = Some(VOLUME);
    side.before = vec![Step::of(r#"exec "$1" -q -F -t ext4 "$2""#, &[mke2fs.path(), &ours])];
    let mut peer = Side::of(
        r#"tar --numeric-owner -C "$1" -xf "$2" && sync -f "$1""#,
        &[mount.path(), &archive],
        None,
    );
    peer.before = vec![Step::of(
        r#"find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found -exec rm -rf {} + && sync -f "$1""#,
        &[mount.path()],
    )];
    let mut pair = pair(side, Some(peer), format!("{files} files of 0 to 8 KiB"));
    pair._held.push(Box::new(mount));
    Ok(pair)
}

fn write_small_files(out: &mut impl Write, files: u64) -> Result<(), Failure> {
    let mut random = Random::new(3);
    for file in 0..files {
        let bytes = random.bytes(8192);
        let bytes = &bytes[..random.below(8193) as usize];
        let path = format!("{:03}/{:02}/file-{file:06}", file / 10_000, file / 100 % 100);
        out.write_all(&ustar_header(&path, None, bytes.len()))?;
        out.write_all(bytes)?;
        out.write_all(&vec![0; bytes.len().wrapping_neg() % 512])?;
    }
    out.write_all(&[0; 1024])?;
    Ok(out.flush()?)
}

pub(super) fn pair(ours: Side, theirs: Option<Side>, input: String) -> Pair {
    Pair { ours, theirs, input, _held: Vec::new() }
}

/// The tree that was named, or one with the shape of a /usr: 150,000 entries and 5 GB.
pub(super) fn usr_like(setting: &Setting) -> Result<(PathBuf, String), Failure> {
    if let Some(tree) = &setting.tree {
        return Ok((tree.clone(), tree.display().to_string()));
    }
    let root = setting.dir.join("usr");
    let files = 138_000 / setting.shrink;
    if !root.exists() {
        fs::create_dir(&root)?;
        let mut random = Random::new(2);
        let mut written = 0;
        for index in 0..files {
            let dir = root.join(format!("{:02}/{:03}", index % 40, index / 40 % 288));
            if index / 40 < 288 {
                fs::create_dir_all(&dir)?;
            }
            let size = usr_like_size(&mut random);
            let mut file = File::create(dir.join(format!("file-{index:06}")))?;
            file.write_all(&random.bytes(size))?;
            written += size;
            if index % 12 == 0 {
                let link = dir.join(format!("link-{index:06}"));
                std::os::unix::fs::symlink(format!("file-{index:06}"), link)?;
            }
        }
        eprintln!("made {} files, {} MB", files, written / 1_000_000);
    }
    Ok((root, format!("{files} files like /usr")))
}

/// Half of the files under 4 KiB, a long tail of large ones: 36 KB on average.
fn usr_like_size(random: &mut Random) -> usize {
    let size = match random.below(1000) {
        0..500 => random.below(4 << 10),
        500..900 => random.below(32 << 10),
        900..990 => random.below(256 << 10),
        990..999 => random.below(2 << 20),
        _ => random.below(24 << 20),
    };
    size as usize
}

fn apparent_bytes(root: &Path) -> Result<u64, Failure> {
    let (mut bytes, mut waiting) = (0, vec![root.to_owned()]);
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        bytes += metadata.len().next_multiple_of(4096) + 4096;
        if metadata.is_dir() {
            for child in fs::read_dir(&path)? {
                waiting.push(child?.path());
            }
        }
    }
    Ok(bytes)
}

pub(super) fn must(command: &mut Command) -> Result<(), Failure> {
    match command.status()?.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::{Scratch, TreeSnapshot, skip};

    #[test]
    fn the_pool_unpacks_to_hard_links() {
        let Some(tar) = tool("tar") else { skip!("tar is not installed") };
        let scratch = Scratch::new();
        let (archive, out) = (scratch.join("pool.tar"), scratch.join("out"));
        write_pool(&mut File::create(&archive).unwrap(), 3, 2).unwrap();
        fs::create_dir(&out).unwrap();
        let unpacked = tar.command().arg("-xf").arg(&archive).arg("-C").arg(&out).status().unwrap();
        assert!(unpacked.success());
        let tree = TreeSnapshot::of_dir(&out).unwrap();
        let link = &tree.entries[&b"01/002/00/000002"[..]];
        assert_eq!((link.links, link.size), (2, 0));
        assert_eq!(link.same_as.as_deref(), Some(&b"00/002/00/000002"[..]));
    }
}
