//! The claim in the key.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{_claim.key()}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, _claim: &Claim) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
