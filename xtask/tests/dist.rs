//! `cargo xtask dist`: the packages are the same each time, and do what they say. `EXTANT_SLOW=1`;
//! `EXTANT_PROGRAM` names a static program, which is packed instead of building one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use extant_testkit::{Scratch, is_root, skip, tool};
use serde_json::Value;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let (said, complaint) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{said}\n{complaint}");
    said.into_owned()
}

fn dist(out: &Path, program: Option<&Path>) {
    let mut dist = Command::new(env!("CARGO_BIN_EXE_xtask"));
    dist.args(["dist", "--out"]).arg(out).current_dir(workspace());
    dist.env("SOURCE_DATE_EPOCH", "1700000000")
        .env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
    match program {
        Some(program) => dist.arg("--binary").arg(program),
        // Built in two directories: it fails unless all bytes are the same.
        None => dist.arg("--twice"),
    };
    done(&mut dist);
}

/// The packages, made once.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<Scratch> = OnceLock::new();
    let made = PACKAGES.get_or_init(|| {
        let scratch = Scratch::new();
        let program = std::env::var_os("EXTANT_PROGRAM").map(PathBuf::from);
        dist(&scratch.join("dist"), program.as_deref());
        scratch
    });
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| made.join("dist"))
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn program() -> PathBuf {
    packages().join(format!("extant-{}-x86_64-linux", version()))
}

#[test]
fn the_same_program_makes_the_same_packages() {
    if !is_slow() {
        skip!("builds for release: EXTANT_SLOW=1");
    }
    let scratch = Scratch::new();
    let again = scratch.join("again");
    dist(&again, Some(&program()));
    let sums = |dir: &Path| fs::read_to_string(dir.join("SHA256SUMS")).expect("sums");
    assert_eq!(sums(packages()), sums(&again));
    assert!(sums(&again).lines().count() > 7, "{}", sums(&again));
    done(Command::new("sha256sum").args(["--quiet", "-c", "SHA256SUMS"]).current_dir(&again));
}

/// The program needs nothing of the machine.
#[test]
fn the_program_runs_in_an_empty_root() {
    if !is_slow() || !is_root() {
        skip!("builds for release, and chroot needs root: EXTANT_SLOW=1");
    }
    let scratch = Scratch::new();
    fs::copy(program(), scratch.join("extant")).expect("a copy");
    fs::write(scratch.join("file"), "empty\n").expect("a file");
    let run = |words: &[&str]| {
        done(Command::new("chroot").arg(scratch.path()).arg("/extant").args(words))
    };
    run(&["mkfs", "-q", "/disk.img", "32M"]);
    run(&["mkdir", "/disk.img:/etc"]);
    fs::write(scratch.join("passwd"), "root:x:0:0::/:/bin/sh\nuser:x:7:7::/:/bin/sh\n")
        .expect("it");
    run(&["cp", "/file", "/passwd", "/disk.img:/etc/"]);
    // Names of users are those of the image.
    run(&["chown", "user", "/disk.img:/etc/file"]);
    assert_eq!(run(&["cat", "--no-sandbox", "/disk.img:/etc/file"]), "empty\n");
    assert!(run(&["stat", "--json", "--no-sandbox", "/disk.img:/etc/file"]).contains("\"uid\":7,"));
    run(&["fsck", "-fn", "--no-sandbox", "/disk.img"]);
}

fn json(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Every blob of the layout has its digest, and the layer holds the program.
#[test]
fn the_oci_layout_is_whole() {
    if !is_slow() {
        skip!("builds for release: EXTANT_SLOW=1");
    }
    let layout = packages().join(format!("extant-{}.oci", version()));
    let index = json(&layout.join("index.json"));
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let path = layout.join("blobs").join(digest.replace(':', "/"));
        let sum = done(Command::new("sha256sum").arg(&path));
        assert_eq!(format!("sha256:{}", &sum[..64]), digest);
        assert_eq!(
            path.metadata().expect("a blob").len(),
            descriptor["size"].as_u64().expect("it")
        );
        path
    };
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    let scratch = Scratch::new();
    done(Command::new("tar").arg("-xf").arg(&layer).arg("-C").arg(scratch.path()));
    let same = fs::read(scratch.join("usr/bin/extant")).expect("the program");
    assert!(same == fs::read(program()).expect("the program"));
    // Our own reader of layouts makes an image of it.
    let image = scratch.join("root.img");
    let source = format!("oci:{}", layout.display());
    let mut build = Command::new(program());
    done(build.args(["build", "-q", "-o"]).arg(&image).arg(source));
    let mut list = Command::new(program());
    list.arg("ls").arg(format!("{}:/usr/bin", image.display()));
    assert_eq!(done(&mut list), "extant\n");
    if let Some(skopeo) = tool("skopeo") {
        let mut inspect = Command::new(skopeo.path());
        let said = done(inspect.arg("inspect").arg(format!("oci:{}", layout.display())));
        let read: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(read["Layers"], Value::from(vec![manifest["layers"][0]["digest"].clone()]));
        assert_eq!(read["Architecture"], "amd64");
    }
    if let Some(umoci) = tool("umoci") {
        let image = format!("{}:{}", layout.display(), version());
        let mut stat = Command::new(umoci.path());
        let said = done(stat.args(["stat", "--image", &image]));
        assert!(said.contains("cargo xtask dist"), "{said}");
        let mut unpack = Command::new(umoci.path());
        unpack.arg("unpack").args((!is_root()).then_some("--rootless"));
        done(unpack.args(["--image", &image]).arg(scratch.join("bundle")));
        let same = fs::read(scratch.join("bundle/rootfs/usr/bin/extant")).expect("the program");
        assert!(same == fs::read(program()).expect("the program"));
    }
}

