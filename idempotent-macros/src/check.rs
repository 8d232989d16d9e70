//! Decides whether a function and its options make a handler. What comes out needs no further checks.

use syn::{ReturnType, Safety, Type};

use crate::display::display;
use crate::errors::Errors;
use crate::options::Options;
use crate::rewrite;
use crate::runtime::Runtime;
use crate::settings::Settings;
use crate::signature::{Parameter, Role, Signature, shown};
use crate::types::{self, Output, Passing};

/// A handler that keeps every rule, ready to be expanded.
pub(crate) struct Handler<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) output: &'a Output,
    pub(crate) settings: Settings,
}

impl<'a> Handler<'a> {
    /// Checks every rule; `None` if one is broken, which has been reported.
    pub(crate) fn check(
        signature: &'a Signature,
        options: &Options,
        runtime: &Runtime,
        package: Option<&str>,
        errors: &mut Errors,
    ) -> Option<Self> {
        check_function(signature, runtime, errors);
        check_transaction(signature, errors);
        check_claim(signature, errors);
        let settings = Settings::read(options, signature, package, errors);
        let output = signature.output.as_ref()?;
        let value = output.value.as_ref().filter(|_| settings.replay);
        if let Some(reference) = value.and_then(types::reference) {
            errors.on(
                reference,
                "`replay` gives the value to later deliveries, so it cannot borrow from this one: return an owned value, \
                 like `String`",
            );
        }
        errors.is_empty().then_some(Self { signature, output, settings })
    }
}

fn check_function(signature: &Signature, runtime: &Runtime, errors: &mut Errors) {
    let syn::Signature { constness, asyncness, safety, abi, fn_token, ident, paren_token, output, .. } =
        &signature.function.signature;
    if let Some(constness) = constness {
        errors.on(constness, "a const function cannot wait for a database: write `async fn` without `const`");
    }
    if let Safety::Unsafe(unsafety) = safety {
        errors.on(
            unsafety,
            "an unsafe function cannot be a handler: write a safe one, with `unsafe { … }` inside where it is needed",
        );
    }
    if let Some(abi) = abi {
        errors.on(abi, "an extern function cannot be a handler: write a plain `async fn`");
    }
    if let Some(variadic) = &signature.function.signature.variadic {
        errors.on(variadic, "a handler has a fixed number of parameters: remove this one");
    }
    // The others have been told to become `async fn`.
    if asyncness.is_none() && constness.is_none() && abi.is_none() {
        errors.on(
            fn_token,
            format_args!("`{ident}` is not async, and a handler waits for the database: write `async fn {ident}`"),
        );
    }
    if signature.function.body.is_none() {
        errors.on(
            ident,
            format_args!(
                "`{ident}` has no body to protect: write `#[idempotent]` above the method of each impl, and here `{};`",
                rewrite::declaration(signature, runtime)
            ),
        );
    }
    if signature.output.is_none() {
        match output {
            ReturnType::Default => errors.at(
                paren_token.span.close(),
                format_args!(
                    "`{ident}` returns nothing, and a handler can fail: write `-> sqlx::Result<()>`, and `Ok(())` at the end"
                ),
            ),
            ReturnType::Type(_, ty) => errors.on(
                ty,
                format_args!(
                    "`{ident}` returns `{0}`, and a handler can fail: write `-> sqlx::Result<{1}>`, or another `Result`, \
                     and `Ok(…)` around the value",
                    display(ty),
                    suggested_value(ty),
                ),
            ),
        }
    }
}

/// What the user would want to put into a `Result`.
fn suggested_value(ty: &Type) -> String {
    let text = display(ty);
    if types::contains_impl(ty) { "T".to_owned() } else { text }
}

