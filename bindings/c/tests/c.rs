//! libextant as C uses it: the header, the calls, threads, memory. Programs are compiled by the
//! machine's C compiler and linked with the libraries that cargo has built for this test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use extant_testkit::{Scratch, Tool, e2fsck_fn, skip, tool};

const HEADER: &str = "include/extant.h";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the libraries: that of this program.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    program.parent().expect("it is in a directory").to_owned()
}

/// Programs linked with the library as it is installed.
struct Programs {
    scratch: Scratch,
    compiler: Tool,
}

impl Programs {
    /// `None` if there is no C compiler.
    fn new() -> Option<Self> {
        let compiler = tool("cc").or_else(|| tool("gcc"))?;
        let scratch = Scratch::new();
        let library = fs::canonicalize(built().join("libextant_c.so")).expect("cargo builds it");
        symlink(library, scratch.join("libextant.so.0")).expect("a link");
        symlink("libextant.so.0", scratch.join("libextant.so")).expect("a link");
        Some(Self { scratch, compiler })
    }

    /// A source is one of this directory unless it has a path.
    fn compile(&self, source: &str, link: &[&str]) -> PathBuf {
        let program = self.scratch.join("program");
        let mut compile = self.compiler.command();
        compile.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]);
        compile.arg("-I").arg(here().join("include")).arg(here().join("tests").join(source));
        compile.arg("-o").arg(&program).args(link).arg("-pthread");
        succeeds(&compile.output().expect("the compiler runs"));
        program
    }

    /// A program that loads the shared library.
    fn shared(&self, source: &str) -> PathBuf {
        let search = format!("-L{}", self.scratch.path().display());
        self.compile(source, &[&search, "-lextant"])
    }

    /// Runs a program under a limit of time; what it prints.
    fn run(&self, wrapper: &[&str], program: &Path, args: &[&str]) -> String {
        let mut run = Command::new("timeout");
        run.args(["-k", "5", "580"]).args(wrapper).arg(program);
        run.arg(self.scratch.join("disk.img")).args(args);
        run.env("LD_LIBRARY_PATH", self.scratch.path());
        succeeds(&run.output().expect("it runs"))
    }
}

fn succeeds(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complaint}", output.status);
    said
}

const VALGRIND: [&str; 7] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--fair-sched=yes",
];

/// `EXTANT_BLESS=1` writes it again.
#[test]
fn the_header_is_the_one_that_cbindgen_makes() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("it is read");
    let header = cbindgen::Builder::new().with_crate(here()).with_config(config).generate();
    let mut made = Vec::new();
    header.expect("the header is made").write(&mut made);
    let path = here().join(HEADER);
    if std::env::var_os("EXTANT_BLESS").is_some() {
        fs::write(&path, &made).expect("it is written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let made = String::from_utf8(made).expect("text");
    assert!(kept == made, "{HEADER} is not what cbindgen makes: EXTANT_BLESS=1 writes it");
}

/// Every symbol that the header declares, and no other, begins with the library's name.
#[test]
fn the_library_exports_what_the_header_declares() {
    let Some(nm) = tool("nm") else { skip!("nm is not installed") };
    let library = built().join("libextant_c.so");
    let words = ["-D".as_ref(), "--defined-only".as_ref(), library.as_os_str()];
    let listed = nm.text(words).expect("nm reads it");
    let mut exported: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    let header = fs::read_to_string(here().join(HEADER)).expect("the header");
    let mut declared: Vec<&str> = header
        .split([' ', '*', '\n'])
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("extant_") && !name.ends_with(')'))
        .collect();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(exported, declared);
}

#[test]
fn every_call_does_what_the_header_says() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let program = programs.shared("calls.c");
    programs.run(&[], &program, &[]);
    if tool("e2fsck").is_some() {
        e2fsck_fn(&programs.scratch.join("disk.img")).expect("e2fsck finds nothing");
    }
}

fn static_library() -> String {
    built().join("libextant_c.a").to_str().expect("text").to_owned()
}

#[test]
fn the_static_library_links_too() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let link = [&static_library(), "-ldl", "-lm", "-Wl,--gc-sections"];
    let program = programs.compile("calls.c", &link);
    programs.run(&[], &program, &[]);
}

