//! Two claims.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, _claim: &Claim, _other: &Claim) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
