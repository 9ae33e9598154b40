use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

use super::common::EXTANT;
use super::{done, refused, run, shell};

#[test]
fn a_volume_in_a_qcow2_image_is_read_and_changed_in_an_overlay() {
    if tool("qemu-img").is_none() {
        skip!("qemu-img is missing");
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/file"), "inside\n").unwrap();
    let make = "extant build -q --size 32M -o raw tree; qemu-img convert -f raw -O qcow2 -c raw disk.qcow2; \
                qemu-img create -q -f qcow2 -F qcow2 -b disk.qcow2 top.qcow2";
    shell(make, scratch.path());
    let url = format!("qcow2:{}", scratch.join("disk.qcow2").display());
    assert_eq!(done("cat @:/file", &url), "inside\n");
    done("fsck -fn @", &url);
    done("info -h @", &url);
    let top = format!("qcow2:{}", scratch.join("top.qcow2").display());
    assert!(refused("ls @:/", &top).contains("needs its backing file 'disk.qcow2'"));
    assert_eq!(done("cat @:/file", &format!("{top}?backing=yes")), "inside\n");

    let upper = scratch.join("upper");
    let overlay = format!("overlay:{top}?backing=yes&upper={}", upper.display());
    done("mkdir @:/new", &overlay);
    done("fsck -fy @", &overlay);
    assert!(done("ls @:/", &overlay).contains("new"));
    assert_eq!(run("diff @", &overlay).status.code(), Some(1));
    let copy = scratch.join("copy");
    done(&format!("clone @ {}", copy.display()), &overlay);
    e2fsck_fn(&copy).unwrap();
    assert!(done("ls @:/", copy.to_str().unwrap()).contains("new"));
    // The innermost backing file is a part of the base too.
    shell("cp -p disk.qcow2 kept; touch disk.qcow2", scratch.path());
    assert!(refused("ls @:/", &overlay).contains("the base of the overlay has changed"));
    // The changes are brought into the image, and not into its backing file.
    shell("touch -r kept disk.qcow2", scratch.path());
    done("commit @", &overlay);
    assert!(done("ls @:/", &format!("{top}?backing=yes")).contains("new"));
    shell("cmp disk.qcow2 kept; qemu-img check -q top.qcow2", scratch.path());
    done("fsck -fn @", &format!("{top}?backing=yes"));
}

#[test]
fn a_metadata_image_of_e2image_is_read() {
    let (Some(e2image), Some(_)) = (tool("e2image"), tool("qemu-img")) else {
        skip!("e2image or qemu-img is missing");
    };
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.join("tree/a/b")).unwrap();
    fs::write(scratch.join("tree/a/b/file"), vec![7; 100_000]).unwrap();
    shell("extant build -q --size 32M -o raw tree", scratch.path());
    let (raw, image) = (scratch.join("raw"), scratch.join("image.qcow2"));
    e2image.text(["-Q", raw.to_str().unwrap(), image.to_str().unwrap()]).unwrap();
    let url = format!("qcow2:{}", image.display());
    let listed = |image: &str| done("ls -lR @:/", image).replace(image, "");
    assert_eq!(listed(&url), listed(raw.to_str().unwrap()));
    done("fsck -fn @", &url);
    // Contents of files are not in it.
    assert!(done("cat @:/a/b/file", &url).bytes().all(|byte| byte == 0));
}

/// The volume in a qcow2 image, by e2fsck, and the image by qemu-img.
fn assert_sound(scratch: &Scratch, image: &str) {
    shell(
        &format!(
            "qemu-img check -q -f qcow2 {image}; rm -f judged; qemu-img convert -f qcow2 -O raw {image} judged"
        ),
        scratch.path(),
    );
    e2fsck_fn(&scratch.join("judged")).unwrap();
}

