//! `#[derive(KeyPart)]`: newtypes and enums without fields.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DataEnum, DeriveInput, Fields, Ident, LitStr, Member, Path, Variant};

use crate::errors::Errors;
use crate::manifest::Dependency;
use crate::runtime::{self, Runtime};
use crate::suggest::nearest;

/// What a value writes into a key.
enum Body<'a> {
    /// What its only field writes.
    Newtype { member: Member, ty: &'a syn::Type },
    /// The text of its variant.
    Texts(Vec<(&'a Variant, LitStr)>),
}

/// Derives in a package that depends on the library by its own name.
#[cfg(test)]
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    derive_in(input, &Dependency::ByName)
}

/// The implementation, or what is wrong with the type.
pub(crate) fn derive_in(input: TokenStream, dependency: &Dependency) -> TokenStream {
    let input: DeriveInput = match syn::parse2(input) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let path = crate_path(&input.attrs, &mut errors);
    if path.is_none() && *dependency == Dependency::Absent {
        errors.at(Span::call_site(), runtime::absent("#[key_part(crate = my_facade::idempotent_runtime)]"));
    }
    let body = read(&input, &mut errors);
    match body.filter(|_| errors.is_empty()) {
        Some(body) => expand(&input, &body, &Runtime::new(path.as_ref(), dependency)),
        None => errors.to_compile_errors(),
    }
}

/// `#[key_part(crate = path)]` on the type.
fn crate_path(attributes: &[Attribute], errors: &mut Errors) -> Option<Path> {
    let mut path = None;
    for attribute in ours(attributes) {
        let parsed = attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("on the type itself, write `#[key_part(crate = path)]`, or nothing"));
            }
            path = Some(meta.value()?.call(Path::parse_mod_style)?);
            Ok(())
        });
        parsed.unwrap_or_else(|error| errors.push(error));
    }
    path
}

fn ours(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("key_part"))
}

fn read<'a>(input: &'a DeriveInput, errors: &mut Errors) -> Option<Body<'a>> {
    match &input.data {
        Data::Struct(data) => read_newtype(&input.ident, &data.fields, errors),
        Data::Enum(data) => Some(Body::Texts(read_texts(&input.ident, data, errors))),
        Data::Union(data) => {
            errors.on(
                data.union_token,
                "a union cannot be a part of a key: write a struct with one field, or an enum without fields",
            );
            None
        }
    }
}

fn read_newtype<'a>(ident: &Ident, fields: &'a Fields, errors: &mut Errors) -> Option<Body<'a>> {
    for attribute in fields.iter().flat_map(|field| ours(&field.attrs)) {
        errors.on(attribute, "a field has no text of its own: remove this attribute");
    }
    let mut members = fields.members().zip(fields);
    match (members.next(), members.next()) {
        (Some((member, field)), None) => Some(Body::Newtype { member, ty: &field.ty }),
        (None, _) => {
            errors.on(ident, format_args!("`{ident}` has no field to write into a key: give it one"));
            None
        }
        (_, Some(_)) => {
            let parts: Vec<String> =
                fields.members().map(|member| format!("{{….{}}}", member.to_token_stream())).collect();
            errors.on(
                ident,
                format_args!(
                    "`{ident}` has {} fields, and a part of a key is one value: remove this derive, and name the fields in \
                     the template, as in `{}`",
                    fields.len(),
                    parts.join(":"),
                ),
            );
            None
        }
    }
}

