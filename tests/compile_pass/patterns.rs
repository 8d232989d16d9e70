//! `mut` and destructuring patterns, and templates that start with a name in one.

#![deny(warnings)]

use idempotent_runtime::{Claim, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

struct Event {
    id: String,
    cents: i64,
    nested: (u8, [u8; 2]),
}

struct Marker;

#[idempotent(key = "{id}:{small}:{first}")]
async fn destructured(
    tx: &mut SqliteTransaction<'_>,
    Event { id, cents: mut total, nested: (small, [first, ..]) }: Event,
    (mut left, _): (u8, u8),
    Marker: Marker,
    &reference: &u8,
    _: u8,
) -> sqlx::Result<i64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    total += 1;
    left += reference;
    drop(id);
    Ok(total + i64::from(left) + i64::from(small) + i64::from(first))
}

#[idempotent(key = "{whole.id}")]
async fn by_reference(
    _: &mut SqliteTransaction<'_>,
    whole: Event,
    ref borrowed: Event,
    Event { ref id, ref mut cents, .. }: Event,
    Event { id: other, .. }: &Event,
    all @ [_, _]: [u8; 2],
) -> sqlx::Result<usize> {
    *cents += 1;
    Ok(whole.id.len() + borrowed.id.len() + id.len() + other.len() + all.len())
}

#[idempotent(key = "{id}")]
async fn mutable(mut tx: &mut SqliteTransaction<'_>, mut id: u8, mut claim: &Claim) -> sqlx::Result<u8> {
    let other = &mut *tx;
    sqlx::query("SELECT 1").execute(&mut **other).await?;
    tx = other;
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    id += 1;
    if id > 100 {
        claim = Box::leak(Box::new(claim.clone()));
    }
    Ok(id + u8::try_from(claim.key().len()).unwrap_or(0))
}

enum Either {
    Left(u8),
    Right(u8),
}

#[idempotent(key = "{number}")]
async fn alternatives(
    _tx: &mut SqliteTransaction<'_>,
    (Either::Left(number) | Either::Right(number)): Either,
    _: &Claim,
) -> sqlx::Result<u8> {
    Ok(number)
}

fn event() -> Event {
    Event { id: "a".to_owned(), cents: 1, nested: (1, [2, 3]) }
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    destructured(pool, event(), (1, 2), Marker, &1, 2).await?;
    by_reference(pool, event(), event(), event(), &event(), [1, 2]).await?;
    mutable(pool, 1).await?;
    alternatives(pool, Either::Left(1)).await?;
    alternatives(pool, Either::Right(1)).await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
