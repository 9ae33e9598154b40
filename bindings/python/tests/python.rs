//! The Python package by pytest, in an environment that `cargo xtask test` makes: the module that
//! cargo has built for this test, with the package's own modules next to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{Scratch, skip};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the module: that of this program.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    program.parent().expect("it is in a directory").to_owned()
}

/// The interpreter of the environment, if it was made.
fn python() -> Option<PathBuf> {
    let target = built().ancestors().nth(2)?.to_owned();
    Some(target.join("python/bin/python")).filter(|python| python.is_file())
}

/// The package as a wheel installs it.
fn package() -> Scratch {
    let scratch = Scratch::new();
    let package = scratch.join("extant_ext4");
    fs::create_dir(&package).expect("a directory");
    for file in fs::read_dir(here().join("python/extant_ext4")).expect("the package's modules") {
        let path = file.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name");
            fs::copy(&path, package.join(name)).expect("a copy");
        }
    }
    let module = built().join("libextant_python.so");
    fs::copy(module, package.join("_native.abi3.so")).expect("cargo builds it");
    let about = scratch.join("extant_ext4-0.dist-info");
    fs::create_dir(&about).expect("a directory");
    fs::write(about.join("METADATA"), "Metadata-Version: 2.1\nName: extant_ext4\nVersion: 0\n")
        .expect("it is written");
    let project = fs::read_to_string(here().join("pyproject.toml")).expect("the project");
    let (_, entry) = project.split_once("entry-points.\"fsspec.specs\"]\next4 = \"").expect("it");
    let (entry, _) = entry.split_once('"').expect("its end");
    fs::write(about.join("entry_points.txt"), format!("[fsspec.specs]\next4 = {entry}\n"))
        .expect("it is written");
    scratch
}

/// Runs a module of Python in a directory with the package; what it prints.
fn run(python: &Path, package: &Scratch, args: &[&str]) -> String {
    let mut run = Command::new("timeout");
    run.args(["-k", "5", "580"]).arg(python).arg("-m").args(args);
    run.env("PYTHONPATH", package.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("MYPYPATH", package.path()).current_dir(package.path());
    let output = run.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complaint}", output.status);
    said
}

#[test]
fn pytest_passes_and_skips_nothing() {
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    let package = package();
    let tests = here().join("tests/py");
    let args = ["pytest", "-q", "-rs", "-p", "no:cacheprovider", tests.to_str().expect("text")];
    let said = run(&python, &package, &args);
    assert!(!said.contains("skipped") && said.contains("passed"), "{said}");
}

#[test]
fn the_papers_are_tests() {
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    for paper in ["README.md", "../../README.md", "../../docs/src/guide/python.md"] {
        let package = package();
        let paper = here().join(paper);
        run(&python, &package, &["doctest", paper.to_str().expect("text")]);
    }
}

#[test]
fn the_types_are_strict() {
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    let package = package();
    let config = here().join("pyproject.toml");
    let config = format!("--config-file={}", config.display());
    let said = run(&python, &package, &["mypy", &config, "--cache-dir=/dev/null", "extant_ext4"]);
    assert!(said.contains("no issues found"), "{said}");
}

/// An environment with packages of its own next to that of the tests.
fn environment_with(scratch: &Scratch, python: &Path, packages: &[&str]) -> Option<PathBuf> {
    let root = scratch.join("environment");
    succeeds(Command::new(python).args(["-m", "venv"]).arg(&root));
    let python = root.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.args(packages).output().expect("pip runs").status.success().then_some(python)
}

/// The example for Dask: a thousand images, and a worker that is killed half way.
#[test]
fn a_cluster_reports_each_image_once() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("checks a thousand images on a cluster: EXTANT_SLOW=1");
    }
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    let (scratch, package) = (Scratch::new(), package());
    let packages = ["dask==2026.8.0", "distributed==2026.8.0", "fsspec==2026.9.0"];
    let Some(python) = environment_with(&scratch, &python, &packages) else {
        skip!("Dask cannot be installed here")
    };
    let mut run = Command::new("timeout");
    run.args(["-k", "5", "580"]).arg(python).arg(here().join("tests/cluster.py"));
    run.env("PYTHONPATH", package.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = succeeds(run.current_dir(scratch.path()));
    assert!(said.contains("each of 1000 images was reported once"), "{said}");
}

/// The example for Kubernetes is a valid manifest.
#[test]
fn the_manifest_of_an_indexed_job_is_valid() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("installs kubernetes-validate: EXTANT_SLOW=1");
    }
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    let scratch = Scratch::new();
    let packages = ["kubernetes-validate==1.37.0"];
    let Some(python) = environment_with(&scratch, &python, &packages) else {
        skip!("kubernetes-validate cannot be installed here")
    };
    let validate = python.with_file_name("kubernetes-validate");
    let manifest = here().join("examples/check-images.yaml");
    succeeds(Command::new(validate).arg("--strict").arg(&manifest));
    let text = fs::read_to_string(manifest).expect("the manifest");
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("extant:{version}")), "another version");
}

/// The wheel as `cargo xtask wheel` builds it, in an environment with nothing but fsspec.
#[test]
fn a_wheel_installs_and_runs_the_papers() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("builds for release: EXTANT_SLOW=1");
    }
    let Some(python) = python() else { skip!("target/python is missing: cargo xtask test") };
    let scratch = Scratch::new();
    let (wheels, fresh) = (scratch.join("wheels"), scratch.join("fresh"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["xtask", "wheel", "--out"]).arg(&wheels).current_dir(here());
    succeeds(&mut build);
    let mut make = Command::new(&python);
    succeeds(make.args(["-m", "venv"]).arg(&fresh));
    let fresh_python = fresh.join("bin/python");
    let wheel = fs::read_dir(&wheels).expect("wheels").next().expect("a wheel").expect("one");
    assert!(wheel.file_name().to_string_lossy().contains("-cp311-abi3-"), "{wheel:?}");
    let mut install = Command::new(&fresh_python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    succeeds(install.arg(format!("{}[fsspec]", wheel.path().display())));
    let papers = ["README.md", "../../README.md", "../../docs/src/guide/python.md"];
    for (number, paper) in papers.iter().enumerate() {
        let dir = scratch.join(number.to_string());
        fs::create_dir(&dir).expect("a directory");
        let mut run = Command::new(&fresh_python);
        succeeds(run.args(["-m", "doctest"]).arg(here().join(paper)).current_dir(dir));
    }
    reads_as_dissect(&scratch, &python, &fresh_python);
}

/// All files of an image are read as by dissect.extfs (`cargo xtask bench python-read` takes the
/// times).
fn reads_as_dissect(scratch: &Scratch, python: &Path, fresh_python: &Path) {
    let other = scratch.join("other");
    succeeds(Command::new(python).args(["-m", "venv"]).arg(&other));
    let other_python = other.join("bin/python");
    let mut install = Command::new(&other_python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    if !install.arg("dissect.extfs==3.15").output().expect("pip runs").status.success() {
        skip!("dissect.extfs cannot be installed here");
    }
    let image = scratch.join("tree.img");
    let mut make = Command::new(fresh_python);
    succeeds(make.arg(here().join("bench/make_tree.py")).arg(&image).arg("10000"));
    let read = |python: &Path, library: &str| {
        let mut read = Command::new(python);
        read.arg(here().join("bench/read_all.py")).arg(library).arg(&image);
        // After two lines of times: how many files, and the digest of their paths and contents.
        succeeds(&mut read).lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let found = read(fresh_python, "extant");
    assert_eq!(found[0], "10000");
    assert_eq!(found, read(&other_python, "dissect"));
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
