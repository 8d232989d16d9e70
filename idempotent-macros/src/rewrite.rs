//! Gives the function its new signature: what callers pass and get.

use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::punctuated::{Pair, Punctuated};
use syn::{FnArg, GenericParam, PatType, ReturnType, Token, Type, TypeParam, TypeParamBound, Visibility};

use crate::display::display;
use crate::runtime::Runtime;
use crate::signature::{Parameter, Role, Signature};
use crate::types;

/// The user's function with its new signature, around `statements`.
pub(crate) fn function(
    signature: &Signature,
    runtime: &Runtime,
    documentation: &str,
    statements: &TokenStream,
) -> TokenStream {
    let function = &signature.function;
    let rewritten = rewrite(signature, runtime);
    let attributes = &function.attributes;
    let (visibility, defaultness, inner) = (&function.visibility, &function.defaultness, &function.inner_attributes);
    let documentation = doc_attribute(signature, documentation);
    let span = Span::mixed_site();
    let body = function.body.as_ref().map_or_else(
        || quote_spanned!(span=> ;),
        |body| {
            // With the user's braces, so that lints on the whole function remain.
            let mut block = Group::new(body.delimiter(), quote_spanned!(span=> #inner #statements));
            block.set_span(body.span());
            block.into_token_stream()
        },
    );
    quote!(#(#attributes)* #documentation #visibility #defaultness #rewritten #body)
}

/// The new signature as a person would write it into a trait, whatever is imported there.
pub(crate) fn declaration(signature: &Signature, runtime: &Runtime) -> String {
    let (path, private) = (display(&runtime.path), display(&runtime.private));
    let mut text = display(&rewrite(signature, runtime));
    for database in ["Postgres", "MySql", "Sqlite"] {
        text = text.replace(&format!("{private}::{database}"), &format!("sqlx::{database}"));
    }
    text.replace(&path, path.trim_start_matches("::"))
}

fn rewrite(signature: &Signature, runtime: &Runtime) -> syn::Signature {
    let mut rewritten = signature.function.signature.clone();
    rewritten.constness = None;
    rewritten.asyncness.get_or_insert_with(|| Token![async](Span::mixed_site()));
    let source = SourceType::choose(signature);
    rewritten.inputs = inputs(signature, runtime, &source);
    if let (Some(output), ReturnType::Type(_, ty)) = (&signature.output, &mut rewritten.output) {
        **ty = Type::Verbatim(output.rewritten.clone());
    }
    drop_unused_lifetimes(signature, &mut rewritten);
    if let SourceType::Named { lent, name, parameter } = source {
        let bound = types::source_bound(&parameter.ty, Some(&lent), runtime);
        let mut param = TypeParam::from(name);
        param.bounds.push(TypeParamBound::Verbatim(bound));
        rewritten.generics.params.push(GenericParam::Type(lent.into()));
        rewritten.generics.params.push(GenericParam::Type(param));
    }
    rewritten
}

/// How the type of the transaction's source is written.
enum SourceType<'a> {
    /// With type parameters in the place of `impl` and of its lifetime: a lifetime in the bound makes the compiler prove all
    /// that sqlx asks for anew in each handler, and in a public function `impl Trait` is a lint of clippy's.
    Named { lent: Ident, name: Ident, parameter: &'a Parameter },
    /// `impl IntoSource<'_, DB>`, where type parameters would show: in `function::<T>`, if there are others, and without
    /// `pub` or the like, for then the function may be a trait's, which has as many as its declaration.
    Anonymous,
}

impl<'a> SourceType<'a> {
    fn choose(signature: &'a Signature) -> Self {
        let function = &signature.function;
        let may_be_a_traits = matches!(function.visibility, Visibility::Inherited);
        let mut generics = function.signature.generics.params.iter();
        let mut transactions = signature.with_role(Role::Transaction);
        match (transactions.next(), transactions.next()) {
            (Some(parameter), None)
                if !may_be_a_traits
                    && parameter.is_replaced()
                    && generics.all(|param| matches!(param, GenericParam::Lifetime(_))) =>
            {
                let [lent, name] = ["Lent", "Via"].map(|name| unused_name(name, signature));
                Self::Named { lent, name, parameter }
            }
            _ => Self::Anonymous,
        }
    }
}

/// A name that the function does not contain. Generic parameters are visible to the body, whatever their span.
fn unused_name(name: &str, signature: &Signature) -> Ident {
    fn contains(tokens: TokenStream, ident: &Ident) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(found) => found == *ident,
            TokenTree::Group(group) => contains(group.stream(), ident),
            _ => false,
        })
    }
    let function = &signature.function;
    let mut tokens = function.signature.to_token_stream();
    tokens.extend(function.body.to_token_stream());
    let span = Span::mixed_site();
    let mut ident = Ident::new(name, span);
    let mut count = 1_u32;
    while contains(tokens.clone(), &ident) {
        count += 1;
        ident = format_ident!("{name}{count}", span = span);
    }
    ident
}

