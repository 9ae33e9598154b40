//! The table of option strings: each volume that mke2fs makes and fills is read as the kernel shows
//! it, or where the kernel does not mount it, as the source that it was filled from; and by
//! `ext4-view` where that can.

mod common;

use extant_reader::{Error, Reader};
use extant_testkit::{
    Kind, LoopMount, Scratch, TempImage, TreeSnapshot, corpora, differences, is_root, skip, tool,
    tree,
};
use std::path::Path;

/// One row in this many is tried here. EXTANT_ALL_ROWS tries all.
const STEP: usize = 7;
/// Larger volumes are left to slower tests.
const MAX_SIZE: u64 = 3 << 30;

struct Row {
    conf: String,
    env: Option<(String, String)>,
    options: Vec<String>,
    size: u64,
}

fn rows(corpora: &Path) -> Vec<Row> {
    let table = std::fs::read_to_string(corpora.join("mkfs-options.tsv")).unwrap();
    table.lines().skip(1).filter_map(row).collect()
}

/// A row that makes a file system with room for the source; `None` for refusals, dry runs and
/// journal devices.
fn row(line: &str) -> Option<Row> {
    let fields: Vec<_> = line.split('\t').collect();
    let (conf, env, options, exit) = (fields[2], fields[3], fields[4], fields[5]);
    let mut options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    let image = options.iter().position(|option| option == "IMAGE")?;
    let (block_size, blocks) = (fields[7].parse::<u64>().ok()?, fields[8].parse::<u64>().ok()?);
    let inodes = fields[9].parse::<u64>().ok()?;
    options.truncate(image);
    let size = block_size * blocks;
    let is_dry = options.iter().any(|option| matches!(&option[..], "-n" | "-S"));
    let is_left_out = exit != "0" || is_dry || fields[6].contains("journal_dev");
    if is_left_out || !(8 << 20..MAX_SIZE).contains(&size) || inodes < 300 {
        return None;
    }
    let env = env.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some(Row { conf: conf.to_owned(), env, options, size })
}

