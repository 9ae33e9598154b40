//! `LABEL=` and `UUID=` in place of a device.

use extant_testkit::{LoopDevice, Scratch, is_root, skip};
use std::process::{Command, Output};

const UUID: &str = "d5a3a0a6-7f0f-4c33-9a59-2f9a5f1c7b10";

fn run(scratch: &Scratch, name: &str, words: &[&str]) -> Output {
    let link = scratch.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
    }
    Command::new(link).args(words).output().unwrap()
}

#[test]
fn a_device_is_found_by_its_label_and_uuid() {
    if !is_root() {
        skip!("loop devices need root");
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let path = image.to_str().unwrap();
    let old = format!("old-{}", std::process::id());
    let new = format!("new-{}", std::process::id());
    let made = run(&scratch, "mke2fs", &["-q", "-t", "ext4", "-U", UUID, "-L", &old, path, "8M"]);
    assert!(made.status.success(), "{made:?}");
    let device = match LoopDevice::new(&image) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let by_uuid = format!("UUID={}", UUID.to_uppercase());
    let (by_old, by_new) = (format!("LABEL={old}"), format!("LABEL={new}"));
    let rows: [(&str, &[&str], i32); 6] = [
        ("dumpe2fs", &["-h", &by_uuid], 0),
        ("tune2fs", &["-L", &new, &by_old], 0),
        ("tune2fs", &["-l", &by_old], 1),
        ("tune2fs", &["-l", &by_new], 0),
        ("e2fsck", &["-fn", &by_new], 0),
        ("e2fsck", &["-fn", &by_old], 8),
    ];
    for (name, words, code) in rows {
        let output = run(&scratch, name, words);
        assert_eq!(output.status.code(), Some(code), "{name} {words:?}: {output:?}");
        if code != 0 {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("no block device has this label or UUID"), "{said}");
        }
    }
    drop(device);
    let gone = run(&scratch, "e2fsck", &["-fn", &by_new]);
    assert_eq!(gone.status.code(), Some(8), "{gone:?}");
}
