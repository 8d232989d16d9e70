//! The static description of a handler, from which the catalogue is made.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};

use crate::check::Handler;
use crate::duration::Duration;
use crate::identity::Identity;
use crate::rewrite::text;
use crate::runtime::Runtime;
use crate::settings::{Isolation, Missing};
use crate::signature::plain_name;

/// The static description of the handler, registered for the catalogue. It stands in a block of its own, where the
/// user's body cannot see the item.
pub(super) fn spec(handler: &Handler<'_>, runtime: &Runtime) -> TokenStream {
    let Runtime { path, private, .. } = runtime;
    let Handler { signature, settings, .. } = handler;
    let span = Span::mixed_site();
    let mut fields = Vec::new();
    let mut field = |name: &str, value: TokenStream| {
        let name = Ident::new(name, span);
        fields.push(quote_spanned!(span=> #name: #value));
    };
    let (name, chosen) = (text(&settings.consumer.name), settings.consumer.chosen);
    field("consumer", quote!(#name));
    if chosen {
        field("consumer_chosen", quote!(#chosen));
    }
    let sequence = settings.sequence.as_ref();
    for (name, identity) in [
        ("key", Some(&settings.key)),
        ("sender", Some(&settings.sender)),
        ("entity", sequence.map(|sequence| &sequence.entity)),
        ("fingerprint", settings.fingerprint.as_ref()),
    ] {
        if let Some(identity) = identity.filter(|identity| !identity.template.source.is_empty()) {
            field(name, template(identity, private));
        }
    }
    for (name, path) in
        [("occurred_at", settings.occurred_at.as_ref()), ("number", sequence.map(|sequence| &sequence.number))]
    {
        if let Some(path) = path {
            field(name, text(&path.part.text).into_token_stream());
        }
    }
    if settings.retention != Duration::WEEK {
        field("retention_secs", Literal::u64_unsuffixed(settings.retention.secs()).into_token_stream());
    }
    if let Some(horizon) = settings.horizon {
        let secs = Literal::u64_unsuffixed(horizon.secs());
        field("horizon_secs", quote_spanned!(span=> #private::Some(#secs)));
    }
    if settings.missing == Some(Missing::Process) {
        field("missing", quote_spanned!(span=> #private::Missing::Process));
    }
    if settings.skip_expired {
        field("if_expired", quote_spanned!(span=> #private::IfExpired::Skip));
    }
    if settings.replay {
        field("replay", quote!(true));
    }
    if let Some(wait) = &settings.wait {
        let millis = Literal::u64_unsuffixed(wait.millis);
        field("wait_millis", quote_spanned!(span=> #private::Some(#millis)));
    }
    if settings.retry > 0 {
        field("retry", Literal::u16_unsuffixed(settings.retry).into_token_stream());
    }
    if let Some(isolation) = settings.isolation {
        let level = Ident::new(
            match isolation {
                Isolation::ReadCommitted => "ReadCommitted",
                Isolation::RepeatableRead => "RepeatableRead",
                Isolation::Serializable => "Serializable",
            },
            span,
        );
        field("isolation", quote_spanned!(span=> #private::Some(#private::Isolation::#level)));
    }
    let function = text(&plain_name(&signature.function.signature.ident));
    quote_spanned! {span=>
        {
            static HANDLER: #path::Handler = #private::handler(#private::Spec {
                #(#fields,)*
                function: #private::concat!(#private::module_path!(), "::", #function),
                file: #private::file!(),
                line: #private::line!(),
                ..#private::Spec::DEFAULT
            });
            #private::inventory::submit! { #private::Registered(&HANDLER) }
            &HANDLER
        }
    }
}

fn template(identity: &Identity, private: &TokenStream) -> TokenStream {
    let source = text(&identity.template.source);
    let literals = identity.template.literals.iter().map(|literal| text(literal));
    quote_spanned!(Span::mixed_site()=> #private::Template::new(#source, &[#(#literals),*]))
}