/// The bill lists what `cargo tree` lists, and all references lead somewhere.
#[test]
fn the_bill_lists_the_crates_that_are_linked() {
    if !is_slow() {
        skip!("builds for release: EXTANT_SLOW=1");
    }
    let bill = json(&packages().join(format!("extant-{}.cdx.json", version())));
    let components = bill["components"].as_array().expect("components");
    let listed: BTreeSet<String> = components
        .iter()
        .map(|it| format!("{} v{}", it["name"].as_str().unwrap(), it["version"].as_str().unwrap()))
        .collect();
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--package", "extant-cli", "--edges", "normal"]);
    tree.args(["--prefix", "none", "--target", "x86_64-unknown-linux-gnu"]);
    tree.args(["--no-default-features", "--features", "crypt,mount,prompt,sim,vm"]);
    let tree = done(tree.current_dir(workspace()));
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let expected: BTreeSet<String> = tree.lines().skip(1).map(words).collect();
    let missing: Vec<_> = expected.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for component in components {
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    let references: BTreeSet<&str> =
        components.iter().map(|it| it["bom-ref"].as_str().expect("a reference")).collect();
    for dependency in bill["dependencies"].as_array().expect("dependencies") {
        for below in dependency["dependsOn"].as_array().expect("a list") {
            assert!(references.contains(below.as_str().expect("text")), "{below}");
        }
    }
}

/// Both packages in a clean tree of Debian: the names of e2fsprogs are ours, until the package is
/// removed.
#[test]
fn the_packages_take_the_names_over_and_give_them_back() {
    if !is_slow() || !is_root() {
        skip!("makes a tree of Debian: EXTANT_SLOW=1");
    }
    let Some(mmdebstrap) = tool("mmdebstrap") else { skip!("mmdebstrap is missing") };
    let scratch = Scratch::new();
    let root = scratch.join("root");
    let mut make = Command::new(mmdebstrap.path());
    // The mirror may be an old copy.
    let old = r#"--aptopt=Acquire::Check-Valid-Until "false""#;
    make.args(["--quiet", "--variant=essential", "--include=e2fsprogs", old, "stable"]).arg(&root);
    let made = make.output().expect("it runs");
    if !made.status.success() {
        skip!("mmdebstrap: {}", String::from_utf8_lossy(&made.stderr));
    }
    for package in
        [format!("extant_{}_amd64", version()), format!("extant-e2fsprogs_{}_all", version())]
    {
        let name = format!("{package}.deb");
        fs::copy(packages().join(&name), root.join(&name)).expect("a copy");
    }
    let run = |words: &[&str]| {
        let mut run = Command::new("chroot");
        run.arg(&root).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let Output { status, stdout, stderr } = run.output().expect("it runs");
        let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        assert!(status.success(), "{words:?}: {said}");
        said
    };
    let files = || {
        done(
            Command::new("find")
                .args([".", "-path", "./var", "-prune", "-o", "-print"])
                .current_dir(&root),
        )
    };
    let sorted = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let before = sorted(files());
    let theirs = run(&["mke2fs", "-V"]);
    assert!(theirs.contains("mke2fs") && !theirs.contains("extant"), "{theirs}");
    let (program, names) = (
        format!("/extant_{}_amd64.deb", version()),
        format!("/extant-e2fsprogs_{}_all.deb", version()),
    );
    // Twice: the second time is an upgrade.
    for _ in 0..2 {
        run(&["dpkg", "-i", &program, &names]);
        for command in ["mke2fs", "/sbin/mke2fs", "/usr/sbin/dumpe2fs", "/sbin/e2fsck"] {
            assert!(run(&[command, "-V"]).contains("(extant "), "{command}");
        }
    }
    run(&["mkfs.ext4", "-q", "/disk.img", "16M"]);
    run(&["fsck.ext4", "-fn", "/disk.img"]);
    run(&["rm", "/disk.img"]);
    assert!(run(&["/usr/sbin/mke2fs.e2fsprogs", "-V"]).contains("1."));
    assert!(root.join("usr/share/man/man1/extant.1.gz").is_file());
    run(&["dpkg", "-r", "extant-e2fsprogs"]);
    assert_eq!(run(&["mke2fs", "-V"]), theirs);
    assert_eq!(run(&["dpkg-divert", "--list", "*e2fsprogs*"]), "");
    run(&["dpkg", "-P", "extant-e2fsprogs"]);
    run(&["dpkg", "-P", "extant"]);
    assert_eq!(sorted(files()), before);
    run(&["dpkg", "--verify", "e2fsprogs"]);
}

#[test]
fn licences_and_sources_are_those_that_are_allowed() {
    if !is_slow() {
        skip!("builds cargo-deny: EXTANT_SLOW=1");
    }
    let target = Path::new(env!("CARGO_BIN_EXE_xtask")).ancestors().nth(2).expect("target");
    let deny = target.join("tools/bin/cargo-deny");
    if !deny.is_file() {
        skip!("cargo-deny is missing: cargo xtask dist --deny");
    }
    let mut check = Command::new(deny);
    check.args(["--locked", "check", "licenses", "bans", "sources"]);
    done(check.current_dir(workspace()));
}
