//! `extant build`: labels, owners and modes that are not those of the sources.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{extant, quiet, text};
use extant_testkit::{LoopMount, Scratch, e2fsck_fn, is_root, skip, tool};

/// The policy of Debian's selinux-policy-default.
const POLICY: &str = "/etc/selinux/default/contexts/files/file_contexts";

fn built(scratch: &Scratch, source: &Path, words: &[&str]) -> PathBuf {
    let image = scratch.join("disk.img");
    let name = image.to_str().unwrap();
    let mut all = vec!["build", "-q", "-o", name, "-O", "^has_journal"];
    all.extend(words);
    all.push(source.to_str().unwrap());
    quiet(&extant(all));
    image
}

/// The error of a build that is refused.
fn refused(scratch: &Scratch, source: &Path, words: &[&str]) -> String {
    let image = scratch.join("refused.img");
    let mut all = vec!["build", "-q", "-o", image.to_str().unwrap()];
    all.extend(words);
    all.push(source.to_str().unwrap());
    let output = extant(all);
    assert!(!output.status.success() && !image.exists(), "{output:?}");
    text(&output.stderr)
}

/// Each line after `before`, which is sound, is refused with its number and reason.
fn lines_are_refused(
    scratch: &Scratch,
    (option, list): (&str, &Path),
    before: &str,
    cases: &[(&str, &str)],
) {
    let number = before.lines().count() + 1;
    for (line, why) in cases {
        fs::write(list, format!("{before}{line}\n")).unwrap();
        let said = refused(scratch, &scratch.join("source"), &[option, list.to_str().unwrap()]);
        assert_eq!(said, format!("extant build: {}: line {number}: {why}\n", list.display()));
    }
}

/// An attribute of a file as the kernel shows it, in hexadecimal or empty.
fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// A small root file system with files of all types that a policy tells apart.
fn grow(source: &Path) {
    for dir in [
        "etc/init.d",
        "bin",
        "lib/systemd/system",
        "usr/lib64",
        "usr/share/man/man1",
        "var/run",
        "var/log/audit",
        "home/lisa/.ssh",
        "root",
        "tmp",
        "dev",
        "opt/app/lib",
        "srv/www",
        "boot",
        "var/lib/private/a",
        "usr/lib/debug/usr/bin",
        "run/user/1000",
        "selinux",
    ] {
        fs::create_dir_all(source.join(dir)).unwrap();
    }
    for file in [
        "etc/passwd",
        "etc/shadow",
        "etc/init.d/ssh",
        "etc/resolv.conf",
        "bin/bash",
        "bin/mount",
        "lib/systemd/systemd",
        "lib/systemd/system/ssh.service",
        "usr/lib64/libc.so.6",
        "usr/share/man/man1/ls.1",
        "var/log/audit/audit.log",
        "var/log/messages.1",
        "home/lisa/.ssh/authorized_keys",
        "home/lisa/.bashrc",
        "root/.bashrc",
        "tmp/x",
        "opt/app/lib/libx.so",
        "srv/www/index.html",
        "boot/vmlinuz-6.1",
        "var/run/sshd.pid",
        "etc/new\nline",
        "etc/\u{fc}mlaut",
        "a.out",
        "quota.user",
        "usr/lib/debug/usr/bin/x",
    ] {
        fs::write(source.join(file), file).unwrap();
    }
    symlink("bash", source.join("bin/sh")).unwrap();
    symlink("../run", source.join("etc/mtab")).unwrap();
    fs::write(source.join("etc/passwd-"), "old").unwrap();
    for (name, kind, minor) in
        [("dev/null", "c", "3"), ("dev/sda", "b", "0"), ("dev/fifo", "p", "")]
    {
        let mut words = vec![name, kind];
        if !minor.is_empty() {
            words.extend(["1", minor]);
        }
        let made = Command::new("mknod").current_dir(source).args(words).status();
        assert!(made.is_ok_and(|status| status.success()) || !is_root());
    }
}

