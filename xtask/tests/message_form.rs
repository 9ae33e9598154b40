//! The form of error messages: `what failed: cause[: how to fix]`, in lower case, without a full
//! stop (CONTRIBUTING.md, rule 4 of the words).
//!
//! Texts that have another form are listed in `xtask/message_exceptions.txt`. The list may only
//! become shorter: a new text has the form, and a text that gets it leaves the list
//! (`EXTANT_BLESS=1 cargo test --package xtask --test message_form` takes out what is gone).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenTree;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ExprCall, ExprMethodCall, Item, Lit, LitStr, Local, Pat};

const EXCEPTIONS: &str = "xtask/message_exceptions.txt";

/// Directories whose error types commands print as they are, without a place in front.
const PRINTED: [&str; 6] = [
    "crates/storage/src/url",
    "crates/image/src/build",
    "crates/image/src/mkfs/error",
    "crates/image/src/source",
    "crates/image/src/tune",
    "crates/extant/src",
];

/// Directories whose texts are those of e2fsprogs, since scripts take them apart.
const THEIRS: [&str; 2] = ["crates/extant/src/debug", "crates/cli/src/commands/debugfs"];

/// Words that a message may begin with in upper case: names, and what the user has typed.
const NAMES: [&str; 12] = [
    "ACL",
    "GPT",
    "IMAGE",
    "JSON",
    "LUKS",
    "LVM2",
    "MBR",
    "MMP",
    "OCI",
    "SIZE",
    "SOURCE_DATE_EPOCH",
    "UUID",
];

/// The texts of one file.
#[derive(Default)]
struct Texts {
    /// A whole sentence: nothing but the command's name is printed in front of it.
    sentences: BTreeSet<String>,
    /// The cause alone: the place is printed in front of it.
    causes: BTreeSet<String>,
    /// The texts of variables, as they are at this point of the file.
    bound: HashMap<String, String>,
}

impl Texts {
    fn text_of(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::Path(variable) => {
                self.bound.get(&variable.path.get_ident()?.to_string()).cloned()
            }
            Expr::Reference(reference) => self.text_of(&reference.expr),
            other => text_of(other),
        }
    }
}

impl<'ast> Visit<'ast> for Texts {
    fn visit_item(&mut self, item: &'ast Item) {
        if !matches!(item, Item::Mod(module) if is_for_tests(&module.attrs)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let before = self.bound.clone();
        visit::visit_block(self, block);
        self.bound = before;
    }

    /// `let why = TEXT;`
    fn visit_local(&mut self, local: &'ast Local) {
        if let (Pat::Ident(name), Some(value)) = (&local.pat, &local.init) {
            match text_of(&value.expr) {
                Some(text) => self.bound.insert(name.ident.to_string(), text),
                None => self.bound.remove(&name.ident.to_string()),
            };
        }
        visit::visit_local(self, local);
    }

    /// `Failure::new(TEXT)`, `Failure::usage(TEXT)`, `Failure::at(PLACE, TEXT)`.
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let path: Vec<_> =
                function.path.segments.iter().map(|it| it.ident.to_string()).collect();
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            match path[..] {
                [.., "Failure", "new" | "usage"] => {
                    let text = call.args.first().and_then(|it| self.text_of(it));
                    self.sentences.extend(text);
                }
                [.., "Failure", "at"] => {
                    let text = call.args.last().and_then(|it| self.text_of(it));
                    self.causes.extend(text);
                }
                _ => {}
            }
        }
        visit::visit_expr_call(self, call);
    }

    /// `image.failure(PATH, TEXT)`.
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "failure" && call.args.len() == 2 {
            let text = call.args.last().and_then(|it| self.text_of(it));
            self.causes.extend(text);
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// The texts of `#[error("...")]`.
#[derive(Default)]
struct Errors(BTreeSet<String>);

impl<'ast> Visit<'ast> for Errors {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("error")
            && let Ok(list) = attribute.meta.require_list()
            && let Some(TokenTree::Literal(literal)) = list.tokens.clone().into_iter().next()
            && let Lit::Str(text) = Lit::new(literal)
        {
            self.0.insert(text.value());
        }
    }
}