/// The parameters that callers pass.
fn inputs(signature: &Signature, runtime: &Runtime, source: &SourceType<'_>) -> Punctuated<FnArg, Token![,]> {
    let span = Span::mixed_site();
    let mut parameters = signature.parameters.iter();
    let pairs = signature.function.signature.inputs.pairs().filter_map(|pair| {
        let (input, comma) = pair.into_tuple();
        let FnArg::Typed(typed) = input else { return Some(Pair::new(input.clone(), comma.copied())) };
        let parameter = parameters.next()?;
        let ty = match (parameter.role, source) {
            (Role::Claim, _) => return None,
            _ if !parameter.is_replaced() => parameter.ty.clone(),
            (_, SourceType::Named { name, .. }) => Type::Verbatim(name.to_token_stream()),
            (_, SourceType::Anonymous) => {
                let at_type = span.located_at(types::anchor(&parameter.ty));
                let bound = types::source_bound(&parameter.ty, None, runtime);
                Type::Verbatim(quote_spanned!(at_type=> impl #bound))
            }
        };
        let rewritten = PatType {
            attrs: parameter.outer_attributes().cloned().collect(),
            pat: Box::new(parameter.outer.clone()),
            colon_token: typed.colon_token,
            ty: Box::new(ty),
        };
        Some(Pair::new(FnArg::Typed(rewritten), comma.copied()))
    });
    pairs.collect()
}

/// Removes lifetimes that only the transaction's or the claim's type named: nothing names them any more, which is a
/// lint.
fn drop_unused_lifetimes(signature: &Signature, rewritten: &mut syn::Signature) {
    let replaced = signature.parameters.iter().filter(|parameter| parameter.role != Role::Plain);
    for lifetime in replaced.flat_map(|parameter| types::lifetimes(&parameter.ty)) {
        let is_declaration =
            |param: &GenericParam| matches!(param, GenericParam::Lifetime(param) if param.lifetime.ident == lifetime);
        let mut others = rewritten.clone();
        others.generics.params = others.generics.params.into_iter().filter(|param| !is_declaration(param)).collect();
        let used = types::mentions_lifetime(others.to_token_stream(), &lifetime)
            || types::mentions_lifetime(signature.function.body.to_token_stream(), &lifetime);
        if !used {
            rewritten.generics.params = others.generics.params;
        }
    }
}

/// The generated section after the user's own documentation. Where there is none, only rustdoc gets to see it, so that
/// `missing_docs` still says what it should.
fn doc_attribute(signature: &Signature, documentation: &str) -> Option<TokenStream> {
    if documentation.is_empty() {
        return None;
    }
    let documentation = text(documentation);
    let documented = signature
        .function
        .attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("doc") && attribute.meta.require_name_value().is_ok());
    let span = Span::mixed_site();
    Some(if documented {
        quote_spanned!(span=> #[doc = #documentation])
    } else {
        quote_spanned!(span=> #[cfg_attr(doc, doc = #documentation)])
    })
}

/// A string of generated code.
pub(crate) fn text(text: &str) -> Literal {
    let mut literal = Literal::string(text);
    literal.set_span(Span::mixed_site());
    literal
}