/// The labels that setfiles would give the files below `root`, by their paths.
fn by_setfiles(setfiles: &Path, contexts: &Path, root: &Path) -> BTreeMap<String, String> {
    let root_text = root.to_str().unwrap();
    let output = Command::new(setfiles)
        .args(["-n", "-v", "-F", "-m", "-r", root_text])
        .args([contexts, root])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout) + &text(&output.stderr);
    let mut found = BTreeMap::new();
    // The path of a file with a line break has one.
    for line in said.replace("new\nline", "new?line").lines() {
        let Some(rest) = line.strip_prefix("Would relabel ") else { continue };
        let (path, labels) = rest.split_once(" from ").unwrap();
        let (_, label) = labels.split_once(" to ").unwrap();
        let path = path.strip_prefix(root_text).unwrap();
        found.insert(path.to_owned(), format!("{label}\0"));
    }
    found
}

/// The labels of the files of a mount.
fn on_mount(mount: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![mount.to_owned()];
    while let Some(path) = open.pop() {
        if let Some(label) = attribute(&path, "security.selinux") {
            let name = path.strip_prefix(mount).unwrap().to_str().unwrap().replace('\n', "?");
            let name = if name.is_empty() { name } else { format!("/{name}") };
            found.insert(name, text(&label));
        }
        if path.symlink_metadata().unwrap().is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn labels_are_those_of_setfiles(contexts: &Path) {
    let Some(setfiles) = tool("setfiles") else { skip!("no setfiles here (policycoreutils)") };
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    grow(&source);
    // setfiles knows lost+found by its own path only.
    fs::create_dir(source.join("lost+found")).unwrap();
    let expected = by_setfiles(setfiles.path(), contexts, &source);
    assert!(expected.len() > 10, "{expected:?}");
    fs::remove_dir(source.join("lost+found")).unwrap();
    let image = built(&scratch, &source, &["--file-contexts", contexts.to_str().unwrap()]);
    e2fsck_fn(&image).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    assert_eq!(on_mount(mount.path()), expected);
}

#[test]
fn labels_of_a_real_policy_are_those_of_setfiles() {
    if !Path::new(POLICY).exists() {
        skip!("no {POLICY} here (selinux-policy-default)");
    }
    labels_are_those_of_setfiles(Path::new(POLICY));
}

#[test]
fn order_types_aliases_and_neighbours_are_those_of_setfiles() {
    let scratch = Scratch::new();
    let contexts = scratch.join("contexts");
    let files = [
        (
            "",
            "/etc/passwd -- u:r:exact_comes_last:s0\n\
             # a comment\n\
             /.* u:r:default:s0\n\
             /etc(/.*)? u:r:etc:s0\n\
             /etc/passwd-? u:r:late:s0\n\
             /bin/.* -l u:r:links:s0\n\
             /bin/.* -- u:r:files:s0   # more\n\
             /dev/.* -c u:r:chars:s0\n/dev/.* -b u:r:blocks:s0\n/dev/.* -p u:r:pipes:s0\n\
             /tmp(/.*)? <<none>>\n\
             /lost\\+found u:r:lost:s0\n\
             /a\\.out u:r:quoted:s0\n\
             /quota\\.(user|group) -d u:r:not_this:s0\n\
             /hom[e]/[^/]+ -d u:r:homes:s0\n\
             /hom[e]/[^/]+/\\.bash[^/]* u:r:main:s0:c0,c1\n",
        ),
        (".homedirs", "/hom[e]/[^/]+/\\.ssh(/.*)? u:r:ssh:s0\n/srv/.* u:r:homedirs:s0\n"),
        (".local", "/srv/.* u:r:local:s0\n"),
        (".subs", "/var/run /etc\n"),
        (".subs_dist", "/opt/app /srv\n/opt /bin\n/usr/share/man /srv\n/boot /\n"),
    ];
    for (suffix, lines) in files {
        fs::write(scratch.join(format!("contexts{suffix}")), lines).unwrap();
    }
    labels_are_those_of_setfiles(&contexts);
}

#[test]
fn contexts_that_cannot_be_used_are_refused_by_their_lines() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let contexts = scratch.join("contexts");
    let words = ["--file-contexts", contexts.to_str().unwrap()];
    let cases = [
        ("/a", "1 fields instead of PATH [TYPE] LABEL"),
        ("/a -- u:r:t:s0 more", "4 fields instead of PATH [TYPE] LABEL"),
        ("/a -q u:r:t:s0", "unknown type -q (expected --, -b, -c, -d, -l, -p or -s)"),
        ("/a t", "invalid label t (expected USER:ROLE:TYPE[:RANGE])"),
        ("/a(?!b).* u:r:t", "groups of the form (?...) are not supported, except (?:"),
        ("/(a u:r:t", "unmatched ("),
        ("/one -d u:r:t", "another label than in line 1"),
    ];
    lines_are_refused(&scratch, (words[0], &contexts), "/one u:r:one:s0\n\n", &cases);
    fs::write(&contexts, [0x8a, 0xff, 0x7c, 0xf9, 5]).unwrap();
    let said = refused(&scratch, &source, &words);
    assert!(said.ends_with("is compiled (use the text file that it was made from)\n"), "{said}");
    fs::write(&contexts, "/.* u:r:t\n").unwrap();
    fs::write(scratch.join("contexts.subs"), "/a\n").unwrap();
    let said = refused(&scratch, &source, &words);
    assert!(said.ends_with("contexts.subs: line 1: not the form ALIAS PATH\n"), "{said}");
    fs::write(scratch.join("contexts.subs"), "/a /b/\n").unwrap();
    let said = refused(&scratch, &source, &words);
    assert!(said.ends_with("line 1: both paths must begin with a slash and not end with one\n"));
    let said = refused(&scratch, &source, &["--mount-point", "/system"]);
    let why = "--mount-point: neither --file-contexts nor --fs-config is given";
    assert!(said.contains(why), "{said}");
}

/// A label from elsewhere stays where no specification gives another.
#[test]
fn labels_of_the_source_stay_where_none_is_given() {
    if !is_root() {
        skip!("security attributes and a loop mount need root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["kept", "none", "given"] {
        fs::write(source.join(name), name).unwrap();
        let set = rustix::fs::lsetxattr(source.join(name), "security.selinux", b"u:r:old\0", flags);
        if set.is_err() {
            skip!("no security attributes on this file system");
        }
        rustix::fs::lsetxattr(source.join(name), "user.a", b"b", flags).unwrap();
    }
    let contexts = scratch.join("contexts");
    fs::write(&contexts, "/system/none <<none>>\n/system/given u:r:new\n/given u:r:wrong\n")
        .unwrap();
    let words = ["--file-contexts", contexts.to_str().unwrap(), "--mount-point", "//system/"];
    let image = built(&scratch, &source, &words);
    e2fsck_fn(&image).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    let label = |name: &str| attribute(&mount.path().join(name), "security.selinux");
    assert_eq!(label("kept").as_deref(), Some(&b"u:r:old\0"[..]));
    assert_eq!(label("none").as_deref(), Some(&b"u:r:old\0"[..]));
    assert_eq!(label("given").as_deref(), Some(&b"u:r:new\0"[..]));
    assert_eq!(label("."), None);
    assert_eq!(attribute(&mount.path().join("given"), "user.a").as_deref(), Some(&b"b"[..]));
}

/// With inodes of 128 bytes a label needs a block, that of lost+found too.
#[test]
fn labels_without_room_in_inodes_are_in_blocks() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    let contexts = scratch.join("contexts");
    fs::write(&contexts, "/.* u:r:all:s0\n").unwrap();
    for words in [&["-I", "128"][..], &["-I", "128", "-O", "bigalloc"], &["-O", "quota"]] {
        let words = [&["--file-contexts", contexts.to_str().unwrap()], words].concat();
        let image = scratch.join("blocks.img");
        let output = extant(
            [&["build", "-q", "-o", image.to_str().unwrap()], &words[..]]
                .concat()
                .into_iter()
                .chain([source.to_str().unwrap()]),
        );
        // Inodes of 128 bytes have a warning of their own.
        assert!(output.status.success(), "{output:?}");
        e2fsck_fn(&image).unwrap();
        let mount = LoopMount::new(&image, "ro").unwrap();
        for name in [".", "lost+found", "file"] {
            let label = attribute(&mount.path().join(name), "security.selinux");
            assert_eq!(label.as_deref(), Some(&b"u:r:all:s0\0"[..]), "{name} {words:?}");
        }
    }
}

#[test]
fn android_lists_give_owners_modes_and_capabilities() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("bin")).unwrap();
    for file in ["bin/run", "bin/plain", "bin/other"] {
        fs::write(source.join(file), file).unwrap();
    }
    symlink("run", source.join("bin/link")).unwrap();
    fs::hard_link(source.join("bin/run"), source.join("bin/same")).unwrap();
    let list = scratch.join("fs_config.txt");
    fs::write(
        &list,
        " 0 0 755\n\
         system 1 2 750 selabel=u:object_r:root:s0\n\
         system/bin 0 2000 0751 capabilities=0x0\n\
         # comment\n\
         system/bin/run 1000 1001 04750 capabilities=0x2000000c0\n\
         /system/bin/link 0 2000 0755\n\
         system/bin/other 3 4 600 capabilities=0x0\n\
         system/lost+found 0 0 700 selabel=u:object_r:lost:s0\n\
         system/absent 0 0 644\nsystem/absent2 0 0 644\nvendor/bin 0 0 755\n",
    )
    .unwrap();
    let image = scratch.join("disk.img");
    let output = extant([
        "build",
        "-q",
        "-o",
        image.to_str().unwrap(),
        "-O",
        "^has_journal",
        "--owner",
        "7:8",
        "--fs-config",
        list.to_str().unwrap(),
        "--mount-point",
        "/system",
        source.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let expected = format!(
        "extant build: warning: {}: 2 paths are not in the sources, the first is system/absent in line 9\n",
        list.display()
    );
    assert_eq!(text(&output.stderr), expected);
    e2fsck_fn(&image).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    for (name, uid, gid, mode) in [
        (".", 1, 2, 0o40_750),
        ("bin", 0, 2000, 0o40_751),
        ("bin/run", 1000, 1001, 0o104_750),
        ("bin/same", 1000, 1001, 0o104_750),
        ("bin/link", 0, 2000, 0o120_755),
        ("bin/other", 3, 4, 0o100_600),
        ("bin/plain", 7, 8, 0o100_644),
        ("lost+found", 0, 0, 0o40_700),
    ] {
        let found = rustix::fs::lstat(mount.path().join(name)).unwrap();
        assert_eq!((found.st_uid, found.st_gid, found.st_mode), (uid, gid, mode), "{name}");
    }
    let label = |name: &str| attribute(&mount.path().join(name), "security.selinux");
    assert_eq!(label(".").as_deref(), Some(&b"u:object_r:root:s0\0"[..]));
    assert_eq!(label("lost+found").as_deref(), Some(&b"u:object_r:lost:s0\0"[..]));
    let capability = |name: &str| attribute(&mount.path().join(name), "security.capability");
    assert_eq!((capability("bin/other"), capability("bin")), (None, None));
    let Some(getcap) = tool("getcap") else { skip!("no getcap here (libcap2-bin)") };
    let output = Command::new(getcap.path()).arg(mount.path().join("bin/run")).output().unwrap();
    // CAP_SETGID, CAP_SETUID and, of the second half, CAP_MAC_ADMIN.
    let said = text(&output.stdout);
    assert!(said.trim_end().ends_with(" cap_setgid,cap_setuid,cap_mac_admin=ep"), "{said}");
}

#[test]
fn lines_of_android_lists_that_cannot_be_used_are_refused() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let list = scratch.join("list");
    let cases = [
        ("a 0 0", "3 fields instead of PATH UID GID MODE"),
        ("a root 0 755", "invalid UID root"),
        ("a 0 0 799", "invalid mode 799"),
        ("a 0 0 755 caps=0x1", "unknown field caps=0x1"),
        ("one/ 0 0 755", "the path of line 1 again"),
        (
            "lost+found 1 0 700",
            "lost+found of the image is 0 0 0700 without capabilities (for another one, make that \
             directory in a source)",
        ),
    ];
    lines_are_refused(&scratch, ("--fs-config", &list), "/one 0 0 0755\n", &cases);
}

