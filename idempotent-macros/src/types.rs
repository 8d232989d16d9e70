//! What the macro can tell about types from their tokens alone, and how it rewrites them.

use proc_macro2::{Ident, Punct, Spacing, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{GenericArgument, Lifetime, Path, PathArguments, PathSegment, ReturnType, Type, TypeReference};

use crate::display::display;
use crate::runtime::Runtime;

/// Last path segments that are a transaction, or the connection behind one, and their database in sqlx.
const TRANSACTIONS: [(&str, Option<&str>); 7] = [
    ("Transaction", None),
    ("PgTransaction", Some("Postgres")),
    ("MySqlTransaction", Some("MySql")),
    ("SqliteTransaction", Some("Sqlite")),
    ("PgConnection", Some("Postgres")),
    ("MySqlConnection", Some("MySql")),
    ("SqliteConnection", Some("Sqlite")),
];

/// What people pass first, and what to write instead.
const POOLS: [(&str, &str); 6] = [
    ("PgPool", "sqlx::PgTransaction<'_>"),
    ("MySqlPool", "sqlx::MySqlTransaction<'_>"),
    ("SqlitePool", "sqlx::SqliteTransaction<'_>"),
    ("Pool", "sqlx::Transaction<'_, DB>"),
    ("PoolConnection", "sqlx::Transaction<'_, DB>"),
    ("ClaimStore", "sqlx::Transaction<'_, DB>"),
];

/// Types that are certainly no alias of `Result`.
const NO_RESULTS: [&str; 22] = [
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128",
    "usize", "str", "String", "Option", "Vec", "Box", "Outcome",
];

/// Types that are a part of a key as a whole, and have no fields.
const TEXTS_AND_NUMBERS: [&str; 17] = [
    "str", "String", "Cow", "char", "Uuid", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64",
    "u128", "usize",
];

/// How a transaction parameter's type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    Mutable,
    Shared,
    Value,
}

/// The type inside parentheses and the invisible groups of `macro_rules!`.
pub(crate) fn peel(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => peel(&group.elem),
        Type::Paren(paren) => peel(&paren.elem),
        ty => ty,
    }
}

/// How it is passed, and what.
pub(crate) fn passing(ty: &Type) -> (Passing, &Type) {
    match peel(ty) {
        Type::Reference(TypeReference { mutability: Some(_), elem, .. }) => (Passing::Mutable, peel(elem)),
        Type::Reference(TypeReference { elem, .. }) => (Passing::Shared, peel(elem)),
        ty => (Passing::Value, ty),
    }
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match peel(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// Where to point at a type: at its name, since a span of several tokens is that of the first.
pub(crate) fn anchor(ty: &Type) -> Span {
    last_segment(passing(ty).1).map_or_else(|| ty.span(), |segment| segment.ident.span())
}

/// Is the referent one of sqlx's transactions or connections, by its name?
pub(crate) fn is_transaction(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|segment| TRANSACTIONS.iter().any(|(name, _)| segment.ident == *name))
}

/// Is it text or a whole number, behind a reference or in an `Option` too?
pub(crate) fn is_text_or_number(ty: &Type) -> bool {
    let Some(segment) = last_segment(passing(ty).1) else { return false };
    match type_arguments(segment).first() {
        Some(inner) if segment.ident == "Option" => is_text_or_number(inner),
        _ => TEXTS_AND_NUMBERS.iter().any(|name| segment.ident == name),
    }
}

pub(crate) fn is_claim(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == "Claim" && segment.arguments.is_none())
}

/// The transaction to write in place of a pool.
pub(crate) fn transaction_of_pool(ty: &Type) -> Option<String> {
    let segment = last_segment(passing(ty).1)?;
    let (_, transaction) = POOLS.iter().find(|(name, _)| segment.ident == *name)?;
    let database = type_arguments(segment).first().map_or_else(|| "DB".to_owned(), display);
    Some(transaction.replace("DB", &database))
}

