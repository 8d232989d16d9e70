//! The annotated function: what each parameter is for, and how it is handed on to the user's body.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, FieldPat, FnArg, Pat, PatIdent, PatType, Token, Type, Visibility};

use crate::errors::Errors;
use crate::runtime::Runtime;
use crate::types::{self, Output, Passing};

/// The function as it was written. The body stays tokens: what is wrong in it is the compiler's to say, and editors
/// keep completing in a half-typed one.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    /// `#![…]` at the start of the body.
    pub(crate) inner_attributes: TokenStream,
    pub(crate) visibility: Visibility,
    pub(crate) defaultness: Option<Token![default]>,
    pub(crate) signature: syn::Signature,
    /// `None` for a method that a trait only declares.
    pub(crate) body: Option<Group>,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let defaultness = if input.peek(Token![default]) { Some(input.parse()?) } else { None };
        let signature = input.parse()?;
        if input.parse::<Option<Token![;]>>()?.is_some() {
            let inner_attributes = TokenStream::new();
            return Ok(Self { attributes, inner_attributes, visibility, defaultness, signature, body: None });
        }
        let body = input.parse().ok().and_then(braced).ok_or_else(|| input.error("expected the function's body"))?;
        let (inner_attributes, body) = split_inner_attributes(&body);
        Ok(Self { attributes, inner_attributes, visibility, defaultness, signature, body: Some(body) })
    }
}

/// The group in braces. A `$body:block` of `macro_rules!` has invisible ones around it.
fn braced(token: TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group),
        Delimiter::None => group.stream().into_iter().next().and_then(braced),
        Delimiter::Parenthesis | Delimiter::Bracket => None,
    }
}

/// Inner attributes may only stand at the very start of a function, and the body will not.
fn split_inner_attributes(body: &Group) -> (TokenStream, Group) {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let is = |token: &TokenTree, char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == char);
    let attributes = tokens
        .chunks(3)
        .take_while(|chunk| matches!(chunk, [hash, bang, TokenTree::Group(_)] if is(hash, '#') && is(bang, '!')))
        .count();
    if attributes == 0 {
        // A new group would lose where its braces are.
        return (TokenStream::new(), body.clone());
    }
    let (inner, rest) = tokens.split_at(attributes * 3);
    let mut rest = Group::new(body.delimiter(), rest.iter().cloned().collect());
    rest.set_span(body.span());
    (inner.iter().cloned().collect(), rest)
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Replaced by the source of a transaction.
    Transaction,
    /// Given by the library, unknown to the caller.
    Claim,
    /// Part of the message, or anything else the body needs.
    Plain,
}

/// A parameter other than `self`.
pub(crate) struct Parameter {
    pub(crate) role: Role,
    /// `#[cfg]` and `#[cfg_attr]`, for every place that names the parameter.
    pub(crate) cfgs: Vec<Attribute>,
    /// `#[allow]` and its like, for the binding that the user's body sees.
    pub(crate) lints: Vec<Attribute>,
    /// All other attributes, for the rewritten signature.
    pub(crate) others: Vec<Attribute>,
    /// As the body sees it.
    pub(crate) pattern: Pat,
    /// As the rewritten signature has it.
    pub(crate) outer: Pat,
    pub(crate) ty: Type,
    /// What the outer pattern binds and the body receives.
    pub(crate) bindings: Vec<Binding>,
}

/// A name that goes from the signature into the body.
pub(crate) struct Binding {
    /// `#[cfg]` on the field of a pattern.
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) mutability: Option<Token![mut]>,
    /// With the user's own token, so that warnings about it are the user's.
    pub(crate) inner: Ident,
    /// The same name in the signature.
    pub(crate) outer: Ident,
}

/// The function, understood as far as possible.
pub(crate) struct Signature {
    pub(crate) function: Function,
    /// Does it take many messages at once?
    pub(crate) batch: bool,
    pub(crate) parameters: Vec<Parameter>,
    /// `None` if it is no `Result`, which has been reported.
    pub(crate) output: Option<Output>,
}

