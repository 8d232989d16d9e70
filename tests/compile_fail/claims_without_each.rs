//! Many claims are those of a batch.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, claims: &[Claim]) -> sqlx::Result<()> {
    let _ = (event, claims);
    Ok(())
}

fn main() {}
