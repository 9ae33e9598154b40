//! Two Debian packages: `extant` has the program, and `extant-e2fsprogs` gives it the names of
//! e2fsprogs' programs by dpkg-divert(1).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::{Compression, GzBuilder};

use super::{Release, files_below, install, output_of, put, succeeds};
use crate::{Failure, machine};

/// Names of the helpers of mount(8), which are part of the package `extant`.
const HELPERS: [&str; 2] = ["mount.fuse.extant", "umount.fuse.extant"];
/// Names that Debian has in /usr/bin; the others are in /usr/sbin.
const IN_BIN: [&str; 3] = ["chattr", "lsattr", "fuse2fs"];
/// Where the names of e2fsprogs are without taking its own over.
const OWN_LINKS: &str = "usr/lib/extant/bin";

/// Makes both packages.
pub(super) fn make(release: &Release, out: &Path) -> Result<(), Failure> {
    let stage = tempfile::tempdir()?;
    let names = names(release, stage.path())?;
    let root = stage.path().join("extant");
    put_program(release, &root, stage.path(), &names)?;
    pack(release, &root, &about_program(release, &root)?, "amd64", out)?;
    let root = stage.path().join("extant-e2fsprogs");
    put_names(release, &root, &names)?;
    pack(release, &root, &about_names(release), "all", out)
}

/// The names of other tools that the program answers to.
fn names(release: &Release, stage: &Path) -> Result<Vec<String>, Failure> {
    let dir = stage.join("names");
    fs::create_dir(&dir)?;
    let mut links = Command::new(&release.program);
    links.arg("install-links").arg(&dir);
    succeeds(links, "extant install-links")?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn put_program(
    release: &Release,
    root: &Path,
    stage: &Path,
    names: &[String],
) -> Result<(), Failure> {
    install(&release.program, &root.join("usr/bin/extant"), 0o755)?;
    for name in names {
        let is_helper = HELPERS.contains(&&name[..]);
        let (link, target) = match is_helper {
            true => (root.join("usr/sbin").join(name), "../bin/extant"),
            false => (root.join(OWN_LINKS).join(name), "../../../bin/extant"),
        };
        put_link(target, &link)?;
    }
    let manual = stage.join("man");
    fs::create_dir(&manual)?;
    let mut man = Command::new(&release.program);
    man.arg("man").arg(&manual);
    succeeds(man, "extant man")?;
    for page in files_below(&manual)? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let packed = gzipped(&fs::read(&page)?)?;
        put(&root.join("usr/share/man/man1").join(name + ".gz"), &packed, 0o644)?;
    }
    let shells = [
        ("bash", "bash-completion/completions/extant"),
        ("zsh", "zsh/vendor-completions/_extant"),
        ("fish", "fish/vendor_completions.d/extant.fish"),
    ];
    for (shell, file) in shells {
        let mut completions = Command::new(&release.program);
        completions.args(["completions", shell]);
        put(&root.join("usr/share").join(file), &output_of(completions)?, 0o644)?;
    }
    let doc = root.join("usr/share/doc/extant");
    let changes = fs::read(machine::workspace().join("CHANGELOG.md"))?;
    put(&doc.join("changelog.gz"), &gzipped(&changes)?, 0o644)?;
    put(&doc.join("copyright"), release.licences.as_bytes(), 0o644)
}

fn put_names(release: &Release, root: &Path, names: &[String]) -> Result<(), Failure> {
    let mut paths = Vec::new();
    for name in names.iter().filter(|name| !HELPERS.contains(&&name[..])) {
        let dir = if IN_BIN.contains(&&name[..]) { "bin" } else { "sbin" };
        let target = if dir == "bin" { "extant" } else { "../bin/extant" };
        put_link(target, &root.join("usr").join(dir).join(name))?;
        paths.push(format!("/{dir}/{name}"));
    }
    let paths = paths.join(" ");
    let scripts = [("preinst", include_str!("preinst.sh")), ("postrm", include_str!("postrm.sh"))];
    for (name, script) in scripts {
        let script = script.replace("@PATHS@", &paths);
        put(&root.join("DEBIAN").join(name), script.as_bytes(), 0o755)?;
    }
    let doc = root.join("usr/share/doc/extant-e2fsprogs/copyright");
    put(&doc, release.licences.as_bytes(), 0o644)
}

fn put_link(target: &str, link: &Path) -> Result<(), Failure> {
    if let Some(dir) = link.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(symlink(target, link)?)
}

/// Without a name and a time.
fn gzipped(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

fn about_program(release: &Release, root: &Path) -> Result<String, Failure> {
    let mut kibibytes = 0;
    for file in files_below(root)? {
        kibibytes += file.symlink_metadata()?.len().div_ceil(1024);
    }
    Ok(format!(
        "Package: extant\n\
         Version: {}\n\
         Architecture: amd64\n\
         {MAINTAINER}\
         Installed-Size: {kibibytes}\n\
         Suggests: fuse3\n\
         Description: ext4 images made, read, changed and checked without the kernel\n \
         The command extant works on ext2, ext3 and ext4 volumes in files and on\n \
         block devices, without a mount and without root; it also mounts them\n \
         over FUSE. /{OWN_LINKS} has it by the names of e2fsprogs' programs.\n",
        release.version
    ))
}

fn about_names(release: &Release) -> String {
    format!(
        "Package: extant-e2fsprogs\n\
         Version: {0}\n\
         Architecture: all\n\
         {MAINTAINER}\
         Depends: extant (= {0})\n\
         Description: extant by the names of e2fsprogs' programs\n \
         While this package is installed, mkfs.ext4, e2fsck, tune2fs and the others\n \
         are links to extant. The programs of e2fsprogs are diverted and come back\n \
         when the package is removed.\n",
        release.version
    )
}

const MAINTAINER: &str = "\
Maintainer: The extant contributors <extant@extant-fs.invalid>
Section: admin
Priority: optional
Homepage: https://github.com/extant-fs/extant
";

fn pack(
    release: &Release,
    root: &Path,
    about: &str,
    architecture: &str,
    out: &Path,
) -> Result<(), Failure> {
    put(&root.join("DEBIAN/control"), about.as_bytes(), 0o644)?;
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let package: PathBuf = out.join(format!("{name}_{}_{architecture}.deb", release.version));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "--threads-max=1", "-Zxz"]);
    build.arg(root).arg(package).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    build.stdout(std::process::Stdio::null());
    succeeds(build, "dpkg-deb")
}
