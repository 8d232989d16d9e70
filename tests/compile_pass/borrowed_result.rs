//! M10: the value borrows from an argument.

#![deny(warnings)]

use idempotent_runtime::{Outcome, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn named<'a>(tx: &mut SqliteTransaction<'_>, event: &'a Event) -> Result<&'a str, sqlx::Error> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(&event.id)
}

/// One lifetime for everything, the transaction too.
#[idempotent(key = "{event.id}")]
async fn one_for_all<'a>(tx: &'a mut SqliteTransaction<'a>, event: &'a Event) -> Result<&'a str, sqlx::Error> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(&event.id)
}

/// Lifetimes that only the transaction's type names.
#[idempotent(key = "{event.id}")]
async fn of_the_transaction<'t, 'c>(tx: &'t mut SqliteTransaction<'c>, event: &Event) -> sqlx::Result<usize> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(event.id.len())
}

/// Bounded lifetimes.
#[idempotent(key = "{left}:{right}")]
async fn outliving<'a, 'b: 'a>(
    _tx: &mut SqliteTransaction<'_>,
    left: &'a str,
    right: &'b str,
) -> sqlx::Result<(&'a str, &'b str)>
where
    'b: 'a,
{
    Ok((if left.is_empty() { right } else { left }, right))
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    let event = Event { id: "a".to_owned() };
    let outcome: Outcome<&str> = named(pool, &event).await?;
    let _ = outcome.value().map(str::len);
    one_for_all(pool, &event).await?;
    of_the_transaction(pool, &event).await?;
    outliving(pool, "a", "b").await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
