//! A float is no number to count by.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: f64,
}

#[idempotent(sequence(entity = "{event.order}", number = "event.version"))]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
