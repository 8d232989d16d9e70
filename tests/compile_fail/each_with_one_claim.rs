//! Each item has its own claim.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>, claim: &Claim) -> sqlx::Result<()> {
    drop(events);
    let _ = claim;
    Ok(())
}

fn main() {}