/// The text of a literal, or of the first argument of `format!` and the like.
fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        Expr::Macro(call) => {
            let first = call.mac.tokens.clone().into_iter().next()?;
            syn::parse2::<LitStr>(first.into()).ok().map(|text| text.value())
        }
        _ => None,
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg")
            && it.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn files(dir: &str) -> Vec<syn::File> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
            if THEIRS.iter().any(|theirs| path.ends_with(theirs)) {
                continue;
            }
            if path.is_dir() && name != "tests" {
                walk(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") && name != "tests" {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&workspace().join(dir), &mut found);
    let parsed = found.iter().map(|path| fs::read_to_string(path).expect("text"));
    // A file that is included as an expression is no module.
    parsed.filter_map(|text| syn::parse_file(&text).ok()).collect()
}

/// Whether nothing but values is in the text: their form is that of another text.
fn is_passed_on(text: &str) -> bool {
    let mut depth = 0;
    text.chars().all(|it| {
        depth += i32::from(it == '{') - i32::from(it == '}');
        depth > 0 || !it.is_alphabetic()
    })
}

/// Whether a text is in lower case and has no full stop: it may begin with a value, an option or a
/// name.
fn is_plain(text: &str) -> bool {
    let first = text.split([' ', ':', ',']).next().unwrap_or_default();
    let is_lower = !first.starts_with(char::is_uppercase) || NAMES.contains(&first);
    is_lower && !text.ends_with(['.', '!']) && !text.contains('\n')
}

fn exceptions() -> BTreeSet<String> {
    let (mut sentences, mut causes) = (BTreeSet::new(), BTreeSet::new());
    for file in files("crates/cli/src") {
        let mut texts = Texts::default();
        texts.visit_file(&file);
        sentences.extend(texts.sentences);
        causes.extend(texts.causes);
    }
    for file in PRINTED.into_iter().flat_map(files) {
        let mut errors = Errors::default();
        errors.visit_file(&file);
        sentences.extend(errors.0);
    }
    assert!(sentences.len() > 100 && causes.len() > 30, "the texts are not found any more");
    let has_form = |text: &String| text.contains(": ") && is_plain(text);
    sentences.retain(|text| !is_passed_on(text) && !has_form(text));
    causes.retain(|text| !is_passed_on(text) && !is_plain(text));
    sentences.into_iter().chain(causes).map(|text| text.replace('\n', "\\n")).collect()
}

#[test]
fn every_message_tells_what_failed_and_why() {
    let path = workspace().join(EXCEPTIONS);
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let known: BTreeSet<_> = kept.lines().filter(is_text).map(str::to_owned).collect();
    let found = exceptions();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(
        new.is_empty(),
        "not of the form `what failed: cause[: how to fix]`, in lower case, without a full stop:\n{new:#?}"
    );
    if found == known {
        return;
    }
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(
        std::env::var_os("EXTANT_BLESS").is_some(),
        "{EXCEPTIONS} lists what is no exception any more: EXTANT_BLESS=1 cargo test -p xtask --test message_form\n{gone:#?}"
    );
    let page: String = kept
        .lines()
        .filter(|line| !is_text(line) || found.contains(*line))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, page).expect("the list is written");
}

#[test]
fn the_form_is_told_from_others() {
    for text in ["{name}: no such file", "-o {0}: invalid number", "LUKS header: no key slot"] {
        assert!(text.contains(": ") && is_plain(text), "{text}");
    }
    for text in ["Cannot open", "cannot open.", "it failed!", "one\ntwo"] {
        assert!(!is_plain(text), "{text}");
    }
    assert!(is_passed_on("{error}: {why}") && !is_passed_on("{error}: {why} too"));
}