fn read_texts<'a>(ident: &Ident, data: &'a DataEnum, errors: &mut Errors) -> Vec<(&'a Variant, LitStr)> {
    if data.variants.is_empty() {
        errors.on(
            ident,
            format_args!(
                "`{ident}` has no variant to write into a key: give it one, as in `#[key_part(\"created\")] Created`"
            ),
        );
    }
    let mut texts: Vec<(&Variant, LitStr)> = Vec::new();
    for variant in &data.variants {
        let name = &variant.ident;
        if !variant.fields.is_empty() {
            errors.on(
                &variant.fields,
                format_args!("`{name}` has fields, and the text of a variant is fixed: remove them, or write the impl of `KeyPart` by hand"),
            );
        }
        let Some(text) = text(variant, errors) else { continue };
        let value = text.value();
        if value.trim().is_empty() {
            errors.on(&text, format_args!("a blank text counts as a missing key: write `{}`", example(name)));
        } else if let Some((other, _)) = texts.iter().find(|(_, known)| known.value() == value) {
            errors.on(
                &text,
                format_args!(
                    "`{}` has the text {value:?} too, so that both would be one key: write another",
                    other.ident
                ),
            );
        } else {
            texts.push((variant, text));
        }
    }
    texts
}

/// The text in `#[key_part("…")]` on a variant.
fn text(variant: &Variant, errors: &mut Errors) -> Option<LitStr> {
    let name = &variant.ident;
    let mut attributes = ours(&variant.attrs);
    let Some(attribute) = attributes.next() else {
        let misspelt = variant
            .attrs
            .iter()
            .filter_map(|attribute| attribute.path().get_ident())
            .find(|ident| nearest(&ident.to_string(), ["key_part"]).is_some());
        errors.on(
            misspelt.unwrap_or(name),
            format_args!(
                "`{name}` has no text, and its name must be free to change: write `{}` above it",
                example(name)
            ),
        );
        return None;
    };
    for second in attributes {
        errors.on(second, format_args!("`{name}` has two texts: keep one of them"));
    }
    attribute
        .parse_args()
        .map_err(|_| {
            let example = example(name);
            errors.on(attribute, format_args!("`key_part` takes the text of the variant: write `{example}`"));
        })
        .ok()
}

/// The attribute that a variant could have.
fn example(variant: &Ident) -> String {
    let mut text = String::new();
    for char in variant.to_string().trim_start_matches("r#").chars() {
        if char.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(char.to_lowercase());
    }
    format!("#[key_part({text:?})]")
}

fn expand(input: &DeriveInput, body: &Body<'_>, runtime: &Runtime) -> TokenStream {
    let Runtime { path, private, .. } = runtime;
    let DeriveInput { ident, generics, .. } = input;
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let mut bounds = where_clause.map(|clause| clause.predicates.clone().into_token_stream()).unwrap_or_default();
    let span = Span::mixed_site();
    let statement = match body {
        Body::Newtype { member, ty } => {
            // Only a generic field needs a promise; another one is checked in the body, where the error is at home.
            if generics.type_params().next().is_some() {
                let comma = (!bounds.is_empty()
                    && !where_clause.is_some_and(|clause| clause.predicates.trailing_punct()))
                .then(|| quote_spanned!(span=> ,));
                bounds.extend(quote_spanned!(span=> #comma #ty: #path::KeyPart));
            }
            let at_type = span.located_at(ty.span());
            quote_spanned!(at_type=> #private::write_field(&self.#member, part))
        }
        Body::Texts(texts) => {
            let arms = texts.iter().map(|(variant, text)| {
                let mut literal = Literal::string(&text.value());
                literal.set_span(span);
                let fields = (!matches!(variant.fields, Fields::Unit)).then(|| quote_spanned!(span=> { .. }));
                let variant = &variant.ident;
                quote_spanned!(span=> Self::#variant #fields => #literal,)
            });
            quote_spanned!(span=> part.write_str(match *self { #(#arms)* }))
        }
    };
    let where_clause = (!bounds.is_empty()).then(|| quote_spanned!(span=> where #bounds));
    quote_spanned! {span=>
        #[automatically_derived]
        impl #impl_generics #path::KeyPart for #ident #type_generics #where_clause {
            fn write_key_part(&self, part: &mut #path::PartWriter<'_>) {
                #statement
            }
        }
    }
}