#[test]
fn a_volume_in_a_qcow2_image_is_made_and_changed_in_place() {
    if tool("qemu-img").is_none() {
        skip!("qemu-img is missing");
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/file"), "inside\n").unwrap();
    fs::write(scratch.join("tree/large"), vec![7; 5_000_000]).unwrap();
    let url = |name: &str| format!("qcow2:{}", scratch.join(name).display());
    // In images that are there, and in new ones.
    shell("qemu-img create -q -f qcow2 there.qcow2 64M", scratch.path());
    done("mkfs -q @", &url("there.qcow2"));
    done("mkfs -q @ 64M", &url("made.qcow2"));
    let tree = scratch.join("tree");
    done(&format!("build -q -o @ --size 64M {}", tree.display()), &url("built.qcow2"));
    for name in ["there.qcow2", "made.qcow2", "built.qcow2"] {
        assert_sound(&scratch, name);
        let image = url(name);
        done("mkdir -p @:/new/dir", &image);
        done(&format!("cp -r {}/. @:/new/dir", tree.display()), &image);
        done("rm @:/new/dir/large", &image);
        done("tune -L changed @", &image);
        done("fsck -fy @", &image);
        done("trim @", &image);
        shell(&format!("extant debugfs -w -R 'mkdir /by_debugfs' '{image}'"), scratch.path());
        assert_eq!(done("cat @:/new/dir/file", &image), "inside\n");
        assert_sound(&scratch, name);
        assert!(fs::metadata(scratch.join(name)).unwrap().len() < 32 << 20, "{name}");
    }
    let said = refused("mkfs -q @", &url("missing.qcow2"));
    assert!(said.contains("size"), "{said}");
    assert!(!scratch.join("missing.qcow2").exists());
    // A copy, whole and over another.
    shell("extant clone qcow2:built.qcow2 qcow2:copy.qcow2", scratch.path());
    assert_sound(&scratch, "copy.qcow2");
    shell("extant clone qcow2:made.qcow2 qcow2:copy.qcow2", scratch.path());
    assert_sound(&scratch, "copy.qcow2");
    // Its snapshot stays.
    shell("qemu-img snapshot -c kept built.qcow2", scratch.path());
    done("rm -r @:/new", &url("built.qcow2"));
    assert_sound(&scratch, "built.qcow2");
    let kept = format!("{}?snapshot=kept", url("built.qcow2"));
    assert_eq!(done("cat @:/new/dir/file", &kept), "inside\n");
    assert!(refused("mkdir @:/x", &kept).contains("writing a snapshot"));
}

#[test]
fn a_mount_writes_to_a_qcow2_image() {
    if tool("qemu-img").is_none() || fs::File::open("/dev/fuse").is_err() {
        skip!("no qemu-img or no /dev/fuse");
    }
    let scratch = Scratch::new();
    shell("extant mkfs -q qcow2:disk.qcow2 64M; mkdir point", scratch.path());
    let url = format!("qcow2:{}", scratch.join("disk.qcow2").display());
    let point = scratch.join("point");
    done(&format!("mount @ {}", point.display()), &url);
    let written = fs::write(point.join("by mount"), vec![7; 9 << 20]);
    done("umount @", point.to_str().unwrap());
    written.unwrap();
    assert_sound(&scratch, "disk.qcow2");
    assert!(done("ls -l @:/", &url).contains("by mount"));
}

/// A command that is killed at any moment leaves an image without errors, and a volume that
/// recovers.
#[test]
fn a_killed_command_leaves_a_qcow2_image_without_errors() {
    if tool("qemu-img").is_none() {
        skip!("qemu-img is missing");
    }
    let is_slow = std::env::var_os("EXTANT_SLOW").is_some();
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    for number in 0..300 {
        fs::write(scratch.join(format!("tree/f{number}")), vec![number as u8; 20_000]).unwrap();
    }
    shell("extant mkfs -q qcow2:fresh.qcow2 64M", scratch.path());
    let mut killed = 0;
    for step in 0..if is_slow { 100 } else { 6 } {
        fs::copy(scratch.join("fresh.qcow2"), scratch.join("disk.qcow2")).unwrap();
        let url = format!("qcow2:{}", scratch.join("disk.qcow2").display());
        let mut child = Command::new(EXTANT)
            .args(["cp", "-r", scratch.join("tree").to_str().unwrap(), &format!("{url}:/")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + step * 13));
        let _ = child.kill();
        killed += u32::from(!child.wait().unwrap().success());
        let checked = Command::new("qemu-img")
            .args(["check", "-q", "-f", "qcow2"])
            .arg(scratch.join("disk.qcow2"))
            .status()
            .unwrap();
        assert!(matches!(checked.code(), Some(0 | 3)), "{step}: {checked}");
        done("fsck -fy @", &url);
        shell("qemu-img check -q -r leaks disk.qcow2 >/dev/null || test $? = 3", scratch.path());
        assert_sound(&scratch, "disk.qcow2");
    }
    eprintln!("{killed} killed");
}

#[test]
fn a_sparse_image_is_made_and_not_changed() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/file"), "inside\n").unwrap();
    let script = "extant mkfs -q sparse:made.simg 32M; extant build -q --size 32M -o sparse:built.simg tree; \
                  extant clone sparse:built.simg sparse:copy.simg; extant clone sparse:copy.simg raw.img";
    shell(script, scratch.path());
    e2fsck_fn(&scratch.join("raw.img")).unwrap();
    for name in ["made.simg", "built.simg", "copy.simg"] {
        let url = format!("sparse:{}", scratch.join(name).display());
        done("fsck -fn @", &url);
        assert!(fs::metadata(scratch.join(name)).unwrap().len() < 8 << 20, "{name}");
        if let Some(simg2img) = tool("simg2img") {
            let raw = scratch.join("judged");
            let _ = fs::remove_file(&raw);
            simg2img.text([scratch.join(name), raw.clone()]).unwrap();
            e2fsck_fn(&raw).unwrap();
        }
        for words in ["mkdir @:/new", "fsck -fy @", "mkfs -q @ 32M", "tune -L x @"] {
            let said = refused(words, &url);
            assert!(said.contains("a sparse image is not changed in place"), "{words}: {said}");
        }
    }
    assert_eq!(
        done("cat @:/file", &format!("sparse:{}", scratch.join("copy.simg").display())),
        "inside\n"
    );
    assert!(refused("build -q --size 32M -o sparse:none.simg @", "missing").contains("missing"));
    assert!(!Path::new(&scratch.join("none.simg")).exists());
}