/// The trait that a source of the transaction `&mut referent` implements. Its lifetime is anonymous, or in the type `lent`.
pub(crate) fn source_bound(ty: &Type, lent: Option<&Ident>, runtime: &Runtime) -> TokenStream {
    let Runtime { path, private, .. } = runtime.located_at(anchor(ty));
    let span = Span::mixed_site().located_at(anchor(ty));
    match (database(ty, &private), lent) {
        (Some(database), Some(lent)) => quote_spanned!(span=> #path::IntoSourceFor<#lent, #database>),
        (Some(database), None) => quote_spanned!(span=> #path::IntoSource<'_, #database>),
        (None, lent) => {
            let referent = with_lifetimes(passing(ty).1, "'static");
            let lent = lent.map_or_else(|| quote_spanned!(span=> #path::Lent<'_>), ToTokens::to_token_stream);
            quote_spanned!(span=> #private::SourceOf<#lent, #referent>)
        }
    }
}

/// The source that an argument with this bound becomes.
pub(crate) fn source(ty: &Type, argument: &Ident, runtime: &Runtime) -> TokenStream {
    let Runtime { private, .. } = runtime.located_at(anchor(ty));
    let span = Span::mixed_site().located_at(anchor(ty));
    if database(ty, &private).is_some() {
        quote_spanned!(Span::mixed_site()=> #private::IntoSourceFor::into_source(#argument))
    } else {
        quote_spanned!(span=> #private::SourceOf::source(#argument))
    }
}

/// The database of a transaction of type `&mut referent`, `None` for an alias, which knows it itself.
fn database(ty: &Type, private: &TokenStream) -> Option<TokenStream> {
    let segment = last_segment(passing(ty).1)?;
    let (_, database) = TRANSACTIONS.iter().find(|(name, _)| segment.ident == *name)?;
    match (database, type_arguments(segment).as_slice()) {
        (Some(database), []) => {
            let database = Ident::new(database, Span::mixed_site().located_at(segment.ident.span()));
            Some(quote!(#private::#database))
        }
        (None, [argument]) => Some(argument.to_token_stream()),
        _ => None,
    }
}

fn type_arguments(segment: &PathSegment) -> Vec<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return Vec::new() };
    arguments
        .args
        .iter()
        .filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })
        .collect()
}

/// The type with all its lifetimes, elided ones of references too, replaced by `lifetime`.
pub(crate) fn with_lifetimes(ty: &Type, lifetime: &str) -> Type {
    struct Replace<'a>(&'a str);
    impl VisitMut for Replace<'_> {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new(self.0, lifetime.span());
        }

        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            if reference.lifetime.is_none() && self.0 != "'_" {
                reference.lifetime = Some(Lifetime::new(self.0, Span::mixed_site()));
            }
            visit_mut::visit_type_reference_mut(self, reference);
        }

        // Their lifetimes are bound inside, by `for<…>` or by elision.
        fn visit_type_fn_ptr_mut(&mut self, _: &mut syn::TypeFnPtr) {}
        fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut syn::ParenthesizedGenericArguments) {}
    }
    let mut ty = ty.clone();
    Replace(lifetime).visit_type_mut(&mut ty);
    ty
}

/// The lifetimes named in a type.
pub(crate) fn lifetimes(ty: &Type) -> Vec<Ident> {
    struct Collect(Vec<Ident>);
    impl<'ast> Visit<'ast> for Collect {
        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            self.0.push(lifetime.ident.clone());
        }
    }
    let mut collect = Collect(Vec::new());
    collect.visit_type(ty);
    collect.0
}

/// Does the lifetime occur in the tokens?
pub(crate) fn mentions_lifetime(tokens: TokenStream, lifetime: &Ident) -> bool {
    let mut after_quote = false;
    tokens.into_iter().any(|token| {
        let found = match &token {
            TokenTree::Ident(ident) => after_quote && ident == lifetime,
            TokenTree::Group(group) => mentions_lifetime(group.stream(), lifetime),
            _ => false,
        };
        after_quote = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\'');
        found
    })
}

/// A handler's return type.
pub(crate) struct Output {
    /// As written, for a position inside a function, where `impl Trait` cannot stand.
    pub(crate) inferred: Type,
    /// With `Outcome` around the value.
    pub(crate) rewritten: TokenStream,
    /// The type of the value, where it is written.
    pub(crate) value: Option<Type>,
    /// Where its error type is.
    pub(crate) error: Span,
}

impl Output {
    /// Rewrites `Result<T, E>`, or an alias of it, to `Result<Outcome<T>, E>`, or of a batch to `Result<Batch<T>, E>`; `None` if it is no `Result`.
    pub(crate) fn read(output: &ReturnType, runtime: &Runtime, batch: bool) -> Option<Self> {
        let ReturnType::Type(_, written) = output else { return None };
        let Runtime { path: runtime, private, .. } = runtime.located_at(anchor(written));
        let mut rewritten = Type::clone(written);
        let wrapper = Ident::new(if batch { "Batch" } else { "Outcome" }, Span::mixed_site());
        let rewritten = if wrap_value(&mut rewritten, &runtime, &wrapper) {
            rewritten.into_token_stream()
        } else {
            let segment = last_segment(written)?;
            if contains_impl(written) || NO_RESULTS.iter().any(|name| segment.ident == name) {
                return None;
            }
            let span = Span::mixed_site().located_at(anchor(written));
            // The last token marks the end of the signature, to which lints on the function point.
            let end = Punct::new('>', Spacing::Alone);
            let end = with_span(end, written.span());
            quote_spanned! {span=>
                #private::Result<
                    #runtime::#wrapper<<#written as #private::HandlerResult>::Ok>,
                    <#written as #private::HandlerResult>::Err
                #end
            }
        };
        let arguments = last_segment(written).map(type_arguments).unwrap_or_default();
        let value = arguments.first().map(|value| Type::clone(value));
        let error = anchor(arguments.get(1).copied().unwrap_or(written));
        Some(Self { inferred: without_impl(written), rewritten, value, error })
    }
}

