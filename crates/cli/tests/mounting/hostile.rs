//! Damaged images mounted and walked: no hang, no crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use extant_testkit::{Scratch, corpora, gunzip_sparse, skip};

use super::{Mount, can_mount, extant};

/// Images that are mounted at once: a walk waits for its server, and for programs that start, more
/// than for a processor.
const AT_ONCE: usize = 4;

#[test]
fn damaged_images_are_walked_without_a_crash() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(corpora) = corpora() else { skip!("no corpora here") };
    let images = fs::read_dir(corpora.join("fsck-images")).expect("readable").flatten();
    let mut images: Vec<PathBuf> = images
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    images.sort();
    let (next, walked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(packed) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                    walked.fetch_add(walk_all(packed), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(walked.into_inner() > 0, "none of {} images was mounted", images.len());
}

/// Mounts an image for changes and without; how often it was mounted.
fn walk_all(packed: &Path) -> usize {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    gunzip_sparse(packed, &image).expect("unpacked");
    let name = packed.file_name().expect("a name").to_string_lossy().into_owned();
    let options = ["errors=continue", "ro"];
    options.iter().filter(|options| walk(&scratch, &image, &name, options)).count()
}

/// Mounts an image where that is possible, reads and changes what can be, and unmounts; whether it
/// was mounted.
fn walk(scratch: &Scratch, image: &Path, name: &str, options: &str) -> bool {
    let point = scratch.join("mount");
    fs::create_dir_all(&point).expect("mkdir");
    let (code, said) = extant(&["mount", "-o", options], &[image, &point]);
    assert!(code == 0 || code == 1, "{name}: {code}: {said}");
    if code != 0 {
        assert!(!said.is_empty() && !said.contains("panicked"), "{name}: {said}");
        return false;
    }
    let mount = Mount::found(point, image);
    let text = "find . -xdev -ls | head -n 2000
        find . -xdev -type f | head -n 200 | while read -r f; do head -c 100000 \"$f\"; getfattr -d \"$f\"; done
        mkdir new && echo text > new/file && rm -rf new
        find . -xdev -mindepth 1 -maxdepth 1 | head -n 20 | while read -r f; do mv \"$f\" ./moved; timeout 2 rm -rf ./moved; done
        true";
    let status = Command::new("timeout")
        .args(["-k", "5", "120", "bash", "-c", text])
        .current_dir(mount.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // A root that is broken cannot be entered.
    let ended = status.as_ref().map_or(true, |status| status.success());
    assert!(ended, "{name} ({options}): the walk did not end: {status:?}");
    assert!(mount.is_served(), "{name} ({options}): the server has ended");
    mount.unmount_whatever_it_says(name);
    true
}