impl Signature {
    /// Takes the function apart. [`check`](crate::check) says whether it may be a handler.
    pub(crate) fn read(function: Function, runtime: &Runtime, batch: bool, errors: &mut Errors) -> Self {
        let repeated = repeated_names(&function.signature);
        let any_marked = function.signature.inputs.iter().any(is_marked);
        let parameters = function
            .signature
            .inputs
            .iter()
            .enumerate()
            .filter_map(|(index, input)| match input {
                FnArg::Typed(typed) => Some(Parameter::read(index, typed, any_marked, &repeated, errors)),
                FnArg::Receiver(_) => None,
            })
            .collect();
        let output = Output::read(&function.signature.output, runtime, batch);
        Self { function, batch, parameters, output }
    }

    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |parameter| parameter.role == role)
    }

    /// The token of `self`, for expressions that mean it.
    pub(crate) fn receiver(&self) -> Option<Token![self]> {
        self.function.signature.receiver().map(|receiver| receiver.self_token)
    }
}

impl Parameter {
    fn read(index: usize, typed: &PatType, any_marked: bool, repeated: &[String], errors: &mut Errors) -> Self {
        let (mut marked, mut of_message) = (false, false);
        let (mut cfgs, mut lints, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for attribute in &typed.attrs {
            let path = attribute.path();
            let is = |names: &[&str]| names.iter().any(|name| path.is_ident(name));
            if is(&["tx"]) || is(&["message"]) {
                let mark = if is(&["tx"]) { &mut marked } else { &mut of_message };
                *mark = true;
                if attribute.meta.require_path_only().is_err() {
                    let name = if is(&["tx"]) { "tx" } else { "message" };
                    errors.on(&attribute.meta, format_args!("`{name}` takes no arguments: write `#[{name}]`"));
                }
                if marked && of_message {
                    errors.on(
                        &attribute.meta,
                        "a parameter is the transaction or a part of the message: keep one of the two marks",
                    );
                }
            } else if is(&["cfg", "cfg_attr"]) {
                cfgs.push(attribute.clone());
            } else if is(&["allow", "expect", "warn", "deny", "forbid"]) {
                lints.push(attribute.clone());
            } else {
                others.push(attribute.clone());
            }
        }
        let role = if of_message && !marked { Role::Plain } else { role(&typed.ty, marked, any_marked) };
        let mut outer = Pat::clone(&typed.pat);
        let mut outward = Outward { repeated, cfgs: Vec::new(), bindings: Vec::new() };
        if let Some(name) = hidden_name(&outer, role, index) {
            outward.bindings.push(Binding {
                cfgs: Vec::new(),
                mutability: None,
                inner: name.clone(),
                outer: name.clone(),
            });
            outer = pattern_of(name);
        } else {
            outward.visit_pat_mut(&mut outer);
        }
        Self {
            role,
            cfgs,
            lints,
            others,
            pattern: Pat::clone(&typed.pat),
            outer,
            ty: Type::clone(&typed.ty),
            bindings: outward.bindings,
        }
    }

    /// Do callers not pass what the body gets? An `impl Trait` names no database, so it stays, beside an error.
    pub(crate) fn is_replaced(&self) -> bool {
        self.role != Role::Plain && !types::contains_impl(&self.ty)
    }

    /// All attributes for the rewritten signature.
    pub(crate) fn outer_attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.cfgs.iter().chain(&self.others)
    }
}

fn is_marked(input: &FnArg) -> bool {
    matches!(input, FnArg::Typed(typed) if typed.attrs.iter().any(|attribute| attribute.path().is_ident("tx")))
}

/// Where one parameter is marked, no other is recognised by its type: it may be the application's own `Transaction`.
fn role(ty: &Type, marked: bool, any_marked: bool) -> Role {
    let (passing, referent) = types::passing(ty);
    if marked || (!any_marked && types::is_transaction(referent)) {
        Role::Transaction
    } else if passing == Passing::Shared && (types::is_claim(referent) || types::is_claims(referent)) {
        Role::Claim
    } else {
        Role::Plain
    }
}

