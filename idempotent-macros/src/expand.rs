//! Writes the handler. Everything here has been checked, so that nothing can go wrong any more.
//!
//! Generated tokens have the span `mixed_site`: their local names are invisible to the user's code, and no lint takes
//! them for it. Tokens of the user keep their spans, so that errors and warnings about them stay the user's.

mod message;
mod spec;

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Lifetime, ReturnType, Type};

use crate::check::Handler;
pub(crate) use crate::expand::message::identifier;
use crate::identity::Each;
use crate::rewrite;
use crate::runtime::Runtime;
use crate::signature::{Binding, Parameter, Role, Signature, plain_name, shown};
use crate::{attributes, document, types};

/// The handler in place of the user's function.
pub(crate) fn handler(handler: &Handler<'_>, runtime: &Runtime) -> TokenStream {
    let Runtime { private, .. } = runtime;
    let Handler { signature, output, settings } = handler;
    let span = Span::mixed_site();
    let spec = spec::spec(handler, runtime);
    let sources = signature.with_role(Role::Transaction).flat_map(|parameter| {
        let cfgs = &parameter.cfgs;
        parameter.bindings.iter().map(move |binding| {
            let source = types::source(&parameter.ty, &binding.outer, runtime);
            quote_spanned!(span=> #(#cfgs)* let source = #source;)
        })
    });
    let open = message::open(settings, private);
    let fresh = settings.each.as_ref().map(|Each { outer, .. }| quote_spanned!(span=> let #outer = run.fresh(#outer);));
    let parts = if signature.with_role(Role::Claim).next().is_some() {
        quote_spanned!(span=> let (transaction, claim) = run.parts();)
    } else {
        quote_spanned!(span=> let transaction = run.transaction();)
    };
    let body = body(signature, &output.inferred, &used_elsewhere(handler), private, |parameter| {
        if parameter.role == Role::Claim {
            // A type of the user's that is called `Claim` too is an error here, at its name.
            let place = types::anchor(&parameter.ty);
            let Runtime { private, .. } = runtime.located_at(place);
            let at_type = span.located_at(place);
            return if settings.each.is_some() {
                quote_spanned!(at_type=> #private::claims(&claim))
            } else {
                quote_spanned!(at_type=> #private::claim(claim))
            };
        }
        quote_spanned!(span=> transaction)
    });
    // A missing `From<Error>` is about the user's error type, so this is where the compiler should point.
    let at_error = span.located_at(output.error);
    let result = Ident::new("result", at_error);
    let (replay, settled, finish) = if settings.replay {
        // Whether the value can be stored is a matter of its type.
        let place = types::anchor(output.value.as_ref().unwrap_or(&output.inferred));
        let Runtime { private: at_value, .. } = runtime.located_at(place);
        let json = quote_spanned!(span.located_at(place)=> #at_value::Replay::json());
        (
            quote_spanned!(span=> let replay = #json;),
            quote_spanned!(at_error=> why.settled_or_replayed(#private::Some(replay))),
            quote_spanned!(at_error=> run.finish_and_store(#result, #private::Some(replay)).await),
        )
    } else {
        let settled = quote_spanned!(at_error=> why.settled());
        (TokenStream::new(), settled, quote_spanned!(at_error=> run.finish(#result).await))
    };
    let once = quote_spanned! {span=>
        // A conflict before the body has run makes the loop begin again.
        let mut refused = #private::None;
        let mut run = loop {
            refused = match session.begin(refused).await {
                #private::Ok(run) => break run,
                #private::Err(why) => match #settled {
                    #private::Ok(outcome) => return outcome,
                    #private::Err(why) => #private::Some(why),
                },
            };
        };
        let span = run.span();
        #fresh
        #parts
        let #result = #private::Instrument::instrument(#body, span).await;
        let outcome = #finish;
    };
    let run = if settings.retry == 0 {
        quote_spanned!(span=> #once return session.close(outcome).await;)
    } else {
        again(&once, handler, runtime)
    };
    let statements = quote_spanned! {span=>
        let handler = #spec;
        #(#sources)*
        #open
        #replay
        #run
    };
    rewrite::function(signature, runtime, &document::section(handler), &statements)
}

/// Runs `once` until its error is none that the next run may not have.
fn again(once: &TokenStream, handler: &Handler<'_>, runtime: &Runtime) -> TokenStream {
    let Handler { signature, output, .. } = handler;
    let Runtime { private, .. } = runtime;
    let span = Span::mixed_site();
    let arguments = arguments_again(signature, runtime);
    // Whether an error is transient is a matter of its type.
    let Runtime { private: at_type, .. } = runtime.located_at(output.error);
    let transient = quote_spanned!(span.located_at(output.error)=> {
        use #at_type::{AnyError as _, AsAnyError as _, AsSharedError as _, NoError as _, OwnError as _};
        (&&&&&#at_type::Probe(error)).is_transient()
    });
    quote_spanned! {span=>
        // A transient error makes the loop run again, in a new transaction.
        loop {
            #arguments
            #once
            let transient = match &outcome {
                #private::Err(error) => #transient,
                #private::Ok(_) => false,
            };
            if !(transient && session.runs_again().await) {
                return session.close(outcome).await;
            }
        }
    }
}

/// Each run of the body gets arguments of its own.
fn arguments_again(signature: &Signature, runtime: &Runtime) -> TokenStream {
    signature
        .with_role(Role::Plain)
        .flat_map(|parameter| parameter.bindings.iter().map(move |binding| (parameter, binding)))
        .map(|(Parameter { cfgs, ty, .. }, Binding { cfgs: fields, outer, .. })| {
            // What cannot be given twice is an error at its type.
            let place = types::anchor(ty);
            let Runtime { private, .. } = runtime.located_at(place);
            let span = Span::mixed_site().located_at(place);
            quote_spanned!(span=> #(#cfgs)* #(#fields)* let #outer = #private::again(&#outer);)
        })
        .collect()
}

/// The function with its new signature and a body that only editors and the type checker see: it stands beside a
/// `compile_error!`, and callers should not get further errors from it.
pub(crate) fn fallback(signature: &Signature, runtime: &Runtime) -> TokenStream {
    let Runtime { path, private, .. } = runtime;
    let span = Span::mixed_site();
    let never = quote_spanned! {span=>
        match ::core::option::Option::None {
            ::core::option::Option::Some(never) => never,
            ::core::option::Option::None => loop {},
        }
    };
    let unit: Type = Type::Verbatim(quote_spanned!(span=> ()));
    let returned = match (&signature.output, &signature.function.signature.output) {
        (Some(output), _) => &output.inferred,
        (None, ReturnType::Type(_, ty)) if !types::contains_impl(ty) => ty,
        (None, _) => &unit,
    };
    let everything: Vec<&Ident> =
        signature.parameters.iter().flat_map(|parameter| &parameter.bindings).map(|binding| &binding.outer).collect();
    let body = body(signature, returned, &everything, private, |_| never.clone());
    let outcome = if signature.batch {
        quote_spanned!(span=> #path::Batch { output: ::core::option::Option::Some(value), outcomes: #never })
    } else {
        quote_spanned!(span=> #path::Outcome::Processed(value))
    };
    let statements = if signature.output.is_some() {
        quote_spanned! {span=>
            let () = #never;
            match #body.await {
                ::core::result::Result::Ok(value) => ::core::result::Result::Ok(#outcome),
                ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
            }
        }
    } else {
        quote_spanned!(span=> let () = #never; #body.await)
    };
    rewrite::function(signature, runtime, "", &statements)
}

/// The names that something other than the body uses, and that are therefore not unused.
fn used_elsewhere<'a>(handler: &Handler<'a>) -> Vec<&'a Ident> {
    let Handler { signature, settings, .. } = handler;
    let bindings = signature.parameters.iter().flat_map(|parameter| &parameter.bindings).map(|binding| &binding.outer);
    if signature.function.attributes.iter().any(attributes::may_be_macro) {
        // It sees the rewritten function, parameters included.
        return bindings.collect();
    }
    let templates = [&settings.key, &settings.sender].into_iter().chain(&settings.fingerprint);
    let templates = templates.chain(settings.sequence.as_ref().map(|sequence| &sequence.entity));
    let fields = settings.occurred_at.iter().chain(settings.sequence.as_ref().map(|sequence| &sequence.number));
    let roots = templates.flat_map(|template| &template.roots).chain(fields.map(|field| &field.root));
    let batch = settings.each.as_ref().map(|each| &each.outer);
    let roots: Vec<_> = roots.map(|root| &root.ident).chain(batch).collect();
    bindings.filter(|outer| roots.contains(outer)).collect()
}

/// The user's body as an async block.
///
/// Every parameter is moved in, in order, so that they are dropped when and in the order in which a plain `async fn`
/// drops them. The types of transaction and claim are outside the user's block, whose own items they do not mean.
fn body(
    signature: &Signature,
    returned: &Type,
    used: &[&Ident],
    private: &TokenStream,
    given: impl Fn(&Parameter) -> TokenStream,
) -> TokenStream {
    let span = Span::mixed_site();
    let bindings = signature.parameters.iter().map(|parameter| {
        let Parameter { cfgs, lints, pattern, ty, .. } = parameter;
        if parameter.is_replaced() {
            let given = value(&shown(parameter), &given(parameter));
            let ty = types::with_lifetimes(ty, "'_");
            return quote_spanned!(span=> #(#cfgs)* #(#lints)* let #pattern: #ty = #given;);
        }
        let moved = parameter.bindings.iter().map(|binding| {
            let Binding { cfgs: fields, mutability, inner, outer } = binding;
            let given = value(&plain_name(inner), outer);
            // A name with an underscore may be unused, and is not to be used either.
            let used = (used.contains(&outer) && !plain_name(inner).starts_with('_'))
                .then(|| quote_spanned!(span=> #(#cfgs)* #(#fields)* let _ = &#inner;));
            quote_spanned! {span=>
                #(#cfgs)* #(#fields)* #(#lints)* let #mutability #inner = #given;
                #used
            }
        });
        quote!(#(#moved)*)
    });
    let block = signature.function.body.as_ref().map(|body| user_block(body, returned));
    // A value of another type is shown beside the type that was written.
    let early = quote_spanned!(span.located_at(types::anchor(returned))=> return early;);
    quote_spanned! {span=>
        async move {
            // Tells the compiler the type that `?` and `return` are to have.
            if let #private::Some(early) = #private::None::<#returned> {
                #early
            }
            #(#bindings)*
            #block
        }
    }
}

/// The user's body as a block: the user's own group, so that what the compiler says about it is said once and as if
/// there were no macro.
fn user_block(body: &Group, returned: &Type) -> TokenStream {
    let is_semicolon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
    if body.stream().into_iter().any(|token| is_semicolon(&token)) {
        return body.to_token_stream();
    }
    // The compiler finds braces around a single expression unnecessary, unless they have a label; nothing breaks to
    // this one. If the value is missing, the label is where the compiler points.
    let place = Span::mixed_site().located_at(types::anchor(returned));
    let label = Lifetime::new("'_body", place);
    quote_spanned!(place=> #label: #body)
}

/// What to bind to a name. A mere variable under a name with an underscore is a lint of clippy's, as if the user had
/// written it for nothing.
fn value(name: &str, variable: &impl ToTokens) -> TokenStream {
    let span = Span::mixed_site();
    if name.starts_with('_') { quote_spanned!(span=> { #variable }) } else { variable.to_token_stream() }
}
