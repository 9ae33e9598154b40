//! The examples run, and e2fsck finds nothing wrong with their images.

#[path = "../examples/sandbox.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod sandbox;

use extant::{FileSystem, Image, inspect};
use extant_testkit::{Scratch, e2fsck_fn, tool};

#[test]
fn a_sandbox_has_its_files_its_size_and_its_uuid() {
    let scratch = Scratch::new();
    sandbox::run(scratch.path()).expect("it runs");
    let image = scratch.join("root.img");
    if tool("e2fsck").is_some() {
        e2fsck_fn(&image).expect("nothing is wrong");
    }
    let fs = FileSystem::open_read_only(&image).expect("it opens");
    assert_eq!(fs.read_to_string("/etc/hostname").expect("a file"), "sandbox-1\n");
    assert!(fs.exists("/sbin/init").expect("it is looked for"));
    let device = Image::open(&image).and_then(|it| it.device(extant::Access::ReadOnly));
    let summary = inspect::summary(device.expect("it opens").device).expect("a summary");
    assert_eq!(summary.uuid, "6f0d2bd8-7d6c-4a43-9a0f-3f8a4c1f5a10");
    assert_eq!(image.metadata().expect("a file").len(), 64 << 20);
    sandbox::set_uuid(&image, None).expect("a random one");
}
