use quote::{format_ident, quote};
use syn::{ReturnType, Type, parse_quote};

use super::{
    Output, Passing, is_claim, is_text_or_number, is_transaction, lifetimes, mentions_lifetime, passing, source_bound,
};
use crate::display::display;
use crate::manifest::Dependency;
use crate::runtime::Runtime;

fn runtime() -> Runtime {
    Runtime::new(Some(&parse_quote!(rt)), &Dependency::ByName)
}

fn bound_of(ty: &Type) -> String {
    source_bound(ty, Some(&format_ident!("L")), &runtime()).to_string().replace(' ', "")
}

#[test]
fn the_usual_transactions_name_their_database() {
    assert_eq!(bound_of(&parse_quote!(&mut PgTransaction<'_>)), "rt::IntoSourceFor<L,rt::__private::Postgres>");
    assert_eq!(
        bound_of(&parse_quote!(&'a mut sqlx::MySqlTransaction<'a>)),
        "rt::IntoSourceFor<L,rt::__private::MySql>"
    );
    assert_eq!(bound_of(&parse_quote!(&mut SqliteConnection)), "rt::IntoSourceFor<L,rt::__private::Sqlite>");
    assert_eq!(bound_of(&parse_quote!(&mut sqlx::Transaction<'_, sqlx::Sqlite>)), "rt::IntoSourceFor<L,sqlx::Sqlite>");
}

#[test]
fn an_alias_is_asked_for_its_database() {
    assert_eq!(bound_of(&parse_quote!(&mut Tx<'a>)), "rt::__private::SourceOf<L,Tx<'static>>");
    let anonymous = source_bound(&parse_quote!(&mut Tx<'a>), None, &runtime()).to_string().replace(' ', "");
    assert_eq!(anonymous, "rt::__private::SourceOf<rt::Lent<'_>,Tx<'static>>");
    // A user's own `Transaction` alias has no database among its arguments.
    assert!(bound_of(&parse_quote!(&mut Transaction<'_>)).contains("SourceOf"));
}

#[test]
fn what_is_a_part_of_a_key_as_a_whole_is_known_by_its_name() {
    for ty in ["&str", "&'a str", "String", "&mut String", "u64", "std::borrow::Cow<'_, str>", "Option<&str>", "(i32)"]
    {
        assert!(is_text_or_number(&syn::parse_str(ty).expect(ty)), "{ty}");
    }
    for ty in ["&Event", "Option<Event>", "(u64, u64)", "[u8; 4]", "f64", "Vec<String>", "impl AsRef<str>"] {
        assert!(!is_text_or_number(&syn::parse_str(ty).expect(ty)), "{ty}");
    }
}

#[test]
fn types_are_recognised_by_their_last_segment() {
    let ty: Type = parse_quote!(&mut sqlx::postgres::PgTransaction<'_>);
    let (how, what) = passing(&ty);
    assert!(how == Passing::Mutable && is_transaction(what));
    assert!(!is_transaction(&parse_quote!(TransactionLog)));
    assert!(is_claim(&parse_quote!(idempotent_runtime::Claim)));
    assert!(!is_claim(&parse_quote!(Claim<Insurance>)));
    assert!(!is_claim(&parse_quote!(ClaimStore)));
}

#[test]
fn the_value_of_a_result_is_wrapped() {
    let rewrite = |output: ReturnType| {
        Output::read(&output, &runtime(), false).map(|output| output.rewritten.to_string().replace(' ', ""))
    };
    assert_eq!(rewrite(parse_quote!(-> Result<i64, E>)).as_deref(), Some("Result<rt::Outcome<i64>,E>"));
    assert_eq!(rewrite(parse_quote!(-> sqlx::Result<()>)).as_deref(), Some("sqlx::Result<rt::Outcome<()>>"));
    assert_eq!(
        rewrite(parse_quote!(-> Result<impl Display, E>)).as_deref(),
        Some("Result<rt::Outcome<implDisplay>,E>")
    );
    let alias = rewrite(parse_quote!(-> Answer)).unwrap_or_default();
    assert_eq!(
        alias,
        "rt::__private::Result<rt::Outcome<<Answerasrt::__private::HandlerResult>::Ok>,<Answerasrt::__private::HandlerResult>::Err>"
    );
    for none in
        [parse_quote!(), parse_quote!(-> i64), parse_quote!(-> Option<i64>), parse_quote!(-> (Result<(), E>, u8))]
    {
        assert_eq!(rewrite(none), None);
    }
}

#[test]
fn impl_trait_is_inferred_inside_the_body() {
    let output: ReturnType = parse_quote!(-> Result<Box<impl Display>, E>);
    let output = Output::read(&output, &runtime(), false).map(|output| display(&output.inferred));
    assert_eq!(output.as_deref(), Some("Result<Box<_>, E>"));
}

#[test]
fn lifetimes_are_found_at_any_depth() {
    let ty: Type = parse_quote!(&'a mut Tx<'b, (u8, &'c str)>);
    assert_eq!(lifetimes(&ty).len(), 3);
    let body = quote! { let x: &'a str = { f::<'b>() }; 'c: loop { break 'c; } };
    for (name, found) in [("a", true), ("b", true), ("c", true), ("x", false), ("str", false)] {
        let ident = syn::Ident::new(name, proc_macro2::Span::call_site());
        assert_eq!(mentions_lifetime(body.clone(), &ident), found, "{name}");
    }
}