/// A name that the user's code cannot see, for what must have one: a `_` parameter is moved into the body all the
/// same, since that decides when it is dropped, and the transaction is one value.
fn hidden_name(pattern: &Pat, role: Role, index: usize) -> Option<Ident> {
    let span = Span::mixed_site();
    match (pattern, role) {
        (Pat::Paren(paren), _) => hidden_name(&paren.pat, role, index),
        (Pat::Ident(PatIdent { by_ref: None, subpat: None, .. }), _) => None,
        (_, Role::Transaction) => Some(Ident::new("tx", span)),
        (Pat::Wild(_), _) => Some(format_ident!("_{index}", span = span)),
        _ => None,
    }
}

fn pattern_of(ident: Ident) -> Pat {
    Pat::Ident(PatIdent { attrs: Vec::new(), by_ref: None, mutability: None, ident, subpat: None })
}

/// Names that several parameters have, which `macro_rules!` makes possible: only their own tokens tell them apart.
fn repeated_names(signature: &syn::Signature) -> Vec<String> {
    #[derive(Default)]
    struct Names(Vec<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, binding: &'ast PatIdent) {
            self.0.push(binding.ident.to_string());
        }
    }
    let mut names = Vec::new();
    // Conditional parameters of one name are alternatives, and so are those in one pattern.
    for input in &signature.inputs {
        match input {
            FnArg::Typed(typed) if typed.attrs.iter().all(|attribute| !attribute.path().is_ident("cfg")) => {
                let mut pattern = Names::default();
                pattern.visit_pat(&typed.pat);
                pattern.0.sort_unstable();
                pattern.0.dedup();
                names.extend(pattern.0);
            }
            _ => {}
        }
    }
    names.sort_unstable();
    names.chunk_by(PartialEq::eq).filter(|names| names.len() > 1).flatten().cloned().collect()
}

/// Turns a parameter's pattern into that of the signature, and notes what it binds.
///
/// Names keep their resolution, so that attributes below can refer to them (`#[instrument(fields(id = %event.id))]`),
/// but count as generated: the body's bindings of the same names would otherwise be shadowing of the user's making.
/// `mut` stays behind, for the body's binding.
struct Outward<'a> {
    repeated: &'a [String],
    cfgs: Vec<Attribute>,
    bindings: Vec<Binding>,
}

impl VisitMut for Outward<'_> {
    fn visit_field_pat_mut(&mut self, field: &mut FieldPat) {
        let cfgs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let outside = self.cfgs.len();
        self.cfgs.extend(cfgs.cloned());
        visit_mut::visit_field_pat_mut(self, field);
        self.cfgs.truncate(outside);
    }

    fn visit_pat_ident_mut(&mut self, binding: &mut PatIdent) {
        let inner = binding.ident.clone();
        if !self.repeated.contains(&inner.to_string()) {
            binding.ident.set_span(Span::call_site().located_at(inner.span()));
        }
        let mutability = if binding.by_ref.is_none() { binding.mutability.take() } else { None };
        // The alternatives of `A(x) | B(x)` bind the same names.
        if self.bindings.iter().all(|known| known.inner != inner) {
            let outer = binding.ident.clone();
            self.bindings.push(Binding { cfgs: self.cfgs.clone(), mutability, inner, outer });
        }
        visit_mut::visit_pat_ident_mut(self, binding);
    }
}

/// The name as a template writes it.
pub(crate) fn plain_name(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// The first name in a parameter's pattern, or the pattern itself, for error texts.
pub(crate) fn shown(parameter: &Parameter) -> String {
    match parameter.bindings.first() {
        Some(binding) => binding.inner.to_string(),
        None => parameter.pattern.to_token_stream().to_string(),
    }
}
