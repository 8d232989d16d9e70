//! The way of one `#[idempotent]`: parse, check, expand.

use proc_macro2::{Span, TokenStream, TokenTree};

use crate::check::Handler;
use crate::errors::Errors;
use crate::manifest::Dependency;
use crate::options::{Name, Options};
use crate::runtime::{self, Runtime};
use crate::signature::{Function, Signature};
use crate::{expand, types};

/// Expands the attribute in a package that depends on the library by its own name.
#[cfg(test)]
pub(crate) fn idempotent(arguments: TokenStream, item: TokenStream, package: Option<&str>) -> TokenStream {
    expand_in(arguments, item, package, &Dependency::ByName)
}

/// Expands the attribute. `package` is the name of the user's package, for the default consumer.
///
/// Whatever is wrong, the function is still there afterwards, so that the errors shown are the real ones only.
pub(crate) fn expand_in(
    arguments: TokenStream,
    item: TokenStream,
    package: Option<&str>,
    dependency: &Dependency,
) -> TokenStream {
    let mut errors = Errors::default();
    let options = Options::parse(arguments, &mut errors);
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            no_function(&item, error, &mut errors);
            return beside(item, &errors);
        }
    };
    if types::is_future_of_async_trait(&function.signature.output) {
        rewritten_by_async_trait(&function, &mut errors);
        return beside(item, &errors);
    }
    let path = options.path(Name::Crate);
    let absent = path.is_none() && *dependency == Dependency::Absent;
    if absent {
        errors.at(Span::call_site(), runtime::absent(Name::Crate.entry().example));
    }
    let runtime = Runtime::new(path, dependency);
    let signature = Signature::read(function, &runtime, options.mentions(Name::Each), &mut errors);
    if let Some(handler) = Handler::check(&signature, &options, &runtime, package, &mut errors) {
        return expand::handler(&handler, &runtime);
    }
    // What is rewritten names the library.
    let function = if absent { item } else { expand::fallback(&signature, &runtime) };
    beside(function, &errors)
}

fn beside(item: TokenStream, errors: &Errors) -> TokenStream {
    let mut output = errors.to_compile_errors();
    output.extend(item);
    output
}

/// An attribute on an `impl` is expanded before those inside it, in whatever order they are written.
fn rewritten_by_async_trait(function: &Function, errors: &mut Errors) {
    let ident = &function.signature.ident;
    errors.on(
        ident,
        format_args!(
            "`#[async_trait]` has made `{ident}` a function that is not async, before `#[idempotent]` could see it: write \
             the handler as an `async fn` outside this impl and call it from here, or write trait and impl with `async \
             fn` and without `#[async_trait]`"
        ),
    );
}

/// Says what the attribute stands on, if it is not a function.
fn no_function(item: &TokenStream, error: syn::Error, errors: &mut Errors) {
    const ITEMS: [&str; 11] =
        ["struct", "enum", "union", "trait", "impl", "mod", "const", "static", "type", "use", "extern"];
    let keyword = item.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ITEMS.iter().any(|word| ident == word) => Some(ident),
        _ => None,
    });
    let place = match keyword.as_ref().map(ToString::to_string).as_deref() {
        Some("impl" | "trait" | "mod") => "write it above each handler inside",
        _ => "write it above the `async fn` that handles a message",
    };
    match keyword {
        _ if is_function(item) => errors.push(error),
        Some(keyword) => {
            errors
                .on(&keyword, format_args!("`#[idempotent]` belongs on a function, and this is `{keyword}`: {place}"));
        }
        None if is_closure(item) => {
            errors
                .at(error.span(), "`#[idempotent]` belongs on a function, and this is a closure: write an `async fn`");
        }
        None => errors.at(error.span(), format_args!("`#[idempotent]` belongs on a function: {place}")),
    }
}

/// `const fn` and `extern "C" fn` start like other items.
fn is_function(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"))
}

fn is_closure(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| matches!(token, TokenTree::Punct(bar) if bar.as_char() == '|'))
}

#[cfg(test)]
#[path = "attribute_tests.rs"]
mod tests;
