//! Five typical handlers, expanded: `tests/expand/{name}.rs` becomes `tests/expand/{name}.expanded.rs`.
//!
//! After a change that is meant to change them: `EXPAND=overwrite cargo test -p idempotent-macros`, and read the
//! difference. To be read in one go, snapshots have `__private` for `::idempotent_runtime::__private`, and no more than
//! the heading of the generated documentation, which has tests of its own.

use std::path::Path;
use std::{env, fs};

use proc_macro2::{Group, Literal, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Item, ItemFn, Meta};

/// More is logic that belongs into the runtime.
const SCREEN: usize = 75;

#[test]
fn a_free_function_is_expanded_as_committed() {
    snapshot("free_function");
}

#[test]
fn a_method_is_expanded_as_committed() {
    snapshot("method");
}

#[test]
fn a_generic_handler_is_expanded_as_committed() {
    snapshot("generic");
}

#[test]
fn a_handler_with_claim_sender_and_consumer_is_expanded_as_committed() {
    snapshot("claim_sender_consumer");
}

#[test]
fn a_handler_on_a_marked_alias_is_expanded_as_committed() {
    snapshot("marked_alias");
}

fn snapshot(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/expand");
    let source = folder.join(format!("{name}.rs"));
    let source = fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let expanded = expand(&source);
    let committed = folder.join(format!("{name}.expanded.rs"));
    if env::var("EXPAND").is_ok_and(|value| value == "overwrite") {
        fs::write(&committed, &expanded).unwrap_or_else(|error| panic!("{}: {error}", committed.display()));
    }
    // What generated code adds to the handler as it was written.
    let added = expanded.lines().count() - source.lines().count();
    assert!(added <= SCREEN, "{name}: the attribute adds {added} lines, and {SCREEN} are a screen");
    let committed = fs::read_to_string(&committed).unwrap_or_default();
    let differs = expanded.lines().zip(committed.lines()).position(|(is, was)| is != was);
    let line = differs.unwrap_or_else(|| expanded.lines().count().min(committed.lines().count())) + 1;
    assert_eq!(
        expanded, committed,
        "{name}.expanded.rs differs from line {line} on; after a wanted change: EXPAND=overwrite"
    );
}

/// What becomes of the only function in the source.
fn expand(source: &str) -> String {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{error}"));
    let [Item::Fn(function)] = file.items.as_slice() else { panic!("one function") };
    let mut function = ItemFn::clone(function);
    let at = function.attrs.iter().position(|attribute| attribute.path().is_ident("idempotent"));
    let attribute = function.attrs.remove(at.expect("the attribute"));
    let Meta::List(arguments) = attribute.meta else { panic!("the attribute has arguments") };
    let output = crate::attribute::idempotent(arguments.tokens, function.into_token_stream(), Some("shop"));
    let output = shorten(output).to_string().replace(":: idempotent_runtime :: __private", "__private");
    let output = syn::parse_file(&output).unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(output.items.as_slice(), [Item::Fn(_)]), "refused");
    prettyplease::unparse(&output)
}

/// The same code with the heading of the generated documentation only.
fn shorten(code: TokenStream) -> TokenStream {
    let shorter = |token| match token {
        TokenTree::Group(group) => Group::new(group.delimiter(), shorten(group.stream())).into(),
        TokenTree::Literal(text) if text.to_string().contains("# Idempotency\\n") => {
            Literal::string(" # Idempotency …").into()
        }
        other => other,
    };
    code.into_iter().map(shorter).collect()
}
