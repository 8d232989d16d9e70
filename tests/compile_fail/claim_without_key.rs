//! A claim that messages without a key would not have.

use idempotent_runtime::{Claim, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", missing = "process")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, _claim: &Claim) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
