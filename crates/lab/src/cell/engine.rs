//! Our engine as a target: options by the kernel's names.

use std::path::Path;
use std::time::Duration;

use extant::{
    AllocatorKind, DataMode, Direct, Env, FileSystem, Volume, VolumeOptions, open_device,
};

use super::error::{CellError, Trying};
use crate::experiment::Bytes;

/// Opens the volume in an image, around the page cache if possible, and returns its runtime: that
/// of a simulated drive has a clock of its own.
pub(super) fn open(
    image: &Path,
    options: &str,
    memory: u64,
) -> Result<(FileSystem, Option<Env>), CellError> {
    let options = volume_options(options, memory)?;
    let opened = open_device(image, true, Direct::WherePossible).trying("engine")?;
    let simulated = opened.is_simulated().then(|| opened.env.clone());
    let volume = Volume::open(opened.device.clone(), &opened.env, &options);
    Ok((FileSystem::of_volume_on(volume.trying("engine: open")?, opened), simulated))
}

/// The options of experiments, as `extant mount` names them. Others are refused.
fn volume_options(text: &str, memory: u64) -> Result<VolumeOptions, CellError> {
    let mut options = VolumeOptions { memory, ..VolumeOptions::default() };
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let refused = || CellError(format!("engine: unknown option {option}"));
        match (name, value) {
            ("data", Some("ordered")) => options.data = Some(DataMode::Ordered),
            ("data", Some("writeback")) => options.data = Some(DataMode::Writeback),
            ("data", Some("journal")) => options.data = Some(DataMode::Journal),
            ("delalloc", None) => options.delalloc = Some(true),
            ("nodelalloc", None) => options.delalloc = Some(false),
            ("mballoc", None) => options.allocator = AllocatorKind::MultiBlock,
            ("nomballoc", None) => options.allocator = AllocatorKind::Plain,
            ("extents", None) => options.extents = Some(true),
            ("noextents", None) => options.extents = Some(false),
            ("auto_da_alloc", None) => options.auto_da_alloc = true,
            ("noauto_da_alloc", None) => options.auto_da_alloc = false,
            ("journal_checksum", None) => options.journal_checksum = true,
            ("nojournal_checksum", None) => options.journal_checksum = false,
            ("journal_async_commit", None) => options.journal_async_commit = true,
            ("barrier", None | Some("1")) => options.barriers = true,
            ("nobarrier", None) | ("barrier", Some("0")) => options.barriers = false,
            ("data_err", Some("abort")) => options.aborts_on_lost_data = true,
            ("data_err", Some("ignore")) => options.aborts_on_lost_data = false,
            ("lazytime", None) => options.lazytime = true,
            ("nolazytime", None) => options.lazytime = false,
            ("discard", None) => options.discard = true,
            ("nodiscard", None) => options.discard = false,
            // Reading a file in process does not touch its times.
            ("noatime", None) => {}
            ("stripe", Some(value)) => options.stripe = Some(value.parse().map_err(|_| refused())?),
            ("inode_readahead_blks", Some(value)) => {
                options.inode_readahead_blks = value.parse().map_err(|_| refused())?;
            }
            ("commit", Some(value)) => {
                let seconds: u32 = value.parse().map_err(|_| refused())?;
                options.commit_interval = Duration::from_secs(u64::from(seconds.max(1)));
            }
            ("memory", Some(value)) => {
                let Bytes(bytes) = value.parse().map_err(|_| refused())?;
                options.memory = bytes;
            }
            _ => return Err(refused()),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::{TempImage, debugfs, e2fsck_fn, skip, tool};

    /// Document 001's mount options of ext3, as it writes them.
    const DOCUMENT_001: [&str; 8] = [
        "data=writeback",
        "data=ordered",
        "data=ordered,extents",
        "data=ordered,mballoc,delalloc,extents",
        "data=ordered,mballoc,extents",
        "data=writeback,extents",
        "data=writeback,mballoc,delalloc,extents",
        "data=writeback,mballoc,extents",
    ];

    #[test]
    fn document_001s_lines_on_ext3_map_new_files_as_they_say() {
        if tool("mke2fs").is_none() {
            skip!("no e2fsprogs here");
        }
        for line in DOCUMENT_001 {
            let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext3"]).expect("mke2fs");
            let (volume, _) = open(&image.path(), line, 64 << 20).expect(line);
            volume.create_dir("/dir").expect("mkdir");
            volume.write("/dir/file", vec![7; 100_000]).expect("write");
            volume.close().expect("close");
            for path in ["/dir", "/dir/file"] {
                let said = debugfs(&image.path(), &format!("stat {path}")).expect("debugfs");
                let map = if line.contains("extents") { "EXTENTS:" } else { "BLOCKS:" };
                assert!(said.contains(map), "{line}: {path}: {said}");
            }
            e2fsck_fn(&image.path()).expect(line);
        }
    }

    #[test]
    fn options_are_taken_or_refused_by_name() {
        let text = "data=writeback,nodelalloc,nomballoc,commit=9,memory=64M,noatime,\
                    inode_readahead_blks=8";
        let options = volume_options(text, 1 << 30).expect("options");
        assert_eq!(options.inode_readahead_blks, 8);
        assert_eq!(options.data, Some(DataMode::Writeback));
        assert_eq!((options.delalloc, options.allocator), (Some(false), AllocatorKind::Plain));
        assert_eq!((options.commit_interval, options.memory), (Duration::from_secs(9), 64 << 20));
        for option in ["data=other", "usrquota", "delalloc=1", "commit=x", "memory=1X"] {
            let error = volume_options(option, 1 << 30).expect_err(option).0;
            assert!(error.contains(&format!("unknown option {option}")), "{error}");
        }
    }
}
