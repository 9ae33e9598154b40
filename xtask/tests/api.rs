//! The public API as text. `EXTANT_BLESS=1 cargo test --package xtask --test api` writes docs/api;
//! without the variable the test compares.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use extant_testkit::Scratch;

fn xtask_in(workspace: &Path, args: &[&str]) -> Output {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.arg("api").args(args).env("CARGO_MANIFEST_DIR", workspace.join("xtask"));
    xtask.output().expect("xtask was built")
}

#[test]
fn the_api_is_the_one_that_is_kept() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = here.parent().expect("xtask lies in the workspace");
    let is_blessed = std::env::var_os("EXTANT_BLESS").is_some();
    let output = xtask_in(workspace, if is_blessed { &[] } else { &["--check"] });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}\nEXTANT_BLESS=1 cargo test --package xtask --test api takes the change",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A workspace of two libraries.
fn libraries() -> Scratch {
    let scratch = Scratch::new();
    let files = [
        ("crates/extant/Cargo.toml", "[package]\n\n[dependencies]\nextant-inner.workspace = true\n"),
        (
            "crates/extant/src/lib.rs",
            "mod made;
             pub use extant_inner::shapes::{Shape, shape};
             pub use extant_inner::{self as inner, Number as Count};
             pub use made::Made;
             #[cfg(feature = \"more\")]
             pub mod more {
                 use super::Made;
                 pub type List<T> = Vec<(T, Made)>;
                 pub const LIMIT: usize = 3;
                 #[cfg(test)]
                 pub fn only_in_tests() {}
             }",
        ),
        (
            "crates/extant/src/made.rs",
            "use extant_inner::Number;
             use std::io::{self, Error as Cause};
             /// Not listed: it cannot be named.
             pub struct Unnamed;
             #[derive(Clone, Debug)]
             #[non_exhaustive]
             pub struct Made { pub count: Number, rest: Vec<u8> }
             impl Made {
                 pub fn new(mut count: Number, (_, rest): (u8, &[u8]))
                     -> Result<Self, Cause> { todo(count, rest) }
                 fn private(&self) {}
                 pub(crate) fn of_the_crate(&self) {}
             }
             impl<'a> Iterator for &'a Made { type Item = Number; }
             impl From<Made> for io::Error { }",
        ),
        ("crates/inner/Cargo.toml", "[package]\n"),
        (
            "crates/inner/src/lib.rs",
            "pub mod shapes;
             macro_rules! number {
                 ($(#[$doc:meta])* $name:ident: $($bits:ty),+; $($constant:ident)*) => {
                     $(#[$doc])* pub struct $name($(pub $bits),+);
                     impl $name { $(pub const $constant: Self = $name(0);)* }
                 };
             }
             number! { /// A number.
                 Number: u64; ZERO ONE }",
        ),
        (
            "crates/inner/src/shapes/mod.rs",
            "use crate::Number;
             #[derive(thiserror::Error, Debug)]
             pub enum Shape {
                 Round(#[from] std::fmt::Error),
                 Long { length: Number } = 7,
                 #[cfg(feature = \"odd\")] Odd,
             }
             pub trait HasShape: Send { type Kind: Clone; fn shape(&self) -> Shape; fn no(&self) {} }
             pub fn shape<T: HasShape + ?Sized>(of: &T) -> Option<&'static [Shape]> where T: Sync, { None }
             impl HasShape for Shape { type Kind = u8; fn shape(&self) -> Shape { Shape::Odd } }
             bitflags::bitflags! { pub struct Bits: u8 { const LOW = 1; const _ = !0; } }",
        ),
    ];
    for (name, text) in files {
        let path = scratch.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }
    scratch
}

#[test]
fn items_are_listed_by_the_names_that_a_user_has() {
    let workspace = libraries();
    let listed = |package: &str| {
        let output = xtask_in(workspace.path(), &["--print", package]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let expected = "\
#[cfg(feature = \"more\")] pub mod extant::more
pub use extant_inner as extant::inner
pub struct extant::Count
    pub 0: u64
    pub const ONE: Self
    pub const ZERO: Self
#[non_exhaustive] pub struct extant::Made
    pub count: extant::Count
    ..
    pub fn new(count: extant::Count, _: (u8, &[u8])) -> Result<Self, std::io::Error>
    impl Clone
    impl std::fmt::Debug
    impl<'a> Iterator for &'a extant::Made { type Item = extant::Count }
pub enum extant::Shape
    Round(std::fmt::Error)
    Long { length: extant::Count } = 7
    #[cfg(feature = \"odd\")] Odd
    impl From<std::fmt::Error>
    impl extant_inner::shapes::HasShape { type Kind = u8 }
    impl std::error::Error
    impl std::fmt::Debug
    impl std::fmt::Display
#[cfg(feature = \"more\")] pub const extant::more::LIMIT: usize
#[cfg(feature = \"more\")] pub type extant::more::List<T> = Vec<(T, extant::Made)>
pub fn extant::shape<T: extant_inner::shapes::HasShape + ?Sized>(of: &T) \
-> Option<&'static [extant::Shape]> where T: Sync
impl From<extant::Made> for std::io::Error
";
    assert_eq!(listed("extant"), expected);
    let inner = listed("extant-inner");
    let of_trait = "\
pub trait extant_inner::shapes::HasShape: Send
    fn no(&self) { .. }
    fn shape(&self) -> extant_inner::shapes::Shape
    type Kind: Clone
";
    let of_bits = "\
pub struct extant_inner::shapes::Bits
    ..
    pub const LOW: Self
    impl bitflags::Flags { type Bits = u8 }
";
    assert!(inner.contains(of_trait) && inner.contains(of_bits), "{inner}");
}

/// A call that changes is named with its old and its new form.
#[test]
fn a_change_fails_the_comparison_and_is_shown() {
    let workspace = libraries();
    let files = [
        ("bindings/c/extant.map", "EXTANT_0.1 {\n};\n"),
        (
            "bindings/c/include/extant.h",
            "/* A header.\n * Text. */\n#ifndef EXTANT_H\n#define EXTANT_H\n#define EXTANT_READ 1\n\
             struct extant_fs {\n  uint64_t handle;\n};\nint extant_close(struct extant_fs fs);\n\
             #endif\n",
        ),
        ("bindings/python/python/extant_ext4/__init__.py", "__all__ = [\n    \"File\",\n]\n"),
        (
            "bindings/python/python/extant_ext4/_files.py",
            "'''Text: def of(it).'''\nclass File(Base):\n    '''A file.'''\n\n    size: int\n\n    \
             def read(\n        self, size: int = -1,  # all\n    ) -> bytes:\n        x = 1\n\n    \
             def _private(self) -> None:\n        pass\n\ndef other() -> None:\n    pass\n",
        ),
        ("bindings/python/python/extant_ext4/_images.py", ""),
        ("bindings/python/python/extant_ext4/_rescue.py", ""),
        ("bindings/python/python/extant_ext4/fsspec.py", ""),
    ];
    for (name, text) in files {
        let path = workspace.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }
    assert!(xtask_in(workspace.path(), &[]).status.success());
    let kept = |name: &str| fs::read_to_string(workspace.join("docs/api").join(name)).expect("it");
    let python = "class extant_ext4.File(Base)\n    size: int\n    \
                  def read(self, size: int = -1) -> bytes\n";
    assert_eq!(kept("python.txt"), python);
    let c = "constant EXTANT_READ 1\n\
             int extant_close(struct extant_fs fs) @@EXTANT_0.1\n\
             struct extant_fs { uint64_t handle; }\n";
    assert_eq!(kept("c.txt"), c);
    let same = xtask_in(workspace.path(), &["--check"]);
    assert!(same.status.success() && same.stdout.is_empty());

    let shapes = workspace.join("crates/inner/src/shapes/mod.rs");
    let text = fs::read_to_string(&shapes).expect("it is read");
    fs::write(&shapes, text.replace("shape<T:", "shape<'a, T:")).expect("it is written");
    let changed = xtask_in(workspace.path(), &["--check"]);
    assert_eq!(changed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&changed.stdout).into_owned();
    let [file, old, new] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!(file, "docs/api/rust.txt:");
    assert!(old.starts_with("-pub fn extant::shape<T:"), "{old}");
    assert!(new.starts_with("+pub fn extant::shape<'a, T:"), "{new}");
    assert!(!kept("rust.txt").contains("shape<'a"), "a comparison wrote");
}
