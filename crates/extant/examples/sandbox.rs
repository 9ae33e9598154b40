//! The steps of a maker of sandboxes: a root image is made from layers with an init of its own, one
//! file is changed, the volume grows to the size of its disk, and each copy gets a UUID.
//!
//! ```text
//! cargo run --release --example sandbox
//! ```
//!
//! Costs: the image is written once, by one thread for each processor, and its contents are not
//! kept in memory. A change opens the volume, commits once and closes it: milliseconds, whatever
//! the size of the image. To grow takes the time of a check. To set a UUID takes the time to write
//! all metadata, whose checksums start from it; with the feature `metadata_csum_seed` only the
//! superblock is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use extant::source::Source;
use extant::{
    Access, Checker, FileSystem, Image, ImageBuilder, Repairs, Resizer, Size, Tuner, UuidChoice,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Builds a root image from layers, the later over the earlier ones, and from a directory with
/// the init: all files belong to root.
///
/// # Errors
/// A layer cannot be read, or the image cannot be written.
pub(crate) fn make_root(image: &Path, layers: &[PathBuf], init: &Path) -> Result<u64> {
    let mut builder = ImageBuilder::new(image).owner(0, 0).source_date_epoch(1_700_000_000);
    for layer in layers {
        builder = builder.source(Source::of(layer.as_os_str())?);
    }
    let builder = builder.source(Source::Directory(init.to_owned()));
    Ok(builder.size("auto+4M".parse::<Size>()?).build()?.bytes)
}

/// Changes one file of an image. It is on the disk when the call returns.
///
/// # Errors
/// The image is in use, or has no room.
pub(crate) fn set_file(image: &Path, path: &str, contents: &[u8]) -> Result<()> {
    let fs = FileSystem::open(image)?;
    fs.write(path, contents)?;
    Ok(fs.close()?)
}

/// Makes the file of an image longer, and its volume as large as the file admits; its size.
///
/// # Errors
/// The image is in use, or damaged.
pub(crate) fn grow(image: &Path, bytes: u64) -> Result<u64> {
    fs::File::options().write(true).open(image)?.set_len(bytes)?;
    let opened = Image::open(image)?.device(Access::ReadWrite)?;
    // As resize2fs, it wants a volume that was checked since it was changed.
    let report = Checker::new().repair(Repairs::Preen).force(true).check_image(&opened)?;
    if report.errors_left {
        return Err("the image is damaged: run extant fsck".into());
    }
    let size = Resizer::new(opened.device.clone()).grow(bytes)?;
    opened.finish()?;
    Ok(size)
}

/// Gives an image a UUID, or a random one.
///
/// # Errors
/// The image is in use, or damaged, or the text is not a UUID.
pub(crate) fn set_uuid(image: &Path, uuid: Option<&str>) -> Result<()> {
    let opened = Image::open(image)?.device(Access::ReadWrite)?;
    let uuid = match uuid {
        Some(text) => UuidChoice::parse(text)?,
        None => UuidChoice::Random,
    };
    Tuner::new().uuid(uuid).apply(opened.device.clone())?;
    Ok(opened.finish()?)
}

/// All of it in a directory, with the time of each step.
///
/// # Errors
/// As the steps.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let (base, init, image) = (dir.join("base"), dir.join("init"), dir.join("root.img"));
    fs::create_dir_all(base.join("etc"))?;
    fs::create_dir_all(init.join("sbin"))?;
    fs::write(base.join("etc/hostname"), "base\n")?;
    fs::write(init.join("sbin/init"), "#!/bin/sh\nexec /bin/sh\n")?;
    let step = |what: &str, begun: Instant| println!("{what}: {:?}", begun.elapsed());

    let begun = Instant::now();
    let size = make_root(&image, &[base], &init)?;
    step("root image from layers", begun);

    let begun = Instant::now();
    set_file(&image, "/etc/hostname", b"sandbox-1\n")?;
    step("one file changed", begun);

    let begun = Instant::now();
    assert!(grow(&image, 64 << 20)? > size);
    step("grown to 64 MiB", begun);

    let begun = Instant::now();
    set_uuid(&image, Some("6f0d2bd8-7d6c-4a43-9a0f-3f8a4c1f5a10"))?;
    step("UUID set", begun);
    Ok(())
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sandbox-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let outcome = run(&dir);
    fs::remove_dir_all(&dir)?;
    outcome
}