fn check_transaction(signature: &Signature, errors: &mut Errors) {
    let transactions: Vec<&Parameter> = signature.with_role(Role::Transaction).collect();
    for parameter in &transactions {
        let name = shown(parameter);
        let (passing, referent) = types::passing(&parameter.ty);
        let advice = format!("write `{name}: &mut {}`", display(referent));
        match passing {
            Passing::Mutable if types::contains_impl(referent) => {
                errors.on(
                    &parameter.ty,
                    format_args!(
                        "the type of `{name}` does not say its database: write `{name}: &mut sqlx::PgTransaction<'_>`"
                    ),
                );
            }
            Passing::Mutable => {}
            Passing::Shared => errors.on(
                &parameter.ty,
                format_args!(
                    "`{name}` is a transaction behind a shared reference, through which no statement runs: {advice}"
                ),
            ),
            Passing::Value => errors.on(
                &parameter.ty,
                format_args!(
                    "`{name}` takes the transaction by value, and the library commits it after the body: {advice}{}",
                    reborrowed(signature, &name)
                ),
            ),
        }
    }
    // With `#[cfg]` on each, at most one is there at a time, and the compiler sees which.
    let conditional = transactions.iter().all(|parameter| !parameter.cfgs.is_empty());
    if let ([_, seconds @ ..], false) = (transactions.as_slice(), conditional) {
        for second in seconds {
            errors.on(
                &second.ty,
                format_args!(
                    "`{}` is a second transaction, and a handler runs in one: remove one of the two",
                    shown(second)
                ),
            );
        }
    }
    if transactions.is_empty() {
        no_transaction(signature, errors);
    }
}

/// What else changes in a body that executes on a transaction of its own.
fn reborrowed(signature: &Signature, name: &str) -> String {
    let body = signature.function.body.as_ref().map(|body| display(body).split_whitespace().collect::<String>());
    if body.is_some_and(|body| body.contains(&format!("&mut*{name}"))) {
        format!(", and `&mut **{name}` in the body for `&mut *{name}`")
    } else {
        String::new()
    }
}

fn no_transaction(signature: &Signature, errors: &mut Errors) {
    let pool = signature
        .with_role(Role::Plain)
        .find_map(|parameter| types::transaction_of_pool(&parameter.ty).map(|transaction| (parameter, transaction)));
    if let Some((parameter, transaction)) = pool {
        return errors.on(
            &parameter.ty,
            format_args!(
                "the body must run in the transaction of its claim, not on a pool: write `tx: &mut {transaction}`, and \
                 let callers pass `&pool`"
            ),
        );
    }
    let ident = &signature.function.signature.ident;
    let alias = signature
        .with_role(Role::Plain)
        .find(|parameter| {
            let (passing, referent) = types::passing(&parameter.ty);
            passing == Passing::Mutable && matches!(referent, Type::Path(_))
        })
        .map(|parameter| {
            let (name, ty) = (shown(parameter), display(&parameter.ty));
            format!("; if `{name}` is one, mark it: `#[tx] {name}: {ty}`")
        });
    errors.on(
        ident,
        format_args!(
            "`{ident}` has no transaction parameter: add `tx: &mut sqlx::PgTransaction<'_>`, or \
             `sqlx::MySqlTransaction`, or `sqlx::SqliteTransaction`{}",
            alias.unwrap_or_default()
        ),
    );
}

fn check_claim(signature: &Signature, errors: &mut Errors) {
    let one = |parameter: &&Parameter| types::is_claim(types::passing(&parameter.ty).1);
    for parameter in signature.with_role(Role::Claim).filter(one).filter(|_| signature.batch) {
        errors.on(&parameter.ty, "a batch has a claim for each fresh item: write `claims: &[Claim]`");
    }
    for parameter in signature.with_role(Role::Claim).filter(|parameter| !one(parameter) && !signature.batch) {
        errors.on(
            &parameter.ty,
            "many claims are those of a batch, and there is no `each`: write `claim: &Claim`; or `#[message]` before the \
             parameter if it is a part of the message",
        );
    }
    for second in signature.with_role(Role::Claim).skip(1).filter(|parameter| parameter.cfgs.is_empty()) {
        let name = shown(second);
        errors.on(&second.ty, format_args!("`{name}` is a second claim, and a message has one: remove one of the two"));
    }
}