/// Linked as `cargo xtask libextant` links it.
#[test]
fn the_installed_library_has_versions_of_its_symbols() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let Some(nm) = tool("nm") else { skip!("nm is not installed") };
    let library = programs.scratch.join("libextant.so.0");
    fs::remove_file(&library).expect("the link is removed");
    let script = format!("-Wl,--version-script={}", here().join("extant.map").display());
    let mut link = programs.compiler.command_within(300);
    link.args(["-shared", "-Wl,-soname,libextant.so.0", "-Wl,--gc-sections", &script, "-o"]);
    link.arg(&library).arg("-Wl,--whole-archive").arg(static_library());
    link.args(["-Wl,--no-whole-archive", "-pthread", "-ldl", "-lm"]);
    succeeds(&link.output().expect("the linker runs"));
    let words = ["-D".as_ref(), "--defined-only".as_ref(), library.as_os_str()];
    let listed = nm.text(words).expect("nm reads it");
    let symbols = || listed.lines().filter(|line| line.contains(" T "));
    assert!(symbols().count() > 30);
    symbols().for_each(|line| assert!(line.ends_with("@@EXTANT_0.1"), "{line}"));
    programs.run(&[], &programs.shared("calls.c"), &[]);
}

/// A program finds the library by `pkg-config`, as a shared one and as a static one.
#[test]
fn pkg_config_says_how_to_compile_and_link() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let Some(pkg_config) = tool("pkg-config") else { skip!("pkg-config is not installed") };
    let prefix = programs.scratch.path();
    for dir in ["lib/pkgconfig", "include"] {
        fs::create_dir_all(prefix.join(dir)).expect("a directory");
    }
    let shared = prefix.join("libextant.so.0");
    symlink(&shared, prefix.join("lib/libextant.so")).expect("a link");
    symlink(static_library(), prefix.join("lib/libextant.a")).expect("a link");
    fs::copy(here().join(HEADER), prefix.join("include/extant.h")).expect("a copy");
    let about = fs::read_to_string(here().join("extant.pc.in")).expect("it is there");
    let about = about.replace("@PREFIX@", prefix.to_str().expect("text"));
    let about = about.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(prefix.join("lib/pkgconfig/extant.pc"), about).expect("it is written");
    let asked = |words: &[&str]| {
        let mut ask = pkg_config.command();
        ask.args(words).arg("extant").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        succeeds(&ask.output().expect("it runs"))
    };
    assert_eq!(asked(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    for words in [&["--cflags", "--libs"][..], &["--cflags", "--libs", "--static"]] {
        let said = asked(words);
        let mut link: Vec<&str> = said.split_whitespace().collect();
        if words.contains(&"--static") {
            // The linker would take the shared library where it has both.
            fs::remove_file(prefix.join("lib/libextant.so")).expect("the link is removed");
        }
        // The header is that of the prefix: the directory of the sources is not searched.
        let source = prefix.join("calls.c");
        fs::copy(here().join("tests/calls.c"), &source).expect("a copy");
        link.insert(0, source.to_str().expect("text"));
        let program = prefix.join("program");
        let mut compile = programs.compiler.command_within(300);
        compile.args(["-std=c11", "-D_GNU_SOURCE", "-o"]).arg(&program).args(link);
        succeeds(&compile.output().expect("the compiler runs"));
        programs.run(&[], &program, &[]);
        fs::remove_file(prefix.join("disk.img")).expect("the program has made it");
    }
}

#[test]
fn the_program_of_the_book_runs() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let page = fs::read_to_string(here().join("../../docs/src/guide/c.md")).expect("the page");
    let (_, rest) = page.split_once("```c\n").expect("a program");
    let (source, _) = rest.split_once("```").expect("its end");
    let path = programs.scratch.join("book.c");
    fs::write(&path, source).expect("it is written");
    let program = programs.shared(path.to_str().expect("text"));
    let mut run = Command::new(program);
    run.current_dir(programs.scratch.path()).env("LD_LIBRARY_PATH", programs.scratch.path());
    assert_eq!(succeeds(&run.output().expect("it runs")), "welcome\nclean\n");
}

/// Contents are judged by what each thread wrote, and the volume by e2fsck.
#[test]
fn threads_share_one_volume_and_its_handles() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    let seconds = if std::env::var_os("EXTANT_SLOW").is_some() { "60" } else { "1" };
    let said = programs.run(&[], &programs.shared("threads.c"), &["24", seconds]);
    assert!(said.contains("handles refused"), "{said}");
    if tool("e2fsck").is_some() {
        e2fsck_fn(&programs.scratch.join("disk.img")).expect("e2fsck finds nothing");
    }
}

#[test]
fn memory_is_used_as_it_should_be() {
    let Some(programs) = Programs::new() else { skip!("no C compiler is installed") };
    if tool("valgrind").is_none() {
        skip!("valgrind is not installed");
    }
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("valgrind makes each call slow: EXTANT_SLOW=1");
    }
    programs.run(&VALGRIND, &programs.shared("calls.c"), &[]);
    let _ = fs::remove_file(programs.scratch.join("disk.img"));
    let said = programs.run(&VALGRIND, &programs.shared("threads.c"), &["24", "60"]);
    assert!(said.contains("handles refused"), "{said}");
    if tool("e2fsck").is_some() {
        e2fsck_fn(&programs.scratch.join("disk.img")).expect("e2fsck finds nothing");
    }
}
