//! The name `fuse2fs`: its options and libfuse's, next to the program itself where it is installed.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

use super::{LIMIT, Mount, can_mount, image};

/// Our program by the name, with its exit code and all that it said.
fn fuse2fs(scratch: &Scratch, words: &[&str]) -> (i32, String) {
    let link = scratch.join("fuse2fs");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_extant"), &link).expect("scratch space takes a link");
    }
    let output = Command::new("timeout").args(["-k", "5", LIMIT]).arg(&link).args(words).output();
    let output = output.expect("timeout runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

fn mounted(scratch: &Scratch, image: &Path, words: &[&str]) -> Mount {
    let point = scratch.join("mount");
    fs::create_dir_all(&point).expect("a mount point");
    let mount = Mount::found(point.clone(), image);
    let names = [image.to_str().expect("a plain path"), point.to_str().expect("a plain path")];
    // Options come before the operands or after them.
    let (code, said) = fuse2fs(scratch, &[&names[..], words].concat());
    assert_eq!(code, 0, "{said}");
    mount
}

#[test]
fn a_volume_mounted_by_the_name_is_written_and_stays_clean() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "32M");
    let words = ["-o", "rw,use_ino,kernel_cache,big_writes,no_default_opts", "-onoatime", "-s"];
    let mount = mounted(&scratch, &image, &words);
    fs::write(mount.path().join("file"), "written by the name\n").expect("a file");
    fs::create_dir(mount.path().join("dir")).expect("a directory");
    mount.unmount();
    e2fsck_fn(&image).expect("clean");
    for options in ["ro", "norecovery"] {
        let mount = mounted(&scratch, &image, &["-o", options]);
        let file = mount.path().join("file");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "written by the name\n");
        let refused = fs::write(&file, "x").expect_err("read-only");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        mount.unmount();
    }
}

#[test]
fn a_volume_at_an_offset_is_mounted() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let volume = image(&scratch, &["-t", "ext4"], "16M");
    let disk = scratch.join("whole.img");
    let bytes = fs::read(&volume).expect("the volume");
    let file = fs::File::create(&disk).expect("a disk");
    file.write_all_at(&bytes, 1 << 20).expect("room");
    let mount = mounted(&scratch, &disk, &["-o", "offset=1048576"]);
    fs::write(mount.path().join("file"), "x").expect("a file");
    mount.unmount();
    let written = fs::read(&disk).expect("the disk");
    assert!(written[..1 << 20].iter().all(|byte| *byte == 0), "nothing before it is written");
    fs::write(&volume, &written[1 << 20..]).expect("room");
    e2fsck_fn(&volume).expect("clean");
}

/// With `fakeroot` another user does what only root may.
#[test]
fn with_fakeroot_no_permission_is_checked() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(setpriv) = tool("setpriv") else { skip!("setpriv is not installed") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "16M");
    let outside = scratch.path().metadata().expect("scratch space").mode();
    let as_user = |script: &str, directory: &Path| {
        let mut command = setpriv.command();
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-ec", script]);
        command.current_dir(directory).output().expect("setpriv runs").status.success()
    };
    let script = "cat secret; echo x > made; chown 0:0 made; chmod 600 made";
    for (options, is_allowed) in [("allow_other,fakeroot", true), ("allow_other", false)] {
        let mount = mounted(&scratch, &image, &["-o", options]);
        let secret = mount.path().join("secret");
        fs::write(&secret, "s").expect("a file");
        let _ = fs::remove_file(mount.path().join("made"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&secret, mode).expect("chmod");
        if outside & 0o005 == 0 {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(scratch.path(), open).expect("chmod");
        }
        assert_eq!(as_user(script, mount.path()), is_allowed, "{options}");
        assert_eq!(as_user("cat secret", mount.path()), is_allowed, "{options}");
        if is_allowed {
            let made = mount.path().join("made").metadata().expect("it was made");
            assert_eq!((made.uid(), made.mode() & 0o7777), (0, 0o600));
        }
        mount.unmount();
    }
    e2fsck_fn(&image).expect("clean");
}

#[test]
fn exit_codes_are_those_of_fuse2fs() {
    let scratch = Scratch::new();
    let bad = scratch.join("bad.img");
    fs::write(&bad, vec![7; 1 << 20]).expect("room");
    let point = scratch.join("point");
    fs::create_dir(&point).expect("a directory");
    let (bad, point) = (bad.to_str().expect("plain"), point.to_str().expect("plain"));
    let rows: [(&[&str], i32, &str); 9] = [
        (&[bad, point], 2, "bad.img: "),
        (&["/nowhere/disk.img", point], 2, "/nowhere/disk.img"),
        (&[], 1, "Usage: fuse2fs"),
        (&["-h"], 1, "Usage: fuse2fs"),
        (&["-V"], 0, "fuse2fs 1.47"),
        (&["-o", "offset=x", bad, point], 1, "offset=x: not a number"),
        (&["-d", bad, point], 1, "fuse2fs: -d: not supported: requests are not logged"),
        (&["-o", "bogus", bad, point], 1, "unknown mount option bogus"),
        (&["-o", "errors=panic", bad, point], 1, "a server cannot panic the kernel"),
    ];
    for (words, code, text) in rows {
        let (found, said) = fuse2fs(&scratch, words);
        assert_eq!(found, code, "{words:?}: {said}");
        assert!(said.contains(text), "{words:?}: {said}");
    }
    let Some(theirs) = tool("fuse2fs") else { skip!("fuse2fs is not installed") };
    for words in [&[bad, point][..], &["/nowhere/disk.img", point], &[], &["-h"], &["-V"]] {
        let code = theirs.run(words).status.code();
        assert_eq!(Some(fuse2fs(&scratch, words).0), code, "{words:?}");
    }
}

/// Every option that their help lists is taken or refused with a reason, none as unknown.
#[test]
fn every_option_of_fuse2fs_is_known() {
    let Some(theirs) = tool("fuse2fs") else { skip!("fuse2fs is not installed") };
    let scratch = Scratch::new();
    let output = theirs.run(["--helpfull"]);
    let help = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let named = help.split("-o ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let mut options = Vec::new();
    for name in named.filter(|name| *name != "opt,[opt...]") {
        let name = name.split_once('=').map_or(name.to_owned(), |(name, value)| match value {
            "panic" => "errors=continue".to_owned(),
            _ => format!("{name}=1"),
        });
        match name.split_once(['[', ']']).zip(name.rsplit_once(']')) {
            Some((_, (no, bare))) => {
                options.push(format!("{}{bare}", no.trim_start_matches('[')));
                options.push(bare.to_owned());
            }
            None => options.push(name),
        }
    }
    assert!(options.len() > 50, "{options:?}");
    let missing: PathBuf = scratch.join("missing.img");
    let missing = missing.to_str().expect("plain");
    for option in options {
        let (code, said) = fuse2fs(&scratch, &["-o", &option, missing, "/"]);
        assert!(code == 1 && said.contains("is not supported: ") || code == 2, "{option}: {said}");
        assert!(!said.contains("unknown mount option"), "{option}: {said}");
    }
}
