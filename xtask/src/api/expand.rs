//! Macros by example, expanded: public items of some modules come from them. No more of the rules
//! is here than definitions of items need; a macro that needs more is refused by its name.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;

use crate::Failure;

/// The tokens that a metavariable stands for.
#[derive(Clone, Debug)]
enum Bound {
    One(TokenStream),
    Many(Vec<BTreeMap<String, Bound>>),
}

type Bindings = BTreeMap<String, Bound>;

/// One part of a pattern or of what it is replaced by.
#[derive(Debug)]
enum Part {
    /// A token as it is.
    Token(TokenTree),
    Group(Delimiter, Vec<Part>),
    /// `$name:kind`, and `$name` where it is put in.
    Variable(String, String),
    /// `$( ... ) separator repeat`.
    Repeat(Vec<Part>, Option<TokenTree>, char),
}

/// The arms of a `macro_rules!`.
#[derive(Debug)]
pub(super) struct Rules {
    arms: Vec<(Vec<Part>, Vec<Part>)>,
}

fn is_sign(tree: Option<&TokenTree>, sign: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(found)) if found.as_char() == sign)
}

/// Reads a pattern; `crate_name` stands for `$crate`.
fn parts(stream: TokenStream, crate_name: &str) -> Vec<Part> {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        at += 1;
        if !is_sign(Some(tree), '$') {
            found.push(match tree {
                TokenTree::Group(group) => {
                    Part::Group(group.delimiter(), parts(group.stream(), crate_name))
                }
                other => Part::Token(other.clone()),
            });
            continue;
        }
        match trees.get(at) {
            Some(TokenTree::Group(group)) => {
                at += 1;
                let inner = parts(group.stream(), crate_name);
                let is_count =
                    |tree: Option<&TokenTree>| ['*', '+', '?'].iter().any(|it| is_sign(tree, *it));
                let separator =
                    (!is_count(trees.get(at))).then(|| trees.get(at).cloned()).flatten();
                at += usize::from(separator.is_some());
                let count = match trees.get(at) {
                    Some(TokenTree::Punct(sign)) => sign.as_char(),
                    _ => '*',
                };
                at += 1;
                found.push(Part::Repeat(inner, separator, count));
            }
            Some(TokenTree::Ident(name)) if name == "crate" => {
                at += 1;
                found.push(Part::Token(Ident::new(crate_name, Span::call_site()).into()));
            }
            Some(TokenTree::Ident(name)) => {
                at += 1;
                let kind = match (is_sign(trees.get(at), ':'), trees.get(at + 1)) {
                    (true, Some(TokenTree::Ident(kind))) if is_kind(&kind.to_string()) => {
                        at += 2;
                        kind.to_string()
                    }
                    _ => String::new(),
                };
                found.push(Part::Variable(name.to_string(), kind));
            }
            _ => found.push(Part::Token(tree.clone())),
        }
    }
    found
}

fn is_kind(name: &str) -> bool {
    const KINDS: [&str; 11] =
        ["ident", "ty", "expr", "literal", "tt", "vis", "meta", "path", "block", "lifetime", "pat"];
    KINDS.contains(&name)
}

impl Rules {
    /// Reads the definition of a macro of a crate.
    pub(super) fn read(definition: TokenStream, crate_name: &str) -> Self {
        let groups: Vec<_> = definition
            .into_iter()
            .filter_map(|tree| match tree {
                TokenTree::Group(group) => Some(group.stream()),
                _ => None,
            })
            .collect();
        let arms = groups.chunks_exact(2);
        let arm = |arm: &[TokenStream]| {
            (parts(arm[0].clone(), crate_name), parts(arm[1].clone(), crate_name))
        };
        Self { arms: arms.map(arm).collect() }
    }

    /// The tokens that replace a call.
    ///
    /// # Errors
    /// No arm takes the call.
    pub(super) fn expand(&self, name: &str, call: &TokenStream) -> Result<TokenStream, Failure> {
        let input: Vec<TokenTree> = call.clone().into_iter().collect();
        for (pattern, body) in &self.arms {
            let mut bound = Bindings::new();
            if matched(pattern, &input, &mut bound) == Some(input.len()) {
                return Ok(put_in(body, &bound));
            }
        }
        Err(format!("macro {name}!: no arm takes the call").into())
    }
}

