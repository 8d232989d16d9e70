//! The message, or the batch, from the parameters of a call.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::identity::{Identity, Root};
use crate::rewrite::text;
use crate::settings::{Sequence, Settings};
use crate::template::{Part, Step};

/// The session of the message or the batch.
pub(super) fn open(settings: &Settings, private: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let message = message(settings, private);
    let Some(each) = &settings.each else {
        return quote_spanned!(span=> let mut session = #message.open(source););
    };
    let (item, items) = (each.ident(), &each.outer);
    quote_spanned! {span=>
        let mut messages = #private::Messages::new(handler, #items.len());
        for #item in &#items {
            messages.push(#message);
        }
        let mut session = messages.open(source);
    }
}

/// The expression that makes the message from the parameters.
fn message(settings: &Settings, private: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let optional = settings.missing.is_some();
    let key = if settings.key.template.source.is_empty() {
        quote_spanned!(span=> #private::Encoded::None)
    } else {
        let key = writer(&settings.key, "key", optional, private);
        quote_spanned!(span=> #key.finish())
    };
    let sender = writer(&settings.sender, "sender", optional, private);
    let occurred_at = settings.occurred_at.as_ref().map(|field| {
        let (value, at) = access(&field.part, &field.root);
        quote_spanned!(at=> .occurred_at(&#value))
    });
    let sequence = settings.sequence.as_ref().map(|Sequence { entity, number }| {
        let entity = writer(entity, "entity", optional, private);
        let (number, at) = access(&number.part, &number.root);
        quote_spanned!(at=> .sequence(#entity.finish(), &#number))
    });
    let fingerprint = settings.fingerprint.as_ref().map(|fingerprint| {
        // What the content lacks is a part of it.
        let fingerprint = writer(fingerprint, "fingerprint", true, private);
        quote_spanned!(span=> .fingerprint(#fingerprint.digest()))
    });
    quote_spanned! {span=>
        #private::Message::new(handler, #key, #sender.finish()) #occurred_at #sequence #fingerprint
    }
}

/// The expression that fills a template from the parameters.
fn writer(identity: &Identity, constructor: &str, optional: bool, private: &TokenStream) -> TokenStream {
    let span = Span::mixed_site();
    let constructor = Ident::new(constructor, span);
    let parts = identity.parts().map(|(part, root)| {
        let (value, at) = access(part, root);
        let method = Ident::new(if optional { "optional" } else { "part" }, at);
        let name = text(&part.text);
        quote_spanned!(at=> .#method(#name, &#value))
    });
    quote_spanned!(span=> #private::Writer::#constructor(handler) #(#parts)*)
}

/// The expression for a part's value, and where errors about it are shown: at its text.
fn access(part: &Part, root: &Root) -> (TokenStream, Span) {
    let at = Span::mixed_site().located_at(root.ident.span());
    let value = &root.ident;
    let steps = part.steps.iter().map(|step| match step {
        Step::Field(name) => {
            let field = identifier(name, at);
            quote_spanned!(at=> .#field)
        }
        Step::Index(index) => {
            let mut index = Literal::u32_unsuffixed(*index);
            index.set_span(at);
            quote_spanned!(at=> .#index)
        }
        Step::Method(name) => {
            let method = identifier(name, at);
            quote_spanned!(at=> .#method())
        }
    });
    (quote!(#value #(#steps)*), at)
}

/// The name, raw if it is a keyword in any edition.
pub(crate) fn identifier(name: &str, span: Span) -> Ident {
    if name == "gen" || syn::parse_str::<Ident>(name).is_err() {
        Ident::new_raw(name, span)
    } else {
        Ident::new(name, span)
    }
}
