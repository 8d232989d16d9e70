//! The caller passes a claim, which the library gives.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, claim: &Claim) -> sqlx::Result<String> {
    Ok(claim.key().to_owned())
}

async fn caller(pool: &sqlx::SqlitePool, event: &Event, claim: &Claim) -> sqlx::Result<()> {
    handler(pool, event, claim).await?;
    Ok(())
}

fn main() {}