fn make(row: &Row, corpora: &Path, source: &Path) -> Result<TempImage, String> {
    let image = TempImage::of_size(row.size).unwrap();
    let mut command = tool("mke2fs").ok_or("no mke2fs here")?.command();
    command.args(["-q", "-F"]).args(&row.options).arg("-d").arg(source).arg(image.path());
    let conf = corpora.join("mkfs-conf").join(&row.conf);
    command.env("MKE2FS_CONFIG", if conf.is_file() { conf } else { "/dev/null".into() });
    command.envs(row.env.clone());
    let output = command.output().unwrap();
    if output.status.success() {
        Ok(image)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// mke2fs 1.47.0 -d loses some things: times (their nanoseconds, and those beyond 32 bits), and
/// with inline_data the ends of sparse files.
fn as_mke2fs_copies(tree: TreeSnapshot) -> TreeSnapshot {
    tree.without("sparse").map(|entry| entry.mtime = (0, 0))
}

/// mke2fs gives the root directory of a volume to root, whichever user makes it.
fn with_roots_root(tree: &TreeSnapshot) -> TreeSnapshot {
    let mut tree = tree.clone();
    let root = tree.entries.iter_mut().find(|(path, _)| matches!(&path[..], b"" | b"."));
    if let Some((_, root)) = root {
        (root.uid, root.gid) = (0, 0);
    }
    tree
}

/// The second reader: types, sizes and contents; it has no xattrs or hard links.
fn compare_with_ext4_view(image: &Path, found: &TreeSnapshot) -> Result<usize, String> {
    let other = ext4_view::Ext4::load_from_path(image).map_err(|error| error.to_string())?;
    let mut compared = 0;
    for (path, entry) in &found.entries {
        let path = [b"/", &path[..]].concat();
        let path = ext4_view::PathBuf::try_from(path).map_err(|error| format!("{error:?}"))?;
        let metadata = match other.symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        assert_eq!(metadata.is_dir(), entry.kind == Kind::Directory, "{}", path.display());
        assert_eq!(u32::from(metadata.mode()) & 0o7777, entry.mode, "{}", path.display());
        assert_eq!((metadata.uid(), metadata.gid()), (entry.uid, entry.gid), "{}", path.display());
        match entry.kind {
            // It takes no target with a component that no name could be.
            Kind::Symlink if !has_long_component(entry.target.as_deref()) => {
                let target = other.read_link(&path).map_err(|error| error.to_string())?;
                assert_eq!(Some(target.as_ref()), entry.target.as_deref(), "{}", path.display());
            }
            Kind::File if entry.size < 1 << 20 => {
                let bytes = other.read(&path).map_err(|error| error.to_string())?;
                let read = |at: u64, piece: &mut [u8]| {
                    piece.copy_from_slice(&bytes[at as usize..at as usize + piece.len()]);
                    Ok(())
                };
                let digest = extant_testkit::content_digest(entry.size, Some(0..entry.size), read);
                assert_eq!(digest.ok(), entry.content, "{}", path.display());
            }
            _ => {}
        }
        compared += 1;
    }
    Ok(compared)
}

fn has_long_component(target: Option<&[u8]>) -> bool {
    target.is_some_and(|target| target.split(|byte| *byte == b'/').any(|name| name.len() > 255))
}

#[test]
fn volumes_of_the_table_read_as_their_source() {
    let Some(corpora) = corpora() else { skip!("no corpora here") };
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options = tree::Options {
        many: 60,
        largest: 150_000,
        depth: 5,
        block: 1024,
        ..tree::Options::default()
    };
    tree::grow(&source, 4, &options).unwrap();
    // With inline_data mke2fs keeps a file that is all hole inline, and the kernel calls all of it
    // data.
    let all_hole = std::fs::File::options().write(true).open(source.join("sparse/all")).unwrap();
    all_hole.set_len(1 << 20).unwrap();
    let expected = as_mke2fs_copies(TreeSnapshot::of_dir(&source).unwrap());
    let step = if std::env::var_os("EXTANT_ALL_ROWS").is_some() { 1 } else { STEP };
    let (mut mounted, mut by_source, mut viewed) = (0, 0, 0);
    for row in rows(&corpora).iter().step_by(step) {
        let image = match make(row, &corpora, &source) {
            Ok(image) => image,
            Err(why) => {
                println!("{:?}: not made: {}", row.options, why.trim());
                continue;
            }
        };
        let path = image.path();
        let volume = common::open(&path);
        let found =
            common::snapshot(&volume).unwrap_or_else(|error| panic!("{:?}: {error}", row.options));
        let mount = if is_root() { LoopMount::new(&path, "ro") } else { Err("no root".into()) };
        let (expected, found) = match &mount {
            Ok(mount) => {
                mounted += 1;
                (TreeSnapshot::of_dir(mount.path()).unwrap(), found)
            }
            Err(_) => {
                by_source += 1;
                (with_roots_root(&expected), as_mke2fs_copies(found.without("lost+found")))
            }
        };
        let lines = differences(&expected, &found);
        assert!(lines.is_empty(), "{:?}:\n{}", row.options, lines.join("\n"));
        drop(mount);
        // It takes a time after 2038 for damage.
        match compare_with_ext4_view(&path, &found.without("times")) {
            Ok(_) => viewed += 1,
            Err(why) => println!("{:?}: ext4-view: {why}", row.options),
        }
    }
    println!("{mounted} as mounted, {by_source} as their source, {viewed} as ext4-view");
    assert!(mounted + by_source > 20 && viewed > 15);
}

#[test]
fn a_volume_cut_off_is_refused_with_both_sizes() {
    let image = match TempImage::by_mke2fs(32 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    file.set_len(20 << 20).unwrap();
    match Reader::open(common::device(&image.path())) {
        Err(Error::DeviceTooSmall { volume, device }) => {
            assert_eq!((volume, device), (32 << 20, 20 << 20));
        }
        other => panic!("{other:?}"),
    }
}
