use std::fs;

use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

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
    assert!(refused("mkdir @:/new", &url).contains("write overlay:qcow2:PATH?upper=FILE"));
    assert!(refused("mkfs @", &url).contains("images are only read"));
    let top = format!("qcow2:{}", scratch.join("top.qcow2").display());
    assert!(refused("ls @:/", &top).contains("needs its backing file 'disk.qcow2'"));
    assert_eq!(done("cat @:/file", &format!("{top}?backing=yes")), "inside\n");

    let upper = scratch.join("upper");
    let overlay = format!("overlay:{top}?backing=yes&upper={}", upper.display());
    done("mkdir @:/new", &overlay);
    done("fsck -fy @", &overlay);
    assert!(done("ls @:/", &overlay).contains("new"));
    assert_eq!(run("diff @", &overlay).status.code(), Some(1));
    assert!(refused("commit @", &overlay).contains("images are only read"));
    let copy = scratch.join("copy");
    done(&format!("clone @ {}", copy.display()), &overlay);
    e2fsck_fn(&copy).unwrap();
    assert!(done("ls @:/", copy.to_str().unwrap()).contains("new"));
    // The innermost backing file is a part of the base too.
    shell("touch disk.qcow2", scratch.path());
    assert!(refused("ls @:/", &overlay).contains("the base of the overlay has changed"));
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
