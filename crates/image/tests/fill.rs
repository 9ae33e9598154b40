//! Volumes that are written full of empty files: e2fsck finds nothing, and the inodes in use are as
//! many as said.

use extant_image::mkfs::params::params;
use extant_image::mkfs::{Config, DeviceInfo, Identity, MkfsError, NewVolume, Options, Program};
use extant_layout::RunSet;
use extant_testkit::{TempImage, dumpe2fs_h, e2fsck_is_silent, skipped, tool};

fn filled(words: &[&str], size: u64, inodes: u64, files: u64) -> Result<TempImage, MkfsError> {
    let image = TempImage::of_size(size).unwrap();
    let device = extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let words = words.iter().map(Into::into).chain(["device".into()]);
    let options = Options::parse(words).unwrap();
    let info = DeviceInfo {
        size: Some(size),
        logical_sector: 512,
        physical_sector: 512,
        first_meta_bg: None,
    };
    let params = params(Program::Extant, &options, &Config::built_in(), &info)?;
    let identity = Identity::new(&options, &params, None)?;
    let mut volume = NewVolume::new(params, identity, &RunSet::new())?;
    volume.add_special_inodes(&RunSet::new())?;
    volume.write_filled(&device, inodes, files)?;
    Ok(image)
}

#[test]
fn a_full_volume_has_nothing_to_be_found() {
    if tool("e2fsck").is_none() {
        return skipped("no e2fsprogs here");
    }
    let no_marks = ["-I", "128", "-i", "8192", "-O", "^metadata_csum,^uninit_bg"];
    let marks = ["-I", "128", "-i", "8192", "-O", "^metadata_csum,uninit_bg"];
    let today: [&str; 2] = ["-N", "40000"];
    for (words, inodes, files) in [
        (&no_marks[..], 20_000, 1000),
        (&marks[..], 20_000, 1000),
        (&today[..], 39_900, 300),
        // Several directories of directories, and a last one that is not full.
        (&today[..], 12_345, 3),
        (&marks[..], 1, 10),
        (&marks[..], 0, 10),
    ] {
        let image = filled(words, 512 << 20, inodes, files).unwrap();
        let case = format!("{words:?}, {inodes} by {files}");
        e2fsck_is_silent(&image.path()).unwrap_or_else(|error| panic!("{case}: {error}"));
        let said = dumpe2fs_h(&image.path()).unwrap();
        let number = |name: &str| said[name].parse::<u64>().unwrap();
        let used = number("Inode count") - number("Free inodes");
        // Reserved ones and lost+found are extra.
        let own = used - inodes;
        assert!((11..=12).contains(&own), "{case}: {used} in use");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let error = filled(&["-N", "1000"], 64 << 20, 5000, 10).unwrap_err().to_string();
    assert!(error.contains("5000 files need more than"), "{error}");
    let error = filled(&["-t", "ext3"], 64 << 20, 100, 10).unwrap_err().to_string();
    assert!(error.contains("with extents only"), "{error}");
}
