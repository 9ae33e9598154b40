//! Tokens as text: one spacing for all, so that the layout of a source changes nothing.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A token, without its place in the source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// A name or a keyword.
    Name(String),
    /// A lifetime with its quote.
    Lifetime(String),
    /// A literal.
    Literal(String),
    /// An operator, or a bracket.
    Sign(String),
}

/// Words that a type may follow: a bracket after them begins something new.
const KEYWORDS: [&str; 13] = [
    "as", "const", "dyn", "for", "impl", "in", "mut", "pub", "ref", "type", "unsafe", "where",
    "extern",
];

/// Operators of two signs.
const PAIRS: [&str; 6] = ["::", "->", "=>", "..", "<<", "=="];

impl Token {
    fn is(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(found) if found == sign)
    }

    fn text(&self) -> &str {
        match self {
            Self::Name(text) | Self::Lifetime(text) | Self::Literal(text) | Self::Sign(text) => {
                text
            }
        }
    }
}

/// All tokens in their order, the brackets of groups among them.
pub(super) fn flat(stream: TokenStream) -> Vec<Token> {
    let mut found = Vec::new();
    add_flat(stream, &mut found);
    found
}

fn add_flat(stream: TokenStream, found: &mut Vec<Token>) {
    // The sign before, if the next one may make a pair with it.
    let mut joint = None::<char>;
    for tree in stream {
        let before = joint.take();
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    // Around what a macro was given.
                    Delimiter::None => ("", ""),
                };
                let is_seen = !open.is_empty();
                found.extend(is_seen.then(|| Token::Sign(open.to_owned())));
                add_flat(group.stream(), found);
                found.extend(is_seen.then(|| Token::Sign(close.to_owned())));
            }
            TokenTree::Ident(name) if before == Some('\'') => {
                found.pop();
                found.push(Token::Lifetime(format!("'{name}")));
            }
            TokenTree::Ident(name) => found.push(Token::Name(name.to_string())),
            TokenTree::Literal(literal) => found.push(Token::Literal(literal.to_string())),
            TokenTree::Punct(sign) => {
                let pair = before.map(|before| format!("{before}{}", sign.as_char()));
                match pair.filter(|pair| PAIRS.contains(&&pair[..])) {
                    Some(pair) => {
                        found.pop();
                        found.push(Token::Sign(pair));
                    }
                    None => {
                        found.push(Token::Sign(sign.to_string()));
                        joint = (sign.spacing() == Spacing::Joint).then(|| sign.as_char());
                    }
                }
            }
        }
    }
}

/// Whether two tokens have a space between them. `inside` says that the text before ends with what
/// a unary operator may follow.
fn is_apart(before: &Token, after: &Token, is_unary: bool) -> bool {
    const CLOSE: [&str; 8] = [",", ";", ")", "]", ">", "::", "?", "."];
    const OPEN: [&str; 7] = ["(", "[", "<", "::", "&", "?", "#"];
    let (first, second) = (before.text(), after.text());
    if before.is("?") || after.is("?") {
        return after.is("?") && matches!(first, ":" | "+");
    }
    if CLOSE.contains(&second) && matches!(after, Token::Sign(_)) {
        return false;
    }
    if OPEN.contains(&first) && matches!(before, Token::Sign(_)) {
        return false;
    }
    match (before, after) {
        (_, Token::Sign(sign)) if sign == ":" || sign == "!" => false,
        (Token::Sign(sign), _) if matches!(&sign[..], "*" | "!" | "-") && is_unary => false,
        (Token::Name(name), Token::Sign(sign)) if sign == "(" || sign == "[" => {
            KEYWORDS.contains(&&name[..])
        }
        (Token::Name(_), Token::Sign(sign)) if sign == "<" => false,
        (Token::Sign(one), Token::Sign(two)) if one == ">" && two == "(" => false,
        (_, Token::Sign(sign)) if sign == "<" => false,
        _ => true,
    }
}

/// The tokens as one line.
pub(super) fn text(tokens: &[Token]) -> String {
    let mut text = String::new();
    let mut last = None::<&Token>;
    let mut is_unary = true;
    for token in tokens {
        if let Some(last) = last
            && is_apart(last, token, is_unary)
        {
            text.push(' ');
        }
        text.push_str(token.text());
        // A star or an exclamation mark after a name is binary.
        if !matches!(token.text(), "*" | "!" | "-") {
            let ends = matches!(token, Token::Name(name) if !KEYWORDS.contains(&&name[..]));
            is_unary = !ends && !matches!(token, Token::Literal(_)) && !token.is(")");
        }
        last = Some(token);
    }
    // A list may end with a comma, which changes nothing.
    for (long, short) in [(",>", ">"), (",)", ")"), (",]", "]"), ("{ }", "{}")] {
        text = text.replace(long, short);
    }
    text.trim_end_matches(',').to_owned()
}

/// Replaces each path of names by what `named` makes of it. Names of arguments and fields, which a
/// colon follows, and of associated types that are given a value stay.
pub(super) fn with_paths(
    tokens: &[Token],
    named: &mut dyn FnMut(&[String]) -> Option<Vec<String>>,
) -> Vec<Token> {
    let mut made = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Token::Name(first) = &tokens[at] else {
            made.push(tokens[at].clone());
            at += 1;
            continue;
        };
        let mut path = vec![first.clone()];
        let mut end = at + 1;
        while let (Some(sign), Some(Token::Name(name))) = (tokens.get(end), tokens.get(end + 1))
            && sign.is("::")
        {
            path.push(name.clone());
            end += 2;
        }
        // A name that follows a path, and that of a function.
        let follows = made.last().is_some_and(|it: &Token| {
            it.is("::") || it.is(".") || matches!(it, Token::Name(name) if name == "fn")
        });
        let is_label = path.len() == 1
            && tokens.get(end).is_some_and(|it| it.is(":") || it.is("=") || it.is("!"));
        let found = if follows || is_label { None } else { named(&path) };
        for (number, name) in found.unwrap_or(path).into_iter().enumerate() {
            made.extend((number > 0).then(|| Token::Sign("::".to_owned())));
            made.push(Token::Name(name));
        }
        at = end;
    }
    made
}
