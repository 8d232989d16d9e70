//! Code as text, for messages and documentation.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

/// A type or a signature on one line, spaced as rustfmt would.
pub(crate) fn display(code: &impl ToTokens) -> String {
    let mut text = String::new();
    write_tokens(&mut text, code.to_token_stream());
    text.trim_end().to_owned()
}

fn write_tokens(text: &mut String, tokens: TokenStream) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => write_group(text, group.delimiter(), group.stream()),
            TokenTree::Punct(punct) => write_punct(text, punct.as_char(), punct.spacing()),
            word => {
                if text.ends_with(|char: char| char.is_alphanumeric() || matches!(char, '_' | ']' | ')' | '>')) {
                    text.push(' ');
                }
                text.push_str(&word.to_string());
            }
        }
    }
}

fn write_group(text: &mut String, delimiter: Delimiter, tokens: TokenStream) {
    let (open, close) = match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::None => ("", ""),
    };
    text.push_str(open);
    write_tokens(text, tokens);
    if text.ends_with(", ") {
        text.truncate(text.len() - 2);
    }
    text.push_str(close);
}

fn write_punct(text: &mut String, char: char, spacing: Spacing) {
    match char {
        ',' | ';' => text.extend([char, ' ']),
        ':' if spacing == Spacing::Alone && !text.ends_with(':') => text.push_str(": "),
        ':' if is_after_keyword(text) => text.push_str(" :"),
        '+' => text.push_str(" + "),
        '=' => text.push_str(" = "),
        '-' => text.push_str(" -"),
        '>' if text.ends_with(" -") => text.push_str("> "),
        '\'' if text.ends_with(|char: char| char.is_alphanumeric()) => text.push_str(" '"),
        // The name of a lifetime follows; `mut` and types that follow a lifetime are words, and come with a space.
        other => text.push(other),
    }
}

/// `impl ::path` is two words, and `module::path` is one.
fn is_after_keyword(text: &str) -> bool {
    let word = text.rsplit(|char: char| !char.is_alphanumeric()).next();
    word.is_some_and(|word| ["as", "dyn", "impl", "mut", "where"].contains(&word))
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::display;

    #[test]
    fn code_is_shown_as_people_write_it() {
        for text in [
            "&CreditGranted",
            "&'a mut Tx<'_>",
            "Result<Vec<u8>, Box<dyn Error + Send>>",
            "(u8, [u8; 4])",
            "impl Fn(u8, &str) -> Option<u8>",
            "impl Iterator<Item = u8> + 'a",
            "<T as Message>::Id",
            "&dyn Message",
            "for<'a> fn(&'a str) -> &'a str",
            "&mut ::sqlx::Tx<impl ::core::Send>",
            "async fn handle<T: Send>(&self, tx: impl Into<Source<'_, sqlx::Sqlite>>, mut id: &T) -> sqlx::Result<()>",
        ] {
            let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(display(&tokens), text);
        }
    }
}