#[test]
fn a_file_of_several_names_gets_the_label_of_the_last_specification() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "x").unwrap();
    fs::hard_link(source.join("a"), source.join("z")).unwrap();
    let contexts = scratch.join("contexts");
    fs::write(&contexts, "/z.* u:r:first\n/a.* u:r:last\n").unwrap();
    let image = scratch.join("disk.img");
    let output = extant([
        "build",
        "-q",
        "-o",
        image.to_str().unwrap(),
        "--file-contexts",
        contexts.to_str().unwrap(),
        source.to_str().unwrap(),
    ]);
    let warning = "extant build: warning: 1 files have names of several labels, the first is /a: \
                   the last specification was taken\n";
    assert!(output.status.success() && text(&output.stderr) == warning, "{output:?}");
    let mount = LoopMount::new(&image, "ro").unwrap();
    let label = attribute(&mount.path().join("z"), "security.selinux");
    assert_eq!(label.as_deref(), Some(&b"u:r:last\0"[..]));
}

/// The mode of a file that no user may read is not changed, not even for a moment.
#[test]
fn files_that_their_owner_may_not_read_are_read() {
    if !is_root() {
        skip!("another user and a loop mount need root");
    }
    let as_user = |program: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1234", "--regid=1234", "--clear-groups", program]);
        command
    };
    let spaces = as_user("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !spaces.is_ok_and(|status| status.success()) {
        skip!("no user namespaces for ordinary users here");
    }
    let scratch = Scratch::new();
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    let belongs = |path: &Path, uid, gid| {
        let [uid, gid] = [uid, gid].map(Some);
        std::os::unix::fs::chown(path, uid, gid).unwrap();
    };
    mode(scratch.path(), 0o777).unwrap();
    let program = scratch.join("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    belongs(&source, 1234, 1234);
    let contents: Vec<u8> = (0..70_000_u32).map(|at| at as u8).collect();
    let files = [("plain", 0), ("-dash", 0o2000), ("no owner's", 0o055), ("sparse", 0)];
    for (name, bits) in files {
        let path = source.join(name);
        fs::write(&path, &contents).unwrap();
        if name == "sparse" {
            fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        }
        belongs(&path, 1234, 1234);
        mode(&path, bits).unwrap();
    }
    let before = files.map(|(name, _)| fs::metadata(source.join(name)).unwrap().ctime_nsec());
    let image = scratch.join("user.img");
    let build = || {
        let program = program.to_str().unwrap();
        as_user(program).args(["build", "-q", "-o"]).args([&image, &source]).output().unwrap()
    };
    let output = build();
    assert!(output.status.success(), "{output:?}");
    e2fsck_fn(&image).unwrap();
    let after = files.map(|(name, _)| fs::metadata(source.join(name)).unwrap().ctime_nsec());
    assert_eq!(after, before);
    let mount = LoopMount::new(&image, "ro").unwrap();
    for (name, bits) in files {
        let found = mount.path().join(name);
        assert_eq!(fs::metadata(&found).unwrap().mode() & 0o7777, bits, "{name}");
        let length = fs::metadata(source.join(name)).unwrap().len();
        let mut expected = contents.clone();
        expected.resize(length as usize, 0);
        assert!(fs::read(found).unwrap() == expected, "{name}");
    }
    mount.unmount().unwrap();

    // A group that is not the caller's is not part of the namespace.
    belongs(&source.join("plain"), 1234, 4321);
    let output = build();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("plain: "), "{output:?}");
}