fn with_span(mut punct: Punct, span: Span) -> Punct {
    punct.set_span(span);
    punct
}

/// Puts `Outcome` or `Batch` around the first type argument of a path that ends in `Result<…>`.
fn wrap_value(ty: &mut Type, runtime: &Path, wrapper: &Ident) -> bool {
    match ty {
        Type::Group(group) => wrap_value(&mut group.elem, runtime, wrapper),
        Type::Paren(paren) => wrap_value(&mut paren.elem, runtime, wrapper),
        Type::Path(path) => {
            let Some(segment) = path.path.segments.last_mut().filter(|segment| segment.ident == "Result") else {
                return false;
            };
            let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { return false };
            let value = arguments.args.iter_mut().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            });
            value.is_some_and(|value| {
                *value = Type::Verbatim(quote_spanned!(Span::mixed_site()=> #runtime::#wrapper<#value>));
                true
            })
        }
        _ => false,
    }
}

/// The type of the items, of a `Vec` by value.
pub(crate) fn items(ty: &Type) -> Option<&Type> {
    let (passing, referent) = passing(ty);
    let segment = last_segment(referent).filter(|segment| passing == Passing::Value && segment.ident == "Vec")?;
    type_arguments(segment).first().copied()
}

/// What to put into a `Vec` in place of this type.
pub(crate) fn suggested_items(ty: &Type) -> String {
    let referent = passing(ty).1;
    match referent {
        Type::Slice(slice) => display(&slice.elem),
        Type::Array(array) => display(&array.elem),
        Type::ImplTrait(iterator) => iterator_item(iterator).map_or_else(|| "T".to_owned(), display),
        referent => {
            let items = last_segment(referent).and_then(|segment| type_arguments(segment).first().copied());
            items.map_or_else(|| "T".to_owned(), display)
        }
    }
}

/// `T` of `impl Iterator<Item = T>`.
fn iterator_item(iterator: &syn::TypeImplTrait) -> Option<&Type> {
    iterator.bounds.iter().find_map(|bound| {
        let syn::TypeParamBound::Trait(bound) = bound else { return None };
        let PathArguments::AngleBracketed(arguments) = &bound.path.segments.last()?.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(item) if item.ident == "Item" => Some(&item.ty),
            _ => None,
        })
    })
}

/// Is the referent a slice of claims?
pub(crate) fn is_claims(ty: &Type) -> bool {
    matches!(peel(ty), Type::Slice(slice) if is_claim(&slice.elem))
}

/// The first reference in the type. A lifetime alone says nothing: what is read into a `Cow<'_, str>` is owned.
pub(crate) fn reference(ty: &Type) -> Option<TokenStream> {
    struct Find(Option<TokenStream>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_reference(&mut self, reference: &'ast syn::TypeReference) {
            self.0.get_or_insert_with(|| reference.to_token_stream());
        }
    }
    let mut find = Find(None);
    find.visit_type(ty);
    find.0
}

/// The type with `_` in place of every `impl Trait`.
fn without_impl(ty: &Type) -> Type {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if matches!(ty, Type::ImplTrait(_)) {
                *ty = Type::Verbatim(quote_spanned!(Span::mixed_site()=> _));
            } else {
                visit_mut::visit_type_mut(self, ty);
            }
        }
    }
    let mut ty = ty.clone();
    Infer.visit_type_mut(&mut ty);
    ty
}

pub(crate) fn contains_impl(ty: &Type) -> bool {
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut find = Find(false);
    find.visit_type(ty);
    find.0
}

/// Is it what `#[async_trait]` makes of an async method's output?
pub(crate) fn is_future_of_async_trait(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, ty) if lifetimes(ty).iter().any(|lifetime| lifetime == "async_trait"))
}

#[cfg(test)]
#[path = "types_tests.rs"]
mod tests;
