//! M2: a parameter with a false `#[cfg]` is gone everywhere, and of two conditional ones the true one is there.

#![deny(warnings)]

use idempotent_runtime::{Claim, idempotent};
use sqlx::{SqlitePool, SqliteTransaction};

struct Message {
    id: u64,
    body: String,
}

#[idempotent(key = "{message.id}")]
async fn conditional(
    tx: &mut SqliteTransaction<'_>,
    #[cfg(any())] gone: Nowhere,
    #[cfg(all())] message: &Message,
    #[cfg(any())] message: &Nowhere,
    #[cfg(any())] _: Nowhere,
    #[cfg(any())] Nowhere { field, .. }: Nowhere,
    #[cfg(any())] claim: &Claim,
    #[cfg(all())] claim: &Claim,
) -> sqlx::Result<String> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(format!("{}{}", message.body, claim.key()))
}

#[idempotent(key = "{id}")]
async fn conditional_transaction(
    #[cfg(all())] tx: &mut SqliteTransaction<'_>,
    #[cfg(any())] tx: &mut sqlx::Transaction<'_, Nowhere>,
    id: u64,
) -> sqlx::Result<u64> {
    sqlx::query("SELECT 1").execute(&mut **tx).await?;
    Ok(id)
}

#[idempotent(key = "{id}")]
async fn conditional_field(
    _: &mut SqliteTransaction<'_>,
    Message {
        id,
        #[cfg(any())]
        nowhere,
        #[cfg(all())]
        body,
        ..
    }: Message,
) -> sqlx::Result<String> {
    Ok(format!("{id}{body}"))
}

#[idempotent(key = "{id}", sender = "{source}")]
async fn conditional_claim(
    #[cfg(all())] _: &mut SqliteTransaction<'_>,
    id: u64,
    #[cfg(all())] source: &str,
    #[cfg(any())] claim: &Claim,
) -> sqlx::Result<u64> {
    Ok(id)
}

async fn callers(pool: &SqlitePool) -> sqlx::Result<()> {
    let message = Message { id: 1, body: "a".to_owned() };
    conditional(pool, &message).await?;
    conditional_transaction(pool, 1).await?;
    conditional_field(pool, message).await?;
    conditional_claim(pool, 1, "a").await?;
    Ok(())
}

fn main() {
    let _ = callers;
}
