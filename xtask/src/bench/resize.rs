//! Another size of a volume, next to resize2fs: growth with tables that need not be written and
//! with tables that must read as zero, shrinking, and the minimum.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{LoopMount, is_root, tool};

use super::cases::{must, pair, usr_like, write_pool};
use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::Failure;

const GIB: u64 = 1 << 30;

/// The cases, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    let case = |name, what, bar, prepare: fn(&Setting) -> Result<Pair, Failure>| {
        let prepare = Box::new(prepare);
        Case { name, what, peer: "resize2fs", bar: Some(bar), prepare }
    };
    vec![
        case("grow-uninit", "growth, tables not written", 1.0, |setting| {
            grow(setting, "has_journal")
        }),
        case("grow-zeroed", "growth, tables read as zero", 0.1, |setting| {
            grow(setting, "^metadata_csum,^uninit_bg")
        }),
        case("shrink", "a tree like /usr moves", 0.5, shrink),
        case("minimum", "the minimum size (-P)", 0.2, minimum),
    ]
}

fn path_of(value: impl ToString) -> PathBuf {
    PathBuf::from(value.to_string())
}

/// Growth of 1 GiB to 1 TiB in a sparse file.
fn grow(setting: &Setting, features: &str) -> Result<Pair, Failure> {
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let resize2fs = tool("resize2fs").ok_or("resize2fs is not installed")?;
    let bytes = (1024 * GIB / setting.shrink).max(2 * GIB);
    let side = |image: &Path, script, program: &Path| {
        let mut side = Side::of(script, &[program, image], Some(image));
        side.sparse = Some(GIB);
        side.before = vec![
            Step::of(
                r#"exec "$1" -q -F -t ext4 -O "$3" "$2""#,
                &[mke2fs.path(), image, Path::new(features)],
            ),
            Step::of(r#"exec truncate -s "$2" "$1""#, &[image, &path_of(bytes)]),
        ];
        side
    };
    let ours = setting.dir.join("ours.img");
    let theirs = setting.dir.join("theirs.img");
    Ok(pair(
        side(&ours, r#"exec "$1" resize "$2" >/dev/null"#, &setting.extant),
        Some(side(&theirs, r#"exec "$1" "$2" >/dev/null"#, resize2fs.path())),
        format!("1 GiB to {} GiB", bytes / GIB),
    ))
}

/// A copy of an image is resized with these words.
fn on_copy(source: &Path, image: &Path, script: &'static str, program: &Path) -> Side {
    let mut side = Side::of(script, &[program, image], Some(image));
    side.before = vec![Step::of(r#"exec cp --sparse=always "$1" "$2""#, &[source, image])];
    side
}

/// A volume of 20 GiB that the kernel has filled, made as small as its half.
fn shrink(setting: &Setting) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let mke2fs = tool("mke2fs").ok_or("mke2fs is not installed")?;
    let resize2fs = tool("resize2fs").ok_or("resize2fs is not installed")?;
    let (tree, input) = usr_like(setting)?;
    let source = setting.dir.join("spread.img");
    if !source.exists() {
        File::create(&source)?.set_len(20 * GIB)?;
        must(Command::new(mke2fs.path()).args(["-q", "-F", "-t", "ext4"]).arg(&source))?;
        let mount = LoopMount::new(&source, "noatime")?;
        must(Command::new("cp").arg("-a").arg(&tree).arg(mount.path()))?;
        mount.unmount()?;
    }
    let ours = setting.dir.join("ours.img");
    let theirs = setting.dir.join("theirs.img");
    // Not checked since the kernel has mounted it.
    Ok(pair(
        on_copy(&source, &ours, r#"exec "$1" resize -f "$2" 10G >/dev/null"#, &setting.extant),
        Some(on_copy(&source, &theirs, r#"exec "$1" -f "$2" 10G >/dev/null"#, resize2fs.path())),
        format!("20 GiB to 10 GiB, {input}"),
    ))
}

/// The minimum of a volume with a million inodes in use.
fn minimum(setting: &Setting) -> Result<Pair, Failure> {
    let resize2fs = tool("resize2fs").ok_or("resize2fs is not installed")?;
    let files = 1_000_000 / setting.shrink;
    let image = setting.dir.join("million.img");
    if !image.exists() {
        let archive = setting.dir.join("million.tar");
        write_pool(&mut BufWriter::new(File::create(&archive)?), files, 1)?;
        must(Command::new(&setting.extant).args(["build", "-o"]).arg(&image).arg(&archive))?;
    }
    let ours = Side::of(
        r#"exec "$1" resize -P "$2" >/dev/null"#,
        &[setting.extant.as_path(), &image],
        None,
    );
    let theirs = Side::of(r#"exec "$1" -P "$2" >/dev/null"#, &[resize2fs.path(), &image], None);
    Ok(pair(ours, Some(theirs), format!("{files} files")))
}
