//! The macros of [`idempotent-runtime`](https://docs.rs/idempotent-runtime), which re-exports them. Depend on that
//! crate, not on this one: the generated code names its private items, and the two are released together.
//!
//! An expansion parses, then checks, then writes code:
//!
//! | step | module |
//! |---|---|
//! | read the attribute's arguments | `options` |
//! | read the function, and say what each parameter is for | `signature`, `types` |
//! | read the templates in the arguments | `template` |
//! | find the library in the user's manifest | `manifest`, `runtime` |
//! | check the rules, all of them, and gather what is wrong | `check`, `settings`, `errors` |
//! | write the handler, or what stands in for it beside errors | `expand`, `rewrite`, `document` |
//!
//! Everything below this file speaks `proc_macro2` and is tested as ordinary code.

#[macro_use]
mod options;

mod attribute;
mod attributes;
mod check;
mod display;
mod document;
mod duration;
mod errors;
mod expand;
mod identity;
mod key_part;
mod manifest;
mod rewrite;
mod runtime;
mod settings;
mod signature;
mod suggest;
mod template;
mod types;

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod snapshot_tests;

use proc_macro::TokenStream;

use crate::manifest::Dependency;

/// Runs an async message handler once per key: the claim on the key and the effects of the body are committed in one
/// transaction, and a message that comes again is answered without running the body.
///
/// ```ignore
/// use idempotent_runtime::{Outcome, idempotent};
///
/// /// Adds the credit to the account and returns the new balance in cents.
/// #[idempotent(key = "{event.id}")]
/// async fn grant_credit(tx: &mut PgTransaction<'_>, event: &CreditGranted) -> sqlx::Result<i64> {
///     sqlx::query_scalar("UPDATE accounts SET cents = cents + $1 WHERE id = $2 RETURNING cents")
///         .bind(event.cents)
///         .bind(&event.account)
///         .fetch_one(&mut **tx)
///         .await
/// }
///
/// let outcome: Outcome<i64> = grant_credit(&pool, &event).await?;
/// ```
///
/// # What changes
///
/// | written | becomes |
/// |---|---|
/// | `tx: &mut PgTransaction<'_>` | `tx: impl IntoSource<'_, Postgres>`, which is every `Into<Source<'_, Postgres>>`: callers pass `&pool`, a claim store, or their own transaction. A `pub` or `pub(crate)` function without type parameters gets two in the place of `impl` and the lifetime (see `IntoSourceFor`) |
/// | `claim: &Claim`, if it is there | nothing: the library passes it |
/// | `-> Result<T, E>` | `-> Result<Outcome<T>, E>`, with `E: From<idempotent_runtime::Error>` |
///
/// The transaction parameter is a `&mut` of `Transaction`, `PgTransaction`, `MySqlTransaction`, `SqliteTransaction` or
/// one of sqlx's connections, known by its last path segment. An alias is marked: `#[tx] tx: &mut Tx<'_>`. A part of the
/// message whose own type is called `Claim` or `Transaction` is marked too: `#[message] claim: &insurance::Claim`.
///
/// # Options
///
#[doc = option_table!()]
///
/// The front page of [`idempotent-runtime`](https://docs.rs/idempotent-runtime) has examples of the options about time, order and
/// answers, and one table of what is decided first.
///
/// # Templates
///
/// `{parameter.field}`, also `.0`, and `.method()` without arguments. Between two parts there is text that starts with
/// punctuation, so that two different messages never have the same key. Text is visible ASCII other than `%`; `{{` and
/// `}}` are braces. A part is a string, an integer, a `bool`, a `char`, a `Uuid`, a calendar date, or a type with
/// `#[derive(KeyPart)]`.
///
/// # Traits
///
/// `#[async_trait]` rewrites its methods before this attribute sees them: write the handler outside that impl, and call it
/// from there.
///
/// In an `impl` of a trait with `async fn`, the attribute stands on the method of the impl, and the trait declares the
/// rewritten signature:
///
/// ```ignore
/// trait Ledger {
///     async fn grant(
///         &self,
///         tx: impl Into<Source<'_, Postgres>>,
///         event: &CreditGranted,
///     ) -> sqlx::Result<Outcome<i64>>;
/// }
///
/// impl Ledger for Books {
///     #[idempotent(key = "{event.id}")]
///     async fn grant(&self, tx: &mut PgTransaction<'_>, event: &CreditGranted) -> sqlx::Result<i64> {
///         // …
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let package = std::env::var("CARGO_PKG_NAME").ok();
    attribute::expand_in(arguments.into(), item.into(), package.as_deref(), &Dependency::find()).into()
}

/// Lets a type stand in a template.
///
/// A struct with one field writes what the field writes. An enum without fields writes the text of its variant, which
/// is given for each, so that a renamed variant still makes the same key:
///
/// ```ignore
/// #[derive(KeyPart)]
/// struct OrderId(u64);
///
/// #[derive(KeyPart)]
/// enum Kind {
///     #[key_part("created")]
///     Created,
///     #[key_part("cancelled")]
///     Cancelled,
/// }
/// ```
///
/// `#[key_part(crate = path)]` on the type says where `idempotent_runtime` is found, if another crate re-exports it.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn derive_key_part(input: TokenStream) -> TokenStream {
    key_part::derive_in(input.into(), &Dependency::find()).into()
}
