//! A volume of 64 TiB with files past block 2^32. It lies on XFS in a loop file, since files on
//! ext4 end at 16 TiB.

use extant_testkit::{LoopMount, Scratch, is_root, skip, tool};
use std::path::Path;
use std::process::{Command, Output};

const VOLUME: u64 = 64 << 40;
/// Directories that the kernel spreads over the volume, at most. Small files that one processor
/// writes lie side by side, a hundred of them, by the first one's directory: of those runs three of
/// four lie past 16 TiB.
const DIRECTORIES: u32 = 2000;
/// Files past 16 TiB that are enough.
const ENOUGH: usize = 24;

fn extant(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_extant")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "extant {args:?}: {said}");
    output
}

fn contents(index: u32) -> Vec<u8> {
    (0..20_000_u32).map(|at| (at.wrapping_mul(31).wrapping_add(index) % 251) as u8).collect()
}

/// The highest physical block of a file, as the kernel's FIEMAP tells it through filefrag.
fn highest_block(file: &Path) -> u64 {
    let text = tool("filefrag").unwrap().text(["-v".as_ref(), file.as_os_str()]).unwrap();
    // `   0:        0..       4: 1234..  1238:  5: ...`
    let ends = text.lines().filter_map(|line| {
        let physical = line.split(':').nth(2)?;
        physical.split("..").nth(1)?.trim().parse().ok()
    });
    ends.max().unwrap_or_default()
}

#[test]
fn files_past_block_2_to_the_32_are_written_by_the_kernel_and_read_by_us() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    if tool("mkfs.xfs").is_none() {
        skip!("mkfs.xfs is not installed");
    }
    let scratch = Scratch::new();
    let host = scratch.join("host.xfs");
    std::fs::File::create(&host).unwrap().set_len(40 << 30).unwrap();
    tool("mkfs.xfs").unwrap().text(["-q".as_ref(), host.as_os_str()]).unwrap();
    let Ok(hosted) = LoopMount::of_type("xfs", &host, "rw") else {
        skip!("the kernel mounts no XFS here");
    };
    let image = hosted.path().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(VOLUME).unwrap();
    let path = image.to_str().expect("scratch paths are UTF-8");
    extant(&["mkfs", "-q", "-F", "-t", "ext4", "-m", "0", path]);

    let mount = LoopMount::new(&image, "rw,noatime").unwrap();
    let mut past = Vec::new();
    for index in 0..DIRECTORIES {
        if past.len() == ENOUGH {
            break;
        }
        let dir = mount.path().join(format!("d{index}"));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("file");
        std::fs::write(&file, contents(index)).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        if highest_block(&file) > 1 << 32 {
            past.push(index);
        }
    }
    mount.unmount().unwrap();

    assert!(!past.is_empty(), "no file lies past block 2^32");
    for index in past {
        let read = extant(&["cat", &format!("{path}:/d{index}/file")]).stdout;
        assert!(read == contents(index), "d{index}/file differs");
    }
}