/// Matches a pattern with the beginning of the input; the number of tokens taken.
fn matched(pattern: &[Part], input: &[TokenTree], bound: &mut Bindings) -> Option<usize> {
    let mut at = 0;
    for part in pattern {
        let rest = &input[at..];
        at += match part {
            Part::Token(wanted) => {
                let is_same = rest.first().is_some_and(|it| it.to_string() == wanted.to_string());
                is_same.then_some(1)?
            }
            Part::Group(delimiter, inner) => {
                let Some(TokenTree::Group(group)) = rest.first() else { return None };
                let stream: Vec<_> = group.stream().into_iter().collect();
                let is_whole = group.delimiter() == *delimiter
                    && matched(inner, &stream, bound) == Some(stream.len());
                is_whole.then_some(1)?
            }
            Part::Variable(name, kind) => {
                let (stream, count) = fragment(kind, rest)?;
                bound.insert(name.clone(), Bound::One(stream));
                count
            }
            Part::Repeat(inner, separator, count) => {
                let (mut rounds, mut taken) = (Vec::new(), 0);
                loop {
                    let mut start = taken;
                    if let Some(separator) = separator.as_ref().filter(|_| !rounds.is_empty()) {
                        match rest.get(taken) {
                            Some(it) if it.to_string() == separator.to_string() => start += 1,
                            _ => break,
                        }
                    }
                    let mut round = Bindings::new();
                    match matched(inner, &rest[start..], &mut round) {
                        Some(count) if start + count > taken => taken = start + count,
                        _ => break,
                    }
                    rounds.push(round);
                    if *count == '?' {
                        break;
                    }
                }
                if *count == '+' && rounds.is_empty() {
                    return None;
                }
                for name in names(inner) {
                    let of_rounds = rounds
                        .iter()
                        .map(|round| {
                            round
                                .get(&name)
                                .map(|it| (name.clone(), it.clone()))
                                .into_iter()
                                .collect()
                        })
                        .collect();
                    bound.insert(name, Bound::Many(of_rounds));
                }
                taken
            }
        };
    }
    Some(at)
}

/// The variables of a pattern.
fn names(pattern: &[Part]) -> Vec<String> {
    let mut found = Vec::new();
    for part in pattern {
        match part {
            Part::Variable(name, _) => found.push(name.clone()),
            Part::Group(_, inner) | Part::Repeat(inner, _, _) => found.extend(names(inner)),
            Part::Token(_) => {}
        }
    }
    found
}

/// The part of the input that a kind of fragment takes, and its number of tokens.
fn fragment(kind: &str, input: &[TokenTree]) -> Option<(TokenStream, usize)> {
    let stream = || input.iter().cloned().collect::<TokenStream>();
    fn parsed<T: ToTokens>(
        parse: impl Fn(syn::parse::ParseStream<'_>) -> syn::Result<T>,
        stream: TokenStream,
    ) -> Option<(TokenStream, usize)> {
        let whole = stream.clone().into_iter().count();
        let both = |input: syn::parse::ParseStream<'_>| -> syn::Result<(TokenStream, usize)> {
            let found = parse(input)?.into_token_stream();
            let left: TokenStream = input.parse()?;
            Ok((found, whole - left.into_iter().count()))
        };
        both.parse2(stream).ok()
    }
    match kind {
        "ident" => match input.first() {
            Some(TokenTree::Ident(_)) => Some((input[..1].iter().cloned().collect(), 1)),
            _ => None,
        },
        "literal" => match input.first() {
            Some(TokenTree::Literal(_)) => Some((input[..1].iter().cloned().collect(), 1)),
            // `true` and `false` are literals too.
            Some(TokenTree::Ident(name)) if name == "true" || name == "false" => {
                Some((input[..1].iter().cloned().collect(), 1))
            }
            _ => None,
        },
        "tt" => input.first().map(|tree| (tree.clone().into(), 1)),
        "ty" => parsed(|input| input.parse::<syn::Type>(), stream()),
        "expr" => parsed(|input| input.parse::<syn::Expr>(), stream()),
        "path" => parsed(|input| input.parse::<syn::Path>(), stream()),
        "vis" => parsed(|input| input.parse::<syn::Visibility>(), stream()),
        "meta" => parsed(|input| input.parse::<syn::Meta>(), stream()),
        "block" => parsed(|input| input.parse::<syn::Block>(), stream()),
        _ => None,
    }
}

fn put_in(body: &[Part], bound: &Bindings) -> TokenStream {
    let mut made = TokenStream::new();
    for part in body {
        match part {
            Part::Token(tree) => made.extend([tree.clone()]),
            Part::Group(delimiter, inner) => {
                made.extend([TokenTree::from(Group::new(*delimiter, put_in(inner, bound)))]);
            }
            Part::Variable(name, _) => match bound.get(name) {
                Some(Bound::One(stream)) => made.extend(stream.clone()),
                // Not a variable: a dollar of a macro that is defined in this one.
                _ => made.extend([TokenTree::from(Ident::new(name, Span::call_site()))]),
            },
            Part::Repeat(inner, separator, _) => {
                let rounds = names(inner)
                    .iter()
                    .filter_map(|name| match bound.get(name) {
                        Some(Bound::Many(rounds)) => Some(rounds.len()),
                        _ => None,
                    })
                    .max()
                    .unwrap_or(0);
                for round in 0..rounds {
                    if let Some(separator) = separator.as_ref().filter(|_| round > 0) {
                        made.extend([separator.clone()]);
                    }
                    let mut of_round = bound.clone();
                    for name in names(inner) {
                        if let Some(Bound::Many(rounds)) = bound.get(&name) {
                            of_round.remove(&name);
                            of_round.extend(rounds.get(round).cloned().unwrap_or_default());
                        }
                    }
                    made.extend(put_in(inner, &of_round));
                }
            }
        }
    }
    made
}