#[test]
fn files_are_as_under_fakeroot() {
    let Some(fakeroot) = tool("fakeroot") else { skip!("no fakeroot here") };
    if !is_root() {
        skip!("another user and a loop mount need root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    rustix::fs::chown(
        &source,
        Some(rustix::fs::Uid::from_raw(1234)),
        Some(rustix::fs::Gid::from_raw(1234)),
    )
    .unwrap();
    rustix::fs::chmod(scratch.path(), rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let database = scratch.join("database");
    let script = "umask 022; mkdir d; echo text > d/file; chown 5:6 d/file; chmod 4751 d/file; \
                  mknod d/char c 300 70000; mknod d/block b 8 1; mknod d/pipe p; ln -s file d/link; \
                  chown -h 7:8 d/link; echo x > plain; ln d/file same; chown 9:10 d; chmod 1777 d";
    let shown = "stat -c '%n %u %g %f %t %T' . d d/* plain same";
    let output = Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--clear-groups"])
        .arg(fakeroot.path())
        .arg("-s")
        .arg(&database)
        .args(["sh", "-c", &format!("{script}; {shown}")])
        .current_dir(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected = text(&output.stdout);
    let image = built(&scratch, &source, &["--fakeroot", database.to_str().unwrap()]);
    e2fsck_fn(&image).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    let found = Command::new("sh").args(["-c", shown]).current_dir(mount.path()).output().unwrap();
    assert_eq!(text(&found.stdout), expected);
    assert_eq!(fs::read(mount.path().join("same")).unwrap(), b"text\n");
    mount.unmount().unwrap();

    let copy = scratch.join("copy");
    let copied = Command::new("cp").arg("-a").args([&source, &copy]).status().unwrap();
    assert!(copied.success());
    let other = scratch.join("other.img");
    let words = |source: &Path| {
        let words = ["build", "-q", "-o", other.to_str().unwrap(), "--fakeroot"];
        let more = [database.to_str().unwrap(), source.to_str().unwrap()];
        extant(words.into_iter().chain(more))
    };
    let said = text(&words(&copy).stderr);
    let why = "no file of the sources is in the database: they may be copies\n";
    assert!(said.ends_with(why), "{said}");

    fs::write(source.join("d/char"), "contents").unwrap();
    let said = text(&words(&source).stderr);
    let why = "d/char: wrong type: the fakeroot database has another one for this file\n";
    assert!(said.ends_with(why), "{said}");

    fs::write(&database, "dev=1,ino=2,mode=100644,uid=0,gid=0,nlink=1,rdev=0\ndev=1\n").unwrap();
    let said = text(&words(&source).stderr);
    assert!(said.ends_with("database: line 2: no field nlink\n"), "{said}");
}

#[test]
fn files_are_as_in_the_containers_of_ordinary_users() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::lsetxattr(&source, "user.a", b"b", flags).is_err() {
        skip!("no extended attributes of users in TMPDIR");
    }
    for (name, contents, value) in [
        ("dir/file", "text", "5:6:04751"),
        ("dir/by-mode", "text", "5:6:0100700"),
        ("dir/char", "", "0:0:0620:char-300-70000"),
        ("dir/block", "", "0:6:0660:block-8-1"),
        ("dir/pipe", "", "7:8:0600:pipe"),
        ("dir/plain", "text", ""),
        ("dir", "", "9:10:01777:dir"),
        ("", "", "0:0:0555"),
    ] {
        let path = source.join(name);
        if !path.is_dir() {
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        }
        set_override(&path, value);
    }
    fs::hard_link(source.join("dir/file"), source.join("dir/same")).unwrap();
    // The mode changes its access ACL, as chmod does.
    if let Some(setfacl) = tool("setfacl") {
        let said = setfacl.run(["-m", "u:79:rwx", source.join("dir/file").to_str().unwrap()]);
        assert!(said.status.success(), "{said:?}");
    }
    let image = built(&scratch, &source, &["--override-stat"]);
    e2fsck_fn(&image).unwrap();
    let mount = LoopMount::new(&image, "ro").unwrap();
    let shown = "stat -c '%n %u %g %f %t %T' . dir dir/*; cat dir/same";
    let found = Command::new("sh").args(["-c", shown]).current_dir(mount.path()).output().unwrap();
    let expected = ". 0 0 416d 0 0\ndir 9 10 43ff 0 0\ndir/block 0 6 61b0 8 1\n\
                    dir/by-mode 5 6 81c0 0 0\ndir/char 0 0 2190 12c 11170\n\
                    dir/file 5 6 89e9 0 0\ndir/pipe 7 8 1180 0 0\ndir/plain 0 0 8180 0 0\n\
                    dir/same 5 6 89e9 0 0\ntext";
    assert_eq!(text(&found.stdout), expected);
    assert_eq!(attribute(&mount.path().join("dir/file"), OVERRIDE), None);
    mount.unmount().unwrap();

    let invalid = "invalid value (expected UID:GID:MODE[:TYPE])";
    for (name, value, why) in [
        ("dir/file", "5:6", format!("{OVERRIDE}: {invalid}")),
        (
            "dir/file",
            "5:6:04751:pipe",
            format!("wrong type: {OVERRIDE} has another one for this file"),
        ),
        ("dir", "5:6:0755:file", format!("wrong type: {OVERRIDE} has another one for this file")),
    ] {
        let path = source.join(name);
        let before = attribute(&path, OVERRIDE).unwrap();
        set_override(&path, value);
        let said = refused(&scratch, &source, &["--override-stat"]);
        assert_eq!(said, format!("extant build: {}: {why}\n", path.display()));
        set_override(&path, &text(&before));
    }
    let archive = scratch.join("archive.tar");
    let tar = Command::new("tar").arg("-cf").args([&archive, &source]).status().unwrap();
    assert!(tar.success());
    let said = refused(&scratch, &archive, &["--override-stat"]);
    assert!(said.contains("--override-stat: no source is a directory"), "{said}");
}

/// The attribute of containers.
const OVERRIDE: &str = "user.containers.override_stat";

/// Sets it; an empty value sets none.
fn set_override(path: &Path, value: &str) {
    if !value.is_empty() {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path, OVERRIDE, value.as_bytes(), flags).unwrap();
    }
}
