//! Without a key there is no claim.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: i64,
}

#[idempotent(sequence(entity = "{event.order}", number = "event.version"))]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, claim: &Claim) -> sqlx::Result<()> {
    let _ = claim;
    Ok(())
}

fn main() {}
