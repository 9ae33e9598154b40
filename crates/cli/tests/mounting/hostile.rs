//! Damaged images mounted and walked: no hang, no crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant_testkit::{Scratch, corpora, gunzip_sparse, skip};

use super::{Mount, can_mount, extant};

/// Of so many images of the corpus one is walked here.
const EVERY: usize = 5;

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
    let mut walked = 0;
    for packed in images.iter().step_by(EVERY) {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        gunzip_sparse(packed, &image).expect("unpacked");
        let name = packed.file_name().expect("a name").to_string_lossy().into_owned();
        for options in ["errors=continue", "ro"] {
            walked += u32::from(walk(&scratch, &image, &name, options));
        }
    }
    assert!(walked > 0, "none of {} images was mounted", images.len());
}

/// Mounts an image where that is possible, reads and changes what can be, and unmounts; whether it was mounted.
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
