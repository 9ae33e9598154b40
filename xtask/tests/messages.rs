//! The messages of the catalogue: every text of the sources that a user may read.
//!
//! `EXTANT_BLESS=1 cargo test --package xtask --test messages` writes them; without the
//! variable the test compares. The help texts in the catalogue come from `help` of the command
//! line's tests.

use std::fs;
use std::path::{Path, PathBuf};

use extant_testkit::CataloguePart;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Lit, Macro};

const COMMAND: &str = "cargo test --package xtask --test messages";

/// Crates whose texts no user reads.
const SILENT: [&str; 1] = ["testkit"];

/// Macros whose texts are for developers: they tell of a defect of the program.
const FOR_DEVELOPERS: [&str; 12] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "matches",
    "concat",
    "include_str",
    "env",
];

/// Methods whose texts are for developers.
const EXPECT: [&str; 2] = ["expect", "expect_err"];

#[derive(Default)]
struct Texts {
    found: Vec<String>,
}

impl Texts {
    /// Adds a text if it is a sentence or a part of one: it has a space between words.
    fn add(&mut self, text: &str) {
        let text = text.trim();
        let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
        let text = text.replace('\n', "\\n");
        if words.count() > 1 && !self.found.contains(&text) {
            self.found.push(text);
        }
    }

    fn add_literals(&mut self, tokens: TokenStream) {
        // The name or sign in front of a token: methods and attributes are known by it.
        let mut before = String::new();
        for token in tokens {
            match token {
                TokenTree::Group(group) if before != "#" && !EXPECT.contains(&before.as_str()) => {
                    self.add_literals(group.stream());
                }
                TokenTree::Literal(literal) => {
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.add(&text.value());
                    }
                }
                TokenTree::Ident(name) => {
                    before = name.to_string();
                    continue;
                }
                TokenTree::Punct(sign) => {
                    before = sign.to_string();
                    continue;
                }
                TokenTree::Group(_) => {}
            }
            before.clear();
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_silent = match item {
            Item::Mod(module) => is_for_tests(&module.attrs),
            // The definition of a macro; what it is given stands where it is called.
            Item::Macro(definition) => definition.ident.is_some(),
            _ => false,
        };
        if !is_silent {
            visit::visit_item(self, item);
        }
    }

    /// Only `#[error("...")]` holds a message; help comes from the program itself.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("error")
            && let Ok(list) = attribute.meta.require_list()
        {
            self.add_literals(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let path: Vec<_> = call.path.segments.iter().map(|it| it.ident.to_string()).collect();
        let is_log = path[0] == "tracing";
        let name = path.last().map(String::as_str).unwrap_or_default();
        if !is_log && !FOR_DEVELOPERS.contains(&name) {
            self.add_literals(call.tokens.clone());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if EXPECT.contains(&call.method.to_string().as_str()) {
            self.visit_expr(&call.receiver);
        } else {
            visit::visit_expr_method_call(self, call);
        }
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.add(&text.value());
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |it: &&Attribute| {
        it.path().is_ident("cfg")
            && it.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    };
    attributes.iter().any(|it| is_test(&it))
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
        match path.is_dir() {
            true => files.extend(rust_files(&path)),
            false if name == "tests" || name == "shuttle_tests" || name == "testing" => {}
            false if path.extension().is_some_and(|it| it == "rs") => files.push(path),
            false => {}
        }
    }
    files.sort();
    files
}

fn catalogue() -> String {
    let mut crates: Vec<_> = fs::read_dir(workspace().join("crates"))
        .expect("crates")
        .map(|it| it.expect("an entry").path())
        .filter(|it| !SILENT.iter().any(|name| it.ends_with(name)))
        .collect();
    crates.sort();
    let mut page = format!(
        "Texts of the program that users may read, by the file that holds them.\n\
         Written by `EXTANT_BLESS=1 {COMMAND}`.\n"
    );
    for path in crates.iter().flat_map(|it| rust_files(&it.join("src"))) {
        let text = fs::read_to_string(&path).expect("text");
        // A file that is included as an expression is no module.
        let Ok(file) = syn::parse_file(&text) else { continue };
        let mut texts = Texts::default();
        texts.visit_file(&file);
        if !texts.found.is_empty() {
            let name = path.strip_prefix(workspace()).expect("a file of the workspace");
            page += &format!("\n{}\n", name.display());
            page.extend(texts.found.iter().map(|it| format!("    {it}\n")));
        }
    }
    page
}

#[test]
fn the_catalogue_has_every_message() {
    CataloguePart::Messages.check(&catalogue(), COMMAND);
}
