//! M11: nothing in an expansion is a diagnostic, whatever the crate denies. Clippy's lints need `cargo clippy` on this
//! file; what its own lines deserve is expected by name.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, nonstandard_style, future_incompatible, rust_2018_idioms, let_underscore)]
#![deny(single_use_lifetimes, unused_lifetimes, unused_qualifications, unused_results, unreachable_pub)]
#![deny(elided_lifetimes_in_paths, explicit_outlives_requirements, trivial_casts, trivial_numeric_casts)]
#![deny(let_underscore_drop, redundant_lifetimes, unit_bindings, unnameable_types, variant_size_differences)]
#![deny(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction)]
#![expect(clippy::blanket_clippy_restriction_lints, reason = "the point of this file")]
#![expect(clippy::implicit_return, reason = "contradicts `needless_return`")]
#![expect(clippy::question_mark_used, reason = "how people write handlers")]
#![expect(clippy::missing_inline_in_public_items, reason = "a handler is no candidate")]
#![expect(clippy::single_call_fn, reason = "a handler is called in one place")]
#![expect(clippy::missing_docs_in_private_items, reason = "the file is long enough")]
#![expect(clippy::pub_with_shorthand, reason = "contradicts `pub_without_shorthand`")]

use core::fmt::Display;

use idempotent_runtime::{Claim, KeyPart, idempotent};
use sqlx::{PgConnection, SqlitePool, SqliteTransaction};

type Transaction<'tx> = SqliteTransaction<'tx>;
type Nothing = sqlx::Result<()>;

#[derive(Clone, Copy, KeyPart)]
struct Id(u64);

#[derive(KeyPart)]
enum Kind {
    #[key_part("credit")]
    Credit,
}

struct CreditGranted {
    cents: i64,
    id: Id,
    kind: Kind,
}

/// Documented.
///
/// # Errors
///
/// Those of the database.
#[idempotent(
    key = "{event.id}:{event.kind}",
    sender = "{sender}",
    retention = "30d",
    horizon = "3d",
    missing = "reject"
)]
pub(crate) async fn everything(
    tx: &mut SqliteTransaction<'_>,
    event: &CreditGranted,
    mut count: i64,
    sender: Option<&str>,
    _: Id,
    _ignored: Id,
    claim: &Claim,
) -> sqlx::Result<i64> {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    count = count.saturating_add(event.cents);
    if claim.key().is_empty() {
        return Ok(0);
    }
    Ok(count)
}

// Braces around one expression on one line are a lint in some places.
#[rustfmt::skip]
#[idempotent(key = "{id}")]
async fn one_expression(_tx: &mut SqliteTransaction<'_>, id: Id) -> sqlx::Result<u64> { Ok(id.0) }

#[idempotent(key = "{id}", missing = "process")]
async fn only_in_the_template(tx: &mut PgConnection, id: Option<u8>, name: &str) -> sqlx::Result<()> {
    let _done = sqlx::query(sqlx::AssertSqlSafe(name)).execute(tx).await?;
    Ok(())
}

/// Public, and so in the documentation.
///
/// # Errors
///
/// Those of the database.
#[idempotent(key = "{id}")]
pub async fn public(tx: &mut SqliteTransaction<'_>, id: u64) -> sqlx::Result<()> {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{id}")]
async fn generic<T: Display + Send>(_tx: &mut SqliteTransaction<'_>, id: Id, value: T) -> sqlx::Result<String> {
    Ok(format!("{value}{}", id.0))
}

#[idempotent(key = "{id}")]
async fn aliases(#[tx] tx: &mut Transaction<'_>, id: Id) -> Nothing {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "{event.id}", each = "event in events")]
async fn batch(tx: &mut SqliteTransaction<'_>, events: Vec<CreditGranted>, claims: &[Claim]) -> sqlx::Result<usize> {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(events.len().saturating_add(claims.len()))
}

#[idempotent(
    key = "{id}",
    each = "id in ids",
    sender = "{sender}",
    retry = 3,
    isolation = "serializable",
    wait = "250ms"
)]
async fn contended_batch(
    tx: &mut SqliteTransaction<'_>,
    mut ids: Vec<Id>,
    sender: &str,
    _ignored: &str,
) -> sqlx::Result<usize> {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    ids.clear();
    Ok(ids.len())
}

#[idempotent(key = "{id}", retry = 3, isolation = "read committed")]
async fn contended(tx: &mut SqliteTransaction<'_>, id: Id, mut name: String, _: u8) -> sqlx::Result<String> {
    let _done = sqlx::query("SELECT 1").execute(&mut **tx).await?;
    name.push('.');
    Ok(name)
}

async fn callers(pool: &SqlitePool, pg: &sqlx::PgPool) -> sqlx::Result<()> {
    let id = Id(1);
    let event = CreditGranted { cents: 1, id, kind: Kind::Credit };
    drop(everything(pool, &event, 0, None, id, id).await?);
    drop(one_expression(pool, id).await?);
    drop(only_in_the_template(pg, None, "SELECT 1").await?);
    drop(public(pool, 1).await?);
    drop(generic(pool, id, "a").await?);
    drop(aliases(pool, id).await?);
    drop(batch(pool, vec![event]).await?);
    drop(contended_batch(pool, vec![id], "a", "b").await?);
    drop(contended(pool, id, String::new(), 0).await?);
    Ok(())
}

fn main() {
    let _ = callers;
}
